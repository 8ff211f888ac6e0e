"""What ``ls`` shows, as values: the leaves of a checkpoint with sums, sharing, digests; a line for each of several."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Globs, Key, plain_name
from ckpt_tools.core.location import Location, locate
from ckpt_tools.core.tensors import AbsentTensor, Storage, StridedTensor, Tensor
from ckpt_tools.core.tree import DECIMAL_BITS, Cycle, NumpyScalar, Opaque, SetNode, integer_text
from ckpt_tools.errors import CkptError, LimitExceeded, MissingBytes, UnreadableInput, UsageError
from ckpt_tools.formats import families, format_named, open_location
from ckpt_tools.formats.table import Format
from ckpt_tools.pickles.nodes import Blob, Global, LongText, TextBlob

if TYPE_CHECKING:
    from ckpt_tools.ops.numbers import Numbers

#: Texts and byte strings longer than this are shortened where they are shown as values.
_SHOWN_TEXT = 10_000


def find(path: str | os.PathLike[str], format: str | None = None) -> list[families.Member]:
    """The checkpoints a path stands for: one, or all that a directory holds. Raises when there is none."""
    location = locate(path)
    if format is not None:
        return [(location, format_named(format))]
    return families.resolve(location)


def opened(location: Location, row: Format | CkptError) -> Checkpoint:
    """The checkpoint of a find."""
    if isinstance(row, CkptError):
        raise row
    return open_location(location, row)


@dataclass(frozen=True)
class Group:
    """What lies below one name; ``parts`` are its parts."""

    name: str
    parts: tuple[str, ...]
    totals: Totals


@dataclass
class Listing:
    """The selected leaves of one checkpoint and what was asked about them; ``digests`` and ``numbers`` by name."""

    checkpoint: Checkpoint
    entries: list[Entry]
    issues: list[Issue]
    digests: dict[str, str | None] | None = None
    numbers: dict[str, Numbers] | None = None
    #: some tensor's bytes are missing or damaged
    bytes_missing: bool = False
    _labels: StorageLabels = field(default_factory=lambda: StorageLabels())

    @property
    def tensors(self) -> list[Tensor]:
        return [entry.node for entry in self.entries if entry.is_tensor]

    @cached_property
    def totals(self) -> Totals:
        return totals(self.tensors)

    @cached_property
    def shares(self) -> dict[str, str]:
        """For each tensor whose storage an earlier one looks at too: a remark that names the first of them."""
        first: dict[Storage, str] = {}
        remarks = {}
        for entry in self.entries:
            if entry.is_tensor and entry.node.storage is not None:
                name = first.setdefault(entry.node.storage, entry.name)
                if name != entry.name:
                    remarks[entry.name] = f"shares storage with {name}"
        return remarks

    def groups(self, depth: int) -> list[Group]:
        """Sums by the first ``depth`` parts of the name; a part of a key counts, and so does one between dots of the
        last part when depth reaches that far."""
        members: dict[tuple[str, tuple[str, ...]], list[Tensor]] = {}
        for entry in self.entries:
            if entry.is_tensor:
                members.setdefault(_group_of(entry, depth), []).append(entry.node)
        return [Group(name, parts, totals(tensors)) for (name, parts), tensors in members.items()]

    def to_json(self) -> dict[str, Any]:
        """The document that ``ls --json`` has for one checkpoint."""
        tensors, values = [], []
        for entry in self.entries:
            if not entry.is_tensor:
                values.append(value_row(entry))
                continue
            row = tensor_row(entry, self._labels)
            if self.digests is not None:
                row["sha256"] = self.digests.get(entry.name)
            if self.numbers is not None:
                measured = self.numbers.get(entry.name)
                row["stats"] = measured.to_json() if measured else None
            tensors.append(row)
        checkpoint = self.checkpoint
        return {
            "path": checkpoint.location.shown,
            "format": checkpoint.format,
            "producer": checkpoint.producer,
            "nbytes": checkpoint.nbytes,
            "facts": checkpoint.facts,
            "tensors": tensors,
            "values": values,
            "issues": [issue.to_json() for issue in self.issues],
        }


def _group_of(entry: Entry, depth: int) -> tuple[str, tuple[str, ...]]:
    """The name of the group of an entry, and its parts."""
    if len(entry.key) > 1:
        outer = tuple(map(str, entry.key[:-1]))
        inner = str(entry.key[-1]).split(".")[: max(depth - len(outer), 0)]
        parts = (*outer[:depth], *inner)
        return "/".join([*outer[:depth], ".".join(inner)] if inner else outer[:depth]), parts
    separator = "/" if "/" in entry.name else "."
    parts = tuple(entry.name.split(separator)[:depth])
    return separator.join(parts), parts


def make(
    checkpoint: Checkpoint,
    entries: list[Entry],
    *,
    digests: bool = False,
    stats: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Listing:
    """List leaves of a checkpoint; with ``digests`` or ``stats`` their values are read, a chunk at a time.

    Bytes that cannot be had do not stop the listing: the tensor has no digest, and an issue says why.
    """
    listing = Listing(checkpoint, entries, list(checkpoint.issues))
    listing.digests = {} if digests else None
    listing.numbers = {} if stats else None
    if not digests and not stats:
        return listing
    for entry in listing.entries:
        if not entry.is_tensor:
            continue
        try:
            if listing.digests is not None:
                listing.digests[entry.name] = digest(entry.node, progress)
            if listing.numbers is not None:
                from ckpt_tools.ops import numbers

                if numbers.has_numbers(entry.node):
                    listing.numbers[entry.name] = numbers.measure(entry.node, progress)
        except MissingBytes as error:
            if not (isinstance(entry.node, AbsentTensor) and entry.node.by_design):
                listing.bytes_missing = True
                listing.issues.append(
                    Issue(
                        "integrity-missing-bytes",
                        Severity.ERROR,
                        entry.name,
                        f"its bytes are not here: {error.message}",
                    )
                )
        except UnreadableInput as error:
            listing.bytes_missing = True
            code = "integrity-over-limit" if isinstance(error, LimitExceeded) else "integrity-damaged-bytes"
            listing.issues.append(Issue(code, Severity.ERROR, entry.name, error.message))
    return listing


@dataclass(frozen=True)
class Summary:
    """One line about a checkpoint among several."""

    path: str
    nbytes: int
    age_seconds: float | None
    format: str | None = None
    iteration: int | None = None
    tensors: int | None = None
    parameters: int | None = None
    remark: str | None = None
    error: str | None = None


#: Top-level values that say how far a training is, the most telling first.
_STEP_NAMES = ("iteration", "iterations", "global_step", "step", "steps", "save_counter")
_EPOCH = "epoch"
#: ``76000`` in ``snapshot_iter_76000``, not a part of ``val_loss=0.25``; at most 18 digits fit 64 bits.
_WHOLE_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)\d{1,18}(?!\d|\.\d)")


def summarise(found: Iterable[families.Member]) -> tuple[list[Summary], list[Issue]]:
    """A line about each of several checkpoints, and what is odd about the files that name the latest of them.

    Damage is told in the line, not raised.
    """
    found = list(found)
    latest: set[Path] = set()
    issues = []
    for directory in dict.fromkeys(location.path.parent for location, _ in found):
        try:
            path = families.latest(directory)
        except CkptError as error:
            message = error.message
            issues.append(
                Issue("paths-latest", Severity.WARNING, error.where or str(directory), message, hint=error.hint)
            )
        else:
            latest.update([] if path is None else [path])
    return [_summary(location, row, "latest" if location.path in latest else None) for location, row in found], issues


def _summary(location: Location, row: Format | CkptError, remark: str | None) -> Summary:
    try:
        age = time.time() - location.path.stat().st_mtime
    except OSError:  # a link that leads nowhere
        age = None
    try:
        with opened(location, row) as checkpoint:
            sums = totals(checkpoint.tensors.values())
            return Summary(
                location.shown,
                checkpoint.nbytes,
                age,
                checkpoint.format,
                iteration_of(checkpoint),
                sums.tensors,
                sums.parameters,
                remark,
            )
    except CkptError as error:
        return Summary(location.shown, location.nbytes, age, remark=remark, error=error.message)


def iteration_of(checkpoint: Checkpoint) -> int | None:
    """How far the training was: a value of the file that says so, else the last whole number in its name."""
    found = iteration_inside(checkpoint)
    if found is not None:
        return found
    name = Path(checkpoint.location.shown).name
    while Path(name).suffix.lower() in families.SUFFIXES:
        name = Path(name).stem
    numbers = _WHOLE_NUMBER.findall(name)
    return int(numbers[-1]) if numbers else None


def iteration_inside(checkpoint: Checkpoint, *, epochs: bool = True) -> int | None:
    """The iteration that the file itself records at its top level; None when it records none.

    ``epochs``: a file that counts epochs only gives these.
    """
    tops = {entry.key[0]: entry.node for entry in checkpoint.entries if len(entry.key) == 1 and not entry.is_tensor}
    for name in (*_STEP_NAMES, *((_EPOCH,) if epochs else ())):
        value = tops.get(name)
        value = value.value if isinstance(value, NumpyScalar) else value
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
            return value
    return None


def selected(checkpoint: Checkpoint, globs: Globs, root: str | None = None) -> list[Entry]:
    """The leaves below ``root`` whose names the globs let through. UsageError when there is no such root."""
    entries = list(checkpoint.entries)
    if root is not None:
        prefix = root_key(checkpoint, root)
        entries = [e for e in entries if e.key[: len(prefix)] == prefix and len(e.key) > len(prefix)]
    return [e for e in entries if globs(e.name)]


def root_key(checkpoint: Checkpoint, root: str) -> Key:
    """The key that ``root`` names: parts joined by ``/`` as in printed names. UsageError when nothing lies below it."""
    wanted = root.strip("/")
    for entry in checkpoint.entries:
        for length in range(1, len(entry.key)):
            if "/".join(map(str, entry.key[:length])) == wanted:
                return entry.key[:length]
    tops = list(dict.fromkeys(str(e.key[0]) for e in checkpoint.entries if len(e.key) > 1))
    raise UsageError(
        f"nothing lies below {root!r}"
        + (f"; the top level has {', '.join(tops[:8])}" if tops else "; it has no levels"),
        where=checkpoint.location.shown,
    )


class StorageLabels:
    """Names for storages (``s0``, ``s1``, …) in order of first sight; equal for tensors that share bytes."""

    def __init__(self) -> None:
        self._labels: dict[Storage, str] = {}

    def __call__(self, tensor: Tensor) -> str | None:
        if tensor.storage is None:
            return None
        return self._labels.setdefault(tensor.storage, f"s{len(self._labels)}")


def digest(tensor: Tensor, progress: Callable[[int], None] | None = None) -> str:
    """SHA-256 of the values' bytes. Raises MissingBytes when there are none."""
    import hashlib  # loads OpenSSL, which a plain listing has no use for

    total = hashlib.sha256()
    for chunk in tensor.chunks():
        total.update(chunk)
        if progress is not None:
            progress(len(chunk))
    return total.hexdigest()


