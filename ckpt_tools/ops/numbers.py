"""Numbers about the values of a tensor, streamed: extremes, mean, deviation, NaN and infinity counts, a histogram."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckpt_tools.core.tensors import CompositeTensor, StringTensor, Tensor

if TYPE_CHECKING:
    import numpy


@dataclass
class Numbers:
    """``min``, ``max``, ``mean`` and ``std`` (population) are over the finite values; None when there are none, or when
    a sum goes beyond what float64 can hold.

    Of complex values the magnitudes are counted.
    """

    count: int = 0
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    denormal: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    _squares: float = field(default=0.0, repr=False)
    _finite: int = field(default=0, repr=False)

    def add(self, values: numpy.ndarray, smallest_normal: float = 0.0) -> None:
        """Take in one block of float64 values (merging means and squared deviations as Chan et al. do).

        Values nearer to zero than ``smallest_normal`` count as denormal in the type they came from.
        """
        import numpy

        self.count += values.size
        finite = values[numpy.isfinite(values)]
        nan = int(numpy.isnan(values).sum())
        self.nan += nan
        self.inf += values.size - finite.size - nan
        if not finite.size:
            return
        zeros = int((finite == 0).sum())
        self.zeros += zeros
        if smallest_normal:
            self.denormal += int((numpy.abs(finite) < smallest_normal).sum()) - zeros
        low, high = float(finite.min()), float(finite.max())
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)
        with numpy.errstate(over="ignore", invalid="ignore"):
            mean = float(finite.mean())
            squares = float(((finite - mean) ** 2).sum())
        before, total = self._finite, self._finite + finite.size
        shift = mean - (self.mean or 0.0)
        self.mean = mean if self.mean is None else self.mean + shift * finite.size / total
        self._squares += squares + (shift * shift * before * finite.size / total if before else 0.0)
        self._finite = total
        self.std = math.sqrt(self._squares / total) if math.isfinite(self._squares) else math.inf

    def to_json(self) -> dict[str, Any]:
        return {
            "min": self.min,
            "max": self.max,
            "mean": _unless_overflown(self.mean),
            "std": _unless_overflown(self.std),
            "nan": self.nan,
            "inf": self.inf,
        }


def _unless_overflown(value: float | None) -> float | None:
    """Values near the largest float64 can have sums beyond it."""
    return value if value is not None and math.isfinite(value) else None


def has_numbers(tensor: Tensor) -> bool:
    """Whether the values are numbers that can be measured."""
    if isinstance(tensor, (CompositeTensor, StringTensor)):
        return False
    try:
        kind = tensor.info.dtype.to_numpy()
    except ValueError:
        return False
    # the small floats of ml_dtypes call themselves void ("V") and have no fields
    return kind.kind in "fiubc" or (kind.kind == "V" and tensor.info.dtype.numpy_spec is None)


def blocks(tensor: Tensor) -> Iterator[numpy.ndarray]:
    """The values as float64 arrays, block by block; magnitudes of complex ones."""
    import numpy

    kind = tensor.info.dtype.to_numpy()
    for chunk in tensor.chunks():
        values = numpy.frombuffer(chunk, kind)
        with numpy.errstate(invalid="ignore", over="ignore"):
            yield (numpy.abs(values) if values.dtype.kind == "c" else values).astype(numpy.float64)


def smallest_normal(tensor: Tensor) -> float:
    """The smallest normal number of a floating type; 0 for whole numbers."""
    import numpy

    kind = tensor.info.dtype.to_numpy()
    if kind.kind == "V":
        import ml_dtypes

        try:
            return float(ml_dtypes.finfo(kind).smallest_normal)
        except ValueError:  # int4 and its kin
            return 0.0
    return float(numpy.finfo(kind).smallest_normal) if kind.kind in "fc" else 0.0


def measure(tensor: Tensor, progress: Callable[[int], None] | None = None) -> Numbers:
    """The numbers of a tensor's values. MissingBytes when there are none; check :func:`has_numbers` before."""
    numbers = Numbers()
    smallest = smallest_normal(tensor)
    for values in blocks(tensor):
        numbers.add(values, smallest)
        if progress is not None:
            progress(tensor.info.dtype.nbytes(values.size))
    return numbers


def histogram(tensor: Tensor, numbers: Numbers, bins: int, progress: Callable[[int], None] | None = None) -> list[int]:
    """Counts of the finite values in ``bins`` equal steps from ``numbers.min`` to ``numbers.max``; empty when the
    values do not differ."""
    import numpy

    if numbers.min is None or numbers.max is None or not 0 < numbers.max - numbers.min < float("inf"):
        return []
    counts = numpy.zeros(bins, numpy.int64)
    for values in blocks(tensor):
        counts += numpy.histogram(values[numpy.isfinite(values)], bins, (numbers.min, numbers.max))[0]
        if progress is not None:
            progress(tensor.info.dtype.nbytes(values.size))
    return [int(count) for count in counts]
