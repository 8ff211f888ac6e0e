"""How one tensor of the target is made: from one tensor of the source, from several joined, or from nothing.

A recipe is what a plan comes down to. In rule files the simple ones are rules; the others stand under ``[[make]]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt_tools.errors import UsageError
from ckpt_tools.mapping.transforms import Shape, Transforms, describe, shape_after

#: One behind the other along the first axis; element by element; magnitudes (first) times directions (second) of rows,
#: as weight norm combines them.
JOINS = ("concat", "sum", "weight_norm")


@dataclass(frozen=True)
class Ingredient:
    """A tensor of the source and what happens to it before it is joined."""

    source: str
    steps: Transforms = ()

    def __str__(self) -> str:
        return f"{self.source} [{describe(self.steps)}]" if self.steps else self.source


@dataclass(frozen=True)
class Filling:
    """A tensor that the source does not have: every element is ``value``."""

    dtype: str
    shape: Shape
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.value:g} as {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Recipe:
    """``target`` is the ingredients, joined, after ``steps``; with no ingredients it is the ``filling``.

    ``join`` is one of :data:`JOINS`, or "" for a single ingredient. ``why`` says what decided, for people; ``alias`` is
    the second name that some formats give (Paddle's variable, Keras' path).
    """

    target: str
    ingredients: tuple[Ingredient, ...] = ()
    join: str = ""
    steps: Transforms = ()
    filling: Filling | None = None
    why: str = ""
    alias: str = ""

    @property
    def is_rule(self) -> bool:
        """Whether one tensor becomes another, which a rule can say."""
        return len(self.ingredients) == 1 and not self.join

    @property
    def described(self) -> str:
        """What happens to the values, in one line; empty for a copy."""
        if self.filling is not None:
            return f"made: {self.filling}"
        if not self.join:
            return describe((*self.ingredients[0].steps, *self.steps))
        joined = f"{self.join}({', '.join(map(str, self.ingredients))})"
        return " then ".join(filter(None, (joined, describe(self.steps))))

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        """The shape of the result, from the shapes of the source's tensors. UsageError when something does not fit."""
        if self.filling is not None:
            return self.filling.shape
        parts = [shape_after(each.steps, shapes[each.source]) for each in self.ingredients]
        return shape_after(self.steps, joined_shape(self.join, parts))


def joined_shape(join: str, shapes: Sequence[Shape]) -> Shape:
    """The shape of tensors of these shapes once joined. UsageError when they do not go together."""
    if not join:
        return shapes[0]
    if join == "sum" and len(set(shapes)) == 1:
        return shapes[0]
    if join == "concat" and all(shapes) and len({shape[1:] for shape in shapes}) == 1:
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])
    if join == "weight_norm" and len(shapes) == 2 and shapes[1] and shapes[0] == shapes[1][:1]:
        return shapes[1]
    shown = ", ".join(str(list(shape)) for shape in shapes)
    raise UsageError(f"tensors of the shapes {shown} have no {join}")
