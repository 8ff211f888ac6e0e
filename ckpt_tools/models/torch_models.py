"""torch.nn.Module: its state_dict's names, with the kind of layer each belongs to."""

from __future__ import annotations

from typing import Any

import torch

from ckpt_tools.errors import UnreadableInput
from ckpt_tools.mapping.kinds import KIND_BY_CLASS, canonical
from ckpt_tools.models.live import LiveModel, LiveTensor


def describe(reference: str, module: torch.nn.Module) -> LiveModel:
    """Names, types and shapes as ``state_dict()`` has them; shared parameters are marked."""
    state = module.state_dict(keep_vars=True)
    modules = dict(module.named_modules(remove_duplicate=False))
    first: dict[int, str] = {}
    tensors = []
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue  # extra state: a value
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise UnreadableInput(
                f"{name} has no shape yet: run a batch through the model, or build it with its sizes", where=reference
            )
        path, part = _owner(name)
        kind = _kind(modules.get(path))
        known = first.setdefault(id(tensor), name)
        tensors.append(
            LiveTensor(
                name,
                str(tensor.dtype).rpartition(".")[2],
                tuple(tensor.shape),
                kind,
                part if kind else "",
                same_as=known if known != name else None,
                is_parameter=isinstance(tensor, torch.nn.Parameter),
            )
        )
    return LiveModel(reference, "torch", tuple(tensors))


def _owner(name: str) -> tuple[str, str]:
    """The path of the module a name belongs to, and the part; a parametrisation belongs to what it is put on."""
    *path, part = canonical(name)
    return ".".join(path), part


def _kind(module: Any) -> str:
    """The kind by the nearest class of torch's own; "" for modules of the user's that are built from none."""
    for cls in type(module).__mro__ if module is not None else ():
        if cls.__module__.startswith("torch.") and cls.__name__ in KIND_BY_CLASS:
            return KIND_BY_CLASS[cls.__name__]
    return ""
