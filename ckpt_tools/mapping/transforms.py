"""What may happen to a tensor's axes on its way to another name, as text and as an effect on shapes and arrays.

The text form stands in rule files: ``permute(1, 0)``, ``reshape(-1)``, and several in order with ``then`` between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
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


Transform = Union[Permute, Reshape, Blocks]
Transforms = tuple[Transform, ...]

_CALL = re.compile(r"(permute|reshape|blocks)\s*\(\s*(-?\d+(?:\s*,\s*-?\d+)*)?\s*\)")


def parse_transforms(text: str) -> Transforms:
    """The steps that ``text`` names, in order. UsageError says what is wrong with it."""
    steps: list[Transform] = []
    for part in re.split(r"\s+then\s+", text.strip()):
        call = _CALL.fullmatch(part)
        if call is None:
            raise UsageError(
                f"{part!r} is no transform; there are permute(AXES), reshape(SHAPE) and blocks(ORDER), joined by 'then'"
            )
        numbers = tuple(int(number) for number in (call[2] or "").split(",") if number.strip())
        if call[1] != "reshape":
            if sorted(numbers) != list(range(len(numbers))) or (call[1] == "blocks" and not numbers):
                raise UsageError(f"{part!r} does not name each number from 0 on once")
            steps.append(Permute(numbers) if call[1] == "permute" else Blocks(numbers))
        else:
            if min(numbers, default=0) < -1 or numbers.count(-1) > 1:
                raise UsageError(f"{part!r} is no shape: at most one extent may be -1")
            steps.append(Reshape(numbers))
    return tuple(steps)


def describe(steps: Sequence[Transform]) -> str:
    """The text form of ``steps``; empty when there are none."""
    return " then ".join(map(str, steps))


def shape_after(steps: Sequence[Transform], shape: Shape) -> Shape:
    """The shape that ``shape`` has after all steps. UsageError when one does not fit."""
    for step in steps:
        shape = step.shape_after(shape)
    return shape
