"""Values compared in pieces, against numpy on the whole."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.tensors import Storage, StridedTensor, TensorInfo
from ckpt_tools.mapping.transforms import Blocks, Permute, Reshape
from ckpt_tools.ops import closeness
from ckpt_tools.ops.closeness import compare


def tensor(array: numpy.ndarray, dtype: str | None = None) -> StridedTensor:
    info = TensorInfo(BY_NAME[dtype or array.dtype.name], array.shape)
    return StridedTensor(info, Storage(MemoryExtent(array.tobytes())))


FLOATS = npst.arrays(
    numpy.float32, npst.array_shapes(max_dims=3, max_side=6), elements=st.floats(width=32, allow_nan=True)
)


@settings(deadline=None)
@given(FLOATS, st.data(), st.sampled_from([0.0, 1e-3, 0.5]), st.sampled_from([0.0, 1e-3, 10.0]))
def test_the_state_is_numpys(a: numpy.ndarray, data: st.DataObject, rtol: float, atol: float) -> None:
    b = a.copy()
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, a.size - 1))
        b.flat[at] = data.draw(st.floats(width=32, allow_nan=True) | st.just(a.flat[at]))
    found = compare(tensor(a), tensor(b), rtol=rtol, atol=atol)
    equal = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
    assert found.differing == int((~equal).sum())
    if equal.all():
        assert found.state == "equal"
    else:
        with numpy.errstate(all="ignore"):
            wide_a, wide_b = a.astype("f8"), b.astype("f8")
            close = numpy.isclose(wide_a, wide_b, rtol, atol, equal_nan=True)
            exact = numpy.abs(wide_a - wide_b)
            allowed = atol + (rtol * numpy.abs(wide_b) if rtol else 0)
            # differences are taken in the tensors' own type: at the very edge of the tolerance either answer will do
            at_the_edge = numpy.abs(exact - allowed) <= 1e-6 * numpy.maximum(exact, 1)
        if not at_the_edge.any():
            assert found.state == ("close" if close.all() and (rtol or atol) else "differ")


def test_nan_on_both_sides_is_close_to_itself() -> None:
    a, b = numpy.array([0, numpy.nan], "f4"), numpy.array([1e-3, numpy.nan], "f4")
    assert compare(tensor(a), tensor(b), rtol=1e-3, atol=0.1).state == "close"
    assert compare(tensor(a), tensor(b), rtol=1e-3, atol=1e-6).state == "differ"


def test_the_largest_difference_and_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closeness, "_STEP_NBYTES", 64)
    a = numpy.arange(60, dtype="f4").reshape(3, 4, 5)
    b = a.copy()
    b[1, 2, 3] += 0.5
    b[2, 3, 4] -= 2
    found = compare(tensor(a), tensor(b))
    assert (found.state, found.differing, found.max_abs, found.at) == ("differ", 2, 2.0, (2, 3, 4))
    assert found.relative == pytest.approx(math.sqrt(4.25 / float((a.astype("f8") ** 2).sum())))


def test_nan_and_signed_zeros() -> None:
    nan = float("nan")
    a, b = numpy.array([nan, 0.0, 1.0], "f4"), numpy.array([nan, -0.0, 1.0], "f4")
    found = compare(tensor(a), tensor(b))
    assert (found.state, found.zero_signs, found.nan_on_one_side) == ("equal", 1, 0)
    found = compare(tensor(a), tensor(numpy.array([0.0, nan, 1.0], "f4")), atol=1e9)
    assert (found.state, found.nan_on_one_side, found.at) == ("differ", 2, None)


def test_infinities() -> None:
    inf = float("inf")
    found = compare(tensor(numpy.array([inf, 1.0])), tensor(numpy.array([inf, 1.0])))
    assert found.state == "equal"
    found = compare(tensor(numpy.array([inf, 1.0])), tensor(numpy.array([-inf, 1.0])), rtol=1.0)
    assert (found.max_abs, found.relative) == (inf, inf)


@pytest.mark.parametrize(
    ("a", "b", "amount"),
    [
        (numpy.array([2**62]), numpy.array([2**62 + 1]), 1.0),
        (numpy.array([255], "u1"), numpy.array([0], "u1"), 255.0),
        (numpy.array([True]), numpy.array([False]), 1.0),
        (numpy.array([1 + 2j], "c8"), numpy.array([1 + 5j], "c8"), 3.0),
        (numpy.array([1.0, 2.0], "f2"), numpy.array([1.0, 2.5], "f4"), 0.5),
        (numpy.array([1, 2]), numpy.array([1.0, 2.5]), 0.5),
        (numpy.array([1e-30], "f4"), numpy.array([3e-30], "f4"), 2e-30),
    ],
)
def test_every_element_type_has_magnitudes(a: numpy.ndarray, b: numpy.ndarray, amount: float) -> None:
    found = compare(tensor(a), tensor(b))
    assert found.state == "differ"
    assert found.max_abs == pytest.approx(amount)


def test_small_floats_are_widened() -> None:
    import ml_dtypes

    a = numpy.array([1.0, 2.0], ml_dtypes.bfloat16)
    b = numpy.array([1.0, 3.0], ml_dtypes.bfloat16)
    assert compare(tensor(a, "bfloat16"), tensor(b, "bfloat16")).max_abs == 1.0


@pytest.mark.parametrize("steps", [(Permute((2, 0, 1)),), (Reshape((6, 4)), Blocks((1, 0, 2))), (Reshape((-1,)),)])
def test_transforms_happen_before_the_comparison(steps: tuple) -> None:
    a = numpy.arange(24, dtype="f4").reshape(2, 3, 4)
    b = a
    for step in steps:
        b = step.apply(b)
    assert compare(tensor(a), tensor(numpy.ascontiguousarray(b)), steps).state == "equal"


def test_equal_parts_count_in_the_relative_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closeness, "_STEP_NBYTES", 16)
    a = numpy.ones(100, "f4")
    b = a.copy()
    b[99] = 2
    assert compare(tensor(a), tensor(b)).relative == pytest.approx(0.1)


def test_empty_tensors_are_equal() -> None:
    assert compare(tensor(numpy.empty((0, 3), "f4")), tensor(numpy.empty((0, 3), "f4"))).state == "equal"
