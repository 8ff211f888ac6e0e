"""How each framework spells the tensors of a layer, in terms of one neutral spelling that all of them share.

The neutral spelling is torch's with everything apart: a projection of attention for each of query, key and value, two
biases for a recurrent layer, a layer of its own for each level of a stacked one. A :class:`Spelling` is one stored tensor
and the neutral tensors it consists of, with the steps either way; two spellings of the same neutral tensors make a
translation.

Where the layouts are from: the documented state of torch.nn, paddle.nn and keras.layers. The first axis of
``in_proj_weight`` is query, key, value in this order; Keras adds both biases of an LSTM up and stacks those of a GRU,
whose gates it has as update, reset, new; ``tf.nn.rnn_cell.BasicLSTMCell`` has one kernel for inputs and state, its gates
are input, new, forget, output, and it adds 1 to the forget gate when it runs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

from ckpt_tools.mapping.candidates import Kinds, Neighbourhood
from ckpt_tools.mapping.kinds import (
    CONVOLUTIONS,
    LEAVES_BY_FAMILY,
    MATRIX_PARTS,
    NORMS,
    PARAMETER,
    PART_BY_LEAF_OF_KIND,
    RECURRENT,
    LayerPart,
    Shape,
    kind_by_gates,
    segments,
)
from ckpt_tools.mapping.recipes import Filling
from ckpt_tools.mapping.transforms import Add, Blocks, Permute, Reshape, Rows, Transforms, Zeros

#: What the forget gate of ``BasicLSTMCell`` gets added at run time, unless its user chose another ``forget_bias``.
FORGET_BIAS = 1.0
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
KERAS_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "attention_output": "out_proj"}
BATCH_COUNTER = "num_batches_tracked"

_BASIC_LSTM_GATES = Blocks((0, 2, 1, 3))
_GRU_GATES = Blocks((1, 0, 2))
_TRANSPOSE = Permute((1, 0))
RECURRENT_LEAF = re.compile(r"(?P<part>(?:weight|bias)_(?:ih|hh|hr|ho))(?:_l(?P<level>\d+))?(?P<reverse>_reverse)?")
_PADDLE_CELL = re.compile(r"cell(?:_(?P<direction>fw|bw))?")
_KERAS_CELL = re.compile(r"(?:lstm_cell|gru_cell|simple_rnn_cell)(?:_\d+)?|cell")
_KERAS_DIRECTION = re.compile(r"(?P<direction>forward|backward)_.+")
_KERAS_LAYER = re.compile(r"(?P<kind>(?:depthwise_)?conv[123]d(?:_transpose)?)(?:_\d+)?")
_BASIC_LSTM_CELL = re.compile(r"(?:basic_)?lstm_cell(?:_\d+)?")
_KERAS_RECURRENT = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh"}
_PARAMETRIZED = {"original0": "_g", "original1": "_v", "original": "_orig"}
_SEPARABLE = {"depthwise_kernel": "depthwise", "pointwise_kernel": "pointwise"}
_STATISTICS = "running statistics beside it"
#: Of several words for a weight in one layer, those that the others belong to
_WEIGHTS_FIRST = ("kernel", "gamma", "scale")

Path = tuple[str, ...]


class Certainty(IntEnum):
    """Where the kind of a layer is from: nowhere, names and shapes, a framework or a model, the user."""

    NONE = 0
    INFERRED = 1
    TOLD = 2
    ASKED = 3


@dataclass(frozen=True)
class Stored:
    """A tensor as a file or a model names it. ``spoken`` is the name that tells most about it, ``prefix`` the leading
    part of it that is no module path (``main_params/``); ``known`` is what is known of its layer, with how certain that
    is and ``why``. Tensors of whole numbers or truth values are not ``is_floating``.
    """

    name: str
    shape: Shape
    spoken: str = ""
    prefix: str = ""
    known: LayerPart | None = None
    certainty: Certainty = Certainty.NONE
    why: str = ""
    is_floating: bool = True

    @property
    def kind(self) -> str:
        return self.known.kind if self.known is not None else ""


@dataclass(frozen=True)
class Piece:
    """A neutral tensor inside a stored one, ``shape`` in the layout that the framework has for this part.

    ``inward`` cuts it out of the stored tensor, ``outward`` brings it into the form that is joined there. ``leaf`` is the
    last segment as it is spelled; ``by_leaf`` says that this names it, not the part. ``possible`` are the kinds that it
    can be of, where ``layer`` does not tell one.
    """

    path: Path
    layer: LayerPart
    shape: Shape | None
    certainty: Certainty = Certainty.NONE
    why: str = ""
    inward: Transforms = ()
    outward: Transforms = ()
    leaf: str = ""
    prefix: str = ""
    by_leaf: bool = False
    possible: Kinds = ()

    @property
    def last(self) -> str:
        """The last segment of the neutral name: the part, or what stands there where that is not known."""
        return self.leaf if self.by_leaf or not self.layer.part else self.layer.part

    @property
    def name(self) -> str:
        """The neutral name: the path of the layer, then the part."""
        return self.prefix + ".".join((*self.path, self.last))


@dataclass(frozen=True)
class Spelling:
    """A stored tensor and what it consists of: the pieces, joined, after ``steps``.

    ``filling`` is what a new one holds where the source has none. ``refusal`` says why no other framework has the like.
    """

    stored: Stored
    pieces: tuple[Piece, ...]
    join: str = ""
    steps: Transforms = ()
    filling: Filling | None = None
    refusal: str = ""


@dataclass
class Layer:
    """The stored tensors directly below one path, by their last segment, as ``family`` spells them."""

    family: str
    prefix: str
    path: Path
    leaves: dict[str, Stored] = field(default_factory=dict)

    @cached_property
    def numbered(self) -> int:
        """How many tensors have numbers for names."""
        return sum(map(str.isdecimal, self.leaves))

    @cached_property
    def weight(self) -> str | None:
        """The word for what lies as the weight of a layer does, if it has that."""
        parts = LEAVES_BY_FAMILY[self.family]
        words = [word for word in self.leaves if parts.get(word, word) in MATRIX_PARTS]
        likeliest = [word for word in _WEIGHTS_FIRST if word in words]
        of_paddle = ["scale"] if self.family == "paddle" and "scale" in self.leaves else []
        return next(iter(likeliest + words + of_paddle), None)

    def piece(self, leaf: str, part: str, *, path: Path | None = None) -> Piece:
        """The whole of a stored tensor as one piece, with what is known of it."""
        stored = self.leaves[leaf]
        return Piece(
            self.path if path is None else path,
            LayerPart(stored.kind, part),
            stored.shape,
            stored.certainty,
            stored.why,
            leaf=leaf,
            prefix=self.prefix,
        )

    def told(
        self,
        leaf: str,
        kind: str,
        part: str,
        why: str,
        *,
        path: Path | None = None,
        shape: Shape | None = None,
        inward: Transforms = (),
        outward: Transforms = (),
    ) -> Piece:
        """A piece of a kind that the spelling itself tells; one of the size of the stored tensor without ``shape``."""
        return Piece(
            self.path if path is None else path,
            LayerPart(kind, part),
            self.leaves[leaf].shape if shape is None else shape,
            Certainty.TOLD if kind else Certainty.NONE,
            why,
            inward,
            outward,
            leaf,
            self.prefix,
        )


Layers = Mapping[tuple[str, Path], Layer]


def spell(family: str, tensors: Sequence[Stored]) -> list[Spelling]:
    """The spelling of every tensor, in the given order."""
    layers: dict[tuple[str, Path], Layer] = {}
    for tensor in tensors:
        *path, leaf = segments((tensor.spoken or tensor.name)[len(tensor.prefix) :])
        key = tensor.prefix, tuple(path)
        layers.setdefault(key, Layer(family, tensor.prefix, tuple(path))).leaves[leaf] = tensor
    if family == "keras":
        only_old_names = any("depthwise_kernel" in layer.leaves for layer in layers.values())
        spellings = (s for layer in layers.values() for s in _keras(layer, layers, only_old_names=only_old_names))
    else:
        speller = _torch if family == "torch" else _paddle
        spellings = (s for layer in layers.values() for s in speller(layer, layers))
    found = {spelling.stored.name: spelling for spelling in _told_apart(list(spellings), family)}
    return [found[tensor.name] for tensor in tensors]


def _told_apart(spellings: list[Spelling], family: str) -> Iterator[Spelling]:
    """Spellings no two of which have one neutral name because models tell the same of names that say nothing."""
    counts = Counter(piece.name for spelling in spellings for piece in spelling.pieces)
    for spelling in spellings:
        pieces = tuple(
            replace(piece, by_leaf=True)
            if counts[piece.name] > 1 and piece.leaf and piece.leaf not in LEAVES_BY_FAMILY[family]
            and not RECURRENT_LEAF.fullmatch(piece.leaf)
            else piece
            for piece in spelling.pieces
        )  # fmt: skip
        yield spelling if pieces == spelling.pieces else replace(spelling, pieces=pieces)


def _plain(family: str, layer: Layer, leaf: str, kind: str = "", why: str = "") -> Spelling:
    """A tensor that is one piece. What is known of it comes before ``kind``, what its name and siblings tell."""
    stored = layer.leaves[leaf]
    part = _part_in(layer, family, stored.kind, leaf) or LEAVES_BY_FAMILY[family].get(leaf, "")
    if not part and stored.known is not None and stored.known.part in LEAVES_BY_FAMILY["torch"]:
        part = stored.known.part
    piece = layer.piece(leaf, part)
    if kind and (not stored.kind or _is_narrower(kind, stored)):
        piece = replace(piece, layer=LayerPart(kind, part), certainty=Certainty.INFERRED, why=why)
    return Spelling(stored, (_of_its_layer(family, piece, layer),))


def is_numbered(family: str, piece: Piece) -> bool:
    """Whether its name is its place among the variables of a layer of Keras."""
    return family == "keras" and piece.leaf.isdecimal()


def follows(family: str, piece: Piece) -> bool:
    """Whether it is of the kind that another tensor of its layer is of: a bias, a variable that is not the first."""
    return piece.layer.part == "bias" or (is_numbered(family, piece) and piece.leaf != "0")


def part_of(family: str, kind: str, leaf: str) -> str:
    """The part that a word means in layers of this kind alone; "" when it means the same or nothing everywhere."""
    return PART_BY_LEAF_OF_KIND.get(family, {}).get(kind, {}).get(leaf, "")


def _part_in(layer: Layer, family: str, kind: str, leaf: str) -> str:
    """As :func:`part_of`, but for the numbers of normalisations that leave out some of their tensors."""
    is_counted = leaf.isdecimal() and kind in NORMS
    complete = not is_counted or len(PART_BY_LEAF_OF_KIND.get(family, {}).get(kind, {})) == layer.numbered
    return part_of(family, kind, leaf) if complete else ""


def _of_its_layer(family: str, piece: Piece, layer: Layer) -> Piece:
    """A piece with the kind that lies in what it and its neighbours are, or the kinds that it can be of. A bias is of the
    kind that its weight is said to be of, a numbered variable of that of the first."""
    kind, part = piece.layer
    if family != "keras" and part in MATRIX_PARTS and piece.certainty < Certainty.ASKED and _may_be_depthwise(piece):
        narrower = (kind, f"depthwise_{kind}")
        return replace(piece, layer=LayerPart("", part), certainty=Certainty.NONE, why="", possible=narrower)
    if kind:
        return piece
    word, bias = layer.weight, layer.leaves.get("bias", layer.leaves.get("beta"))
    weight = layer.leaves[word] if word is not None else None
    if is_numbered(family, piece):
        word, weight, bias = "0", layer.leaves.get("0"), layer.leaves.get("1")
    if weight is not None and weight.kind and follows(family, piece):
        told = LayerPart(weight.kind, _part_in(layer, family, weight.kind, piece.leaf) or part)
        return replace(piece, layer=told, certainty=weight.certainty, why=weight.why)
    around = Neighbourhood(
        family,
        weight.shape if weight is not None else None,
        bias.shape if bias is not None else None,
        word or "",
        layer.numbered,
    )
    return _narrowed(piece, around, is_floating=layer.leaves[piece.leaf].is_floating)


def _may_be_depthwise(piece: Piece) -> bool:
    """Whether a layer of torch's or Paddle's class for convolutions is one with a kernel for each input in Keras: with
    one input for each output it is that, or has a single input."""
    shape = piece.shape or ()
    return piece.layer.kind in ("conv1d", "conv2d") and shape[1:2] == (1,) and shape[0] > 1


def _narrowed(piece: Piece, around: Neighbourhood, *, is_floating: bool = True) -> Piece:
    shape = piece.shape or ()
    kinds = around.kinds(piece.leaf, piece.layer.part, shape, is_floating=is_floating)
    depthwise = any(kind.startswith("depthwise") for kind in kinds)
    if kinds == (PARAMETER,) or (len(kinds) > 1 and (depthwise or not CONVOLUTIONS.issuperset(kinds))):
        return replace(piece, possible=kinds)
    why = f"its {len(shape)} axes" if around.bias is None else f"its {len(shape)} axes and its bias"
    if piece.layer.part == "bias" or len(shape) == 1:
        why = "the weight beside it" if piece.layer.part == "bias" else f"its name {piece.leaf}"
    return replace(piece, layer=LayerPart(kinds[0], piece.layer.part), certainty=Certainty.INFERRED, why=why)


def _is_narrower(kind: str, stored: Stored) -> bool:
    """Whether a depthwise convolution is told by its shape, while its class is the general one."""
    return kind.startswith("depthwise") and stored.kind in CONVOLUTIONS and stored.certainty < Certainty.ASKED


# ---- torch and Paddle


def _torch(layer: Layer, layers: Layers) -> Iterator[Spelling]:
    path = layer.path
    if len(path) >= 2 and path[-2] == "parametrizations":
        yield from _parametrized(layer, path[:-2], path[-1], layers)
        return
    if len(path) >= 3 and path[-3] == "parametrizations":
        for leaf, stored in layer.leaves.items():  # the vectors of spectral norm, _u and _v
            yield Spelling(stored, (layer.piece(leaf, f"{path[-2]}{leaf}", path=path[:-3]),))
        return
    attends = _is_attention(layer)
    above = layers.get((layer.prefix, path[:-1])) if path[-1:] == ("out_proj",) else None
    if above is not None and _is_attention(above):
        yield from (_plain("torch", layer, leaf, "linear", "its place in attention, out_proj") for leaf in layer.leaves)
        return
    for leaf, stored in layer.leaves.items():
        if leaf == BATCH_COUNTER:
            yield Spelling(stored, (layer.piece(leaf, leaf),), filling=Filling("int64", ()))
        elif attends and leaf.startswith("in_proj_"):
            yield _packed(layer, leaf)
        elif attends and leaf.endswith("_proj_weight"):
            owner = (*path, leaf.removesuffix("_weight"))
            yield Spelling(stored, (layer.told(leaf, "linear", "weight", f"its name {leaf}", path=owner),))
        else:
            yield _shared(layer, leaf, "torch")


def _is_attention(layer: Layer) -> bool:
    return not layer.leaves.keys().isdisjoint(("in_proj_weight", "q_proj_weight"))


def _parametrized(layer: Layer, path: Path, parameter: str, layers: Layers) -> Iterator[Spelling]:
    owner = layers.get((layer.prefix, path))
    bias = owner.leaves.get("bias") if owner is not None else None
    for leaf, stored in layer.leaves.items():
        part = parameter + _PARAMETRIZED.get(leaf, f".{leaf}")
        if part == "weight_g":
            yield _magnitudes(layer, leaf, path)
            continue
        piece = layer.piece(leaf, part, path=path)
        if not piece.layer.kind and part in MATRIX_PARTS:
            piece = _narrowed(piece, Neighbourhood("torch", stored.shape, bias.shape if bias is not None else None))
        yield Spelling(stored, (piece,))


def _magnitudes(layer: Layer, leaf: str, path: Path) -> Spelling:
    """Weight norm's magnitudes: one for each first index in the neutral spelling, with extents of 1 behind in torch."""
    stored = layer.leaves[leaf]
    piece = layer.piece(leaf, "weight_g", path=path)
    if len(stored.shape) == 1:
        return Spelling(stored, (piece,))
    if not stored.shape or any(extent != 1 for extent in stored.shape[1:]):
        return Spelling(stored, (), refusal="its weight norm is over other axes than all but the first")
    flat, full = (Reshape((-1,)),), (Reshape(stored.shape),)
    return Spelling(stored, (replace(piece, shape=stored.shape[:1], inward=flat, outward=full),))


