"""What the tensors of a translation are called in the target where no model of it says so: each framework's own words
for the parts of a layer, below the path that the layer has in the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_tools.mapping.kinds import CONVOLUTIONS, LEAVES_BY_FAMILY, NORMS, PARAMETER, Shape
from ckpt_tools.mapping.layouts import to_torch
from ckpt_tools.mapping.recipes import Filling, Ingredient
from ckpt_tools.mapping.spellings import (
    BATCH_COUNTER,
    PROJECTIONS,
    RECURRENT_LEAF,
    Path,
    Piece,
    Spelling,
    Stored,
)
from ckpt_tools.mapping.transforms import Blocks, Reshape, shape_after

_LEVELED = re.compile(r"(?:(?P<path>.*)_)?l(?P<level>[1-9]\d*)")
_GRU_GATES = Blocks((1, 0, 2))
_KERAS_CELLS = {"lstm": "lstm_cell", "gru": "gru_cell", "rnn": "simple_rnn_cell"}
_KERAS_LEAVES = {"running_mean": "moving_mean", "running_var": "moving_variance"}
_PADDLE_LEAVES = {"running_mean": "_mean", "running_var": "_variance"}


@dataclass(frozen=True)
class Item:
    """A neutral tensor that the source can give: the ingredients, joined, lie as ``family`` has it, as ``piece`` says."""

    piece: Piece
    family: str
    ingredients: tuple[Ingredient, ...]
    join: str = ""

    @property
    def torch_shape(self) -> Shape | None:
        """The shape in torch's layout; None where the kind has to be known for it and is not."""
        shape = self.piece.shape or ()
        steps = to_torch(self.family, self.piece.layer, shape)
        return None if steps is None else shape_after(steps, shape)


Group = Mapping[str, Item]
Groups = Mapping[tuple[str, Path], Group]


def name_in(family: str, items: Sequence[Item]) -> list[Spelling]:
    """How ``family`` spells these tensors, roughly in their order."""
    groups: dict[tuple[str, Path], dict[str, Item]] = {}
    for item in items:
        piece = item.piece
        groups.setdefault((piece.prefix, piece.path), {})[piece.last] = item
    namers = {"torch": _torch, "paddle": _paddle, "keras": _keras}
    return list(namers[family](groups))


def _spelling(name: str, *pieces: Piece, join: str = "", filling: Filling | None = None) -> Spelling:
    return Spelling(Stored(name, ()), tuple(replace(piece, shape=None) for piece in pieces), join, filling=filling)


def _as_it_is(piece: Piece) -> Piece:
    """The whole of a tensor of the target."""
    return replace(piece, inward=(), outward=())


def _own_leaf(piece: Piece) -> str:
    """What a user's own parameter is called, which no framework has another word for; "" for those of layers."""
    is_own = piece.layer.kind == PARAMETER and piece.layer.part in LEAVES_BY_FAMILY["torch"]
    return piece.leaf if is_own else ""


def _dotted(prefix: str, path: Path, leaf: str) -> str:
    return prefix + ".".join((*path, leaf))


def _level(path: Path) -> tuple[Path, int]:
    """The path and level of a stacked recurrent layer out of the neutral path of one level."""
    found = _LEVELED.fullmatch(path[-1]) if path else None
    if found is None:
        return path, 0
    return (*path[:-1], found["path"]) if found["path"] else path[:-1], int(found["level"])


# ---- torch


def _torch(groups: Groups) -> Iterator[Spelling]:
    packed = {(prefix, path[:-1]) for prefix, path in groups if path and _is_attention(groups, prefix, path[:-1])}
    done: set[tuple[str, Path]] = set()
    for (prefix, path), group in groups.items():
        owner = prefix, path[:-1]
        if path and owner in packed and path[-1] in PROJECTIONS:
            if owner not in done:
                done.add(owner)
                yield from _attention(groups, *owner)
            continue
        for part, item in group.items():
            piece = _as_it_is(item.piece)
            recurrent = RECURRENT_LEAF.fullmatch(part)
            if recurrent is not None and not piece.layer.kind.endswith("_cell"):
                base, level = _level(path)
                leaf = f"{recurrent['part']}_l{level}{recurrent['reverse'] or ''}"
                yield _spelling(_dotted(prefix, base, leaf), piece)
            elif part == "weight_g":
                rank = _rank_of_directions(group)
                outward = (Reshape((-1, *(1,) * (rank - 1))),) if rank > 1 else ()
                yield _spelling(_dotted(prefix, path, part), replace(piece, outward=outward))
            else:
                yield _spelling(_dotted(prefix, path, _own_leaf(piece) or piece.last), piece)
            if part == "running_var":
                yield _spelling(_dotted(prefix, path, BATCH_COUNTER), filling=Filling("int64", ()))


def _rank_of_directions(group: Group) -> int:
    return len(group["weight_v"].piece.shape or ()) if "weight_v" in group else 1


def _is_attention(groups: Groups, prefix: str, path: Path) -> bool:
    """Whether these are the projections of one attention layer, of which torch keeps three as one: all four are there,
    are linear, and either all or none have a bias."""
    layers = [groups.get((prefix, (*path, name))) for name in (*PROJECTIONS, "out_proj")]
    if any(layer is None or not set(layer) <= {"weight", "bias"} or "weight" not in layer for layer in layers):
        return False
    found = [layer for layer in layers if layer is not None]
    return len({frozenset(layer) for layer in found}) == 1 and all(
        item.piece.layer.kind == "linear" for layer in found for name, item in layer.items() if name == "weight"
    )


