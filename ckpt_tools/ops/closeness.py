"""Whether two tensors hold the same values, and if not, how far apart they are. Streamed: a few chunks in memory.

Chunks whose bytes agree are not looked into. NaN equals NaN in the same place; 0.0 equals -0.0, and is counted.
"Close" is numpy's rule, ``abs(a - b) <= atol + rtol * abs(b)`` for every element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.strides import row_major_strides
from ckpt_tools.core.tensors import Storage, StridedTensor, Tensor, TensorInfo
from ckpt_tools.mapping.transforms import Permute, Reshape, Transforms
from ckpt_tools.ops.numbers import has_numbers

if TYPE_CHECKING:
    import numpy

#: Bytes compared at a time: they stay in a processor's cache with what is computed of them, and blocks below 128 KiB
#: are reused by glibc's malloc (M_MMAP_THRESHOLD), larger ones are mapped anew for each read.
_STEP_NBYTES = 112 * 1024


@dataclass
class Closeness:
    """``state`` is ``equal``, ``close`` or ``differ``. Magnitudes are None where the element type has none.

    ``max_abs`` is the largest absolute difference, at index ``at`` (None when only NaN differ); ``relative`` is the norm of
    the difference by the norm of A's values; ``differing`` counts elements that are not equal, ``nan_on_one_side`` those
    that are NaN in one only (not in ``max_abs``); ``zero_signs`` counts 0.0 against -0.0, which are equal. The two parts
    of a complex element are counted for themselves.
    """

    state: str = "equal"
    count: int = 0
    differing: int | None = 0
    max_abs: float | None = None
    at: tuple[int, ...] | None = None
    nan_on_one_side: int = 0
    zero_signs: int = 0
    #: sums of squares of the differences and of A's values
    squares: float = 0.0
    base_squares: float = 0.0

    @property
    def relative(self) -> float | None:
        if self.max_abs is None:
            return None
        if math.isinf(self.max_abs):
            return math.inf
        if self.base_squares == 0.0:
            return 0.0 if self.squares == 0.0 else math.inf
        return math.sqrt(self.squares / self.base_squares)


def compare(
    a: Tensor,
    b: Tensor,
    steps: Transforms = (),
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    progress: Callable[[int], None] | None = None,
) -> Closeness:
    """Compare ``a``, after ``steps``, with ``b``; both have the same shape then. MissingBytes when one has no bytes."""
    found = Closeness(count=b.info.count)
    turned = transformed(a, steps)
    if not _computable(turned) or not _computable(b):
        return _compare_bytes(turned, b, found, progress)
    numbers_a, numbers_b = _Numbers(turned), _Numbers(b)
    same_type = turned.info.dtype == b.info.dtype
    done = skipped = 0
    amount, at = 0.0, 0
    for raw_a, raw_b in _aligned(turned, b):
        if progress is not None:
            progress(len(raw_a) + len(raw_b))
        size = len(raw_b) // b.info.dtype.itemsize
        if same_type and raw_a == raw_b:
            skipped += size
        else:
            largest, position = _look(numbers_a(raw_a), numbers_b(raw_b), found, rtol, atol)
            if largest > amount:
                amount, at = largest, done + position // numbers_b.parts
        done += size
    found.max_abs = amount
    if found.differing:
        found.at = _index(at, b.info.shape) if amount else None
        if skipped:
            found.base_squares = sum(_squares(numbers_a(raw)) for raw in turned.chunks(_STEP_NBYTES))
    return found


def transformed(tensor: Tensor, steps: Transforms) -> Tensor:
    """``tensor`` after ``steps``: a view where strides can say it, else its values in memory."""
    for step in steps:
        if isinstance(step, Permute) and isinstance(tensor, StridedTensor):
            strides = tensor.strides or row_major_strides(tensor.info.shape)
            tensor = _view(tensor, step.shape_after(tensor.info.shape), tuple(strides[axis] for axis in step.axes))
        elif isinstance(step, Reshape) and isinstance(tensor, StridedTensor) and tensor.contiguous:
            tensor = _view(tensor, step.shape_after(tensor.info.shape), None)
        else:
            tensor = _in_memory(tensor.info, step.apply(tensor.numpy()))
    return tensor


def _view(tensor: StridedTensor, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> StridedTensor:
    info = TensorInfo(tensor.info.dtype, shape)
    return StridedTensor(info, tensor.storage, tensor.offset, strides, conj=tensor.conj, neg=tensor.neg)


def _in_memory(info: TensorInfo, array: numpy.ndarray) -> StridedTensor:
    return StridedTensor(TensorInfo(info.dtype, array.shape), Storage(MemoryExtent(array.tobytes())))


def _computable(tensor: Tensor) -> bool:
    return has_numbers(tensor) and tensor.info.dtype.bit_width % 8 == 0


def _compare_bytes(a: Tensor, b: Tensor, found: Closeness, progress: Callable[[int], None] | None) -> Closeness:
    """Equal or not: for strings, sparse and quantized tensors, and types numpy does not have."""
    rest_a, rest_b = b"", b""
    chunks_a, chunks_b = a.chunks(_STEP_NBYTES), b.chunks(_STEP_NBYTES)
    same = True
    while True:
        if not rest_a:
            rest_a = next(chunks_a, b"")
        if not rest_b:
            rest_b = next(chunks_b, b"")
        size = min(len(rest_a), len(rest_b))
        if not size:
            break
        if progress is not None:
            progress(2 * size)
        if rest_a[:size] != rest_b[:size]:
            same = False
            break
        rest_a, rest_b = rest_a[size:], rest_b[size:]
    if not same or rest_a or rest_b:
        found.state, found.differing = "differ", None
    return found


def _aligned(a: Tensor, b: Tensor) -> Iterator[tuple[bytes, bytes]]:
    """Chunks of both that hold the same elements."""
    size_a, size_b = a.info.dtype.itemsize, b.info.dtype.itemsize
    limit = _STEP_NBYTES // max(size_a, size_b)
    chunks_a, chunks_b = a.chunks(limit * size_a), b.chunks(limit * size_b)
    rest_a, rest_b = b"", b""
    while True:
        rest_a = rest_a or next(chunks_a, b"")
        rest_b = rest_b or next(chunks_b, b"")
        count = min(len(rest_a) // size_a, len(rest_b) // size_b)
        if not count:
            return
        if count * size_a == len(rest_a) and count * size_b == len(rest_b):
            yield rest_a, rest_b
            rest_a = rest_b = b""
        else:
            yield rest_a[: count * size_a], rest_b[: count * size_b]
            rest_a, rest_b = rest_a[count * size_a :], rest_b[count * size_b :]


class _Numbers:
    """Raw bytes as numbers to compute with: floats of at least 32 bits, complex ones as ``parts`` = 2 of them."""

    def __init__(self, tensor: Tensor) -> None:
        import numpy

        self._frombuffer = numpy.frombuffer
        self._type = tensor.info.dtype.to_numpy()
        self._wider: Any = None
        self.parts = 1
        if self._type.kind == "c":
            self._type = numpy.dtype(f"<f{self._type.itemsize // 2}")
            self.parts = 2
        elif self._type.kind == "b":
            self._type = numpy.dtype("u1")
        elif self._type.kind == "V" or (self._type.kind == "f" and self._type.itemsize < 4):
            self._wider = numpy.float32

    def __call__(self, raw: bytes) -> numpy.ndarray:
        values = self._frombuffer(raw, self._type)
        return values if self._wider is None else values.astype(self._wider)


def _squares(values: numpy.ndarray) -> float:
    """The sum of squares of the finite values."""
    import numpy

    with numpy.errstate(all="ignore"):
        if values.dtype.kind != "f":
            values = values.astype(numpy.float64)
        total = float(numpy.dot(values, values))
        if not math.isfinite(total):
            wide = values[numpy.isfinite(values)].astype(numpy.float64)
            total = float(numpy.dot(wide, wide))
    return total


def _look(a: numpy.ndarray, b: numpy.ndarray, found: Closeness, rtol: float, atol: float) -> tuple[float, int]:
    """Take one block into ``found``; the largest difference of the block and its position."""
    import numpy

    with numpy.errstate(all="ignore"):
        differences, one_sided = _differences(a, b)
        at = int(differences.argmax())
        amount = float(differences[at])
        unequal = int(numpy.count_nonzero(differences)) + one_sided
        found.squares += _squares(differences)
        found.base_squares += _squares(a)
        found.nan_on_one_side += one_sided
        found.differing = (found.differing or 0) + unequal
        if unequal < a.size and a.dtype == b.dtype and a.dtype.kind == "f":
            found.zero_signs += _zero_signs(a, b)
        if unequal and found.state != "differ":
            allowed = atol + rtol * numpy.abs(b.astype(numpy.float64)) if rtol else atol
            near = not one_sided and math.isfinite(amount)
            # NaN on both sides differ by 0, and what is allowed there is NaN
            within = (rtol or atol) and near and not numpy.any(differences > allowed)
            found.state = "close" if within else "differ"
        if amount:
            exact = abs(float(b[at]) - float(a[at]))
            amount = exact or amount
    return amount, at


def _differences(a: numpy.ndarray, b: numpy.ndarray) -> tuple[numpy.ndarray, int]:
    """Absolute differences, zero where a NaN is on either side, and how many NaN are on one side only."""
    import numpy

    if a.dtype.kind == "f" and b.dtype.kind == "f":
        differences = b - a
    else:
        differences = b.astype(numpy.float64) - a.astype(numpy.float64)
        if a.dtype.kind in "iu" and b.dtype.kind in "iu":  # beyond 2**53 unequal integers can be equal as float64
            differences[(a != b) & (differences == 0)] = 1.0
    numpy.abs(differences, out=differences)
    if math.isfinite(float(differences.max())):
        return differences, 0
    nan_a, nan_b = numpy.isnan(a), numpy.isnan(b)
    differences[(a == b) | nan_a | nan_b] = 0  # infinities of the same sign are equal, their difference is not 0
    return differences, int(numpy.count_nonzero(nan_a != nan_b))


def _zero_signs(a: numpy.ndarray, b: numpy.ndarray) -> int:
    import numpy

    zeros = (a == 0) & (b == 0)
    return int(numpy.count_nonzero(numpy.signbit(a[zeros]) != numpy.signbit(b[zeros])))


def _index(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of the element at position ``flat`` in row-major order."""
    index = []
    for extent in reversed(shape):
        flat, at = divmod(flat, extent)
        index.append(at)
    return tuple(reversed(index))
