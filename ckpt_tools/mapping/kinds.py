"""Layer kinds and the parts of a layer, once, and what each framework calls them.

A kind is a layer as such (``linear``, ``conv2d``, ``lstm``); a part is one tensor of it, under torch's name (``weight``,
``running_mean``, ``weight_ih_l0``). The tables are data: class names of torch.nn, paddle.nn and keras.layers, the names
their state has, and the names Paddle gives to variables (``paddle.nn`` class in snake case, a number, ``.w_0``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Shape = tuple[int, ...]


class LayerPart(NamedTuple):
    """Which tensor of which kind of layer. An empty ``kind`` is an unknown one."""

    kind: str
    part: str


#: Nothing is known.
UNKNOWN = LayerPart("", "")
#: A parameter of a user's own layer, which stays as it is: no framework has a layout for it.
PARAMETER = "parameter"
#: What the magnitudes of weight norm belong to: Paddle keeps them as a vector, which does not tell the axis of the weight.
WEIGHT_NORM_DIMS = ("weight_norm_dim0", "weight_norm_dim1")
#: The last segments of these magnitudes
MAGNITUDES = frozenset({"weight_g", "original0"})
#: Parts that lie as the weight of a layer does: itself, or what weight norm and spectral norm keep in its place
MATRIX_PARTS = ("weight", "weight_v", "weight_orig")

#: Kinds whose parts are vectors, the same in every framework but for their names and lengths of shape.
NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"})
RECURRENT = frozenset({"lstm", "gru", "rnn", "lstm_cell", "gru_cell", "rnn_cell"})
CONVOLUTIONS = frozenset(
    f"{stem}{rank}d" for stem in ("conv", "conv_transpose", "depthwise_conv") for rank in (1, 2, 3)
)

_RANKED = {
    "Conv{}d": "conv{}d",
    "LazyConv{}d": "conv{}d",
    "ConvTranspose{}d": "conv_transpose{}d",
    "LazyConvTranspose{}d": "conv_transpose{}d",
    "BatchNorm{}d": "batch_norm",
    "LazyBatchNorm{}d": "batch_norm",
    "InstanceNorm{}d": "instance_norm",
    "Conv{}D": "conv{}d",
    "Conv{}DTranspose": "conv_transpose{}d",
    "DepthwiseConv{}D": "depthwise_conv{}d",
    "SeparableConv{}D": "separable_conv{}d",
    "BatchNorm{}D": "batch_norm",
    "InstanceNorm{}D": "instance_norm",
}
#: Class name -> kind. The frameworks agree wherever they share a name.
KIND_BY_CLASS: Mapping[str, str] = {
    **{name.format(rank): kind.format(rank) for name, kind in _RANKED.items() for rank in (1, 2, 3)},
    "Linear": "linear",
    "LazyLinear": "linear",
    "NonDynamicallyQuantizableLinear": "linear",
    "Dense": "linear",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding",
    "BatchNorm": "batch_norm",
    "SyncBatchNorm": "batch_norm",
    "BatchNormalization": "batch_norm",
    "LayerNorm": "layer_norm",
    "LayerNormalization": "layer_norm",
    "GroupNorm": "group_norm",
    "GroupNormalization": "group_norm",
    "RMSNorm": "rms_norm",
    "RMSNormalization": "rms_norm",
    "LSTM": "lstm",
    "GRU": "gru",
    "RNN": "rnn",
    "SimpleRNN": "rnn",
    "LSTMCell": "lstm_cell",
    "GRUCell": "gru_cell",
    "RNNCell": "rnn_cell",
    "SimpleRNNCell": "rnn_cell",
    "MultiheadAttention": "attention",
    "MultiHeadAttention": "attention",
    "PReLU": "prelu",
    "Bilinear": "bilinear",
}

#: What Paddle's layer helper makes variable names of -> kind; ``fc`` is static Paddle's Linear.
_KIND_BY_VARIABLE: Mapping[str, str] = {
    "linear": "linear",
    "fc": "linear",
    "embedding": "embedding",
    **{f"conv{rank}d": f"conv{rank}d" for rank in (1, 2, 3)},
    **{f"conv{rank}d_transpose": f"conv_transpose{rank}d" for rank in (1, 2, 3)},
    **{f"batch_norm{rank}d": "batch_norm" for rank in (1, 2, 3)},
    **{f"instance_norm{rank}d": "instance_norm" for rank in (1, 2, 3)},
    "batch_norm": "batch_norm",
    "sync_batch_norm": "batch_norm",
    "layer_norm": "layer_norm",
    "group_norm": "group_norm",
    "lstm_cell": "lstm_cell",
    "gru_cell": "gru_cell",
    "simple_rnn_cell": "rnn_cell",
    "p_re_lu": "prelu",
    "bilinear": "bilinear",
}
_VARIABLE = re.compile(r"(?P<layer>[a-z][a-z0-9_]*?)_\d+\.(?P<slot>[wb]_\d+)")
_SLOTS = {"w_0": "weight", "b_0": "bias"}
_SLOTS_BY_KIND = {
    "batch_norm": {"w_1": "running_mean", "w_2": "running_var"},
    "lstm_cell": {"w_0": "weight_ih", "w_1": "weight_hh", "b_0": "bias_ih", "b_1": "bias_hh"},
    "gru_cell": {"w_0": "weight_ih", "w_1": "weight_hh", "b_0": "bias_ih", "b_1": "bias_hh"},
    "rnn_cell": {"w_0": "weight_ih", "w_1": "weight_hh", "b_0": "bias_ih", "b_1": "bias_hh"},
}

#: The last segment of a name -> the part, where the spelling alone says it.
PART_BY_LEAF: Mapping[str, str] = {
    "weight": "weight",
    "bias": "bias",
    "running_mean": "running_mean",
    "running_var": "running_var",
    "num_batches_tracked": "num_batches_tracked",
    # Paddle
    "_mean": "running_mean",
    "_variance": "running_var",
    "_weight": "weight",
    # Keras and TensorFlow
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embeddings": "weight",
    "depthwise_kernel": "weight",
    "alpha": "weight",
}
#: What only one framework writes as the last segment. ``gamma`` is not here: torch models use it for layer scales.
_FAMILY_BY_LEAF: Mapping[str, str] = {
    "running_mean": "torch",
    "running_var": "torch",
    "num_batches_tracked": "torch",
    "_mean": "paddle",
    "_variance": "paddle",
    "moving_mean": "keras",
    "moving_variance": "keras",
    "recurrent_kernel": "keras",
    "depthwise_kernel": "keras",
    "embeddings": "keras",
}
#: The last segments that mean a part, by the framework that writes them. Other frameworks' users have parameters of
#: these names that mean something else (``gamma``, ``alpha``, ``scale``).
LEAVES_BY_FAMILY: Mapping[str, Mapping[str, str]] = {
    "torch": {name: name for name in ("weight", "bias", "running_mean", "running_var")},
    "paddle": {
        "weight": "weight",
        "bias": "bias",
        "_mean": "running_mean",
        "_variance": "running_var",
        "_weight": "weight",
    },
    "keras": {
        "kernel": "weight",
        "bias": "bias",
        "gamma": "weight",
        "beta": "bias",
        "scale": "weight",
        "moving_mean": "running_mean",
        "moving_variance": "running_var",
        "embeddings": "weight",
        "depthwise_kernel": "weight",
        "alpha": "weight",
    },
}
#: Words that are a part only in layers of one kind, by framework: anywhere else they are a user's own. In ``.weights.h5``
#: the variables of a layer are numbered in the order in which it makes them.
PART_BY_LEAF_OF_KIND: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "paddle": {"instance_norm": {"scale": "weight"}},
    "keras": {
        **{kind: {"0": "weight", "1": "bias"} for kind in ("linear", *CONVOLUTIONS, "layer_norm", "group_norm")},
        **{kind: {"0": "weight"} for kind in ("embedding", "prelu", "rms_norm")},
        "batch_norm": {"0": "weight", "1": "bias", "2": "running_mean", "3": "running_var"},
    },
}
#: The kinds that ``--kind`` takes.
KINDS = tuple(
    sorted(
        {*KIND_BY_CLASS.values(), *CONVOLUTIONS, PARAMETER, *WEIGHT_NORM_DIMS}
        - {kind for kind in KIND_BY_CLASS.values() if kind.startswith("separable")}
    )
)
_KERAS_CELLS = frozenset({"lstm_cell", "gru_cell", "simple_rnn_cell"})
_KERAS_RECURRENT = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh", "bias": "bias_ih"}
_RECURRENT_PART = re.compile(r"(?P<part>(?:weight|bias)_(?:ih|hh|hr|ho))(?P<layer>_l\d+)?(?P<reverse>_reverse)?")
_WEIGHT_NORM = {"original0": "_g", "original1": "_v"}
#: Names of parts that weight norm and spectral norm keep in place of the weight.
DERIVED_PARTS = frozenset({"weight_g", "weight_v", "weight_orig", "weight_u"})

#: The end of every variable's key in TensorFlow's object-based checkpoints
_TF_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"


def segments(name: str) -> list[str]:
    """A name cut at ``.`` and ``/``, without what TensorFlow appends to every variable (an attribute, ``:0``)."""
    return name.removesuffix(_TF_ATTRIBUTE).removesuffix(":0").replace("/", ".").split(".")


def from_paddle_variable(variable: str) -> LayerPart | None:
    """What a Paddle variable name (``linear_0.w_0``) says of its tensor; None for names of another form."""
    found = _VARIABLE.fullmatch(variable)
    kind = _KIND_BY_VARIABLE.get(found["layer"]) if found else None
    if found is None or kind is None:
        return None
    part = _SLOTS_BY_KIND.get(kind, {}).get(found["slot"]) or _SLOTS.get(found["slot"], "")
    return LayerPart(kind, part)


def part_of_leaf(leaf: str) -> str:
    """The part that the last segment of a name stands for; "" when it is a framework's own word for something else."""
    known = PART_BY_LEAF.get(leaf)
    if known is not None:
        return known
    if leaf in DERIVED_PARTS or _RECURRENT_PART.fullmatch(leaf):
        return leaf
    return ""


