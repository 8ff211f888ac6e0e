"""Whether TensorFlow would restore a checkpoint into a live object, found by walking both graphs as its restore does.

tensorflow/python/checkpoint/restore.py: objects are matched from the root on, breadth-first, by the names of children;
the first match of a stored object stays. ``assert_existing_objects_matched`` wants every live object with values matched,
``assert_consumed`` also every stored object with values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.tensors import StringTensor
from ckpt_tools.formats._object_graph import GRAPH_KEY, VARIABLE_VALUE, ObjectGraph
from ckpt_tools.models.live import LiveGraph, LiveNode

_SAVE_COUNTER = "save_counter"
#: Objects that one sentence names.
_SHOWN = 4


@dataclass(frozen=True)
class Restoration:
    """What a restore would do. ``names`` has, by live node, the key its value comes from; ``below`` is the name under
    which the model would have to be given to ``tf.train.Checkpoint``, "" for the root itself.

    ``unread`` are stored keys that nothing takes, ``unmatched`` live objects that get nothing, ``misshapen`` those whose
    stored shape is another, so that the restore itself fails.
    """

    names: Mapping[int, str]
    below: str
    unread: tuple[str, ...]
    unmatched: tuple[str, ...]
    misshapen: tuple[str, ...] = field(default=())

    @property
    def passes_existing_objects_matched(self) -> bool:
        return not self.unmatched and not self.misshapen

    @property
    def passes_consumed(self) -> bool:
        return self.passes_existing_objects_matched and not self.unread

    def to_json(self) -> dict[str, object]:
        return {
            "below": self.below,
            "restores": not self.misshapen,
            "assert_existing_objects_matched": self.passes_existing_objects_matched,
            "assert_consumed": self.passes_consumed,
            "unread": list(self.unread),
            "unmatched": list(self.unmatched),
            "misshapen": list(self.misshapen),
        }

    def sentences(self) -> list[str]:
        """The answer for people."""
        given = f"tf.train.Checkpoint({self.below}=…)" if self.below else "this object"
        if self.misshapen:
            return [f"restoring into {given} fails: another shape is stored for {_some(self.misshapen)}"]
        if self.passes_consumed:
            return [f"restoring into {given} passes assert_consumed()"]
        unread = f"{len(self.unread)} stored values have no object ({_some(self.unread)})"
        unmatched = f"{len(self.unmatched)} objects have no stored value ({_some(self.unmatched)})"
        if self.passes_existing_objects_matched:
            return [
                f"restoring into {given} passes assert_existing_objects_matched(), not assert_consumed(): {unread};"
                " expect_partial() silences it"
            ]
        also = f"; {unread}" if self.unread else ""
        return [f"restoring into {given} passes neither assert: {unmatched}{also}; only expect_partial()"]


def predict(checkpoint: Checkpoint, live: LiveGraph, below: str | None = None) -> Restoration | None:
    """The restore of an object-based checkpoint into ``live``; None for any other checkpoint.

    A model that is no ``tf.train.Checkpoint`` is tried as the root and under each name the stored root has (or only
    under ``below``): where most of its variables find a value is where it belongs.
    """
    stored = next((e.node for e in checkpoint.entries if e.key == (GRAPH_KEY,)), None)
    if not isinstance(stored, StringTensor):
        return None
    graph = ObjectGraph(stored.elements()[0])
    if not graph.nodes:
        return None
    shapes = {str(e.key[0]): e.node.info.shape for e in checkpoint.entries if e.is_tensor and len(e.key) == 1}
    if live.is_checkpoint:
        return _restore(graph, live, "", shapes)
    places = [below] if below else ["", *(name for name, _ in graph.nodes[0].children if name != _SAVE_COUNTER)]
    return max((_restore(graph, live, place, shapes) for place in places), key=lambda each: len(each.names))


def _restore(graph: ObjectGraph, live: LiveGraph, below: str, shapes: Mapping[str, tuple[int, ...]]) -> Restoration:
    nodes, root = _with_counter(live, below)
    bound: dict[int, int] = {0: root}
    queue = deque([(0, root)])
    while queue:
        index, at = queue.popleft()
        children = dict(nodes[at].children)
        for name, child in graph.nodes[index].children:
            if child not in bound and name in children:
                bound[child] = children[name]
                queue.append((child, children[name]))
        for variable, _, slot in graph.nodes[index].slots:
            if variable in bound and slot not in bound:
                bound[slot] = -1  # made by the optimizer when both are there
    names: dict[int, str] = {}
    misshapen = []
    for index, at in bound.items():
        for attribute in graph.nodes[index].attributes:
            if at >= 0 and attribute.name == VARIABLE_VALUE and nodes[at].has_values:
                names[at] = attribute.key
                shape = nodes[at].shape
                if shape is not None and shapes.get(attribute.key, shape) != shape:
                    misshapen.append(nodes[at].path)
    unread = [
        attribute.key
        for index, node in enumerate(graph.nodes)
        for attribute in node.attributes
        if index not in bound or (bound[index] >= 0 and not nodes[bound[index]].has_values)
    ]
    taken = set(bound.values())
    reachable = _reachable(nodes, root)
    unmatched = [node.path for at, node in enumerate(nodes) if at in reachable and node.has_values and at not in taken]
    return Restoration(names, below, tuple(unread), tuple(unmatched), tuple(misshapen))


def _with_counter(live: LiveGraph, below: str) -> tuple[list[LiveNode], int]:
    """The live nodes with what ``tf.train.Checkpoint`` adds: itself where a model is given, and its save counter."""
    nodes = list(live.nodes)
    root = 0
    if below:
        nodes.append(LiveNode("", ((below, 0),)))
        root = len(nodes) - 1
    if _SAVE_COUNTER not in dict(nodes[root].children):
        nodes.append(LiveNode(_SAVE_COUNTER, (), has_values=True, shape=()))
        old = nodes[root]
        children = (*old.children, (_SAVE_COUNTER, len(nodes) - 1))
        nodes[root] = LiveNode(old.path, children, old.has_values, old.shape, old.dtype)
    return nodes, root


def _reachable(nodes: list[LiveNode], root: int) -> set[int]:
    seen, stack = {root}, [root]
    while stack:
        for _, child in nodes[stack.pop()].children:
            if child not in seen:
                seen.add(child)
                stack.append(child)
    return seen


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(name.partition("/.ATTRIBUTES/")[0] for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
