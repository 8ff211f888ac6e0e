"""keras.Model and keras.Layer, tf.Module, tf.train.Checkpoint: variables, and the graph of objects that a restore walks.

Keras variables are named by their path (``conv1/kernel``), with further names by groups of ``.weights.h5`` and by attributes
of the user's classes; the other objects are named by where TensorFlow would store them. The
graph is that of ``tf.train.Checkpoint``: tensorflow/python/checkpoint/restore.py matches it child by child, by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from ckpt_tools.errors import UnreadableInput
from ckpt_tools.mapping.kinds import KIND_BY_CLASS
from ckpt_tools.models.live import LiveGraph, LiveModel, LiveNode, LiveTensor

_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"
_PARTS = {
    "kernel": "weight",
    "gamma": "weight",
    "scale": "weight",
    "embeddings": "weight",
    "alpha": "weight",
    "depthwise_kernel": "weight",
    "bias": "bias",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_RECURRENT_PARTS = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh", "bias": "bias_ih"}
#: Keras' models that are told which layers they have; Functional has no public name.
_CONTAINERS = ("Sequential", "Functional")
_SEED = "seed_generator_state"


def describe(reference: str, root: Any) -> LiveModel:
    """The variables of a Keras model or layer, or of any other trackable object. UnreadableInput when Keras has not
    made them yet."""
    graph, objects = _graph(root)
    nodes = {id(found): index for index, found in enumerate(objects)}
    keras = _keras()
    if keras is not None and isinstance(root, keras.layers.Layer):
        tensors = tuple(_keras_variables(reference, root, keras, nodes, graph))
    else:
        tensors = tuple(_tracked_variables(graph, _optimizer_nodes(objects)))
    if not tensors:
        raise UnreadableInput("has no variables", where=reference)
    return LiveModel(reference, "keras", tensors, graph)


def _keras() -> Any:
    import sys

    return sys.modules.get("keras")


# ---- variables


def _keras_variables(
    reference: str, model: Any, keras: Any, nodes: dict[int, int], graph: LiveGraph | None
) -> Iterator[LiveTensor]:
    if not model.built:
        raise UnreadableInput(
            "is not built, its variables do not exist yet",
            where=reference,
            hint="name a function that builds it: def make(): model = Net(); model.build((None, 80)); return model",
        )
    owners: dict[int, tuple[str, str]] = {}
    for layer in model._flatten_layers(include_self=True, recursive=True):
        kind = _kind(layer)
        for variable in (*layer._trainable_variables, *layer._non_trainable_variables):
            owners[id(variable)] = kind, _part(kind, variable.name) if kind else ""
    groups, attributes = _group_names(model, keras), _attribute_names(model, keras)
    positions = _attribute_names(model, keras, by_position=True)
    trained = {id(variable) for variable in model.trainable_variables}
    first: dict[int, str] = {}
    for variable in model.variables:
        kind, part = owners.get(id(variable), ("", ""))
        known = first.setdefault(id(variable), variable.path)
        node = nodes.get(id(variable))
        names = {}
        if id(variable) in groups:
            names["group"] = groups[id(variable)]
        if node is not None and graph is not None:
            names["object"] = graph.nodes[node].path + _ATTRIBUTE
        if attributes.get(id(variable), variable.path) != variable.path:
            names["attribute"] = attributes[id(variable)]
        if positions.get(id(variable)) != attributes.get(id(variable)):
            names["position"] = positions[id(variable)]
        yield LiveTensor(
            variable.path,
            str(variable.dtype),
            tuple(variable.shape),
            kind,
            part or (_SEED if variable.name == _SEED else ""),
            names,
            known if known != variable.path else None,
            node,
            is_parameter=id(variable) in trained,
        )


def _kind(layer: Any) -> str:
    for cls in type(layer).__mro__:
        if cls.__module__.startswith("keras.") and cls.__name__ in KIND_BY_CLASS:
            return KIND_BY_CLASS[cls.__name__]
    return ""


def _part(kind: str, name: str) -> str:
    if kind.endswith("_cell"):
        return _RECURRENT_PARTS.get(name, name)
    return _PARTS.get(name, name)


def _group_names(model: Any, keras: Any) -> dict[int, str]:
    """Where ``.weights.h5`` keeps each variable, by identity: the walk of keras/src/saving/saving_lib.py."""
    try:
        from keras.src.saving.keras_saveable import KerasSaveable
        from keras.src.saving.saving_lib import _walk_saveable
    except ImportError:  # not part of Keras' promises
        return {}
    found: dict[int, str] = {}
    seen: set[int] = set()

    def visit(saveable: Any, path: str) -> None:
        if id(saveable) in seen:
            return
        seen.add(id(saveable))
        store: dict[str, Any] = {}
        if hasattr(saveable, "save_own_variables"):  # metrics of a compiled model have no such method
            saveable.save_own_variables(store)
        for key, variable in store.items():
            found.setdefault(id(variable), f"{path}/vars/{key}".lstrip("/"))
        for name, child in _walk_saveable(saveable):
            if isinstance(child, KerasSaveable):
                visit(child, f"{path}/{name}")
            elif isinstance(child, (list, dict, tuple, set)):
                visit_all(list(child.values()) if isinstance(child, dict) else list(child), f"{path}/{name}")

    def visit_all(children: list[Any], path: str) -> None:
        used: dict[str, int] = {}
        for child in children:
            if isinstance(child, KerasSaveable):
                name = keras.src.utils.naming.to_snake_case(type(child).__name__)
                count = used.get(name, 0)
                used[name] = count + 1
                visit(child, f"{path}/{name}_{count}" if count else f"{path}/{name}")

    visit(model, "")
    return found


def _attribute_names(model: Any, keras: Any, *, by_position: bool = False) -> dict[int, str]:
    """What each variable would be called by the attributes of the user's own classes (``encoder/0/norm/gamma``), by
    identity. What is inside Keras' own layers has its name there. Layers in Keras' containers have their names, or, by
    position, their number in a Sequential; ``(N)`` in a Functional model, which runs them in an order of its own.
    """
    found: dict[int, str] = {}
    seen: set[int] = set()

    def visit(owner: Any, path: str) -> None:
        if id(owner) in seen:
            return
        if isinstance(owner, keras.layers.Layer):
            seen.add(id(owner))
            for variable, name in _own_names(owner, keras):
                found.setdefault(id(variable), f"{path}{name}")
        for name, child in _named_children(owner, keras, by_position=by_position):
            visit(child, f"{path}{name}/")

    visit(model, "")
    return found


def _own_names(layer: Any, keras: Any) -> Iterator[tuple[Any, str]]:
    """The variables that a layer has itself; those of Keras' own layers with all that is inside."""
    if _is_of_keras(layer) and not _is_container(layer, keras):
        around = f"{layer.path}/"
        yield from ((each, each.path[len(around) :]) for each in layer.variables if each.path.startswith(around))
    else:
        yield from ((each, each.name) for each in (*layer._trainable_variables, *layer._non_trainable_variables))