def canonical(name: str, known: LayerPart | None = None) -> tuple[str, ...]:
    """The segments of a name with its end spelled as torch spells that part.

    So ``bn/moving_mean``, ``bn._mean`` and ``bn.running_mean`` are one, ``parametrizations.weight.original0`` is
    ``weight_g``, and the cell of a Keras LSTM is torch's layer with ``weight_ih_l0``. What is not known stays.
    """
    parts = segments(name)
    if len(parts) >= 3 and parts[-3] == "parametrizations" and parts[-1] in _WEIGHT_NORM:
        return (*parts[:-3], parts[-2] + _WEIGHT_NORM[parts[-1]])
    in_cell = len(parts) >= 3 and parts[-2] in _KERAS_CELLS
    if parts[-1] in _KERAS_RECURRENT and (in_cell or (known is not None and known.kind in RECURRENT)):
        path, reverse = parts[:-2] if in_cell else parts[:-1], ""
        if len(path) >= 2 and path[-1].startswith(("forward_", "backward_")):
            reverse = "_reverse" if path[-1].startswith("backward_") else ""
            path = path[:-1]
        return (*path, f"{_KERAS_RECURRENT[parts[-1]]}_l0{reverse}")
    leaf = PART_BY_LEAF.get(parts[-1])
    if leaf is None and known is not None and known.part and not _RECURRENT_PART.fullmatch(parts[-1]):
        leaf = known.part
    return (*parts[:-1], leaf or parts[-1])