def _packed(layer: Layer, leaf: str) -> Spelling:
    """Query, key and value in one."""
    stored, part = layer.leaves[leaf], leaf.removeprefix("in_proj_")
    rows = stored.shape[0] // 3 if stored.shape else 0
    if not rows or stored.shape[0] % 3:
        return Spelling(stored, (), refusal=f"shape {list(stored.shape)} is not query, key and value")
    pieces = tuple(
        layer.told(
            leaf,
            "linear",
            part,
            f"its name {leaf}",
            path=(*layer.path, projection),
            shape=(rows, *stored.shape[1:]),
            inward=(Rows(index * rows, index * rows + rows),),
        )
        for index, projection in enumerate(PROJECTIONS)
    )
    return Spelling(stored, pieces, join="concat")


def _shared(layer: Layer, leaf: str, family: str) -> Spelling:
    """What torch and Paddle spell alike."""
    stored = layer.leaves[leaf]
    recurrent = RECURRENT_LEAF.fullmatch(leaf)
    if recurrent is not None:
        return _recurrent(layer, leaf, recurrent, layer.path, int(recurrent["level"] or 0))
    if leaf == "weight_g":
        return _magnitudes(layer, leaf, layer.path)
    if leaf in ("weight_v", "weight_orig", "weight_u"):
        return Spelling(stored, (_of_its_layer(family, layer.piece(leaf, leaf), layer),))
    words = LEAVES_BY_FAMILY[family]
    if leaf in words and any(words.get(other) == "running_mean" for other in layer.leaves):
        return _plain(family, layer, leaf, "batch_norm", _STATISTICS)
    return _plain(family, layer, leaf)