@dataclass(frozen=True)
class Totals:
    """Sums over tensors. A storage counts once, however many tensors look at it."""

    tensors: int
    #: elements, those that two tensors share counted once
    parameters: int
    #: bytes of the values, each tensor for itself
    nbytes: int
    #: bytes of the storages behind them
    stored_nbytes: int
    #: bytes of those storages that some tensor looks at
    viewed_nbytes: int


def totals(tensors: Iterable[Tensor]) -> Totals:
    """Sums over ``tensors``."""
    count = parameters = nbytes = stored = viewed = 0
    views: dict[Storage, list[StridedTensor]] = {}
    for tensor in tensors:
        count += 1
        if isinstance(tensor, StridedTensor):
            views.setdefault(tensor.storage, []).append(tensor)
        else:
            nbytes += tensor.nbytes
            parameters += tensor.info.count
            if not isinstance(tensor, AbsentTensor):
                stored += tensor.nbytes
                viewed += tensor.nbytes
    for storage, looking in views.items():
        elements, seen = _distinct(looking)
        parameters += elements
        nbytes += seen if len(looking) == 1 and looking[0].contiguous else sum(t.nbytes for t in looking)
        stored += storage.nbytes
        viewed += min(seen, storage.nbytes)
    return Totals(count, parameters, nbytes, stored, viewed)


