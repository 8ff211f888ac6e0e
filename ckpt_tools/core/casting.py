"""Tensors in another element type: converted chunk by chunk, rounded once, to the nearest and to even on a tie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpt_tools.core.dtypes import BY_NAME, DType
from ckpt_tools.core.limits import CHUNK_NBYTES
from ckpt_tools.core.tensors import Tensor, TensorInfo

if TYPE_CHECKING:
    import numpy

#: The floating types that can be asked for, and the short words for some of them.
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_SHORT = {
    "fp64": "float64",
    "double": "float64",
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
}
_SHORT["bf16"] = "bfloat16"
#: Types that ml_dtypes reaches from float64 only through float32, rounding twice.
_BEHIND_FLOAT32 = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def float_named(name: str) -> DType | None:
    """The floating type of that name; None when there is none that can be converted to."""
    name = _SHORT.get(name, name)
    return BY_NAME[name] if name in FLOATS else None


def can_cast(dtype: DType) -> bool:
    """Whether tensors of this type are converted; integers, truth values and complex numbers stay what they are."""
    return dtype.name in FLOATS


class CastTensor(Tensor):
    """``base`` as another floating type. ``overflows`` counts the finite values that became infinite or NaN, once read."""

    __slots__ = ("base", "overflows")

    def __init__(self, base: Tensor, dtype: DType) -> None:
        self.info = TensorInfo(dtype, base.info.shape)
        self.storage = None
        self.alias = base.alias
        self.note = base.note
        self.base = base
        self.overflows = 0

    def constituents(self) -> Iterator[Tensor]:
        yield from self.base.constituents()

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        import numpy

        source, target = self.base.info.dtype.to_numpy(), self.info.dtype.to_numpy()
        overflows = 0
        with numpy.errstate(over="ignore", invalid="ignore"):
            # a wider type makes chunks longer: the limit is for what is handed out
            for chunk in self.base.chunks(max(limit * source.itemsize // max(target.itemsize, source.itemsize), 8)):
                values = numpy.frombuffer(chunk, source)
                cast = (
                    _rounded_to_odd(values)
                    if source.itemsize == 8 and self.info.dtype.name in _BEHIND_FLOAT32
                    else values
                )
                cast = cast.astype(target)
                finite = numpy.isfinite(cast)
                if not finite.all():
                    overflows += int(numpy.count_nonzero(numpy.isfinite(values) & ~finite))
                yield cast.tobytes()
        self.overflows = overflows


def _rounded_to_odd(values: numpy.ndarray) -> numpy.ndarray:
    """float64 as float32 such that rounding once more gives what rounding at once would have given.

    Inexact results are cut off and get their last bit set (Boldo and Melquiond, "When double rounding is odd", 2004).
    """
    import numpy

    nearest = values.astype("<f4")
    inexact = numpy.isfinite(values) & (nearest.astype("<f8") != values)
    bits = nearest.view("<u4").copy()
    too_far = inexact & (numpy.abs(nearest.astype("<f8")) > numpy.abs(values))
    bits[too_far] -= 1
    bits[inexact] |= 1
    rounded: numpy.ndarray = bits.view("<f4")
    return rounded