def _recurrent(layer: Layer, leaf: str, found: re.Match[str], path: Path, level: int) -> Spelling:
    """A recurrent layer's tensor; each level of a stacked layer is a layer of its own."""
    stored = layer.leaves[leaf]
    reverse = found["reverse"] or ("_reverse" if layer.path[-1:] == ("cell_bw",) else "")
    hidden = leaf.replace(found["part"], "weight_hh")
    kind = stored.kind.removesuffix("_cell") if stored.kind in RECURRENT else ""
    if not kind and hidden in layer.leaves:
        kind = kind_by_gates(layer.leaves[hidden].shape)
    if kind and path == layer.path and found["level"] is None:
        kind = f"{kind}_cell"
    part = found["part"].replace("_ho", "_hr") + reverse
    piece = layer.told(leaf, kind, part, f"its name {found['part']}", path=leveled(path, level))
    if not kind:
        suffix = "_cell" if path == layer.path and found["level"] is None else ""
        piece = replace(piece, possible=tuple(f"{kind}{suffix}" for kind in ("lstm", "gru", "rnn")))
    return Spelling(stored, (piece,))


def leveled(path: Path, level: int) -> Path:
    """The neutral path of a level of a stacked layer."""
    if not level:
        return path
    return (*path[:-1], f"{path[-1]}_l{level}") if path else (f"l{level}",)


