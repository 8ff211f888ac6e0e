"""The steps of a mapping applied to tensors, without reading them: axes by strides, parts by offsets, the rest when read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.limits import CHUNK_NBYTES
from ckpt_tools.core.strides import row_major_strides
from ckpt_tools.core.tensors import AssembledTensor, Storage, StridedTensor, Tensor, TensorInfo
from ckpt_tools.errors import UsageError
from ckpt_tools.mapping.recipes import Filling, Recipe, joined_shape
from ckpt_tools.mapping.transforms import Blocks, Permute, Reshape, Rows, Transform

if TYPE_CHECKING:
    import numpy


def made(recipe: Recipe, tensors: Mapping[str, Tensor]) -> Tensor:
    """The tensor that a recipe says. UsageError when its steps do not fit, or element types do not go together."""
    if recipe.filling is not None:
        return _filled(recipe.filling)
    parts = [transformed(tensors[each.source], each.steps) for each in recipe.ingredients]
    return transformed(joined(recipe.join, parts) if recipe.join else parts[0], recipe.steps)


def _filled(filling: Filling) -> Tensor:
    """One element that stands for all of them."""
    import numpy

    dtype = BY_NAME[filling.dtype]
    element = numpy.array(filling.value).astype(dtype.to_numpy()).tobytes()
    return StridedTensor(TensorInfo(dtype, filling.shape), Storage(MemoryExtent(element)), 0, (0,) * len(filling.shape))


def joined(join: str, parts: Sequence[Tensor]) -> Tensor:
    """Several tensors as one. UsageError when they do not go together."""
    dtypes = {part.info.dtype for part in parts}
    if len(dtypes) > 1:
        raise UsageError(f"tensors of {', '.join(sorted(dtype.name for dtype in dtypes))} have no {join}")
    shape = joined_shape(join, [part.info.shape for part in parts])
    return JoinedTensor(TensorInfo(dtypes.pop(), shape), join, parts)


def transformed(tensor: Tensor, steps: Sequence[Transform]) -> Tensor:
    """``tensor`` after all steps. UsageError when one does not fit its shape."""
    for step in steps:
        info = TensorInfo(tensor.info.dtype, step.shape_after(tensor.info.shape))
        tensor = (
            _view(tensor, info, step)
            or _turned(tensor, info, step)
            or _in_new_order(tensor, step)
            or DerivedTensor(tensor, info, step)
        )
    return tensor


def _view(tensor: Tensor, info: TensorInfo, step: Transform) -> Tensor | None:
    """What the step leaves of a storage in another order; None for steps that need the values."""
    if not isinstance(tensor, StridedTensor) or info.dtype.bit_width % 8:
        return None
    strides = tensor.strides or row_major_strides(tensor.info.shape)
    offset = tensor.offset
    if isinstance(step, Permute):
        strides = tuple(strides[axis] for axis in step.axes)
    elif isinstance(step, Rows):
        offset += step.start * strides[0]
    elif isinstance(step, Reshape) and tensor.contiguous:
        strides = row_major_strides(info.shape)
    else:
        return None
    kind = type(tensor)
    return kind(
        info,
        tensor.storage,
        offset,
        strides,
        alias=tensor.alias,
        note=tensor.note,
        conj=tensor.conj,
        neg=tensor.neg,
    )


def _turned(tensor: Tensor, info: TensorInfo, step: Transform) -> Tensor | None:
    """Of a tensor in pieces, each piece with its axes in the new order."""
    if not isinstance(tensor, AssembledTensor) or not isinstance(step, Permute):
        return None
    pieces = [
        (tuple(starts[axis] for axis in step.axes), transformed(piece, (step,))) for starts, piece in tensor.pieces
    ]
    return AssembledTensor(info, pieces, alias=tensor.alias, note=tensor.note)


def _in_new_order(tensor: Tensor, step: Transform) -> Tensor | None:
    """Blocks of rows are read one after the other in their new order."""
    if not isinstance(step, Blocks) or not isinstance(tensor, StridedTensor):
        return None
    size = tensor.info.shape[0] // len(step.order)
    return joined("concat", [transformed(tensor, (Rows(at * size, at * size + size),)) for at in step.order])


class JoinedTensor(Tensor):
    """Several tensors as one: one behind the other, their sum, or magnitudes and directions of rows combined."""

    __slots__ = ("join", "parts")

    def __init__(self, info: TensorInfo, join: str, parts: Sequence[Tensor]) -> None:
        self.info = info
        self.storage = None
        self.alias = None
        self.note = None
        self.join = join
        self.parts = tuple(parts)

    def constituents(self) -> Iterator[Tensor]:
        for part in self.parts:
            yield from part.constituents()

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        if self.join == "concat":
            for part in self.parts:
                yield from part.chunks(limit)
            return
        arrays = [part.numpy() for part in self.parts]
        whole: numpy.ndarray = sum(arrays[1:], arrays[0]) if self.join == "sum" else _weight_norm(*arrays)
        yield from _cut(whole, limit)


def _weight_norm(magnitudes: numpy.ndarray, directions: numpy.ndarray) -> numpy.ndarray:
    """Rows of ``directions`` at the length that ``magnitudes`` give them; computed in float64."""
    rows = directions.reshape(directions.shape[0], -1).astype("f8")
    norms = (rows * rows).sum(1) ** 0.5
    scaled = rows * (magnitudes.astype("f8") / norms)[:, None]
    whole: numpy.ndarray = scaled.astype(directions.dtype).reshape(directions.shape)
    return whole


def _cut(whole: numpy.ndarray, limit: int) -> Iterator[bytes]:
    data = memoryview(whole.tobytes())
    for start in range(0, len(data), limit):
        yield bytes(data[start : start + limit])


class DerivedTensor(Tensor):
    """``base`` after one step. A reshaping streams; anything else holds the whole tensor while it is read."""

    __slots__ = ("base", "step")

    def __init__(self, base: Tensor, info: TensorInfo, step: Transform) -> None:
        self.info = info
        self.storage = None
        self.alias = base.alias
        self.note = base.note
        self.base = base
        self.step = step

    def constituents(self) -> Iterator[Tensor]:
        yield from self.base.constituents()

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        if isinstance(self.step, Reshape):
            yield from self.base.chunks(limit)
            return
        yield from _cut(self.step.apply(self.base.numpy()), limit)


def bytes_of(tensor: Tensor) -> object:
    """Equal for tensors that look at the same bytes in the same way."""
    if isinstance(tensor, StridedTensor):
        return tensor.storage, tensor.offset, tensor.strides, tensor.info, tensor.conj, tensor.neg
    return id(tensor)