def _distinct(looking: list[StridedTensor]) -> tuple[int, int]:
    """Elements and bytes of one storage that at least one of the views looks at."""
    first = looking[0]
    if len(looking) == 1 and first.contiguous:
        elements = first.info.count
        return elements, first.info.dtype.nbytes(elements)
    # Same view, several names: tied weights.
    different = {(t.offset, t.strides, t.info) for t in looking}
    spans: list[tuple[int, int]] = []
    elements = 0
    for offset, strides, info in different:
        if 0 in info.shape:
            continue
        own = math.prod(n for n, s in zip(info.shape, strides or (1,) * len(info.shape)) if s != 0)
        last = offset + (info.count if strides is None else 1 + sum((n - 1) * s for n, s in zip(info.shape, strides)))
        elements += own
        spans.append((offset * info.dtype.bit_width, last * info.dtype.bit_width))
    spans.sort()
    covered_bits, reach = 0, 0
    for start, end in spans:
        covered_bits += max(0, end - max(start, reach))
        reach = max(reach, end)
    width = first.info.dtype.bit_width or 8
    elements = min(elements, covered_bits // width)
    return elements, elements * width // 8


def type_of(node: Any) -> str:
    """The word for a value's kind: Python's, a numpy scalar's dtype, ``object`` for what is only named."""
    if isinstance(node, NumpyScalar):
        return node.dtype.name
    if isinstance(node, (Opaque, Global)):
        return "object"
    if isinstance(node, Cycle):
        return "cycle"
    if isinstance(node, LongText):
        return "str"
    if isinstance(node, (Blob, TextBlob)):
        return "bytes"
    if isinstance(node, SetNode):
        return node.type_name
    if isinstance(node, dict):
        return "dict"
    return type(node).__name__


def value_of(node: Any) -> Any:
    """A value as JSON can hold it: objects by their class, NaN and infinities as text, bytes as escaped text."""
    if isinstance(node, NumpyScalar):
        return value_of(node.value)
    if isinstance(node, bool) or node is None or isinstance(node, str):
        return node
    if isinstance(node, int):
        return node if node.bit_length() <= DECIMAL_BITS else integer_text(node)
    if isinstance(node, float):
        return node if math.isfinite(node) else "NaN" if node != node else "Infinity" if node > 0 else "-Infinity"
    if isinstance(node, complex):
        return str(node).strip("()")
    if isinstance(node, (bytes, bytearray)):
        return bytes(node).decode("latin-1").encode("unicode_escape").decode("ascii")
    if isinstance(node, Opaque):
        return node.type_name
    if isinstance(node, Global):
        return node.path
    if isinstance(node, Cycle):
        return plain_name(node.to)
    if isinstance(node, LongText):
        return node.read() if node.extent.nbytes <= _SHOWN_TEXT else f"text of {node.extent.nbytes} bytes"
    if isinstance(node, Blob):
        return f"{node.nbytes} bytes"
    if isinstance(node, TextBlob):
        return f"about {node.text.extent.nbytes} bytes"
    if isinstance(node, dict):
        return {}
    if isinstance(node, (list, tuple)):
        return []
    return str(node)


def tensor_row(entry: Entry, labels: StorageLabels) -> dict[str, Any]:
    """One tensor as the JSON of ``ls`` has it."""
    tensor: Tensor = entry.node
    row: dict[str, Any] = {
        "name": entry.name,
        "key": list(entry.key),
        "dtype": tensor.info.dtype.name,
        "shape": list(tensor.info.shape),
        "nbytes": tensor.nbytes,
        "storage": labels(tensor),
    }
    if tensor.alias is not None:
        row["alias"] = tensor.alias
    if tensor.note is not None:
        row["note"] = tensor.note
    return row


def value_row(entry: Entry) -> dict[str, Any]:
    """One value as the JSON of ``ls`` has it."""
    return {
        "name": entry.name,
        "key": list(entry.key),
        "type": type_of(entry.node),
        "value": value_of(entry.node),
    }
