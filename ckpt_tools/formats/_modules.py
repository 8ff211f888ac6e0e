"""Pickled modules (``torch.nn.Module``, ``paddle.nn.Layer``) shown as what their ``state_dict()`` would be.

A module pickles as its ``__dict__``; parameters, buffers and submodules lie in ``_parameters``, ``_buffers`` and
``_modules`` (``_sub_layers`` in Paddle), buffers that are not saved in ``_non_persistent_buffers_set``.
"""

from __future__ import annotations

from typing import Any

from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Dict, Node
from ckpt_tools.errors import LimitExceeded
from ckpt_tools.pickles.machine import Machine
from ckpt_tools.pickles.nodes import Object


class ModuleState(Dict):
    """The state_dict of a pickled module; ``type_name`` is the module's class, ``attributes`` all it held.

    ``copied`` counts the names that were joined to make it and the states below it.
    """

    __slots__ = ("copied",)

    def __init__(self, type_name: str, attributes: Node) -> None:
        super().__init__(type_name=type_name)
        self.attributes = attributes
        self.copied = 0

    def emptied(self) -> Dict:
        """What ``state_dict()`` gives: the shell of the module is no part of it."""
        return Dict(type_name="collections.OrderedDict")

    def include(self, name: str, below: ModuleState, machine: Machine) -> None:
        """Take over what the submodule ``name`` holds, under joined names.

        LimitExceeded when modules share modules so often that there are more names than bytes in the pickle.
        """
        self.copied += below.copied + len(below)
        if self.copied > max(machine.extent.nbytes, machine.limits.visits_at_least):
            raise LimitExceeded(f"pickled modules refer to each other so often that they unfold to {self.copied} names")
        for inner, node in below.items():
            self[f"{name}.{inner}"] = node


def built(machine: Machine, node: Object) -> Any:
    """The state_dict of a module that BUILD has just completed; None for anything else."""
    held = node.state if isinstance(node.state, dict) else None
    if held is None or "_parameters" not in held:
        return None
    below = held.get("_modules", held.get("_sub_layers"))
    if not isinstance(below, dict) or not isinstance(held["_parameters"], dict):
        return None
    state = ModuleState(node.type_name, held)
    unsaved = held.get("_non_persistent_buffers_set", held.get("_non_persistable_buffer_names_set")) or ()
    buffers = held.get("_buffers")
    for name, tensor in held["_parameters"].items():
        if isinstance(tensor, Tensor):
            state[name] = tensor
    for name, tensor in (buffers if isinstance(buffers, dict) else {}).items():
        if isinstance(tensor, Tensor) and name not in unsaved:
            state[name] = tensor
    for name, module in below.items():
        if isinstance(module, ModuleState):
            state.include(str(name), module, machine)
    return state