def _paddle(layer: Layer, _layers: Layers) -> Iterator[Spelling]:
    path = layer.path
    in_cell = len(path) >= 2 and path[-2].isdecimal() and _PADDLE_CELL.fullmatch(path[-1])
    for leaf, stored in layer.leaves.items():
        recurrent = RECURRENT_LEAF.fullmatch(leaf)
        if in_cell and recurrent is not None:
            yield _recurrent(layer, leaf, recurrent, path[:-2], int(path[-2]))
        else:
            spelling = _shared(layer, leaf, "paddle")
            if leaf == "bias" and stored.shape[:1] == (1,) and spelling.pieces[0].layer.kind == "bilinear":
                flat, full = (Reshape((-1,)),), (Reshape(stored.shape),)
                piece = replace(spelling.pieces[0], shape=stored.shape[1:], inward=flat, outward=full)
                spelling = Spelling(stored, (piece,))
            yield spelling


# ---- Keras and TensorFlow


def _keras(layer: Layer, layers: Layers, *, only_old_names: bool) -> Iterator[Spelling]:
    leaves = layer.leaves
    if {"kernel", "recurrent_kernel"} <= leaves.keys():
        yield from _keras_recurrent(layer, layers)
    elif _is_basic_lstm(layer):
        yield from _basic_lstm(layer)
    elif _is_keras_projection(layer, layers):
        yield from _keras_projection(layer)
    elif _SEPARABLE.keys() <= leaves.keys():
        yield from _separable(layer)
    else:
        for leaf in leaves:
            kind, why = _keras_kind(layer, leaf, only_old_names=only_old_names)
            yield _slopes(layer, leaf) if leaf == "alpha" else _plain("keras", layer, leaf, kind, why)


