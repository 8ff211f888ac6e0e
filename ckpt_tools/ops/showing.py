"""What ``show`` tells of one leaf: which one is meant, a slice of its values, numbers about all of them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.keys import quoted_name
from ckpt_tools.core.strides import row_major_strides
from ckpt_tools.core.tensors import (
    CompositeTensor,
    Storage,
    StridedTensor,
    StringTensor,
    Tensor,
    TensorInfo,
)
from ckpt_tools.errors import UsageError
from ckpt_tools.ops import numbers as measuring
from ckpt_tools.ops.listing import StorageLabels, tensor_row, value_of

if TYPE_CHECKING:
    import numpy

Index = tuple[Any, ...]  # whole numbers, slices and at most one ``...``

_SLICE = re.compile(r"(?P<name>.*)\[(?P<index>[\d\s:,.\-]*)\]", re.DOTALL)
_STORED_AS = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
#: Elements of a string tensor that are shown.
_STRINGS = 20
#: A slice of at most this many values stands in the JSON.
_VALUES_IN_JSON = 10_000


@dataclass(frozen=True)
class Shown:
    """One tensor looked at. ``values`` are those of the slice, ``numbers`` and ``counts`` are about the same.

    ``strings`` are the first elements of ``of_strings`` of a string tensor; ``parts`` those of a composite one.
    """

    entry: Entry
    values: numpy.ndarray | None = None
    numbers: measuring.Numbers | None = None
    counts: Sequence[int] = ()
    strings: list[bytes] | None = None
    of_strings: int = 0
    parts: Sequence[Shown] = ()

    def to_json(self, labels: StorageLabels) -> dict[str, Any]:
        """The members of the JSON document."""
        row = tensor_row(self.entry, labels)
        row["stats"] = self.numbers.to_json() if self.numbers else None
        row["histogram"] = list(self.counts)
        if self.strings is not None:
            row["values"] = [element.decode("utf-8", "backslashreplace") for element in self.strings]
        elif self.values is not None and self.values.size <= _VALUES_IN_JSON:
            row["values"] = _plain(self.values)
        if self.parts:
            row["parts"] = {part.entry.name: part.to_json(labels) for part in self.parts}
        return row


def choose(checkpoint: Checkpoint, text: str) -> tuple[Entry, Index | None]:
    """The leaf that ``text`` names, and the slice behind it if there is one.

    A name counts whole first, then as the end of exactly one name. UsageError with the nearest names otherwise.
    """
    found = _named(checkpoint, text)
    if found is not None:
        return found, None
    sliced = _SLICE.fullmatch(text)
    if sliced:
        found = _named(checkpoint, sliced["name"])
        if found is not None:
            return found, _index(sliced["index"])
    wanted = sliced["name"] if sliced else text
    ending = [e for e in checkpoint.entries if _ends(e.name, wanted)]
    if len(ending) == 1:
        return ending[0], _index(sliced["index"]) if sliced else None
    if ending:
        some = ", ".join(e.name for e in ending[:5])
        raise UsageError(f"{len(ending)} names end in {wanted!r}: {some}{', …' if len(ending) > 5 else ''}")
    import difflib

    names = [e.name for e in checkpoint.entries]
    near = difflib.get_close_matches(wanted, names[:20_000], n=3, cutoff=0.5)
    raise UsageError(
        f"{checkpoint.location.shown} has nothing called {wanted!r}",
        hint=f"did you mean {' or '.join(near)}?" if near else f"ckpt ls {checkpoint.location.shown}",
    )


def _named(checkpoint: Checkpoint, text: str) -> Entry | None:
    for entry in checkpoint.entries:
        if entry.name == text:
            return entry
    same = [e for e in checkpoint.entries if "/".join(map(str, e.key)) == text or quoted_name(e.key) == text]
    return same[0] if len(same) == 1 else None


def _ends(name: str, wanted: str) -> bool:
    return bool(wanted) and name.endswith(wanted) and name[-len(wanted) - 1] in "/."


def _index(text: str) -> Index:
    parts: list[Any] = []
    for part in text.split(","):
        part = part.strip()
        if part == "...":
            parts.append(...)
        elif ":" in part:
            try:
                bounds = [int(p) if p.strip() else None for p in part.split(":")]
                parts.append(slice(*bounds))
            except (ValueError, TypeError):
                raise UsageError(f"{part!r} is no slice; write it as numpy does: [0, 2:5, ::2]") from None
        elif re.fullmatch(r"-?\d+", part):
            parts.append(int(part))
        elif part or len(text.split(",")) > 1:
            raise UsageError(f"{part!r} is no index; write it as numpy does: [0, 2:5, ::2]")
    return tuple(parts)


def look(entry: Entry, index: Index | None, *, bins: int, progress: Callable[[int], None] | None = None) -> Shown:
    """Read a tensor, or a slice of it, and measure it; values are streamed, and kept only when they are few.

    UsageError when the slice does not fit.
    """
    tensor: Tensor = entry.node
    if isinstance(tensor, StringTensor):
        return _look_at_strings(entry, tensor, index)
    if isinstance(tensor, CompositeTensor):
        if index is not None:
            raise UsageError(f"a {tensor.scheme} tensor is shown by its parts; a slice of it cannot be")
        parts = [Entry(entry.key, name, part) for name, part in tensor.parts.items()]
        return Shown(entry, parts=[look(part, None, bins=bins, progress=progress) for part in parts])
    part = _as_integers(part_of(entry, index))
    values = part.numpy() if part.nbytes <= _KEPT_NBYTES and _is_array(part) else None
    if not measuring.has_numbers(part):
        return Shown(entry, values)
    numbers = measuring.measure(part, progress)
    return Shown(entry, values, numbers, measuring.histogram(part, numbers, bins, progress))


def _as_integers(tensor: Tensor) -> Tensor:
    """The integers of a quantized tensor, which numpy has no type for, as the integers they are."""
    name = _STORED_AS.get(tensor.info.dtype.name)
    if name is None or not isinstance(tensor, StridedTensor):
        return tensor
    info = TensorInfo(BY_NAME[name], tensor.info.shape)
    return StridedTensor(info, tensor.storage, tensor.offset, tensor.strides)


def _look_at_strings(entry: Entry, tensor: StringTensor, index: Index | None) -> Shown:
    values: Any = tensor.numpy()
    if index is not None:
        try:
            values = values[index]
        except IndexError as error:
            raise UsageError(f"the shape is {list(tensor.info.shape)}: {error}") from None
    elements = [values] if isinstance(values, bytes) else values.reshape(-1).tolist()
    return Shown(entry, strings=elements[:_STRINGS], of_strings=len(elements))


def _is_array(tensor: Tensor) -> bool:
    """Whether numpy has an element type for it; of numbers, texts, times or records."""
    try:
        tensor.info.dtype.to_numpy()
    except ValueError:
        return False
    return not isinstance(tensor, (CompositeTensor, StringTensor))


#: Values of larger tensors are measured, not kept to be printed.
_KEPT_NBYTES = 64 * 1024 * 1024


def part_of(entry: Entry, index: Index | None) -> Tensor:
    """The slice of a tensor as a tensor of its own; of a strided one without reading anything.

    UsageError when the slice does not fit the shape.
    """
    tensor: Tensor = entry.node
    if index is None:
        return tensor
    shape = tensor.info.shape
    if index.count(...) > 1 or len(index) - index.count(...) > len(shape):
        raise UsageError(f"the shape is {list(shape)}: the slice has {len(index)} parts")
    at = index.index(...) if ... in index else len(index)
    missing = len(shape) - (len(index) - index.count(...))
    full = (*index[:at], *(slice(None),) * missing, *index[at + 1 :])
    if not isinstance(tensor, StridedTensor):
        data = tensor.numpy()
        whole = StridedTensor(tensor.info, Storage(MemoryExtent(data.tobytes())))
    else:
        whole = tensor
    offset, sizes, strides = whole.offset, [], []
    for axis, (part, extent, stride) in enumerate(zip(full, shape, whole.strides or row_major_strides(shape))):
        if isinstance(part, int):
            if not -extent <= part < extent:
                raise UsageError(f"the shape is {list(shape)}: {part} is outside dimension {axis}")
            offset += part % extent * stride
            continue
        assert isinstance(part, slice)
        if part.step is not None and part.step <= 0:
            raise UsageError(f"the slice steps by {part.step}; only steps forward can be shown")
        chosen = range(*part.indices(extent))
        offset += chosen.start * stride if chosen else 0
        sizes.append(len(chosen))
        strides.append(stride * chosen.step)
    info = TensorInfo(tensor.info.dtype, tuple(sizes))
    return StridedTensor(info, whole.storage, offset, tuple(strides), conj=whole.conj, neg=whole.neg)


def not_savable(entry: Entry) -> UsageError:
    """The refusal to save a value as an array."""
    return UsageError(f"{entry.name} is a value, not a tensor: --save writes tensors only")


def save(entry: Entry, index: Index | None, target: Path, *, overwrite: bool) -> None:
    """Write the values as a ``.npy`` file, streamed. Small floats go as raw voids, as numpy itself writes them."""
    from numpy.lib import format as npy

    from ckpt_tools.core.sink import write_file

    part = part_of(entry, index)
    if not _is_array(part):
        raise UsageError(f"a {part.note or part.info.dtype} tensor is nothing that a .npy file can hold")
    header = io.BytesIO()
    kind = part.info.dtype.to_numpy()
    npy.write_array_header_1_0(
        header, {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": part.info.shape}
    )
    write_file(target, chain([header.getvalue()], part.chunks()), overwrite=overwrite)


def _plain(values: numpy.ndarray) -> Any:
    """Nested lists as JSON can hold them: NaN and infinities as text."""
    flat = values.astype(object).reshape(-1) if values.dtype.kind == "V" else values.reshape(-1)
    elements: list[Any] = [_plain_element(element) for element in flat.tolist()]
    for extent in reversed(values.shape[1:]):
        elements = [elements[i : i + extent] for i in range(0, len(elements), extent)] if extent else []
    return elements if values.shape else elements[0]


def _plain_element(element: Any) -> Any:
    """One element; of a record the list of its fields."""
    if hasattr(element, "tolist"):  # a field that is an array
        element = element.tolist()
    return [_plain_element(field) for field in element] if isinstance(element, (tuple, list)) else value_of(element)
