"""How Keras 3 names groups in ``.weights.h5``, and the names that its users know weights by.

Groups are named by the class of the layer and a count (``layers/dense_1``), variables by their position
(``vars/0``); see ``_save_container_state`` in keras/src/saving/saving_lib.py. The layer's own name stands in the
attribute ``name`` of its ``vars`` group since Keras 3.6, and in the model's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Dict
from ckpt_tools.mapping.keras_groups import variables_of

_DEEPEST_MODEL = 100
_OPTIMIZER = ("optimizer",)
_LAYERS = "layers"


def snake_case(name: str) -> str:
    """A class name as Keras writes it into paths."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def layer_names(config: Any) -> dict[tuple[str, ...], str]:
    """Names of layers by the path of their group, from a model's configuration as ``config.json`` holds it."""
    found: dict[tuple[str, ...], str] = {}
    pending: list[tuple[tuple[str, ...], Any]] = [((), config)]
    while pending:
        path, model = pending.pop()
        inner = model.get("config") if isinstance(model, dict) else None
        layers = inner.get("layers") if isinstance(inner, dict) else None
        if not isinstance(layers, list) or len(path) > _DEEPEST_MODEL:
            continue
        used: dict[str, int] = {}
        for layer in layers:
            if not isinstance(layer, dict) or not isinstance(layer.get("class_name"), str):
                continue
            group = snake_case(layer["class_name"])
            used[group] = used.get(group, -1) + 1
            below = (*path, _LAYERS, f"{group}_{used[group]}" if used[group] else group)
            own = layer.get("config")
            name = own.get("name") if isinstance(own, dict) else None
            if isinstance(name, str):
                found[below] = name
            pending.append((below, layer))
    return found


def give_aliases(root: Dict, names: dict[tuple[str, ...], str]) -> None:
    """Name variables as Keras' users do: ``d1/kernel`` for ``layers/dense/vars/0``.

    ``names`` are names of layers by the path of their group. Of an optimizer's variables the first has one, which every
    optimizer has there: ``adam/iteration``.
    """
    pending: list[tuple[tuple[str, ...], Dict]] = [((), root)]
    seen = {id(root)}
    for path, node in pending:
        if path == (*_OPTIMIZER, "vars"):
            count = node.get("0")
            if isinstance(count, Tensor) and _OPTIMIZER in names:
                count.alias = f"{names[_OPTIMIZER]}/iteration"
        elif path[-1:] == ("vars",) and path[0] != "optimizer":
            _name_variables(path[:-1], node, names)
        for name, child in node.items():
            if isinstance(child, Dict) and id(child) not in seen:
                seen.add(id(child))
                pending.append(((*path, name), child))


def _name_variables(owner: tuple[str, ...], variables: Dict, names: dict[tuple[str, ...], str]) -> None:
    """Aliases for the tensors of one group ``vars``; none when no layer around it has a name."""
    above = [owner[:length] for length in range(1, len(owner) + 1)]
    if not any(path in names for path in above):
        return
    parts = [names.get(path, path[-1]) for path in above if path in names or path[-1] != _LAYERS]
    tensors = {name: node for name, node in variables.items() if isinstance(node, Tensor)}
    positions = {int(name): tensor.info.shape for name, tensor in tensors.items() if name.isdecimal()}
    known, _ = variables_of(owner, positions)
    for name, tensor in tensors.items():
        named = name.isdecimal() and int(name) < len(known)
        if tensor.alias is None:
            tensor.alias = "/".join([*parts, known[int(name)] if named else name])


def names_from_aliases(aliases: Iterable[tuple[tuple[str, ...], str]]) -> dict[tuple[str, ...], str]:
    """Names of layers by the path of their group, such that :func:`give_aliases` gives these aliases again.

    ``aliases`` are those of variables, each with the path of its dataset. Groups around a layer have a name where they
    are layers themselves (Keras names all of these) and where the alias calls them otherwise than the path.
    """
    found: dict[tuple[str, ...], str] = {}
    for path, alias in aliases:
        owner, parts = path[:-2], alias.split("/")[:-1]
        groups = [owner[:length] for length in range(1, len(owner) + 1) if owner[length - 1] != _LAYERS]
        if path[-2:-1] != ("vars",) or not parts or not groups:
            continue
        extra = max(len(parts) - len(groups), 0)  # the name of a model around all that has a group
        parts[: extra + 1] = ["/".join(parts[: extra + 1])]
        for group, part in zip(reversed(groups), reversed(parts)):
            if group == owner or part != group[-1] or group[-2:-1] == (_LAYERS,):
                found.setdefault(group, part)
    return found