def _keras_kind(layer: Layer, leaf: str, *, only_old_names: bool) -> tuple[str, str]:
    """The kind that Keras' own names say, and why. A kernel of three to five axes is a convolution; whether it is a
    depthwise one, which has the same name since Keras 3, is told by the bias, or by depthwise kernels of the same file
    that have a name of their own."""
    shape = layer.leaves[leaf].shape
    rank = len(shape)
    if leaf == "embeddings":
        return "embedding", "its name embeddings"
    if leaf.startswith("moving_") or (leaf in ("gamma", "beta") and "moving_mean" in layer.leaves):
        return "batch_norm", _STATISTICS
    if leaf == "depthwise_kernel":
        return f"depthwise_conv{rank - 2}d", "its name depthwise_kernel"
    if leaf != "kernel":
        return "", ""
    if rank == 2:
        return "linear", "its name kernel and two axes"
    if not 3 <= rank <= 5:
        return "", ""
    named = _KERAS_LAYER.fullmatch(layer.path[-1]) if layer.path else None
    inputs, outputs = shape[-2:]
    bias = layer.leaves["bias"].shape if "bias" in layer.leaves else None
    if bias is not None and len(bias) != 1:
        return "", ""
    is_depthwise = rank < 5 and not only_old_names and (bias is None or bias == (inputs * outputs,)) and inputs > 1
    is_ordinary = bias is None or bias[0] in (inputs, outputs)
    if is_depthwise and not is_ordinary:
        return f"depthwise_conv{rank - 2}d", "its name kernel and its bias"
    if not is_depthwise and is_ordinary:
        return f"conv{rank - 2}d", f"its name kernel and {rank} axes"
    if named is not None and int(named["kind"].removeprefix("depthwise_")[4]) == rank - 2:
        depthwise = named["kind"].startswith("depthwise")
        if is_depthwise if depthwise else is_ordinary:
            return f"{'depthwise_' if depthwise else ''}conv{rank - 2}d", f"its layer's name {layer.path[-1]}"
    return "", ""


