"""Element types converted chunk by chunk: rounded once, to the nearest and to even on a tie; overflows counted."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy
import pytest

from ckpt_tools.core.casting import CastTensor, float_named
from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.tensors import Storage, StridedTensor, TensorInfo


def tensor(array: numpy.ndarray, name: str) -> StridedTensor:
    return StridedTensor(TensorInfo(BY_NAME[name], array.shape), Storage(MemoryExtent(array.tobytes())))


def cast(array: numpy.ndarray, name: str, target: str) -> CastTensor:
    return CastTensor(tensor(array, name), BY_NAME[target])


def nearest(value: float, kind: type) -> float:
    """The nearest of all values of a small type, the even one of two; by exact arithmetic."""
    width = numpy.dtype(kind).itemsize * 8
    every = numpy.arange(2**width, dtype=f"u{width // 8}").view(kind).astype("f8")
    finite = every[numpy.isfinite(every)]
    distance = numpy.array([abs(Fraction(v) - Fraction(value)) for v in finite])
    best = numpy.flatnonzero(distance == distance.min())
    bits = finite[best].astype(kind).view(f"u{width // 8}")
    return float(finite[best[numpy.argmin(bits & 1)]])


@pytest.mark.parametrize("target", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_float64_is_rounded_once(target: str) -> None:
    kind = getattr(ml_dtypes, target)
    # a hair beside the middle of two neighbours: rounding to float32 first would land on the middle, and on even
    one, two = (numpy.array(bits, f"u{numpy.dtype(kind).itemsize}").view(kind) for bits in neighbours(target))
    middle = (float(one) + float(two)) / 2
    values = numpy.array([middle, middle * (1 + 1e-12), middle * (1 - 1e-12), -middle * (1 + 1e-12), 0.0, 1e-300], "f8")
    got = numpy.frombuffer(cast(values, "float64", target).tobytes(), kind).astype("f8")
    if numpy.dtype(kind).itemsize == 1:
        assert got.tolist() == [nearest(value, kind) for value in values]
    assert got[1] == float(two)
    assert got[2] == float(one)
    assert got[3] == -float(two)


def neighbours(target: str) -> tuple[int, int]:
    return {"bfloat16": (0x3F80, 0x3F81), "float8_e4m3fn": (0x38, 0x39), "float8_e5m2": (0x3C, 0x3D)}[target]


@pytest.mark.parametrize(
    ("source", "target"), [("float32", "float16"), ("float32", "bfloat16"), ("float16", "bfloat16")]
)
def test_every_bit_pattern_agrees_with_torch(source: str, target: str) -> None:
    torch = pytest.importorskip("torch")
    high = numpy.arange(2**16, dtype="u2")
    bits = high.view("f2") if source == "float16" else (high.astype("u4") << 16 | 0x8000).view("f4")
    got = numpy.frombuffer(cast(bits, source, target).tobytes(), "u2")
    wanted = torch.from_numpy(bits.copy()).to(getattr(torch, target)).view(torch.uint16).numpy()
    finite = ~numpy.isnan(bits)
    assert (got[finite] == wanted[finite]).all()


def test_overflows_are_counted_and_infinities_are_none() -> None:
    made = cast(numpy.array([1e30, -1e30, 1.0, numpy.inf, numpy.nan], "f4"), "float32", "float16")
    assert numpy.frombuffer(made.tobytes(), "f2")[:4].tolist() == [numpy.inf, -numpy.inf, 1, numpy.inf]
    assert made.overflows == 2
    made.tobytes()
    assert made.overflows == 2  # reading again counts anew


def test_chunks_stay_within_the_limit_when_elements_widen() -> None:
    made = cast(numpy.ones(10_000, "f2"), "float16", "float64")
    chunks = list(made.chunks(4096))
    assert max(map(len, chunks)) <= 4096
    assert b"".join(chunks) == numpy.ones(10_000, "f8").tobytes()


def test_names() -> None:
    assert float_named("bf16") is BY_NAME["bfloat16"]
    assert float_named("int8") is None
