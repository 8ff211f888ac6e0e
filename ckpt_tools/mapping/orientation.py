"""Whether two tensors of the same name lie the same way, or one has its axes in another framework's order.

Shapes decide where they can. Where both readings fit (a square matrix), the layer kind decides, unless the matrices of
the same pair of files that shapes do decide lie as they are: then this is a copy in another container. What nothing
decides is ambiguous, and is never taken for either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ckpt_tools.errors import UsageError
from ckpt_tools.mapping.kinds import UNKNOWN, LayerPart, Shape
from ckpt_tools.mapping.layouts import between, matters
from ckpt_tools.mapping.transforms import Permute, Transforms, shape_after

#: Looks at values: True when B's are A's after the steps, False when they are A's as they are, None when neither.
Look = Callable[[int, Transforms], "bool | None"]


@dataclass(frozen=True)
class Pair:
    """Two tensors that are compared: shapes and what is known of the layer on either side."""

    shape_a: Shape
    shape_b: Shape
    layer_a: LayerPart | None = None
    layer_b: LayerPart | None = None

    @property
    def layer(self) -> LayerPart:
        """What both sides together know. Depthwise is the narrower word for a convolution."""
        a, b = self.layer_a or UNKNOWN, self.layer_b or UNKNOWN
        kind = b.kind if not a.kind or b.kind.startswith("depthwise") else a.kind
        return LayerPart(kind, a.part or b.part)


@dataclass(frozen=True)
class Orientation:
    """``steps`` lead from A's axes to B's; ``fits`` says whether the shapes then agree; ``decided_by`` is one of
    ``shape``, ``kind``, ``values``, ``as is``, or "" when it is ``ambiguous``."""

    steps: Transforms = ()
    fits: bool = True
    ambiguous: bool = False
    decided_by: str = "shape"


_TRANSPOSE: Transforms = (Permute((1, 0)),)
AS_IT_IS = Orientation()
MISFIT = Orientation(fits=False)


def orient(
    pairs: Sequence[Pair], family_a: str | None, family_b: str | None, look: Look | None = None
) -> list[Orientation]:
    """The orientation of each pair. ``look`` is asked, by the pair's position, only where shapes do not decide."""
    if family_a is None or family_b is None or family_a == family_b:
        known = [AS_IT_IS if pair.shape_a == pair.shape_b else MISFIT for pair in pairs]
        if family_a == family_b or look is None:
            return known
        return [_seen(index, pair, each, look) for index, (pair, each) in enumerate(zip(pairs, known))]
    found: list[Orientation | None] = [_by_shape(pair, family_a, family_b) for pair in pairs]
    turned = sum(1 for each in found if each is not None and each.fits and each.steps)
    copied = sum(1 for each, pair in zip(found, pairs) if each is AS_IT_IS and _would_turn(pair, family_a, family_b))
    return [
        each if each is not None else _undecided(index, pair, family_a, family_b, turned, copied, look)
        for index, (each, pair) in enumerate(zip(found, pairs))
    ]


def _seen(index: int, pair: Pair, known: Orientation, look: Look) -> Orientation:
    """Where nobody knows whose layout one side has, only values can tell that a square matrix is transposed."""
    if len(pair.shape_a) == 2 and pair.shape_a[0] == pair.shape_a[1] and known.fits and look(index, _TRANSPOSE):
        return Orientation(_TRANSPOSE, decided_by="values")
    return known


def _steps(pair: Pair, family_a: str, family_b: str) -> Transforms | None:
    try:
        return between(family_a, family_b, pair.layer, pair.shape_a, pair.shape_b)
    except UsageError:  # a shape this kind of layer cannot have
        return ()


def _reached(steps: Transforms, shape: Shape) -> Shape | None:
    try:
        return shape_after(steps, shape)
    except UsageError:
        return None


def _would_turn(pair: Pair, family_a: str, family_b: str) -> bool:
    return bool(_steps(pair, family_a, family_b)) and pair.shape_a == pair.shape_b


def _by_shape(pair: Pair, family_a: str, family_b: str) -> Orientation | None:
    """What the shapes alone say; None when both readings fit them."""
    steps = _steps(pair, family_a, family_b)
    as_is = pair.shape_a == pair.shape_b
    if steps is None:
        if len(pair.shape_a) != 2 or not matters(family_a, family_b):
            return AS_IT_IS if as_is else MISFIT
        steps = _TRANSPOSE
    turned = _reached(steps, pair.shape_a) == pair.shape_b
    if as_is and turned and steps:
        return None
    if as_is:
        return AS_IT_IS
    if not turned:  # Keras calls the weight of a depthwise convolution a kernel too; its shape tells
        depthwise = replace(pair, layer_a=None, layer_b=LayerPart(f"depthwise_{pair.layer.kind}", pair.layer.part))
        steps = _steps(depthwise, family_a, family_b) if pair.layer.kind.startswith("conv") else None
        turned = bool(steps) and _reached(steps or (), pair.shape_a) == pair.shape_b
    return Orientation(steps or ()) if turned else MISFIT


def _undecided(
    index: int, pair: Pair, family_a: str, family_b: str, turned: int, copied: int, look: Look | None
) -> Orientation:
    known = _steps(pair, family_a, family_b)
    steps = _TRANSPOSE if known is None else known
    seen = look(index, steps) if look is not None else None
    if seen is not None:
        return Orientation(steps, decided_by="values") if seen else Orientation(decided_by="values")
    if copied and not turned:
        return Orientation(decided_by="as is")
    if known is None or copied:
        return Orientation(ambiguous=True, decided_by="")
    return Orientation(steps, decided_by="kind")