def _keras_recurrent(layer: Layer, layers: Layers) -> Iterator[Spelling]:
    path = layer.path
    if path and _KERAS_CELL.fullmatch(path[-1]):
        path = path[:-1]
    direction = _KERAS_DIRECTION.fullmatch(path[-1]) if path else None
    reverse = ""
    if direction is not None and _has_both_directions(layer, path, layers):
        reverse = "_reverse" if direction["direction"] == "backward" else ""
        path = path[:-1]
    kind = kind_by_gates(layer.leaves["recurrent_kernel"].shape)
    why = "the recurrent_kernel of its layer"
    for leaf, stored in layer.leaves.items():
        if leaf in _KERAS_RECURRENT:
            part = f"{_KERAS_RECURRENT[leaf]}{reverse}"
            yield Spelling(stored, (layer.told(leaf, kind, part, why, path=path),))
        elif leaf == "bias":
            yield _keras_bias(layer, path, kind, reverse)
        else:
            yield _plain("keras", layer, leaf)


def _has_both_directions(layer: Layer, path: Path, layers: Layers) -> bool:
    directions = {
        found["direction"]
        for prefix, other in layers
        if prefix == layer.prefix and other[: len(path) - 1] == path[:-1] and len(other) >= len(path)
        for found in [_KERAS_DIRECTION.fullmatch(other[len(path) - 1])]
        if found is not None
    }
    return len(directions) == 2


