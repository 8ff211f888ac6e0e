"""Is it what is expected? A manifest committed earlier, keys that must be there, a size that must not be exceeded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeVar

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Globs, Key, printable
from ckpt_tools.errors import CkptError
from ckpt_tools.ops.checks import Outcome, done, skipped
from ckpt_tools.ops.checks.integrity import Progress
from ckpt_tools.ops.listing import digest, value_of
from ckpt_tools.ops.manifests import Manifest, Row


def assign(manifests: Sequence[Manifest], paths: Sequence[str]) -> dict[str, Manifest]:
    """Which entry of a manifest is about which path. One of each belong together whatever they are called; else paths
    that end alike, each nearest to the other and to no third."""
    if len(manifests) == len(paths) == 1:
        return {paths[0]: manifests[0]}
    by_name: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_name.setdefault(PurePath(manifest.path).name, []).append(manifest)
    nearest: dict[int, list[str]] = {}
    chosen: dict[str, Manifest] = {}
    for path in paths:
        entries = by_name.get(PurePath(path).name, [])
        best = _nearest(path, entries, lambda entry: entry.path)
        if len(best) == 1:
            chosen[path] = best[0]
            nearest.setdefault(id(best[0]), []).append(path)
    wanted = {id(entry): _nearest(entry.path, nearest[id(entry)], str) for entry in chosen.values()}
    return {path: entry for path, entry in chosen.items() if wanted[id(entry)] == [path]}


_T = TypeVar("_T")


def _nearest(path: str, candidates: Sequence[_T], path_of: Callable[[_T], str]) -> list[_T]:
    """The candidates whose path has the longest end in common with ``path``."""
    common = [len(_common_end(path, path_of(candidate))) for candidate in candidates]
    return [candidate for candidate, n in zip(candidates, common) if n == max(common)]


def _common_end(one: str, other: str) -> tuple[str, ...]:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(_parts(one)[::-1], _parts(other)[::-1]))
    return tuple(part for part, _ in pairs)[::-1]


def _parts(path: str) -> tuple[str, ...]:
    return PurePath(os.path.normpath(path)).parts


def completeness(manifests: Sequence[Manifest], assigned: Mapping[str, Manifest], given: Sequence[str]) -> Outcome:
    """Whether a manifest was of any use, and whether everything it lists below the ``given`` paths is there still."""
    name, path = "expect-manifest", given[0]
    if not assigned:
        text = "the manifest has no entry, or no single one, of what was verified: nothing was compared with it"
        return done(name, path, [_issue("no-entry", path, text)])
    moves = {
        (_parts(theirs.path)[: -len(end)], _parts(ours)[: -len(end)])
        for ours, theirs in assigned.items()
        if (end := _common_end(ours, theirs.path))
    }
    issues = []
    for manifest in manifests:
        if any(manifest is entry for entry in assigned.values()):
            continue
        parts = _parts(manifest.path)
        places = [PurePath(*new, *parts[len(old) :]) for old, new in moves if parts[: len(old)] == old]
        if any(
            _parts(top) == place.parts[: len(_parts(top))] or _parts(top) == () for place in places for top in given
        ):
            text = f"{printable(manifest.path)} is in the manifest and not here"
            issues.append(Issue("expect-missing-checkpoint", Severity.WARNING, path, text))
    return done(name, path, issues)


def manifest(checkpoint: Checkpoint, expected: Manifest | None, progress: Progress) -> tuple[Outcome, frozenset[str]]:
    """Tensor for tensor against its entry of the manifest; also the names of those whose bytes that vouches for."""
    name, path = "expect-manifest", checkpoint.location.shown
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
    without = sum(row.sha256 is None for row in expected.tensors.values())
    if without:
        text = f"the manifest has no digest of {without} of {len(expected.tensors)} tensors: their values were not compared"
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
