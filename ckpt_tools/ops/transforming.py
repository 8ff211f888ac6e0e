"""The steps of a mapping applied to tensors, without reading them: axes by strides, shapes by name, the rest when read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ckpt_tools.core.tensors import CHUNK_NBYTES, StridedTensor, Tensor, TensorInfo, row_major_strides
from ckpt_tools.mapping.transforms import Permute, Reshape, Transform

if TYPE_CHECKING:
    import numpy


def transformed(tensor: Tensor, steps: Sequence[Transform]) -> Tensor:
    """``tensor`` after all steps. UsageError when one does not fit its shape."""
    for step in steps:
        info = TensorInfo(tensor.info.dtype, step.shape_after(tensor.info.shape))
        if isinstance(step, Permute) and isinstance(tensor, StridedTensor):
            strides = tensor.strides or row_major_strides(tensor.info.shape)
            tensor = _view(tensor, info, tuple(strides[axis] for axis in step.axes))
        elif isinstance(step, Reshape) and isinstance(tensor, StridedTensor) and tensor.contiguous:
            tensor = _view(tensor, info, None)
        else:
            tensor = DerivedTensor(tensor, info, step)
    return tensor


def _view(tensor: StridedTensor, info: TensorInfo, strides: tuple[int, ...] | None) -> StridedTensor:
    kind = type(tensor)
    return kind(
        info,
        tensor.storage,
        tensor.offset,
        strides,
        alias=tensor.alias,
        note=tensor.note,
        conj=tensor.conj,
        neg=tensor.neg,
    )


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

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        if isinstance(self.step, Reshape):
            yield from self.base.chunks(limit)
            return
        whole: numpy.ndarray = self.step.apply(self.base.numpy())
        data = memoryview(whole.tobytes())
        for start in range(0, len(data), limit):
            yield bytes(data[start : start + limit])