def _keras_bias(layer: Layer, path: Path, kind: str, reverse: str) -> Spelling:
    """One bias where the others have two: their sum, or both in two rows."""
    stored, why = layer.leaves["bias"], "the recurrent_kernel of its layer"
    shape = stored.shape
    first, second = f"bias_ih{reverse}", f"bias_hh{reverse}"
    if kind != "gru":
        one = layer.told("bias", kind, first, why, path=path)
        other = layer.told("bias", kind, second, why, path=path, inward=(Zeros(),))
        return Spelling(stored, (one, other), join="sum")
    if len(shape) != 2:
        return Spelling(stored, (), refusal="a GRU with reset_after=False computes what no other framework does")
    size = shape[1]
    pieces = tuple(
        layer.told(
            "bias",
            kind,
            part,
            why,
            path=path,
            shape=(size,),
            inward=(Rows(row, row + 1), Reshape((size,)), _GRU_GATES),
            outward=(_GRU_GATES, Reshape((1, size))),
        )
        for row, part in enumerate((first, second))
    )
    return Spelling(stored, pieces, join="concat")


def _is_basic_lstm(layer: Layer) -> bool:
    leaves = layer.leaves
    if not layer.path or not _BASIC_LSTM_CELL.fullmatch(layer.path[-1]) or not {"kernel", "bias"} <= leaves.keys():
        return False
    kernel, bias = leaves["kernel"].shape, leaves["bias"].shape
    return len(kernel) == 2 and bias == kernel[1:] and kernel[1] % 4 == 0 and kernel[0] > kernel[1] // 4


