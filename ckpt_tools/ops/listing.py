"""What ``ls`` shows of a checkpoint, as values: rows for tensors and values, sums, sharing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.keys import Globs, Key
from ckpt_tools.core.tensors import AbsentTensor, Storage, StridedTensor, Tensor
from ckpt_tools.core.tree import Cycle, NumpyScalar, Opaque, SetNode
from ckpt_tools.errors import UsageError
from ckpt_tools.pickles.nodes import Blob, Global, LongText, PersistentId, TextBlob

#: Texts and byte strings longer than this are shortened where they are shown as values.
_SHOWN_TEXT = 10_000


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
        f"{checkpoint.location.shown}: nothing lies below {root!r}"
        + (f"; the top level has {', '.join(tops[:8])}" if tops else "; it has no levels")
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


def totals(tensors: Iterator[Tensor] | list[Tensor]) -> Totals:
    """Sums over ``tensors``."""
    count = parameters = nbytes = stored = viewed = 0
    views: dict[Storage, list[StridedTensor]] = {}
    for tensor in tensors:
        count += 1
        nbytes += tensor.nbytes
        if isinstance(tensor, StridedTensor):
            views.setdefault(tensor.storage, []).append(tensor)
        else:
            parameters += tensor.info.count
            if not isinstance(tensor, AbsentTensor):
                stored += tensor.nbytes
                viewed += tensor.nbytes
    for storage, looking in views.items():
        elements, seen = _distinct(looking)
        parameters += elements
        stored += storage.nbytes
        viewed += min(seen, storage.nbytes)
    return Totals(count, parameters, nbytes, stored, viewed)


def _distinct(looking: list[StridedTensor]) -> tuple[int, int]:
    """Elements and bytes of one storage that at least one of the views looks at."""
    first = looking[0]
    if len(looking) == 1 and first.contiguous:
        return first.info.count, first.info.nbytes
    # Same view, several names: tied weights.
    different = {(t.offset, t.strides, t.info) for t in looking}
    spans: list[tuple[int, int]] = []
    elements = 0
    for offset, strides, info in different:
        if 0 in info.shape:
            continue
        own = math.prod(n for n, s in zip(info.shape, strides or (1,) * len(info.shape)) if s != 0)
        last = offset + (
            info.count if strides is None else 1 + sum((n - 1) * s for n, s in zip(info.shape, strides))
        )
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
    if isinstance(node, (Opaque, Global, PersistentId)):
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
    if isinstance(node, bool) or node is None or isinstance(node, (int, str)):
        return node
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
    if isinstance(node, PersistentId):
        return "persistent id"
    if isinstance(node, Cycle):
        return "/".join(map(str, node.to))
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


def tensor_row(entry: Entry, labels: StorageLabels, sha256: str | None = None, *, digests: bool = False) -> dict[str, Any]:
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
    if digests:
        row["sha256"] = sha256
    return row


def value_row(entry: Entry) -> dict[str, Any]:
    """One value as the JSON of ``ls`` has it."""
    return {
        "name": entry.name,
        "key": list(entry.key),
        "type": type_of(entry.node),
        "value": value_of(entry.node),
    }
