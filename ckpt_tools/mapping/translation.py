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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ckpt_tools.core.keys import Globs, listed
from ckpt_tools.errors import UsageError
from ckpt_tools.mapping.kinds import CONVOLUTIONS, PARAMETER, LayerPart, Shape
from ckpt_tools.mapping.layouts import between, simplified, to_torch
from ckpt_tools.mapping.naming import Item, name_in
from ckpt_tools.mapping.pairing import How, Placed, pair
from ckpt_tools.mapping.recipes import Ingredient, Recipe
from ckpt_tools.mapping.spellings import BATCH_COUNTER, Certainty, Piece, Spelling, Stored, spell
from ckpt_tools.mapping.transforms import RowNorms, Transforms, Zeros, shape_after

_DIGITS = re.compile(r"\d+")
_MATRIX_PARTS = ("weight", "weight_v", "weight_orig")


@dataclass(frozen=True)
class Side:
    """The weights of a file or a model, and the framework whose names and layouts they have."""

    family: str
    tensors: Sequence[Stored]
    #: whether what Keras counts is the order of a list: not where attributes say something else of it
    by_count: bool = True


@dataclass(frozen=True)
class Ambiguity:
    """Tensors of names alike, of which nothing says which of ``kinds`` they are. ``globs`` match these and no others."""

    globs: tuple[str, ...]
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    kinds: tuple[str, ...]

    @property
    def options(self) -> list[str]:
        """What settles it, one of these."""
        return [" ".join(f"--kind '{glob}={kind}'" for glob in self.globs) for kind in self.kinds]

    def to_json(self) -> dict[str, object]:
        return {
            "names": list(self.names),
            "shapes": [list(shape) for shape in self.shapes],
            "kinds": list(self.kinds),
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
        self._undecided: dict[tuple[str, ...], dict[str, Shape]] = defaultdict(dict)
        self._how: dict[str, tuple[How, ...]] = {}

    def run(self) -> Translation:
        spellings = spell(self.source.family, self.source.tensors)
        items = self._items(spellings)
        self._check_weight_norm(items)
        if self.target is None:
            if self.family == "keras":
                items = [fused for item in items for fused in _fused(item, items)]
            targets = name_in(self.family, [item for item in items if item.piece.layer.part != BATCH_COUNTER])
            pairs = {item.piece.name: item for item in items}
        else:
            targets = spell(self.family, self.target.tensors)
            pairs = self._paired(items, [piece for spelling in targets for piece in spelling.pieces])
        used: set[str] = set()
        for spelling in targets:
            recipe = self._recipe(spelling, pairs)
            if recipe is not None:
                self.result.recipes.append(recipe)
            used.update(piece.name for piece in spelling.pieces)
        self._account(spellings, {pairs[name].piece.name for name in used if name in pairs})
        self.result.ambiguous += _grouped(self._undecided, list(self._shapes))
        return self.result

    # ---- the source's side

    def _items(self, spellings: Sequence[Spelling]) -> list[Item]:
        """The neutral tensors of the source. Of two spellings of one (Paddle's cells) the later counts, as on loading."""
        found: dict[str, Item] = {}
        for spelling in spellings:
            if spelling.refusal:
                self.result.conflicts.append(f"{spelling.stored.name}: {spelling.refusal}")
            for piece in spelling.pieces:
                ingredient = Ingredient(spelling.stored.name, piece.inward)
                found[piece.name] = Item(piece, self.source.family, (ingredient,))
        return list(found.values())

    def _check_weight_norm(self, items: Sequence[Item]) -> None:
        """Magnitudes have to be those of torch's first axis: Paddle keeps them without saying for which axis they are."""
        for item in items:
            directions = _beside(item, "weight_v", items) if item.piece.layer.part == "weight_g" else None
            shape = directions.torch_shape if directions is not None else None
            if directions is None or shape is None or len(shape) < 2:
                continue
            source, size = item.ingredients[0].source, math.prod(item.piece.shape or ())
            if size != shape[0]:
                self.result.conflicts.append(f"{source} has {size} magnitudes, {shape[0]} of the first axis are needed")
            elif item.family == "paddle" and shape[0] == shape[1] and directions.piece.layer.kind == "linear":
                if item.piece.certainty < Certainty.ASKED:
                    self._undecided["linear",][source] = item.piece.shape or ()

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
        layer, why = _agreed(item.piece, piece)
        if _contradict(item.piece, piece):
            by_kind = [
                _readings(item.family, self.family, LayerPart(kind, layer.part), shape, piece.shape)
                for kind in (item.piece.layer.kind, piece.layer.kind)
            ]
            if [*by_kind[0].values()] != [*by_kind[1].values()]:
                ours = f"{_article(item.piece.layer.kind)} ({item.piece.why})"
                self.result.conflicts.append(f"{source} is {ours}, not the {piece.layer.kind} of {target}")
                return None
        self.result.kinds.add(layer.kind)
        before = _before_joining(item, layer.kind)
        if before is None:
            self._undecided["linear",][source] = shape
            return None
        family, shape = ("torch", shape_after(before, shape)) if item.join else (item.family, shape)
        readings = _readings(family, self.family, layer, shape, piece.shape)
        distinct = dict.fromkeys(readings.values())
        if not distinct:
            of_kind = f" as {layer.kind}" if layer.kind else ""
            wanted = whole if whole is not None else piece.shape
            wants = f" {list(wanted)}" if wanted is not None else ""
            self.result.conflicts.append(f"{source} {list(shape)} does not become {target}{wants}{of_kind}")
            return None
        if len(distinct) > 1:
            kinds = tuple(next(kind for kind in readings if readings[kind] == steps) for steps in distinct)
            self._undecided[kinds][source] = shape
            return None
        (steps,) = distinct
        if not layer.kind:
            why = _why_one_reading(shape, piece.shape)
        return _Way((*steps, *piece.outward), why, before)

    # ---- what is left over

    def _account(self, spellings: Sequence[Spelling], used: set[str]) -> None:
        sources = {each.source for recipe in self.result.recipes for each in recipe.ingredients}
        for spelling in spellings:
            name = spelling.stored.name
            if name in sources or spelling.refusal:
                continue
            if spelling.filling is not None:
                self.result.left.append(name)
            elif not all(piece.name in used for piece in spelling.pieces):
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
    rank = len(piece.shape or ())
    if not piece.layer.kind and 3 <= rank <= 5:
        piece = replace(
            piece, layer=LayerPart(f"conv{rank - 2}d", ""), certainty=Certainty.INFERRED, why=f"its {rank} axes"
        )
    fused = replace(piece, layer=LayerPart(piece.layer.kind, "weight"), inward=())
    return [Item(fused, item.family, (magnitudes.ingredients[0], item.ingredients[0]), "weight_norm")]


def _before_joining(item: Item, kind: str) -> Transforms | None:
    """The steps after which the rows of a weight under weight norm are torch's. None when its kind is not known."""
    if not item.join:
        return ()
    return to_torch(item.family, LayerPart(kind, "weight_v"), item.piece.shape or ()) if kind else None


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


def _readings(
    source: str, target: str, layer: LayerPart, shape: Shape, target_shape: Shape | None
) -> dict[str, Transforms]:
    """The steps by every kind that the tensor could be of, as far as they lead to the target's shape."""
    found: dict[str, Transforms] = {}
    for kind in (layer.kind,) if layer.kind else _possible_kinds(layer.part, len(shape)):
        try:
            steps = between(source, target, LayerPart(kind, layer.part or "weight"), shape, target_shape)
            if steps is not None and (target_shape is None or shape_after(steps, shape) == target_shape):
                found[kind] = steps
        except UsageError:  # a shape that this kind of layer cannot have
            continue
    return found


def _possible_kinds(part: str, rank: int) -> tuple[str, ...]:
    """Every kind whose layout could matter for a tensor of this part ("" when that is unknown) and number of axes."""
    if rank == 2:
        if part in _MATRIX_PARTS:
            return ("linear", "embedding") if part == "weight" else ("linear", PARAMETER)
        return ("linear", PARAMETER, "lstm", "gru") if not part else (PARAMETER,)
    if 3 <= rank <= 5 and part in ("", *_MATRIX_PARTS):
        convolutions = (f"conv{rank - 2}d", *((f"depthwise_conv{rank - 2}d",) if rank < 5 else ()))
        return convolutions if part else (*convolutions, PARAMETER)
    return (PARAMETER,)


def _why_one_reading(shape: Shape, target_shape: Shape | None) -> str:
    if len(shape) < 2:
        return f"{len(shape)} {'axis' if len(shape) == 1 else 'axes'}: nothing to be laid out"
    return "the target's shape" if target_shape is not None else "the same for every kind it can be"


# ---- ambiguities


def _grouped(undecided: Mapping[tuple[str, ...], Mapping[str, Shape]], names: Sequence[str]) -> list[Ambiguity]:
    """Undecided tensors by the template of their names, of which ``names`` are all."""
    found = []
    for kinds, shapes in undecided.items():
        templates: dict[str, list[str]] = defaultdict(list)
        for name in shapes:
            templates[_DIGITS.sub("*", name)].append(name)
        for alike in templates.values():
            found.append(Ambiguity(_globs(alike, names), tuple(alike), tuple(shapes[name] for name in alike), kinds))
    return found


def _globs(alike: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """One glob with stars for the numbers, where it matches no others of ``names``; else one for each name."""
    escaped = [re.sub(r"([*?[])", r"[\1]", name) for name in alike]
    wide = _DIGITS.sub("*", escaped[0])
    matches = Globs([wide])
    if len(alike) > 1 and {name for name in names if matches(name)} == set(alike):
        return (wide,)
    return tuple(escaped)