def _basic_lstm(layer: Layer) -> Iterator[Spelling]:
    """TensorFlow 1's cell, whose state follows its inputs in one kernel."""
    path, hidden = layer.path[:-1], layer.leaves["bias"].shape[0] // 4
    inputs = layer.leaves["kernel"].shape[0] - hidden
    why = f"its cell's name {layer.path[-1]}"
    gates = (_TRANSPOSE, _BASIC_LSTM_GATES, _TRANSPOSE)
    for leaf, stored in layer.leaves.items():
        if leaf == "kernel":
            pieces = tuple(
                layer.told(
                    leaf, "lstm", part, why, path=path, shape=(stop - start, 4 * hidden),
                    inward=(Rows(start, stop), *gates), outward=gates,
                )
                for part, start, stop in (("weight_ih", 0, inputs), ("weight_hh", inputs, inputs + hidden))
            )  # fmt: skip
            yield Spelling(stored, pieces, join="concat")
        elif leaf == "bias":
            inward = (_BASIC_LSTM_GATES, Add(FORGET_BIAS, hidden, 2 * hidden))
            first = layer.told(leaf, "lstm", "bias_ih", why, path=path, inward=inward)
            second = layer.told(leaf, "lstm", "bias_hh", why, path=path, inward=(Zeros(),))
            outward = (Add(-FORGET_BIAS, hidden, 2 * hidden), _BASIC_LSTM_GATES)
            yield Spelling(stored, (first, second), join="sum", steps=outward)
        else:
            yield Spelling(stored, (), refusal="peepholes and projections of cells have no counterpart")


def _is_keras_projection(layer: Layer, layers: Layers) -> bool:
    if not layer.path or layer.path[-1] not in KERAS_PROJECTIONS:
        return False
    siblings = [layers.get((layer.prefix, (*layer.path[:-1], name))) for name in KERAS_PROJECTIONS]
    return all(s is not None and "kernel" in s.leaves and len(s.leaves["kernel"].shape) == 3 for s in siblings)


def _keras_projection(layer: Layer) -> Iterator[Spelling]:
    """Keras keeps the heads apart: a kernel is (in, heads, size), the one of the output (heads, size, out)."""
    name = layer.path[-1]
    path = (*layer.path[:-1], KERAS_PROJECTIONS[name])
    for leaf, stored in layer.leaves.items():
        shape = stored.shape
        if leaf == "kernel":
            split = 2 if name == "attention_output" else 1
            flat: Shape = (math.prod(shape[:split]), math.prod(shape[split:]))
        else:
            flat = (math.prod(shape),)
        inward, outward = ((Reshape(flat),), (Reshape(shape),)) if flat != shape else ((), ())
        part, why = LEAVES_BY_FAMILY["keras"].get(leaf, leaf), f"its place in attention, {name}"
        piece = layer.told(leaf, "linear", part, why, path=path, shape=flat, inward=inward, outward=outward)
        yield Spelling(stored, (piece,))


def _separable(layer: Layer) -> Iterator[Spelling]:
    """Two convolutions in one layer, the bias belongs to the second."""
    rank = len(layer.leaves["pointwise_kernel"].shape) - 2
    for leaf, stored in layer.leaves.items():
        kind = f"depthwise_conv{rank}d" if leaf == "depthwise_kernel" else f"conv{rank}d"
        path = (*layer.path, _SEPARABLE.get(leaf, "pointwise"))
        part = "bias" if leaf == "bias" else "weight"
        yield Spelling(stored, (layer.told(leaf, kind, part, f"{leaf} of a separable convolution", path=path),))


def _slopes(layer: Layer, leaf: str) -> Spelling:
    """PReLU's slopes: Keras has an extent of 1 for each axis that shares them."""
    stored = layer.leaves[leaf]
    if any(extent != 1 for extent in stored.shape[:-1]):
        return Spelling(stored, (), refusal="slopes that differ along more than the last axis have no counterpart")
    inward, outward = ((Reshape((-1,)),), (Reshape(stored.shape),)) if len(stored.shape) > 1 else ((), ())
    piece = layer.told(
        leaf, "prelu", "weight", "its name alpha", shape=stored.shape[-1:], inward=inward, outward=outward
    )
    return Spelling(stored, (piece,))
