"""What Keras 3's ``.weights.h5`` tells by its groups: ``layers/dense_1/vars/0`` is the kernel of a Dense layer.

Below ``layers`` groups are named by the class of the layer and a count, variables by their position; see
``_save_container_state`` in keras/src/saving/saving_lib.py. Elsewhere groups are named by attributes, which say nothing of
the class, except inside layers of Keras' own that are made of others (recurrent cells, attention).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ckpt_tools.mapping.kinds import LEAVES_BY_FAMILY, LayerPart, Shape, kind_by_gates

_WITH_BIAS = ("kernel", "bias")
_RECURRENT = ("kernel", "recurrent_kernel", "bias")
_CELLS = ("lstm_cell", "gru_cell", "simple_rnn_cell")
#: Variables of a layer in their order, by its class in snake case. A layer may leave out the last ones.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("dense", "einsum_dense", "conv1d", "conv2d", "conv3d"), _WITH_BIAS),
    **dict.fromkeys(("conv1d_transpose", "conv2d_transpose", "conv3d_transpose"), _WITH_BIAS),
    **dict.fromkeys(("depthwise_conv1d", "depthwise_conv2d"), _WITH_BIAS),
    **dict.fromkeys(_CELLS, _RECURRENT),
    **dict.fromkeys(("separable_conv1d", "separable_conv2d"), ("depthwise_kernel", "pointwise_kernel", "bias")),
    "embedding": ("embeddings",),
    "p_re_lu": ("alpha",),
    "rms_normalization": ("scale",),
}
#: Those that may leave out any: their variables are known only when all are there.
ALL_OR_UNKNOWN: Mapping[str, tuple[str, ...]] = {
    "batch_normalization": ("gamma", "beta", "moving_mean", "moving_variance"),
    "layer_normalization": ("gamma", "beta"),
    "group_normalization": ("gamma", "beta"),
}
_KINDS = {
    "dense": "linear",
    "embedding": "embedding",
    "p_re_lu": "prelu",
    "rms_normalization": "rms_norm",
    "batch_normalization": "batch_norm",
    "layer_normalization": "layer_norm",
    "group_normalization": "group_norm",
    **{f"conv{rank}d": f"conv{rank}d" for rank in (1, 2, 3)},
    **{f"conv{rank}d_transpose": f"conv_transpose{rank}d" for rank in (1, 2, 3)},
    **{f"depthwise_conv{rank}d": f"depthwise_conv{rank}d" for rank in (1, 2)},
}
#: The attributes of Keras' attention that are layers, with the names that these have. ``GroupQueryAttention`` has them
#: with an underscore before.
PROJECTIONS = {
    "query_dense": "query",
    "key_dense": "key",
    "value_dense": "value",
    "output_dense": "attention_output",
}
_COUNT = re.compile(r"_\d+\Z")


class Spoken(NamedTuple):
    """What a variable would be called by its path in the model, and what its group says of the layer."""

    name: str
    known: LayerPart | None = None
    why: str = ""


def spoken_names(variables: Mapping[str, tuple[Shape, str | None]]) -> dict[str, Spoken]:
    """For each name of the form ``…/vars/N`` what it says. ``variables`` have their shape and the format's second name."""
    groups = _groups(variables)
    found: dict[str, Spoken] = {}
    for owner, numbered in groups.items():
        shapes = {index: variables[name][0] for index, name in numbered.items()}
        projection = _projection(owner, groups, variables)
        leaves, kind = (_WITH_BIAS, "") if projection else variables_of(owner.split("/"), shapes)
        for index, name in numbered.items():
            alias = variables[name][1]
            path = [*_path(owner.split("/"), alias)]
            if projection:
                path[-1:] = [projection]
            leaf = leaves[index] if index < len(leaves) else (alias or str(index)).rpartition("/")[2]
            part = LEAVES_BY_FAMILY["keras"].get(leaf, "")
            known = LayerPart(kind, part) if kind else None
            found[name] = Spoken("/".join((*path, leaf)), known, f"its place {owner}")
    return found


def names_by_groups(variables: Mapping[str, tuple[Shape, str]]) -> dict[str, str]:
    """The paths of groups as names, for names of the form ``…/vars/N``: outside Keras' own containers these are the
    attributes of a model. ``variables`` have their shape and the name that the last segment is taken from."""
    groups = _groups(variables)
    found: dict[str, str] = {}
    for owner, numbered in groups.items():
        projection = _projection(owner, groups, variables)
        path = _beside(owner) + projection if projection else owner.removesuffix("/cell")
        for name in numbered.values():
            found[name] = f"{path}/{variables[name][1].rpartition('/')[2]}"
    return found


def _groups(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Names of variables by the group that has them and their position there."""
    groups: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        owner, marked, number = name.rpartition("/vars/")
        if marked and number.isdecimal():
            groups[owner][int(number)] = name
    return groups


def _projection(
    owner: str, groups: Mapping[str, Mapping[int, str]], variables: Mapping[str, tuple[Shape, object]]
) -> str:
    """What Keras calls the projection of its attention that a group is; "" for any other. Users have attributes of the
    same names: only Keras' own attention keeps the heads apart, in four kernels of three axes."""
    attention = _beside(owner)
    last = owner[len(attention) :]
    hidden = "_" if last.startswith("_") else ""
    projection = PROJECTIONS.get(last.removeprefix("_"), "")
    if not projection:
        return ""
    kernels = [groups.get(f"{attention}{hidden}{name}", {}).get(0) for name in PROJECTIONS]
    return projection if all(name is not None and len(variables[name][0]) == 3 for name in kernels) else ""


def _beside(owner: str) -> str:
    """The path of a group without its last segment: what the groups beside it begin with."""
    return owner[: owner.rfind("/") + 1]


def variables_of(owner: Sequence[str], shapes: Mapping[int, Shape]) -> tuple[tuple[str, ...], str]:
    """The names of a layer's variables by position, empty when they are not known, and the layer's kind. ``owner`` is the
    path of its group: only below ``layers`` is the last segment a class, elsewhere it is what a user called an attribute
    (``self.embedding = Dense(4)``)."""
    layer = _COUNT.sub("", owner[-1])
    above = owner[-2] if len(owner) > 1 else ""
    in_stack = above == "cells" and layer in _CELLS
    if (owner[-1] == "cell" or in_stack) and _is_recurrent(shapes):
        return _RECURRENT, ""
    if above != "layers":
        return (), ""
    names = VARIABLES.get(layer, ())
    if len(ALL_OR_UNKNOWN.get(layer, ())) == len(shapes):
        names = ALL_OR_UNKNOWN[layer]
    return (names, _KINDS.get(layer, "")) if len(shapes) <= len(names) else ((), _KINDS.get(layer, ""))


def _is_recurrent(shapes: Mapping[int, Shape]) -> bool:
    kernel, hidden = shapes.get(0, ()), shapes.get(1, ())
    return len(kernel) == len(hidden) == 2 and kernel[1] == hidden[1] and bool(kind_by_gates(hidden))


def _path(owner: list[str], alias: str | None) -> Iterator[str]:
    if alias is not None:
        yield from alias.split("/")[:-1]
        return
    yield from (part for part in owner if part != "layers")
