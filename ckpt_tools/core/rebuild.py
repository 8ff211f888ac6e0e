"""Trees taken apart into leaves and put together again: with some left out, some replaced, some under other keys.

A leaf remembers what stood above it, so that kinds of mappings, their keys as stored and the order survive wherever
nothing was asked to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ckpt_tools.core.keys import Key
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.tree import Dict, Node, NumpyScalar, SetNode, children, is_container, walk


@dataclass(frozen=True)
class Leaf:
    """A leaf on its way to another tree. ``key`` is its new key, ``origin`` the one it has in the tree it came from."""

    key: Key
    origin: Key
    node: Node


class Blueprint:
    """What the containers of a tree are, by key: the pattern that :meth:`assemble` follows."""

    def __init__(self, root: Node, limits: Limits = DEFAULT_LIMITS) -> None:
        self.root = root
        self.limits = limits
        self._containers: dict[Key, Node] = {(): root}
        self._stored_keys: dict[int, dict[str | int, Any]] = {}

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf of the tree, under the key it has."""
        for key, node in walk(self.root, self.limits):
            yield Leaf(key, key, node)

    def container(self, key: Key) -> Node:
        """The container at ``key``; None when there is none (anything that was made up by renaming)."""
        known = self._containers
        if key in known:
            return known[key]
        node = None
        above = self.container(key[:-1])
        if above is not None:
            for part, child in children(above):
                known.setdefault((*key[:-1], part), child)
            node = known.get(key)
        known[key] = node
        return node

    def _stored_key(self, container: Node, part: str | int) -> Any:
        """The key that ``part`` stands for in a mapping: numbers in floating point, tuples and None are shown as text."""
        if not isinstance(container, dict):
            return part
        if id(container) not in self._stored_keys:
            shown = [part for part, _ in children(container)]
            self._stored_keys[id(container)] = {p: k for p, k in zip(shown, container) if p is not k}
        return self._stored_keys[id(container)].get(part, part)

    def stored_keys(self, leaf: Leaf) -> Iterator[Any]:
        """The keys as stored, from the root down, under which :meth:`assemble` puts a leaf."""
        shift = len(leaf.origin) - len(leaf.key)
        for length, part in enumerate(leaf.key):
            yield self._stored_key(self._pattern(leaf.origin, length, shift), part)

    def _pattern(self, origin: Key, length: int, shift: int) -> Node:
        """What stood above a leaf, where its new key has ``length`` parts above and ``shift`` parts less than the old."""
        if not length:
            return self.root
        return self.container(origin[: length + shift]) if length + shift >= 0 else None

    def assemble(self, leaves: Iterable[Leaf]) -> Node:
        """A new tree of these leaves, no two of which may have one key or a key below another's.

        A container that lost some of its numbered elements becomes a mapping by number, so that no element changes its
        name; an object becomes a mapping of its attributes.
        """
        made: dict[Key, Dict] = {}
        patterns: dict[Key, Node] = {}
        for key, origin, node in ((leaf.key, leaf.origin, leaf.node) for leaf in leaves):
            if not key:
                return node
            base = key[:-1]
            target = made.get(base)
            if target is None:
                target = self._open(base, origin, made, patterns)
            pattern = patterns[base]
            target[self._stored_key(pattern, key[-1])] = node
        if not made:
            return _like(self.root)
        return self._finished(made, patterns)

    def _open(self, base: Key, origin: Key, made: dict[Key, Dict], patterns: dict[Key, Node]) -> Dict:
        """The mapping at ``base`` and all above it; each is patterned on what stood above the leaf at equal height."""
        shift = len(origin) - len(base) - 1
        for length in range(len(base) + 1):
            key = base[:length]
            if key in made:
                continue
            pattern = patterns[key] = self._pattern(origin, length, shift)
            made[key] = _like(pattern)
            if key:
                made[key[:-1]][self._stored_key(patterns[key[:-1]], key[-1])] = made[key]
        return made[base]

    def _finished(self, made: dict[Key, Dict], patterns: dict[Key, Node]) -> Node:
        """Lists, tuples and sets made of the mappings that stood for them, from the innermost out."""
        for key in sorted(made, key=len, reverse=True):
            pattern, built = patterns[key], made[key]
            if not isinstance(pattern, (list, tuple)) or list(built) != list(range(len(pattern))):
                continue
            sequence: Node
            if isinstance(pattern, SetNode):
                sequence = SetNode(built.values(), type_name=pattern.type_name)
            else:
                sequence = tuple(built.values()) if isinstance(pattern, tuple) else list(built.values())
            if not key:
                return sequence
            made[key[:-1]][self._stored_key(patterns[key[:-1]], key[-1])] = sequence
        return made[()]


def _like(pattern: Node) -> Dict:
    """An empty mapping of the kind of ``pattern``."""
    return pattern.emptied() if isinstance(pattern, Dict) else Dict()


def containers(root: Node) -> Iterator[Node]:
    """Every container of a tree once, wholes before parts."""
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if is_container(node) and id(node) not in seen:
            seen.add(id(node))
            yield node
            pending.extend(child for _, child in reversed(children(node)))


def is_plain(node: Node, most: int = DEFAULT_LIMITS.visits_at_least) -> bool:
    """Whether a tree is made of containers and Python's own scalars alone, at most ``most`` of them."""
    pending, seen = [node], 0
    while pending:
        item = pending.pop()
        seen += 1
        if seen > most:
            return False
        if isinstance(item, dict):
            pending.extend(item.values())
            pending.extend(item.keys())
        elif isinstance(item, (list, tuple)) and not isinstance(item, NumpyScalar):
            pending.extend(item)
        elif item is not None and type(item) not in (bool, int, float, complex, str, bytes):
            return False
    return True
