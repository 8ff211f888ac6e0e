"""A live model as a document that ``diff`` and ``convert`` take in its place, without the framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt_tools.core.purposes import Role
from ckpt_tools.mapping.kinds import LayerPart, segments
from ckpt_tools.models.live import LiveModel, LiveTensor
from ckpt_tools.ops.comparands import SPEC, Comparand, Row

_COUNTERS = frozenset({"num_batches_tracked", "save_counter"})
_RANDOM_STATE = "seed_generator_state"


def spec_of(model: LiveModel) -> dict[str, Any]:
    """The document: one row for each tensor, in the model's order."""
    return {
        "schema": SPEC,
        "framework": model.family,
        "model": model.label,
        "tensors": [_row(t) for t in model.tensors],
    }


def _row(tensor: LiveTensor) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "kind": tensor.kind or None,
        "role": tensor.part or None,
    }
    if tensor.other_names:
        row["names"] = dict(tensor.other_names)
    if tensor.same_as is not None:
        row["same_as"] = tensor.same_as
    if not tensor.is_parameter:
        row["parameter"] = False
    if tensor.is_optimizer:
        row["purpose"] = Role.OPTIMIZER.value
    return row


def comparand_of(model: LiveModel, names: Mapping[int, str] | None = None) -> Comparand:
    """A live model as one side of a comparison. ``names`` has, by node of its graph, the key under which a checkpoint
    keeps what a restore would put there."""
    names = names or {}
    rows = [
        Row(
            names.get(tensor.node, tensor.name) if tensor.node is not None else tensor.name,
            tensor.dtype,
            tensor.shape,
            role_of(tensor),
            LayerPart(tensor.kind, tensor.part) if tensor.kind else None,
            other_names=tensor.other_names,
            same_as=tensor.same_as,
            is_parameter=tensor.is_parameter,
        )
        for tensor in model.tensors
    ]
    return Comparand(model.label, "model", model.family, rows)


def role_of(tensor: LiveTensor) -> Role:
    """What a tensor of a model is to a run."""
    if tensor.is_optimizer:
        return Role.OPTIMIZER
    if tensor.part == _RANDOM_STATE:
        return Role.OTHER
    ends = {tensor.part, *segments(tensor.name)[-1:]}
    return Role.COUNTER if ends & _COUNTERS else Role.WEIGHT
