"""Are the bytes those that were written? Recorded checksums, room for every tensor, what lies between and behind.

Reading the structure has already held every length against what is there. Checksums are those of the file: CRC-32 of zip
members (which torch never checks), masked CRC-32C of TensorFlow's tensors. Formats without checksums need a manifest to
be sure; that is said, not passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.checksum import Seal
from ckpt_tools.core.extents import FileExtent, PathExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.limits import MIB
from ckpt_tools.core.runs import Run, overlapping
from ckpt_tools.core.tensors import AbsentTensor, Storage, StridedTensor, Tensor
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, MissingBytes, damage
from ckpt_tools.ops.checks import Outcome, done, skipped

Progress = Callable[[int], None]

#: Read at a time for a checksum: small enough to stay in the processor's cache between reading and summing.
_STEP_NBYTES = MIB // 2
#: Names of tensors in one message; the rest is counted.
_NAMED = 3


def audit(checkpoint: Checkpoint) -> list[Issue]:
    """What is odd about how the files are laid out: what overlaps, belongs to nothing, or means two things."""
    found = []
    for label, part in _files(checkpoint):
        try:
            with damage(path := part.location.shown):
                found += [_within(label, issue) for issue in part.audit()]
        except CkptError as error:
            found.append(Issue("integrity-damaged", Severity.ERROR, error.where or path, error.message, error.hint))
    return found


def structure(checkpoint: Checkpoint, odd: Sequence[Issue]) -> Outcome:
    """What the reader noticed, and what of ``odd``, the findings of :func:`audit`, is about integrity."""
    issues = [issue for issue in (*checkpoint.issues, *odd) if issue.code.startswith("integrity-")]
    if not any(issue.code == "integrity-overlap" for issue in issues):
        issues += _layout(checkpoint)
    return done("integrity-structure", checkpoint.location.shown, issues)


def checksums(checkpoint: Checkpoint, sound: frozenset[str], progress: Progress) -> Outcome:
    """Every checksum of the files against their bytes. ``sound`` names tensors whose bytes a manifest has vouched for:
    what only they look at is not read again."""
    name, path = "integrity-checksums", checkpoint.location.shown
    vouched = _vouched(checkpoint, sound)
    issues: list[Issue] = []
    checked, without = 0, []
    for label, part in _files(checkpoint):
        for seal, tensors in _sealed(part, vouched):
            if seal.checksum is not None:
                checked += 1
                issues += [_within(label, issue) for issue in _broken(seal, tensors, progress)]
            elif seal.extent.nbytes:
                without.append(seal.place)
    issues += _unreadable(checkpoint, sound, progress)
    if not issues and not checked and not sound:
        why = (
            "no checksums were recorded in it (all CRC fields are 0)" if without else "the format records no checksums"
        )
        note = Issue("integrity-no-checksums", Severity.NOTE, path, f"{why}; only a manifest can vouch for the bytes")
        return skipped(name, path, why, [note])
    if without and checked:
        text = f"{len(without)} of {len(without) + checked} runs of bytes have no recorded checksum, first {without[0]}"
        issues.append(Issue("integrity-no-checksum", Severity.WARNING, path, text))
    return done(name, path, issues)


def _files(checkpoint: Checkpoint) -> list[tuple[str, Checkpoint]]:
    """The files of a set, each with its name to put in front of findings; of everything else, itself without one."""
    return [(part.location.path.name, part) for part in checkpoint.parts] or [("", checkpoint)]


def _within(label: str, issue: Issue) -> Issue:
    return replace(issue, where=f"{label}: {issue.where}") if label else issue


def _vouched(checkpoint: Checkpoint, sound: frozenset[str]) -> set[Storage]:
    """Storages of which a tensor in ``sound`` is made, and that hold nothing else."""
    return {
        part.storage
        for entry in checkpoint.entries
        if entry.is_tensor and entry.name in sound
        for part in entry.node.constituents()
        if isinstance(part, StridedTensor) and part.compact
    }


def _sealed(checkpoint: Checkpoint, vouched: set[Storage]) -> Iterator[tuple[Seal, list[str]]]:
    """Everything that has, or could have, a checksum, with the names of the tensors in it; not what is vouched for."""
    looking: dict[Storage, list[str]] = {}
    for entry in checkpoint.entries:
        if entry.is_tensor:
            for storage in dict.fromkeys(part.storage for part in entry.node.constituents()):
                if storage is not None and storage.checksum is not None:
                    looking.setdefault(storage, []).append(entry.name)
    at_place: dict[str, list[Storage]] = {}
    for storage in looking:
        assert storage.checksum is not None
        at_place.setdefault(storage.checksum.place, []).append(storage)
    for seal in checkpoint.seals():
        storages = at_place.pop(seal.place, [])
        if not storages or not vouched.issuperset(storages):
            yield seal, [name for storage in storages for name in looking[storage]]
    for place, storages in at_place.items():
        for storage in storages:
            if storage not in vouched:
                yield Seal(place, storage.extent, storage.checksum), looking[storage]


def _broken(seal: Seal, tensors: list[str], progress: Progress) -> Iterator[Issue]:
    """An issue when the bytes of a run are not those that its checksum was made of."""
    assert seal.checksum is not None
    holds = f" in {_names(tensors)}" if tensors else ""
    try:
        with damage(seal.place):
            if seal.checksum.matches(_told(seal.extent.chunks(0, seal.extent.nbytes, _STEP_NBYTES), progress)):
                return
    except CkptError as error:
        yield Issue("integrity-unreadable", Severity.ERROR, seal.place, f"cannot be read{holds}: {error.message}")
        return
    text = f"{_KINDS[seal.checksum.kind]} mismatch{holds}: its bytes have changed since they were written"
    hint = "restore it from where it was written"
    if seal.checksum.kind == "crc32c":
        hint += "; if several tensors differ, index and data may come from different saves"
    yield Issue("integrity-checksum", Severity.ERROR, seal.place, text, hint)


_KINDS = {"crc32": "CRC-32", "crc32c": "CRC-32C"}


def _names(tensors: list[str]) -> str:
    shown = ", ".join(
        f"tensor{'s' if len(tensors) > 1 else ''} {printable(name)}" if i == 0 else printable(name)
        for i, name in enumerate(tensors[:_NAMED])
    )
    return shown + (f" and {len(tensors) - _NAMED} more" if len(tensors) > _NAMED else "")


def _told(chunks: Iterable[bytes], progress: Progress) -> Iterable[bytes]:
    for chunk in chunks:
        progress(len(chunk))
        yield chunk


def _unreadable(checkpoint: Checkpoint, sound: frozenset[str], progress: Progress) -> list[Issue]:
    """Tensors that are packed, chunked or assembled and carry no checksum: whether their bytes can be had at all."""
    issues = []
    missing: dict[str, list[str]] = {}
    for entry in checkpoint.entries:
        if not entry.is_tensor or entry.name in sound:
            continue
        try:
            with damage(entry.name):
                for part in entry.node.constituents():
                    if not _is_looked_at(part):
                        for _ in _told(part.chunks(), progress):
                            pass
        except MissingBytes as error:
            missing.setdefault(error.message, []).append(entry.name)
        except LimitExceeded as error:
            issues.append(Issue("integrity-limit", Severity.ERROR, entry.name, error.message, error.hint))
        except CkptError as error:
            issues.append(Issue("integrity-unreadable", Severity.ERROR, entry.name, f"cannot be read: {error.message}"))
    for reason, names in missing.items():
        where = names[0] if len(names) == 1 else checkpoint.location.shown
        have = "has" if len(names) == 1 else "have"
        issues.append(
            Issue("integrity-missing-bytes", Severity.ERROR, where, f"{_names(names)} {have} no bytes: {reason}")
        )
    return issues


def _is_looked_at(tensor: Tensor) -> bool:
    """Whether a checksum is held against its bytes, or they lie in a file as they are, or there are none by design."""
    if isinstance(tensor, AbsentTensor):
        return tensor.by_design
    if tensor.storage is None:
        return False
    return tensor.storage.checksum is not None or isinstance(tensor.storage.extent, (FileExtent, PathExtent))


def _layout(checkpoint: Checkpoint) -> list[Issue]:
    """Storages that share bytes though the file keeps them apart."""
    runs: dict[int, list[Run]] = {}
    seen: set[Storage] = set()
    for entry in checkpoint.entries:
        storage = entry.node.storage if entry.is_tensor else None
        if storage is None or storage in seen or not isinstance(storage.extent, FileExtent):
            continue
        seen.add(storage)
        extent = storage.extent
        try:
            start = getattr(extent, "data_offset", extent.offset)
        except CorruptFile:
            continue  # told by the audit
        runs.setdefault(id(extent.source), []).append(Run(start, start + extent.nbytes, entry.name))
    return [
        Issue(
            "integrity-overlap",
            Severity.ERROR,
            second.name,
            f"its bytes overlap those of {printable(first.name)}, though the two are stored apart",
        )
        for found in runs.values()
        for first, second in overlapping(found)
    ]
