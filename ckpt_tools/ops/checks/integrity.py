"""Are the bytes those that were written? Recorded checksums, room for every tensor, what lies between and behind.

Reading the structure has already held every length against what is there. Checksums are those of the file: CRC-32 of zip
members (which torch never checks), masked CRC-32C of TensorFlow's tensors. Formats without checksums need a manifest to
be sure; that is said, not passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.checksum import Seal
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.tensors import CHUNK_NBYTES, AbsentTensor, Storage, StridedTensor, Tensor
from ckpt_tools.errors import CorruptFile, MissingBytes
from ckpt_tools.ops.checks import Outcome, done, skipped

Progress = Callable[[int], None]

#: Names of tensors in one message; the rest is counted.
_NAMED = 3


def structure(checkpoint: Checkpoint) -> Outcome:
    """What the reader noticed: everything that was read is in place, or told here."""
    issues = [issue for issue in checkpoint.issues if issue.code.startswith("integrity-")]
    issues += _layout(checkpoint)
    return done("integrity-structure", checkpoint.location.shown, issues)


def checksums(checkpoint: Checkpoint, sound: frozenset[str], progress: Progress) -> Outcome:
    """Every checksum of the file against its bytes. ``sound`` names tensors whose bytes a manifest has vouched for:
    what only they look at is not read again."""
    name, path = "integrity-checksums", checkpoint.location.shown
    seals, without = _sealed(checkpoint, sound)
    issues = [issue for seal, tensors in seals if (issue := _broken(seal, tensors, progress)) is not None]
    issues += _unreadable(checkpoint, progress)
    if issues:
        return done(name, path, issues)
    if not seals and not sound:
        why = (
            "no checksums were recorded in it (all CRC fields are 0)" if without else "the format records no checksums"
        )
        note = Issue("integrity-no-checksums", Severity.NOTE, path, f"{why}; only a manifest can vouch for the bytes")
        return skipped(name, path, why, [note])
    if without:
        text = f"{without} of {without + len(seals)} runs of bytes have no recorded checksum, first {_first_without(checkpoint)}"
        issues.append(Issue("integrity-no-checksum", Severity.WARNING, path, text))
    return done(name, path, issues)


def _sealed(checkpoint: Checkpoint, sound: frozenset[str]) -> tuple[list[tuple[Seal, list[str]]], int]:
    """Everything with a checksum that is to be read, with the names of the tensors in it; and how many have none."""
    looking: dict[Storage, list[str]] = {}
    compact: set[Storage] = set()
    for entry in checkpoint.entries:
        if entry.is_tensor and entry.node.storage is not None:
            looking.setdefault(entry.node.storage, []).append(entry.name)
            if isinstance(entry.node, StridedTensor) and entry.node.compact and entry.name in sound:
                compact.add(entry.node.storage)
    by_place = {s.checksum.place: (s, names) for s, names in looking.items() if s.checksum is not None}
    found: list[tuple[Seal, list[str]]] = []
    without = 0
    taken: set[str] = set()
    for seal in checkpoint.seals():
        taken.add(seal.place)
        storage, names = by_place.get(seal.place, (None, []))
        if seal.checksum is None:
            without += seal.extent.nbytes > 0
        elif storage is None or storage not in compact:
            found.append((seal, names))
    for place, (storage, names) in by_place.items():
        if place not in taken and storage not in compact:
            found.append((Seal(place, storage.extent, storage.checksum), names))
    return found, without


def _first_without(checkpoint: Checkpoint) -> str:
    return next(seal.place for seal in checkpoint.seals() if seal.checksum is None and seal.extent.nbytes)


def _broken(seal: Seal, tensors: list[str], progress: Progress) -> Issue | None:
    """An issue when the bytes of a run are not those that its checksum was made of."""
    assert seal.checksum is not None
    holds = f" in {_names(tensors)}" if tensors else ""
    try:
        if seal.checksum.matches(_told(seal.extent.chunks(0, seal.extent.nbytes, CHUNK_NBYTES), progress)):
            return None
    except CorruptFile as error:
        return Issue("integrity-unreadable", Severity.ERROR, seal.place, f"cannot be read{holds}: {error.message}")
    text = f"{_KINDS[seal.checksum.kind]} mismatch{holds}: its bytes have changed since they were written"
    hint = "restore it from where it was written"
    if seal.checksum.kind == "crc32c":
        hint += "; if several tensors differ, index and data may come from different saves"
    return Issue("integrity-checksum", Severity.ERROR, seal.place, text, hint)


_KINDS = {"crc32": "CRC-32", "crc32c": "CRC-32C"}


def _names(tensors: list[str]) -> str:
    shown = ", ".join(
        f"tensor {printable(name)}" if i == 0 else printable(name) for i, name in enumerate(tensors[:_NAMED])
    )
    return shown + (f" and {len(tensors) - _NAMED} more" if len(tensors) > _NAMED else "")


def _told(chunks: Iterable[bytes], progress: Progress) -> Iterable[bytes]:
    for chunk in chunks:
        progress(len(chunk))
        yield chunk


def _unreadable(checkpoint: Checkpoint, progress: Progress) -> list[Issue]:
    """Tensors that are packed, chunked or assembled and carry no checksum: whether their bytes can be had at all."""
    issues = []
    for entry in checkpoint.entries:
        if not entry.is_tensor:
            continue
        tensor: Tensor = entry.node
        plain = isinstance(tensor, StridedTensor) and isinstance(tensor.storage.extent, FileExtent)
        if plain or (tensor.storage is not None and tensor.storage.checksum):
            continue
        if isinstance(tensor, AbsentTensor) and tensor.by_design:
            continue
        try:
            for _ in _told(tensor.chunks(), progress):
                pass
        except MissingBytes as error:
            issues.append(Issue("integrity-missing-bytes", Severity.ERROR, entry.name, error.message))
        except CorruptFile as error:
            issues.append(Issue("integrity-unreadable", Severity.ERROR, entry.name, f"cannot be read: {error.message}"))
    return issues


def _layout(checkpoint: Checkpoint) -> list[Issue]:
    """Storages that share bytes though the file keeps them apart."""
    runs: dict[int, list[tuple[int, int, str]]] = {}
    seen: set[Storage] = set()
    for entry in checkpoint.entries:
        storage = entry.node.storage if entry.is_tensor else None
        if storage is None or storage in seen or not isinstance(storage.extent, FileExtent) or not storage.nbytes:
            continue
        seen.add(storage)
        start = getattr(storage.extent, "data_offset", storage.extent.offset)
        runs.setdefault(id(storage.extent.source), []).append((start, start + storage.nbytes, entry.name))
    issues = []
    for found in runs.values():
        found.sort()
        reach, owner = 0, ""
        for start, end, name in found:
            if start < reach:
                text = f"its bytes overlap those of {printable(owner)}, though the two are stored apart"
                issues.append(Issue("integrity-overlap", Severity.ERROR, name, text))
            if end > reach:
                reach, owner = end, name
    return issues
