"""paddle.nn.Layer: its state_dict's names, with Paddle's variable names and the kind of layer each belongs to."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.nn.utils.weight_norm_hook import WeightNorm

from ckpt_tools.mapping.kinds import KIND_BY_CLASS, WEIGHT_NORM_DIMS, from_paddle_variable, part_of_leaf
from ckpt_tools.models.live import LiveModel, LiveTensor


def describe(reference: str, layer: paddle.nn.Layer) -> LiveModel:
    """Names, types and shapes as ``state_dict()`` has them. Recurrent layers have each tensor under two names there."""
    layers = dict(layer.named_sublayers(include_self=True))
    buffers = {id(tensor) for tensor in layer.buffers()}
    first: dict[int, str] = {}
    tensors = []
    for name, tensor in layer.state_dict().items():
        path, _, leaf = name.rpartition(".")
        kind = _kind(layers.get(path))
        said = from_paddle_variable(tensor.name)
        kind = _weight_norm(layers.get(path), leaf) or kind or (said.kind if said else "")
        part = part_of_leaf(leaf) or (said.part if said else "") or leaf
        known = first.setdefault(id(tensor), name)
        tensors.append(
            LiveTensor(
                name,
                str(tensor.dtype).rpartition(".")[2],
                tuple(tensor.shape),
                kind,
                part if kind else "",
                {"variable": tensor.name} if tensor.name else {},
                known if known != name else None,
                is_parameter=id(tensor) not in buffers,
            )
        )
    return LiveModel(reference, "paddle", tuple(tensors))


def _weight_norm(layer: Any, leaf: str) -> str:
    """For magnitudes of weight norm their axis, which is in the hook alone."""
    for hook in layer._forward_pre_hooks.values() if layer is not None else ():
        if isinstance(hook, WeightNorm) and leaf == f"{hook.name}_g" and 0 <= hook.dim < len(WEIGHT_NORM_DIMS):
            return WEIGHT_NORM_DIMS[hook.dim]
    return ""


def _kind(layer: Any) -> str:
    for cls in type(layer).__mro__ if layer is not None else ():
        if cls.__module__.startswith("paddle.nn.") and cls.__name__ in KIND_BY_CLASS:
            return KIND_BY_CLASS[cls.__name__]
    return ""
