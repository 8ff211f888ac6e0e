"""What may happen to a tensor on its way to another name, as text and as an effect on shapes and arrays.

The text form stands in rule files: ``permute(1, 0)``, ``reshape(-1)``, and several in order with ``then`` between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ckpt_tools.errors import UsageError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Permute:
    """Axis ``i`` of the result is axis ``axes[i]`` of the source, as numpy's ``transpose`` counts."""

    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"permute({', '.join(map(str, self.axes))})"

    def shape_after(self, shape: Shape) -> Shape:
        """The shape of the result. UsageError when the number of axes differs."""
        if len(shape) != len(self.axes):
            raise UsageError(f"{self} takes {len(self.axes)} axes, shape {list(shape)} has {len(shape)}")
        return tuple(shape[axis] for axis in self.axes)

    def apply(self, array: Any) -> Any:
        """A view of ``array`` (anything with numpy's ``transpose``) with its axes in the new order."""
        return array.transpose(self.axes)


@dataclass(frozen=True)
class Reshape:
    """The same elements, row-major, under another shape; one extent may be -1, as in numpy."""

    shape: Shape

    def __str__(self) -> str:
        return f"reshape({', '.join(map(str, self.shape))})"

    def shape_after(self, shape: Shape) -> Shape:
        """The shape of the result. UsageError when the number of elements does not fit."""
        count = math.prod(shape)
        known = math.prod(extent for extent in self.shape if extent != -1)
        fits = known != 0 and count % known == 0 if -1 in self.shape else known == count
        if not fits:
            raise UsageError(f"{self} does not fit shape {list(shape)} of {count} elements")
        return tuple(count // known if extent == -1 else extent for extent in self.shape)

    def apply(self, array: Any) -> Any:
        """``array`` (anything with numpy's ``reshape``) under the new shape."""
        return array.reshape(self.shape)


@dataclass(frozen=True)
class Blocks:
    """The first axis cut into equal blocks, put into a new order: the gates of recurrent layers."""

    order: tuple[int, ...]

    def __str__(self) -> str:
        return f"blocks({', '.join(map(str, self.order))})"

    def shape_after(self, shape: Shape) -> Shape:
        """The same shape. UsageError when the first axis cannot be cut into that many blocks."""
        if not shape or shape[0] % len(self.order):
            raise UsageError(f"{self} does not cut shape {list(shape)} into {len(self.order)} equal blocks")
        return shape

    def apply(self, array: Any) -> Any:
        """A copy of ``array`` (a numpy array) with its blocks in the new order."""
        cut = array.reshape(len(self.order), array.shape[0] // len(self.order), *array.shape[1:])
        return cut[list(self.order)].reshape(array.shape)


@dataclass(frozen=True)
class Rows:
    """The part of the first axis from ``start`` up to ``stop``: what several tensors were joined from."""

    start: int
    stop: int

    def __str__(self) -> str:
        return f"rows({self.start}, {self.stop})"

    def shape_after(self, shape: Shape) -> Shape:
        """The shape of the part. UsageError when it does not lie inside."""
        if not shape or not 0 <= self.start < self.stop <= shape[0]:
            raise UsageError(f"{self} does not lie inside shape {list(shape)}")
        return (self.stop - self.start, *shape[1:])

    def apply(self, array: Any) -> Any:
        """A view of ``array``."""
        return array[self.start : self.stop]


@dataclass(frozen=True)
class Add:
    """``value`` added to the part of the first axis from ``start`` up to ``stop``: the forget bias of old cells."""

    value: float
    start: int
    stop: int

    def __str__(self) -> str:
        return f"add({self.value!r}, {self.start}, {self.stop})"

    def shape_after(self, shape: Shape) -> Shape:
        """The same shape. UsageError when the part does not lie inside."""
        Rows(self.start, self.stop).shape_after(shape)
        return shape

    def apply(self, array: Any) -> Any:
        """A copy of ``array``, of the same type."""
        changed = array.copy()
        changed[self.start : self.stop] += array.dtype.type(self.value)
        return changed


@dataclass(frozen=True)
class Scale:
    """Every element times ``factor``."""

    factor: float

    def __str__(self) -> str:
        return f"scale({self.factor!r})"

    def shape_after(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def apply(self, array: Any) -> Any:
        """A new array of the same type."""
        return array * array.dtype.type(self.factor)


@dataclass(frozen=True)
class Zeros:
    """Zeros of the same shape: a bias that the other framework does not have."""

    def __str__(self) -> str:
        return "zeros()"

    def shape_after(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def apply(self, array: Any) -> Any:
        """A new array of the same type."""
        import numpy

        return numpy.zeros(array.shape, array.dtype)


@dataclass(frozen=True)
class RowNorms:
    """The Euclidean norm of each row, over all axes but the first: the magnitudes that weight norm keeps."""

    def __str__(self) -> str:
        return "row_norms()"

    def shape_after(self, shape: Shape) -> Shape:
        """One number for each row. UsageError for a shape without axes."""
        if not shape:
            raise UsageError(f"{self} takes at least one axis")
        return shape[:1]

    def apply(self, array: Any) -> Any:
        """A new array of the same type; sums are taken in float64."""
        rows = array.reshape(array.shape[0], -1).astype("f8")
        return ((rows * rows).sum(1) ** 0.5).astype(array.dtype)


Transform = Union[Permute, Reshape, Blocks, Rows, Add, Scale, Zeros, RowNorms]
Transforms = tuple[Transform, ...]

_CALL = re.compile(r"(?P<name>[a-z_]+)\s*\(\s*(?P<arguments>[^()]*?)\s*\)")


def parse_transforms(text: str) -> Transforms:
    """The steps that ``text`` names, in order. UsageError says what is wrong with it."""
    return tuple(_parsed(part) for part in re.split(r"\s+then\s+", text.strip()))


def _parsed(text: str) -> Transform:
    call = _CALL.fullmatch(text)
    if call is None or call["name"] not in _PARSERS:
        raise UsageError(
            f"{text!r} is no transform; there are permute(AXES), reshape(SHAPE), blocks(ORDER), rows(START, STOP),"
            " add(VALUE, START, STOP), scale(FACTOR), zeros() and row_norms(), joined by 'then'"
        )
    arguments = [argument.strip() for argument in call["arguments"].split(",") if argument.strip()]
    try:
        return _PARSERS[call["name"]](arguments)
    except (ValueError, TypeError):
        raise UsageError(f"{text!r} has arguments that {call['name']} does not take") from None


def _permutation(arguments: list[str]) -> tuple[int, ...]:
    numbers = tuple(map(int, arguments))
    if sorted(numbers) != list(range(len(numbers))):
        raise UsageError(f"({', '.join(arguments)}) does not name each number from 0 on once")
    return numbers


def _extents(arguments: list[str]) -> Shape:
    numbers = tuple(map(int, arguments))
    if min(numbers, default=0) < -1 or numbers.count(-1) > 1:
        raise UsageError(f"({', '.join(arguments)}) is no shape: at most one extent may be -1")
    return numbers


def _order(arguments: list[str]) -> tuple[int, ...]:
    if not arguments:
        raise UsageError("blocks() does not name each number from 0 on once")
    return _permutation(arguments)


_PARSERS: Mapping[str, Callable[[list[str]], Transform]] = {
    "permute": lambda arguments: Permute(_permutation(arguments)),
    "reshape": lambda arguments: Reshape(_extents(arguments)),
    "blocks": lambda arguments: Blocks(_order(arguments)),
    "rows": lambda arguments: Rows(*map(int, arguments)),
    "add": lambda arguments: Add(float(arguments[0]), *map(int, arguments[1:])),
    "scale": lambda arguments: Scale(*map(float, arguments)),
    "zeros": lambda arguments: Zeros(*arguments),
    "row_norms": lambda arguments: RowNorms(*arguments),
}


def describe(steps: Sequence[Transform]) -> str:
    """The text form of ``steps``; empty when there are none."""
    return " then ".join(map(str, steps))


def shape_after(steps: Sequence[Transform], shape: Shape) -> Shape:
    """The shape that ``shape`` has after all steps. UsageError when one does not fit."""
    for step in steps:
        shape = step.shape_after(shape)
    return shape