def _attention(groups: Groups, prefix: str, path: Path) -> Iterator[Spelling]:
    layers = [groups[prefix, (*path, name)] for name in PROJECTIONS]
    shapes = [layer["weight"].torch_shape for layer in layers]
    pieces = [_as_it_is(layer["weight"].piece) for layer in layers]
    if len(set(shapes)) == 1 and shapes[0] is not None and shapes[0][0] == shapes[0][1]:
        yield _spelling(_dotted(prefix, path, "in_proj_weight"), *pieces, join="concat")
    else:
        for name, piece in zip(PROJECTIONS, pieces):
            yield _spelling(_dotted(prefix, path, f"{name}_weight"), piece)
    if "bias" in layers[0]:
        biases = [_as_it_is(layer["bias"].piece) for layer in layers]
        yield _spelling(_dotted(prefix, path, "in_proj_bias"), *biases, join="concat")


# ---- Paddle


def _paddle(groups: Groups) -> Iterator[Spelling]:
    both_ways = {
        (prefix, _level(path)[0])
        for (prefix, path), group in groups.items()
        if any(part.endswith("_reverse") for part in group)
    }
    for (prefix, path), group in groups.items():
        for part, item in group.items():
            piece = _as_it_is(item.piece)
            recurrent = RECURRENT_LEAF.fullmatch(part)
            if recurrent is not None and not piece.layer.kind.endswith("_cell"):
                yield from _paddle_recurrent(prefix, path, recurrent, piece, both_ways)
            elif part == "bias" and piece.layer.kind == "bilinear":
                yield _spelling(_dotted(prefix, path, part), replace(piece, outward=(Reshape((1, -1)),)))
            else:
                yield _spelling(_dotted(prefix, path, _paddle_leaf(piece)), piece)


def _paddle_leaf(piece: Piece) -> str:
    kind, part = piece.layer
    if part == "weight" and kind in ("prelu", "instance_norm"):
        return "_weight" if kind == "prelu" else "scale"
    return _own_leaf(piece) or _PADDLE_LEAVES.get(part, part or piece.leaf)


def _paddle_recurrent(
    prefix: str, path: Path, found: re.Match[str], piece: Piece, both_ways: set[tuple[str, Path]]
) -> Iterator[Spelling]:
    """Paddle lists a recurrent layer's tensors twice: as torch does, and below its cells. A projection is only there."""
    base, level = _level(path)
    reverse = found["reverse"] or ""
    part = found["part"].replace("_hr", "_ho")
    direction = ("_bw" if reverse else "_fw") if (prefix, base) in both_ways else ""
    if part == found["part"]:
        yield _spelling(_dotted(prefix, base, f"{part}_l{level}{reverse}"), piece)
    yield _spelling(_dotted(prefix, (*base, str(level), f"cell{direction}"), part), piece)


# ---- Keras


def _keras(groups: Groups) -> Iterator[Spelling]:
    both_ways = {key for key, group in groups.items() if any(part.endswith("_reverse") for part in group)}
    for (prefix, path), group in groups.items():
        kind = next((item.piece.layer.kind for item in group.values() if item.piece.layer.kind), "")
        if any(RECURRENT_LEAF.fullmatch(part) for part in group):
            yield from _keras_recurrent(prefix, path, group, kind.removesuffix("_cell"), both_ways)
            continue
        for item in group.values():
            piece = _as_it_is(item.piece)
            leaf = _keras_leaf(piece, piece.layer.kind or kind, group)
            outward = (Reshape((-1,)),) if piece.layer.kind == "prelu" else ()
            yield _spelling(_slashed(prefix, path, leaf), replace(piece, outward=outward))


def _slashed(prefix: str, path: Path, leaf: str) -> str:
    return prefix + "/".join((*path, leaf))


def _keras_leaf(piece: Piece, kind: str, group: Group) -> str:
    """Keras' word for a part. Vectors called weight and bias are those of a normalisation, whichever it is."""
    part = piece.layer.part
    if piece.layer.kind == PARAMETER:
        return _own_leaf(piece) or piece.last
    is_vector = "weight" in group and len(group["weight"].piece.shape or ()) == 1
    if part in _KERAS_LEAVES:
        return _KERAS_LEAVES[part]
    if part == "weight":
        if kind == "linear" or kind in CONVOLUTIONS:
            return "kernel"
        known = {"embedding": "embeddings", "prelu": "alpha", "rms_norm": "scale"}
        return known.get(kind) or ("gamma" if kind in NORMS or is_vector else part)
    if part == "bias" and (kind in NORMS or is_vector):
        return "beta"
    return part or piece.leaf


def _keras_recurrent(
    prefix: str, path: Path, group: Group, kind: str, both_ways: set[tuple[str, Path]]
) -> Iterator[Spelling]:
    for reverse in ("", "_reverse"):
        if f"weight_ih{reverse}" not in group:
            continue
        below: Path = (_KERAS_CELLS.get(kind, "cell"),)
        if (prefix, path) in both_ways:
            below = (f"{'backward' if reverse else 'forward'}_{kind or 'rnn'}", *below)
        for part, leaf in (("weight_ih", "kernel"), ("weight_hh", "recurrent_kernel")):
            if part + reverse in group:
                yield _spelling(_slashed(prefix, (*path, *below), leaf), _as_it_is(group[part + reverse].piece))
        biases = [group[part + reverse] for part in ("bias_ih", "bias_hh") if part + reverse in group]
        if biases:
            pieces = [_as_it_is(item.piece) for item in biases]
            if kind == "gru":
                pieces = [replace(piece, outward=(_GRU_GATES, Reshape((1, -1)))) for piece in pieces]
            join = "concat" if kind == "gru" else "sum"
            yield _spelling(_slashed(prefix, (*path, *below), "bias"), *pieces, join=join)
