"""The object graph of ``tf.train.Checkpoint``: which object each tensor of a checkpoint belongs to.

Source: tensorflow/core/protobuf/trackable_object_graph.proto. A node has named children, attributes with the keys under
which their values are stored, and, where it is an optimizer of Keras 2 or before, slots; node 0 is the root. A value is
stored under the shortest path to its node, and that path may lead through an optimizer: Keras 3 keeps the weights at
``optimizer/_trainable_variables/0``. So what a tensor is for is told by the graph, not by its key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ckpt_tools.core.dtypes import DType
from ckpt_tools.core.limits import MIB
from ckpt_tools.core.purposes import Purpose, Role
from ckpt_tools.core.tensors import TensorInfo
from ckpt_tools.errors import CorruptFile
from ckpt_tools.formats._protobuf import fields, message, number, submessage, text

#: The key under which the graph itself is stored, as a scalar string.
GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
#: The attribute that is a variable's value; others are iterator states, contents of tables, …
VARIABLE_VALUE = "VARIABLE_VALUE"

# Names of children that Keras gives: its optimizers hold the weights they train beside their own variables.
_TRAINABLE = "_trainable_variables"
_ALL_OPTIMIZER_VARIABLES = "_variables"
_AVERAGES = "_model_variables_moving_average"
_COUNTERS = {"save_counter", "iter", "_iterations", "global_step", "step", "epoch"}
_RANDOM_STATE = "seed_generator_state"
#: What the optimizers of Keras 3 and of Keras 2 always have among their children.
_OPTIMIZER_MARKS = ({"_variables", "_iterations"}, {"iter", "learning_rate"})
_OPTIMIZER = "optimizer"

#: Models nest less deep than this; longer ways to a variable are of no help as names.
_PATH_DEPTH = 100
#: Room for aliases made of paths, by the graph's own size. Stored keys are such paths and a part of the graph.
_PATHS_PER_BYTE = 4


class Attribute(NamedTuple):
    """A value of a node and where it is stored."""

    name: str
    full_name: str
    key: str


class GraphNode(NamedTuple):
    """An object: (local name, node) of its children, its values, (variable, slot name, slot's node) of its slots."""

    children: Sequence[tuple[str, int]]
    attributes: Sequence[Attribute]
    slots: Sequence[tuple[int, str, int]]

    @property
    def is_optimizer(self) -> bool:
        names = {name for name, _ in self.children}
        return bool(self.slots) or any(marks <= names for marks in _OPTIMIZER_MARKS)

    @property
    def is_list(self) -> bool:
        return bool(self.children) and all(name.isdecimal() for name, _ in self.children)


class ObjectGraph:
    """A parsed TrackableObjectGraph. CorruptFile when it refers to nodes it does not have."""

    def __init__(self, data: bytes) -> None:
        self._nbytes = len(data)
        self.nodes = [_node(submessage(value)) for index, _, value in fields(data) if index == 1]
        count = len(self.nodes)
        for children, _, slots in self.nodes:
            for referred in (*(child for _, child in children), *(n for one, _, other in slots for n in (one, other))):
                if referred >= count:
                    raise CorruptFile(f"the object graph refers to node {referred} of {count}")
        #: (node, attribute) by the key under which it is stored
        self.stored: dict[str, tuple[int, Attribute]] = {}
        self._variable_keys: dict[int, str] = {}
        for index, node in enumerate(self.nodes):
            for attribute in node.attributes:
                self.stored[attribute.key] = (index, attribute)
                if attribute.name == VARIABLE_VALUE:
                    self._variable_keys[index] = attribute.key

    def variable_keys(self) -> set[str]:
        """The keys of variables. Other values need not be where the graph says: an iterator's state is not."""
        return set(self._variable_keys.values())

    def aliases(self) -> dict[str, str]:
        """A second name by stored key: the variable's own name, else another path to it, where there is one."""
        edges = self._edges()
        room = MIB + _PATHS_PER_BYTE * self._nbytes
        found = {}
        for key, (index, attribute) in self.stored.items():
            if attribute.full_name:
                found[key] = attribute.full_name
                continue
            stored_path = key.rsplit("/.ATTRIBUTES/", 1)[0]
            for path in self._paths(index, edges):
                room -= len(path)
                if room < 0:
                    return found
                if path != stored_path:
                    found[key] = path
                    break
        return found

    def _edges(self) -> list[list[tuple[int, str]]]:
        """For each node, (parent, local name) of the first two ways to it, breadth-first from the root."""
        edges: list[list[tuple[int, str]]] = [[] for _ in self.nodes]
        queue = deque([0] if self.nodes else [])
        seen = {0}
        while queue:
            parent = queue.popleft()
            for name, child in self.nodes[parent].children:
                if len(edges[child]) < 2:
                    edges[child].append((parent, name))
                if child not in seen:
                    seen.add(child)
                    queue.append(child)
        return edges

    def _paths(self, index: int, edges: list[list[tuple[int, str]]]) -> Iterator[str]:
        """Up to two paths from the root to a node, the shortest first. One that comes by the node itself is none."""
        for first in edges[index]:
            names, (parent, name) = [], first
            while True:
                names.append(escaped(name))
                if parent == 0:
                    yield "/".join(reversed(names))
                if parent in (0, index) or len(names) > _PATH_DEPTH:
                    break
                parent, name = edges[parent][0]

    def paths(self) -> dict[str, tuple[str, ...]]:
        """The local names, as they stand in keys, that lead to each variable by stored key: the shortest way that passes by no optimizer,
        empty for those that no other way leads to."""
        closed = self._optimizers()
        room = MIB + _PATHS_PER_BYTE * self._nbytes
        ways: dict[int, tuple[str, ...]] = {0: ()} if self.nodes and 0 not in closed else {}
        queue = deque(ways)
        while queue:
            parent = queue.popleft()
            way = ways[parent]
            for name, child in self.nodes[parent].children:
                if child not in ways and child not in closed and len(way) < _PATH_DEPTH:
                    ways[child] = (*way, escaped(name))
                    room -= sum(map(len, ways[child]))
                    if room < 0:
                        return {}
                    queue.append(child)
        return {key: ways.get(index, ()) for index, key in self._variable_keys.items()}

    def purposes(self, infos: dict[str, TensorInfo]) -> dict[str, Purpose]:
        """What each stored key of ``infos`` is for; keys that the graph does not know are left out."""
        optimizers = self._optimizers()
        known: dict[int, Purpose] = {}
        trained: set[int] = set()
        described: set[int] = set()
        for index in sorted(optimizers):
            trained |= self._describe_optimizer(index, known, described)
        root = {0} - optimizers if self.nodes else set()
        outside = self._reachable(root, closed=optimizers) - optimizers
        inside = self._reachable(optimizers)
        named = {child: name for node in self.nodes for name, child in node.children if name in _COUNTERS}
        loose = self._loose(optimizers, trained)
        purposes = {}
        for key, (index, attribute) in self.stored.items():
            if key not in infos:
                continue
            dtype, shape = infos[key]
            if attribute.name != VARIABLE_VALUE or attribute.full_name.endswith(_RANDOM_STATE) or not dtype.bit_width:
                purposes[key] = Purpose(Role.OTHER)
            elif index in named and not shape and _is_whole(dtype):
                purposes[key] = Purpose(Role.COUNTER)
            elif index in loose:
                purposes[key] = Purpose(Role.OTHER)
            elif index in known and index not in trained:
                purposes[key] = known[index]
            elif index in trained or index in outside or index not in inside:
                purposes[key] = Purpose(Role.WEIGHT)
            else:
                purposes[key] = Purpose(Role.OPTIMIZER)
        return purposes

    def _loose(self, optimizers: set[int], trained: set[int]) -> set[int]:
        """Variables that hang on the root beside a model that is trained: of the run, not of the model."""
        if not trained or not self.nodes:
            return set()
        below = {child: self._reachable({child}, closed=optimizers) for _, child in self.nodes[0].children}
        models = {child for child, reached in below.items() if child not in optimizers | trained and reached & trained}
        if not models:
            return set()
        of_models = set().union(*(below[child] for child in models))
        return {child for child, reached in below.items() if reached == {child}} - of_models - trained

    def _optimizers(self) -> set[int]:
        found = {index for index, node in enumerate(self.nodes) if node.is_optimizer}
        return found | {child for node in self.nodes for name, child in node.children if name == _OPTIMIZER}

    def _describe_optimizer(self, index: int, known: dict[int, Purpose], described: set[int]) -> set[int]:
        """Put the optimizer's slots and averages into ``known``; the nodes of the weights it lists are returned.

        Lists in ``described`` are passed over, and added: each belongs to one optimizer.
        """
        optimizer = self.nodes[index]
        for variable, slot, node in optimizer.slots:
            known[node] = Purpose(Role.OPTIMIZER, self._key_of(variable), slot)
        lists: dict[str, dict[str, int]] = {}
        for name, child in optimizer.children:
            if child not in described:
                described.add(child)
                if self.nodes[child].is_list:
                    lists[name] = dict(self.nodes[child].children)
        weights = lists.pop(_TRAINABLE, {})
        lists.pop(_ALL_OPTIMIZER_VARIABLES, None)
        for name, items in lists.items():
            role = Role.AVERAGE if name == _AVERAGES else Role.OPTIMIZER
            for position, node in items.items():
                known[node] = Purpose(role, self._key_of(weights.get(position)), name.strip("_"))
        return set(weights.values())

    def _key_of(self, index: int | None) -> tuple[str] | None:
        key = self._variable_keys.get(index) if index is not None else None
        return (key,) if key is not None else None

    def _reachable(self, starts: Iterable[int], closed: Iterable[int] = ()) -> set[int]:
        """The nodes that paths from ``starts`` lead to; they end at ``closed`` ones."""
        closed = set(closed)
        seen = set(starts)
        stack = list(seen)
        while stack:
            for _, child in self.nodes[stack.pop()].children:
                if child not in seen:
                    seen.add(child)
                    if child not in closed:
                        stack.append(child)
        return seen


def escaped(local_name: str) -> str:
    """A local name as it stands in stored keys."""
    return local_name.replace(".", "..").replace("/", ".S")


def _is_whole(dtype: DType) -> bool:
    return dtype.name.startswith(("int", "uint"))


def _node(data: bytes) -> GraphNode:
    children: list[tuple[str, int]] = []
    attributes: list[Attribute] = []
    slots: list[tuple[int, str, int]] = []
    for index, _, value in fields(data):
        if index > 3:
            continue
        parts = message(submessage(value))
        if index == 1:
            children.append((text(parts.get(2, b"")), number(parts.get(1, 0))))
        elif index == 2:
            name, full_name, key = parts.get(1, b""), parts.get(2, b""), parts.get(3, b"")
            attributes.append(Attribute(text(name), text(full_name), text(key)))
        else:
            slots.append((number(parts.get(1, 0)), text(parts.get(2, b"")), number(parts.get(3, 0))))
    # empty ones are one object: most nodes are variables, which have neither children nor slots
    return GraphNode(children or (), attributes or (), slots or ())
