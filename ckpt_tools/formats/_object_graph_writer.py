"""The object graph of ``tf.train.Checkpoint``, made from the names of variables or cut down to those that are left.

Source: tensorflow/core/protobuf/trackable_object_graph.proto, tensorflow/python/checkpoint/trackable_view.py. The name
of a variable is the path of local names from the root, then ``/.ATTRIBUTES/`` and the attribute. In a local name ``.``
stands as ``..`` and ``/`` as ``.S``. Slots of optimizers lie below ``.OPTIMIZER_SLOT`` of the variable they belong to.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ckpt_tools.formats._protobuf import fields, number, submessage, text
from ckpt_tools.formats._protobuf_writer import bytes_field, number_field

ATTRIBUTES = "/.ATTRIBUTES/"
_SLOT = "/.OPTIMIZER_SLOT/"
_ESCAPE = re.compile(r"\.([.S])")

# Field numbers of TrackableObjectGraph and the messages in it.
_NODES = 1
_CHILDREN, _VALUES, _SLOTS, _HAS_VALUES = 1, 2, 3, 5
_CHILD_NODE, _CHILD_NAME = 1, 2
_VALUE_NAME, _VALUE_FULL_NAME, _VALUE_KEY = 1, 2, 3
_SLOT_VARIABLE, _SLOT_NAME, _SLOT_NODE = 1, 2, 3


@dataclass
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    values: list[tuple[str, str, str]] = field(default_factory=list)
    slots: list[tuple[_Node, str, _Node]] = field(default_factory=list)

    def below(self, path: str) -> _Node:
        """The node at the end of a path of escaped local names; missing ones are made."""
        node = self
        for part in path.split("/") if path else ():
            name = _ESCAPE.sub(lambda match: "." if match[1] == "." else "/", part)
            node = node.children.setdefault(name, _Node())
        return node


def is_object_path(name: str) -> bool:
    """Whether a name is that of a value in an object graph."""
    return ATTRIBUTES in name


def graph_of(names: Iterable[str], full_names: Mapping[str, str]) -> bytes:
    """The graph that the names of values span. ``full_names`` has the variable's own name by key, where it is known."""
    root = _Node()
    for name in names:
        path, _, attribute = name.rpartition(ATTRIBUTES)
        variable, is_slot, slot_path = path.partition(_SLOT)
        if is_slot:
            optimizer, _, slot = slot_path.rpartition("/")
            node = _Node()
            root.below(optimizer).slots.append((root.below(variable), slot, node))
        else:
            node = root.below(path)
        node.values.append((attribute, full_names.get(name, ""), name))
    return b"".join(bytes_field(_NODES, data) for data in _encoded(root))


def _encoded(root: _Node) -> list[bytes]:
    """All nodes, numbered breadth-first; slots' own nodes come after the object they are slots of."""
    order: list[_Node] = []
    ids: dict[int, int] = {}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        if id(node) in ids:
            continue
        ids[id(node)] = len(order)
        order.append(node)
        queue.extend(node.children.values())
        queue.extend(slot for _, _, slot in node.slots)
    return [_message(node, ids) for node in order]


def _message(node: _Node, ids: Mapping[int, int]) -> bytes:
    children = (
        bytes_field(_CHILDREN, number_field(_CHILD_NODE, ids[id(child)]) + bytes_field(_CHILD_NAME, name.encode()))
        for name, child in node.children.items()
    )
    values = (
        bytes_field(
            _VALUES,
            bytes_field(_VALUE_NAME, attribute.encode())
            + (bytes_field(_VALUE_FULL_NAME, full_name.encode()) if full_name else b"")
            + bytes_field(_VALUE_KEY, key.encode("utf-8", "surrogateescape")),
        )
        for attribute, full_name, key in node.values
    )
    slots = (
        bytes_field(
            _SLOTS,
            number_field(_SLOT_VARIABLE, ids[id(variable)])
            + bytes_field(_SLOT_NAME, name.encode())
            + number_field(_SLOT_NODE, ids[id(slot)]),
        )
        for variable, name, slot in node.slots
    )
    return b"".join((*children, *values, *slots))


def keys_of(graph: bytes) -> set[str]:
    """The keys under which a graph says that values are stored."""
    return {
        key
        for _, _, node in fields(graph)
        for index, _, value in fields(submessage(node))
        if index == _VALUES and (key := _key_of(submessage(value))) is not None
    }


def _key_of(value: bytes) -> str | None:
    return next((text(part) for index, _, part in fields(value) if index == _VALUE_KEY), None)


def cut_down(graph: bytes, keys: Collection[str]) -> bytes:
    """The graph without values that are not among ``keys``, and without slots that have lost theirs."""
    nodes = [list(fields(submessage(node))) for index, _, node in fields(graph) if index == _NODES]
    kept = [[f for f in node if f[0] != _VALUES or _key_of(submessage(f[2])) in keys] for node in nodes]
    emptied = {
        at
        for at, (before, after) in enumerate(zip(nodes, kept))
        if len(after) < len(before) and not any(index == _VALUES for index, _, _ in after)
    }
    out = []
    for at, node in enumerate(kept):
        message = b""
        for index, _, value in node:
            if index == _SLOTS and _slot_node(submessage(value)) in emptied:
                continue
            if index == _HAS_VALUES and at in emptied:
                continue
            message += bytes_field(index, submessage(value))
        out.append(bytes_field(_NODES, message))
    return b"".join(out)


def _slot_node(slot: bytes) -> int:
    return next((number(part) for index, _, part in fields(slot) if index == _SLOT_NODE), 0)
