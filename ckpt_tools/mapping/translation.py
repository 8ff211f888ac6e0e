"""From one framework's names and layouts to another's: what becomes of every tensor, with what decided it, or what
cannot be decided.

Both sides are taken apart into neutral tensors (:mod:`ckpt_tools.mapping.spellings`), and these are paired
(:mod:`ckpt_tools.mapping.pairing`). A layout is chosen by the kind of layer. Where that is
unknown, every kind that a tensor could be of is tried: when all that fit its shapes do the same to it, that is done,
otherwise it is ambiguous. Nothing is ever guessed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ckpt_tools.core.keys import Globs, listed
from ckpt_tools.errors import UsageError
from ckpt_tools.mapping.candidates import Kinds
from ckpt_tools.mapping.kinds import CONVOLUTIONS, NORMS, PARAMETER, WEIGHT_NORM_DIMS, LayerPart, Shape
from ckpt_tools.mapping.layouts import between, simplified, to_torch
from ckpt_tools.mapping.naming import Item, name_in
from ckpt_tools.mapping.pairing import How, Placed, pair
from ckpt_tools.mapping.recipes import Ingredient, Recipe
from ckpt_tools.mapping.spellings import (
    BATCH_COUNTER,
    RECURRENT_LEAF,
    Certainty,
    Piece,
    Spelling,
    Stored,
    follows,
    is_numbered,
    part_of,
    spell,
)
from ckpt_tools.mapping.transforms import RowNorms, Transforms, Zeros, shape_after

_DIGITS = re.compile(r"\d+")
#: Kinds of the same effect, one after the other; which of them a tensor is of makes no difference.
Choices = tuple[Kinds, ...]
_EITHER_DIM: Choices = tuple((kind,) for kind in WEIGHT_NORM_DIMS)
_OTHER_AXIS = "weight norm over another axis than that of the outputs has no counterpart"


@dataclass(frozen=True)
class Side:
    """The weights of a file or a model, and the framework whose names and layouts they have."""

    family: str
    tensors: Sequence[Stored]
    #: whether what Keras counts is the order of a list: not where attributes say something else of it
    by_count: bool = True


@dataclass(frozen=True)
class Ambiguity:
    """Tensors of names alike, of which nothing says which of the ``choices`` they are. ``globs`` match these and no
    others."""

    globs: tuple[str, ...]
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    choices: Choices

    @property
    def kinds(self) -> list[str]:
        """A kind for each choice."""
        return [alike[0] for alike in self.choices]

    @property
    def unknown(self) -> str:
        """What it is that nothing tells."""
        if self.choices == _EITHER_DIM:
            return "the axis of weight norm"
        return "the kind of layer, and so names and layout,"

    @property
    def options(self) -> list[str]:
        """What settles it, one of these."""
        return [" ".join(f"--kind '{glob}={kind}'" for glob in self.globs) for kind in self.kinds]

    @property
    def described(self) -> list[str]:
        """The options with the other kinds that each is right for."""
        return [
            f"{option} (the same for {', '.join(alike[1:])})" if len(alike) > 1 else option
            for option, alike in zip(self.options, self.choices)
        ]

    def to_json(self) -> dict[str, object]:
        return {
            "names": list(self.names),
            "shapes": [list(shape) for shape in self.shapes],
            "kinds": self.kinds,
            "alike": [list(alike) for alike in self.choices],
            "options": self.options,
        }


@dataclass
class Translation:
    """``recipes`` make the target's tensors in its order. The other lists name what stands in the way, or is left:

    ``unplaced`` tensors of the source that the target has no place for, ``unfilled`` ones of the target that the source
    has nothing for, ``left`` counters that only the source's framework has; ``conflicts`` are sentences.
    """

    recipes: list[Recipe] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    unfilled: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    #: the kinds of layer that took part
    kinds: set[str] = field(default_factory=set)
    #: what was done to pair tensors of other names, in sentences
    notes: list[str] = field(default_factory=list)
    #: whether no list was matched by a count that is not its order
    is_sure: bool = True
    #: kernels of three axes with a bias, which are those of a convolution, or of a Bilinear
    assumed: list[str] = field(default_factory=list)
    #: how many parts of names the paired tensors have in common
    agreement: int = 0


def translate(source: Side, family: str, target: Side | None = None, *, partial: bool = False) -> Translation:
    """Plan the way from ``source`` to ``family``: to the names of ``target`` where it is given, else to names of its own.

    With ``partial`` what has no counterpart is only listed, and pairing goes by names alone.
    """
    return _Translator(source, family, target, partial=partial).run()


class _Translator:
    def __init__(self, source: Side, family: str, target: Side | None, *, partial: bool) -> None:
        self.source, self.family, self.target, self.partial = source, family, target, partial
        self.result = Translation()
        self._shapes = {tensor.name: tensor.shape for tensor in source.tensors}
        self._undecided: dict[Choices, dict[str, Shape]] = defaultdict(dict)
        #: the tensors of which the kind is open, with what follows from it
        self._open: set[str] = set()
        self._how: dict[str, tuple[How, ...]] = {}
        #: the tensors that are there again under a name of the same layer
        self._repeated: set[str] = set()

    def run(self) -> Translation:
        spellings = spell(self.source.family, self.source.tensors)
        items = self._items(spellings)
        self._check_weight_norm(items)
        if self.target is None:
            if self.family == "keras":
                items = [fused for item in items for fused in _fused(item, items)]
            items = self._settled([item for item in items if item.piece.layer.part != BATCH_COUNTER])
            targets = name_in(self.family, items)
            pairs = {item.piece.name: item for item in items}
        else:
            targets = spell(self.family, self.target.tensors)
            self._check_weight_norm_of_target(targets)
            pairs = self._paired(items, [piece for spelling in targets for piece in spelling.pieces])
        used: set[tuple[str, str]] = set()
        for spelling in targets:
            recipe = self._recipe(spelling, pairs)
            if recipe is not None:
                self.result.recipes.append(recipe)
            for item in (pairs[piece.name] for piece in spelling.pieces if piece.name in pairs):
                used.update((each.source, item.piece.name) for each in item.ingredients)
        self.result.assumed = [] if self.target is not None else self._assumed_convolutions(items)
        self._account(spellings, used)
        self.result.ambiguous += _grouped(self._undecided, list(self._shapes))
        return self.result

    # ---- the source's side

    def _items(self, spellings: Sequence[Spelling]) -> list[Item]:
        """The neutral tensors of the source. Of two spellings of one (Paddle's cells) the later counts, as on loading; any
        others of one name are not the same tensor, and none of them has a place."""
        found: dict[str, Item] = {}
        for spelling in spellings:
            if spelling.refusal:
                self.result.conflicts.append(f"{spelling.stored.name}: {spelling.refusal}")
            for piece in spelling.pieces:
                ingredient = Ingredient(spelling.stored.name, piece.inward)
                before = found.get(piece.name)
                found[piece.name] = Item(piece, self.source.family, (ingredient,))
                if before is not None and self.source.family == "paddle" and RECURRENT_LEAF.fullmatch(piece.leaf):
                    self._repeated.add(before.ingredients[0].source)
                elif before is not None:
                    both = before.ingredients[0].source, spelling.stored.name
                    self.result.conflicts.append(f"{both[0]} and {both[1]} would be one tensor, {piece.name}")
        return list(found.values())

    def _check_weight_norm(self, items: Sequence[Item]) -> None:
        """Magnitudes have to be those of torch's first axis: Paddle keeps them without saying for which axis they are."""
        for item in items:
            directions = _beside(item, "weight_v", items) if item.piece.layer.part == "weight_g" else None
            if directions is None:
                continue
            source, size, shape = item.ingredients[0].source, math.prod(item.piece.shape or ()), directions.torch_shape
            lying = directions.piece.shape or ()
            is_other = (
                item.family == "paddle" and len(lying) == 2 and (size,) == lying[:1] != lying[1:] and shape != lying
            )
            if is_other or _norms_other_axis(item.piece, directions.piece):
                self.result.conflicts.append(
                    f"{source}: {_OTHER_AXIS}; paddle.nn.utils.remove_weight_norm makes one of both"
                )
            elif shape is not None and len(shape) > 1 and size != shape[0]:
                self.result.conflicts.append(f"{source} has {size} magnitudes, {shape[0]} of the first axis are needed")
            elif item.family == "paddle" and len(lying) == 2 and lying[0] == lying[1]:
                if item.piece.layer.kind not in WEIGHT_NORM_DIMS:
                    self._undecided[_EITHER_DIM][source] = item.piece.shape or ()

    def _check_weight_norm_of_target(self, targets: Sequence[Spelling]) -> None:
        pieces = {piece.name: piece for spelling in targets for piece in spelling.pieces}
        for _, parts in _whole(pieces):
            if parts is not None and _norms_other_axis(*parts):
                self.result.conflicts.append(f"{parts.magnitudes.name} of the target: {_OTHER_AXIS}")

    # ---- kinds, where no target tells names and shapes

    def _settled(self, items: Sequence[Item]) -> list[Item]:
        """The items with a kind each: any of those they can be of, where all give the same names and values."""
        layers: dict[object, list[Item]] = defaultdict(list)
        for item in items:
            layers[item.piece.prefix, item.piece.path].append(item)
        return [each for layer in layers.values() for each in self._settled_layer(layer)]

    def _settled_layer(self, layer: Sequence[Item]) -> list[Item]:
        for item in layer:
            if item.piece.layer.kind in NORMS and not item.piece.layer.part and is_numbered(item.family, item.piece):
                self.result.conflicts.append(
                    f"{item.ingredients[-1].source}: its number does not tell which part of a {item.piece.layer.kind} it is,"
                    " which leaves out others; --like a model does"
                )
        results: dict[str, dict[str, object]] = {item.piece.name: {} for item in layer if not item.piece.layer.kind}
        for kind in dict.fromkeys(
            kind for item in layer if item.piece.name in results for kind in _possible(item.piece)
        ):
            tried = [_taken_as(item, kind) if kind in _possible(item.piece) else item for item in layer]
            named: dict[str, list[object]] = defaultdict(list)
            for spelling in name_in(self.family, tried):
                for piece in spelling.pieces:
                    named[piece.name].append((spelling.stored.name, piece.outward))
            for item, taken in zip(layer, tried):
                if item.piece.name not in results or item is taken:
                    continue
                with suppress(UsageError):  # a shape that this kind of layer cannot have
                    steps = _steps(taken, self.family, taken.piece.layer, None)
                    results[item.piece.name][kind] = steps, named[taken.piece.name]
        choices = {name: _alike(result) for name, result in results.items()}
        asked = {name for name, alike in choices.items() if len(alike) > 1}
        leads = any(item.piece.name in asked and not follows(item.family, item.piece) for item in layer)
        settled = []
        for item in layer:
            name, alike = item.piece.name, choices.get(item.piece.name, ())
            if name in asked:
                self._open.update(each.source for each in item.ingredients)
                if not leads or not follows(item.family, item.piece):
                    self._undecided[alike][item.ingredients[-1].source] = item.piece.shape or ()
            elif alike:
                item = _taken_as(item, alike[0][0])
                why = _why_one_reading(item.piece.shape or (), None)
                item = replace(item, piece=replace(item.piece, certainty=Certainty.INFERRED, why=why))
            settled.append(item)
        return settled

    def _assumed_convolutions(self, items: Sequence[Item]) -> list[str]:
        """Kernels of Conv1d by their axes and bias alone: torch's Bilinear looks the same."""
        return [
            item.ingredients[-1].source
            for item in items
            if item.piece.layer == LayerPart("conv1d", "weight")
            and item.piece.certainty is Certainty.INFERRED
            and self.source.family == "torch"
            and (bias := _beside(item, "bias", items)) is not None
            and bias.piece.shape == (item.piece.shape or ())[:1]
        ]

    # ---- pairing

    def _paired(self, items: Sequence[Item], wanted: Sequence[Piece]) -> dict[str, Item]:
        """The item for each neutral name of the target that has one. Weights under weight norm are paired as the one
        weight that they are, and are then given as the target has them."""
        ours = [fused for item in items for fused in _fused(item, items)]
        theirs = _whole({piece.name: piece for piece in wanted})
        pairs = pair(
            [_placed(at, item.piece, item.family) for at, item in enumerate(ours)],
            [_placed(at, whole, self.family) for at, (whole, _) in enumerate(theirs)],
            by_structure=not self.partial,
        )
        found: dict[str, Item] = {}
        for at, match in sorted(pairs.items()):
            (whole, parts), item = theirs[at], ours[match.ours]
            self.result.agreement += len({*item.piece.path} & {*whole.path})
            made = _apart(item, parts, items) if parts is not None else {whole.name: item}
            self._how.update(dict.fromkeys(made, match.how))
            found.update(made)
        every = dict.fromkeys(how for match in pairs.values() for how in match.how)
        for way in dict.fromkeys(how.way for how in every):
            self.result.notes.append(f"{way}: {listed([how.pair for how in every if how.way == way], '; ')}")
        trusted = self.source.by_count and (self.target is None or self.target.by_count)
        self.result.is_sure = trusted or not any(how.by_count for how in every)
        return found

    # ---- recipes

    def _recipe(self, spelling: Spelling, pairs: Mapping[str, Item]) -> Recipe | None:
        name = spelling.stored.name
        found = [(pairs[piece.name], piece) for piece in spelling.pieces if piece.name in pairs]
        if spelling.filling is not None and not found:
            return Recipe(name, filling=spelling.filling, why="the source has none")
        if spelling.refusal or len(found) < len(spelling.pieces):
            self.result.unfilled.append(name)
            return None
        whole = spelling.stored.shape if len(found) == 1 else None
        ways = [self._way(item, piece, name, whole) for item, piece in found]
        if any(way is None for way in ways):
            return None
        how = [each.said for _, piece in found for each in self._how.get(piece.name, ())]
        why = ", ".join(dict.fromkeys((*(way.why for way in ways if way is not None and way.why), *how)))
        if len(found) == 1 and found[0][0].join:
            item, way = found[0][0], ways[0]
            assert way is not None
            ingredients = (*item.ingredients[:-1], self._simplified(_after(item.ingredients[-1], way.before)))
            return Recipe(name, ingredients, item.join, (*way.steps, *spelling.steps), why=why)
        parts = tuple(_after(item.ingredients[0], way.steps) for (item, _), way in zip(found, ways) if way is not None)
        if spelling.join == "sum":
            parts = tuple(part for part in parts if Zeros() not in part.steps) or parts[:1]
        return Recipe(name, parts, spelling.join if len(parts) > 1 else "", spelling.steps, why=why)

    def _simplified(self, ingredient: Ingredient) -> Ingredient:
        return replace(ingredient, steps=simplified(ingredient.steps, self._shapes[ingredient.source]))

    def _way(self, item: Item, piece: Piece, target: str, whole: Shape | None) -> _Way | None:
        """The steps from an item to a piece of the target, which is the ``whole`` of a shape or one of several. None
        when they are not to be had, which is then noted."""
        source = item.ingredients[-1].source
        shape = item.piece.shape or ()
        if source in self._open:
            return None
        layer, why = _agreed(item.piece, piece)
        if _contradict(item.piece, piece):
            by_kind = [
                _readings(item, self.family, layer.part, (kind,), piece.shape)
                for kind in (item.piece.layer.kind, piece.layer.kind)
            ]
            if [*by_kind[0].values()] != [*by_kind[1].values()]:
                ours = f"{_article(item.piece.layer.kind)} ({item.piece.why})"
                self.result.conflicts.append(f"{source} is {ours}, not the {piece.layer.kind} of {target}")
                return None
        if item.piece.layer.kind != layer.kind or not _stands_for_others(item.piece):
            self.result.kinds.add(layer.kind)
        kinds = (layer.kind,) if layer.kind else _possible(item.piece, piece)
        readings = _readings(item, self.family, layer.part, kinds, piece.shape)
        choices = _alike(readings)
        if not choices:
            wanted = piece.shape if whole is None or self.target is None else whole
            self.result.conflicts.append(_misfit(source, shape, target, wanted, layer.kind))
            return None
        if len(choices) > 1:
            self._undecided[choices][source] = shape
            return None
        before, steps = readings[choices[0][0]]
        if not layer.kind:
            why = _why_one_reading(shape, piece.shape)
        return _Way((*steps, *piece.outward), why, before)

    # ---- what is left over

    def _account(self, spellings: Sequence[Spelling], used: Set[tuple[str, str]]) -> None:
        """List every tensor of the source of which something becomes nothing. ``used`` are the parts of its tensors, by
        both names, that something was made of or stands in the way of that."""
        sources = {source for source, _ in used}
        for spelling in spellings:
            name = spelling.stored.name
            if name in self._open or name in self._repeated or spelling.refusal:
                continue
            parts = [piece for piece in spelling.pieces if Zeros() not in piece.inward]
            if spelling.filling is not None:
                if name not in sources:
                    self.result.left.append(name)
            elif name not in sources or (len(parts) > 1 and not all((name, piece.name) in used for piece in parts)):
                self.result.unplaced.append(name)


@dataclass(frozen=True)
class _Way:
    """``before`` are the steps that have to come before a joining."""

    steps: Transforms
    why: str
    before: Transforms = ()


def _beside(item: Item, part: str, items: Sequence[Item]) -> Item | None:
    """The other part of the same layer."""
    owner = item.piece.prefix, item.piece.path
    return next(
        (
            other
            for other in items
            if other.piece.layer.part == part and (other.piece.prefix, other.piece.path) == owner
        ),
        None,
    )


def _after(ingredient: Ingredient, steps: Transforms) -> Ingredient:
    return replace(ingredient, steps=(*ingredient.steps, *steps))


def _fused(item: Item, items: Sequence[Item]) -> list[Item]:
    """weight_g and weight_v as one weight, the layout of which is still that of weight_v."""
    piece = item.piece
    if piece.layer.part == "weight_g" and _beside(item, "weight_v", items) is not None:
        return []
    magnitudes = _beside(item, "weight_g", items) if piece.layer.part == "weight_v" else None
    if magnitudes is None:
        return [item]
    fused = replace(piece, layer=LayerPart(piece.layer.kind, "weight"), inward=())
    return [Item(fused, item.family, (magnitudes.ingredients[0], item.ingredients[0]), "weight_norm")]


def _norms_other_axis(magnitudes: Piece, directions: Piece) -> bool:
    """Whether they are told to be those of an axis of Paddle's weight that is not torch's first."""
    right = WEIGHT_NORM_DIMS[1 if directions.layer.kind == "linear" else 0]
    return magnitudes.layer.kind in WEIGHT_NORM_DIMS and bool(directions.layer.kind) and magnitudes.layer.kind != right


class _WeightNorm(NamedTuple):
    """The two pieces of the target that make one weight."""

    magnitudes: Piece
    directions: Piece


def _whole(wanted: Mapping[str, Piece]) -> list[tuple[Piece, _WeightNorm | None]]:
    """The pieces of the target, weight_g and weight_v as the weight that they make, with both."""
    magnitudes = {(p.prefix, p.path): p for p in wanted.values() if p.layer.part == "weight_g"}
    directions = {(p.prefix, p.path): p for p in wanted.values() if p.layer.part == "weight_v"}
    found: list[tuple[Piece, _WeightNorm | None]] = []
    for piece in wanted.values():
        owner, part = (piece.prefix, piece.path), piece.layer.part
        if part == "weight_v" and owner in magnitudes:
            weight = replace(piece, layer=LayerPart(piece.layer.kind, "weight"))
            found.append((weight, _WeightNorm(magnitudes[owner], piece)))
        elif part != "weight_g" or owner not in directions:
            found.append((piece, None))
    return found


def _apart(item: Item, wanted: _WeightNorm, items: Sequence[Item]) -> dict[str, Item]:
    """What there is for weight_g and weight_v of the target: the source's own, or its weight and the norms of its rows.
    Without the norms where the kind of layer, and so what its rows are, is not known."""
    if item.join:
        own = {part: _beside(item, part, items) for part in ("weight_g", "weight_v")}
        return {piece.name: other for piece in wanted if (other := own[piece.layer.part]) is not None}
    piece = item.piece
    directions = replace(piece, layer=LayerPart(piece.layer.kind, "weight_v"))
    found = {wanted.directions.name: Item(directions, item.family, item.ingredients)}
    kind = piece.layer.kind or wanted.directions.layer.kind
    steps = to_torch(item.family, LayerPart(kind, "weight_v"), piece.shape or ())
    if steps is not None:
        rows = shape_after(steps, piece.shape or ())[:1]
        norms = _after(item.ingredients[0], (*steps, RowNorms()))
        magnitudes = replace(piece, layer=LayerPart(kind, "weight_g"), shape=rows)
        found[wanted.magnitudes.name] = Item(magnitudes, "torch", (norms,))
    return found


def _placed(index: int, piece: Piece, family: str) -> Placed:
    shape = piece.shape or ()
    steps = to_torch(family, piece.layer, shape) if piece.layer.kind else None
    return Placed(index, piece, shape if steps is None else shape_after(steps, shape))


def _agreed(ours: Piece, theirs: Piece) -> tuple[LayerPart, str]:
    """The layer that both sides together make it, and what decided that. Depthwise is the narrower word."""
    part = ours.layer.part or theirs.layer.part
    best = ours if ours.certainty >= theirs.certainty else theirs
    if ours.certainty < Certainty.ASKED and {ours.layer.kind, theirs.layer.kind} <= CONVOLUTIONS:
        best = next((piece for piece in (ours, theirs) if piece.layer.kind.startswith("depthwise")), best)
    return LayerPart(best.layer.kind, part), best.why if best.layer.kind else ""


def _contradict(ours: Piece, theirs: Piece) -> bool:
    """Whether both sides were told of kinds that are not the same."""
    a, b = ours.layer.kind, theirs.layer.kind
    told = ours.certainty is Certainty.TOLD and theirs.certainty is Certainty.TOLD
    return told and a != b and not {a, b} <= CONVOLUTIONS and not _is_cell_of(a, b)


def _is_cell_of(a: str, b: str) -> bool:
    return a.removesuffix("_cell") == b.removesuffix("_cell")


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _possible(ours: Piece, theirs: Piece | None = None) -> Kinds:
    """The kinds that both sides leave open; those of the source where these exclude each other."""
    kinds = ours.possible or (PARAMETER,)
    both = tuple(kind for kind in kinds if theirs is None or not theirs.possible or kind in theirs.possible)
    return both or kinds


def _stands_for_others(piece: Piece) -> bool:
    """Whether its kind is one of several of the same effect, which notes on kinds would not be about."""
    return len(piece.possible) > 1 and not CONVOLUTIONS.issuperset(piece.possible)


def _taken_as(item: Item, kind: str) -> Item:
    part = part_of(item.family, kind, item.piece.leaf) or item.piece.layer.part
    return replace(item, piece=replace(item.piece, layer=LayerPart(kind, part)))


def _steps(
    item: Item, family: str, layer: LayerPart, target_shape: Shape | None
) -> tuple[Transforms, Transforms] | None:
    """The steps before a joining, after which the rows of a weight under weight norm are torch's, and those after it.
    None when there are none for this kind; UsageError when it cannot have the shape."""
    shape, source = item.piece.shape or (), item.family
    before: Transforms = ()
    if item.join:
        first = to_torch(item.family, LayerPart(layer.kind, "weight_v"), shape)
        if first is None:
            return None
        source, before, shape = "torch", first, shape_after(first, shape)
    steps = between(source, family, LayerPart(layer.kind, layer.part or "weight"), shape, target_shape)
    return None if steps is None else (before, steps)


def _readings(
    item: Item, family: str, part: str, kinds: Kinds, target_shape: Shape | None
) -> dict[str, tuple[Transforms, Transforms]]:
    """The steps by every kind that the tensor could be of, as far as they lead to the target's shape."""
    found = {}
    for kind in kinds:
        with suppress(UsageError):  # a shape that this kind of layer cannot have
            steps = _steps(item, family, LayerPart(kind, part), target_shape)
            if steps is None:
                continue
            if target_shape is None or shape_after((*steps[0], *steps[1]), item.piece.shape or ()) == target_shape:
                found[kind] = steps
    return found


def _alike(results: Mapping[str, object]) -> Choices:
    """The kinds that have the same result together."""
    found: list[tuple[object, list[str]]] = []
    for kind, result in results.items():
        same = next((kinds for other, kinds in found if other == result), None)
        if same is None:
            found.append((result, [kind]))
        else:
            same.append(kind)
    return tuple(tuple(kinds) for _, kinds in found)


def _misfit(source: str, shape: Shape, target: str, target_shape: Shape | None, kind: str) -> str:
    if kind.startswith("depthwise") and target_shape is None:
        return (
            f"{source} {list(shape)}: how many inputs a depthwise kernel has is in Keras' shape alone, --like its model"
        )
    of_kind = f" as {kind}" if kind else ""
    wants = f" {list(target_shape)}" if target_shape is not None else ""
    return f"{source} {list(shape)} does not become {target}{wants}{of_kind}"


def _why_one_reading(shape: Shape, target_shape: Shape | None) -> str:
    if len(shape) < 2:
        return f"{len(shape)} {'axis' if len(shape) == 1 else 'axes'}: nothing to be laid out"
    return "the target's shape" if target_shape is not None else "the same for every kind it can be"


# ---- ambiguities


def _grouped(undecided: Mapping[Choices, Mapping[str, Shape]], names: Sequence[str]) -> list[Ambiguity]:
    """Undecided tensors by the template of their names, of which ``names`` are all."""
    found = []
    for choices, shapes in undecided.items():
        templates: dict[str, list[str]] = defaultdict(list)
        for name in shapes:
            templates[_DIGITS.sub("*", name)].append(name)
        for alike in templates.values():
            found.append(Ambiguity(_globs(alike, names), tuple(alike), tuple(shapes[name] for name in alike), choices))
    return found


def _globs(alike: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """One glob with stars for the numbers, where it matches no others of ``names``; else one for each name."""
    escaped = [re.sub(r"([*?[])", r"[\1]", name) for name in alike]
    wide = _DIGITS.sub("*", escaped[0])
    matches = Globs([wide])
    if len(alike) > 1 and {name for name in names if matches(name)} == set(alike):
        return (wide,)
    return tuple(escaped)