def family_of_names(names: Sequence[str]) -> str | None:
    """The one framework whose spellings occur among the names; None when none or several do."""
    leaves = {segments(name)[-1] for name in names}
    found = {_FAMILY_BY_LEAF[leaf] for leaf in leaves if leaf in _FAMILY_BY_LEAF}
    if not found and "kernel" in leaves and "weight" not in leaves:
        return "keras"
    return found.pop() if len(found) == 1 else None


def infer_parts(shapes: Mapping[str, Shape]) -> dict[str, LayerPart]:
    """What names and their siblings say beyond doubt: normalisations with statistics, recurrent layers, convolutions,
    and what has names of its own in Keras.

    A matrix called ``weight`` is not in the answer: it may be a Linear or an Embedding.
    """
    siblings: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for name in shapes:
        parts = canonical(name)
        siblings[parts[:-1]][parts[-1]] = name
    found: dict[str, LayerPart] = {}
    for parts_of_layer in siblings.values():
        for part, name in parts_of_layer.items():
            kind = _beyond_doubt(part, parts_of_layer, shapes, name)
            if kind:
                found[name] = LayerPart(kind, part)
    return found


_GATES = {4: "lstm", 3: "gru", 1: "rnn"}


def _beyond_doubt(part: str, layer: Mapping[str, str], shapes: Mapping[str, Shape], name: str) -> str:
    leaf = segments(name)[-1]
    if leaf in _KERAS_RECURRENT and "recurrent_kernel" in {segments(other)[-1] for other in layer.values()}:
        hidden_kernel = next(other for other in layer.values() if segments(other)[-1] == "recurrent_kernel")
        return kind_by_gates(shapes[hidden_kernel])
    recurrent = _RECURRENT_PART.fullmatch(part)
    if recurrent is not None:
        hidden = "weight_hh" + (recurrent["layer"] or "") + (recurrent["reverse"] or "")
        kind = kind_by_gates(shapes[layer[hidden]]) if hidden in layer else ""
        return kind if recurrent["layer"] or not kind else f"{kind}_cell"
    if "running_mean" in layer and part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        return "batch_norm"
    rank = len(shapes[name])
    if leaf == "embeddings" or (leaf == "kernel" and rank == 2):
        return "embedding" if leaf == "embeddings" else "linear"
    if part in ("weight", "bias") and rank > 1 and {"weight", "bias"} <= set(layer):
        if shapes[layer["weight"]] == shapes[layer["bias"]]:
            return "layer_norm"
    if part in ("weight", "weight_v", "weight_orig") and 3 <= rank <= 5:
        return f"depthwise_conv{rank - 2}d" if leaf == "depthwise_kernel" else f"conv{rank - 2}d"
    return ""


def kind_by_gates(shape: Shape) -> str:
    """The recurrent layer whose hidden-to-hidden weights have this shape: one square for each gate."""
    small, large = sorted(shape) if len(shape) == 2 else (0, 0)
    return _GATES.get(large // small, "") if small and large % small == 0 else ""
