"""Is it what is expected? A manifest committed earlier, keys that must be there, a size that must not be exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Globs, Key, printable
from ckpt_tools.errors import CkptError
from ckpt_tools.ops.checks import Outcome, done, skipped
from ckpt_tools.ops.checks.integrity import Progress
from ckpt_tools.ops.listing import digest, value_of
from ckpt_tools.ops.manifests import Manifest, Row


def manifest_for(checkpoint: Checkpoint, manifests: Sequence[Manifest]) -> Manifest | None:
    """The manifest entry that is about this checkpoint: the only one, or the one with the longest equal end of path."""
    if len(manifests) == 1:
        return manifests[0]
    ours = Path(checkpoint.location.shown).parts
    best, most, twice = None, 0, False
    for manifest in manifests:
        theirs = Path(manifest.path).parts
        same = 0
        while same < min(len(ours), len(theirs)) and ours[-1 - same] == theirs[-1 - same]:
            same += 1
        if same >= most and same:
            best, most, twice = manifest, same, same == most and best is not None
    return None if twice else best


def manifest(
    checkpoint: Checkpoint, manifests: Sequence[Manifest], progress: Progress
) -> tuple[Outcome, frozenset[str]]:
    """Tensor for tensor against the manifest; also the names of those whose bytes it vouches for."""
    name, path = "expect-manifest", checkpoint.location.shown
    expected = manifest_for(checkpoint, manifests)
    if expected is None:
        return skipped(name, path, "the manifest has no entry, or no single one, of this name"), frozenset()
    issues: list[Issue] = []
    sound: set[str] = set()
    present: dict[Key, Entry] = {entry.key: entry for entry in checkpoint.entries}
    for key, row in expected.tensors.items():
        entry = present.get(key)
        if entry is None or not entry.is_tensor:
            issues.append(_issue("missing", row.name, "is in the manifest and not in the checkpoint"))
            continue
        found = _compare(entry, row, progress)
        issues += found
        if not found and row.sha256 is not None:
            sound.add(entry.name)
    for entry in checkpoint.entries:
        if entry.is_tensor and entry.key not in expected.tensors:
            issues.append(_issue("unexpected", entry.name, "is in the checkpoint and not in the manifest"))
        elif not entry.is_tensor and entry.key in expected.values:
            value, (_, was) = value_of(entry.node), expected.values[entry.key]
            if value != was:
                text = f"the manifest has {printable(str(was)[:60])}, the checkpoint {printable(str(value)[:60])}"
                issues.append(Issue("expect-value", Severity.NOTE, entry.name, text))
    if expected.tensors and all(row.sha256 is None for row in expected.tensors.values()):
        text = "the manifest was made without --digest: names, shapes and dtypes were compared, values were not"
        issues.append(Issue("expect-no-digests", Severity.NOTE, path, text))
    return done(name, path, issues), frozenset(sound)


def _issue(code: str, where: str, message: str) -> Issue:
    return Issue(f"expect-{code}", Severity.ERROR, where, message)


def _compare(entry: Entry, row: Row, progress: Progress) -> list[Issue]:
    info = entry.node.info
    if info.dtype.name != row.dtype:
        return [_issue("dtype", entry.name, f"has dtype {info.dtype}, the manifest {printable(row.dtype)}")]
    if info.shape != row.shape:
        return [_issue("shape", entry.name, f"has shape {list(info.shape)}, the manifest {list(row.shape)}")]
    if row.sha256 is None:
        return []
    try:
        found = digest(entry.node, progress)
    except CkptError as error:
        return [_issue("digest", entry.name, f"cannot be compared with the manifest: {error.message}")]
    if found != row.sha256:
        return [_issue("digest", entry.name, "its values are not those of the manifest (SHA-256 differs)")]
    return []


def required(checkpoint: Checkpoint, globs: Sequence[str]) -> Outcome:
    """Each glob must match at least one name."""
    name, path = "expect-required", checkpoint.location.shown
    names = [entry.name for entry in checkpoint.entries]
    issues = []
    for glob in globs:
        matches = Globs([glob])
        if not any(matches(entry) for entry in names):
            issues.append(_issue("required", path, f"nothing in it matches the required {printable(glob)}"))
    return done(name, path, issues)


def size(checkpoint: Checkpoint, most: int) -> Outcome:
    """The bytes of all its files together."""
    name, path = "expect-size", checkpoint.location.shown
    if checkpoint.nbytes <= most:
        return done(name, path)
    return done(name, path, [_issue("size", path, f"it has {checkpoint.nbytes} bytes, {most} are allowed")])