def _named_children(owner: Any, keras: Any, *, by_position: bool) -> Iterator[tuple[str, Any]]:
    """What may have layers, by the names that a user gave, or by positions in Keras' containers."""
    if isinstance(owner, dict):
        yield from ((str(key), child) for key, child in owner.items())
    elif isinstance(owner, (list, tuple)):
        yield from ((str(index), child) for index, child in enumerate(owner))
    elif isinstance(owner, keras.layers.Layer) and _is_container(owner, keras):
        position = "{}" if isinstance(owner, keras.Sequential) else "({})"
        for index, layer in enumerate(owner.layers):
            yield position.format(index) if by_position else layer.name, layer
    elif isinstance(owner, keras.layers.Layer) and not _is_of_keras(owner):
        own = dir(keras.Model) if isinstance(owner, keras.Model) else dir(keras.layers.Layer)
        attributes = {name: child for name, child in vars(owner).items() if name not in own}
        yield from sorted(attributes.items(), key=lambda named: (named[0].startswith("_"), named[0]))


def _is_of_keras(layer: Any) -> bool:
    return type(layer).__module__.startswith("keras.")


def _is_container(layer: Any, keras: Any) -> bool:
    """Whether it is a model whose layers Keras knows by their names, Sequential or Functional."""
    return isinstance(layer, keras.Model) and any(cls.__name__ in _CONTAINERS for cls in type(layer).__mro__)


def _tracked_variables(graph: LiveGraph | None, optimizers: set[int]) -> Iterator[LiveTensor]:
    """Every variable of the graph, named by its shortest path."""
    for index, node in enumerate(graph.nodes if graph is not None else ()):
        if node.shape is not None:
            yield LiveTensor(
                node.path + _ATTRIBUTE, node.dtype, node.shape, node=index, is_optimizer=index in optimizers
            )


def _optimizer_nodes(objects: list[Any]) -> set[int]:
    """The nodes of optimizers' own variables."""
    own: set[int] = set()
    keras = _keras()
    for found in objects:
        if keras is not None and isinstance(found, keras.optimizers.Optimizer):
            own |= {id(variable) for variable in found.variables}
    return {index for index, found in enumerate(objects) if id(found) in own}


# ---- objects


def _graph(root: Any) -> tuple[LiveGraph | None, list[Any]]:
    """The objects below ``root``, breadth-first, and themselves. None for models of another Keras backend."""
    try:
        import tensorflow
        from tensorflow.python.checkpoint.graph_view import ObjectGraphView
        from tensorflow.python.training.saving.saveable_object_util import saveable_objects_from_trackable
    except ImportError:
        return None, []
    if not hasattr(root, "_trackable_children"):
        return None, []
    is_checkpoint = isinstance(root, tensorflow.train.Checkpoint)
    view = root._saver._graph_view if is_checkpoint else ObjectGraphView(root)
    start = view.root
    paths = {id(start): ""}
    objects = [start]
    queue = deque([start])
    children: dict[int, list[tuple[str, Any]]] = {}
    while queue:
        found = queue.popleft()
        children[id(found)] = [(child.name, child.ref) for child in view.list_children(found)]
        for name, child in children[id(found)]:
            if id(child) not in paths:
                paths[id(child)] = f"{paths[id(found)]}/{_escaped(name)}".lstrip("/")
                objects.append(child)
                queue.append(child)
    index = {id(found): at for at, found in enumerate(objects)}
    nodes = []
    for found in objects:
        has_values = bool(saveable_objects_from_trackable(found))
        shape = getattr(found, "shape", None) if has_values else None
        nodes.append(
            LiveNode(
                paths[id(found)],
                tuple((name, index[id(child)]) for name, child in children[id(found)]),
                has_values,
                tuple(shape) if shape is not None and None not in tuple(shape) else None,
                _dtype_name(found) if shape is not None else "",
            )
        )
    return LiveGraph(tuple(nodes), is_checkpoint), objects


def _dtype_name(variable: Any) -> str:
    dtype = variable.dtype
    return str(getattr(dtype, "name", dtype))


def _escaped(local_name: str) -> str:
    """As names stand in keys: tensorflow/python/trackable/trackable_utils.py."""
    return local_name.replace(".", "..").replace("/", ".S")
