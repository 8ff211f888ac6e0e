"""The tree of a checkpoint: what a file holds, as plain containers with tensors, scalars and named objects as leaves.

A node is a :class:`~ckpt_tools.core.tensors.Tensor`, a scalar (None, bool, int, float, complex, str, bytes or
:class:`NumpyScalar`), a list or tuple, a :class:`Dict`, a :class:`SetNode` or an :class:`Opaque`. Identity is kept: an
object that the file holds once and refers to twice is one node with two keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Union

from ckpt_tools.core.dtypes import DType
from ckpt_tools.core.keys import Key
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.errors import LimitExceeded

Node = Any  # one of the kinds above; Any, because the recursion through list and dict cannot be written down


class Dict(dict):  # type: ignore[type-arg]
    """A mapping of the file. ``type_name`` is the class it has there; ``attributes`` what the class keeps beside it."""

    __slots__ = ("attributes", "type_name")

    def __init__(self, items: Any = (), *, type_name: str = "dict") -> None:
        if items:
            self.update(items)
        self.type_name = type_name
        self.attributes: Node = None

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def emptied(self) -> Dict:
        """A mapping of this kind with nothing in it, to be filled with a part of what is in this one."""
        made = Dict(type_name=self.type_name)
        made.attributes = self.attributes
        return made


class SetNode(list):  # type: ignore[type-arg]
    """A set, in the order of the file; its elements need not be hashable here."""

    __slots__ = ("type_name",)

    def __init__(self, items: Any = (), *, type_name: str = "set") -> None:
        super().__init__(items)
        self.type_name = type_name


class NumpyScalar(NamedTuple):
    """A numpy scalar: its element type and its value as the nearest Python one."""

    dtype: DType
    value: Any
    raw: bytes


class Opaque:
    """An object that is named and never built.

    ``args`` are the arguments it would be made from, ``state`` what would be put into it afterwards, ``elements`` and
    ``pairs`` what would be appended or set as items.
    """

    __slots__ = ("args", "elements", "pairs", "state", "type_name")

    def __init__(self, type_name: str, args: tuple[Node, ...] = (), state: Node = None) -> None:
        self.type_name = type_name
        self.args = args
        self.state = state
        self.elements: list[Node] = []
        self.pairs: list[tuple[Node, Node]] = []

    def __repr__(self) -> str:
        return f"<{self.type_name}>"

    def attributes(self) -> dict[str, Node]:
        """The instance attributes, as far as the state names them: a dict, or a pair (dict, slots dict)."""
        state = self.state
        if isinstance(state, tuple) and len(state) == 2 and all(s is None or isinstance(s, dict) for s in state):
            found: dict[str, Node] = {}
            for part in state:
                found.update(part or {})
            return found
        return dict(state) if isinstance(state, dict) else {}


class Cycle(NamedTuple):
    """Stands, while walking, for a container that contains itself; ``to`` is the key where it began."""

    to: Key


Leaf = tuple[Key, Node]
Scalar = Union[None, bool, int, float, complex, str, bytes, NumpyScalar]

_CONTAINERS = (Dict, dict, list, tuple, SetNode)


#: Python refuses to write longer integers in decimal, at its strictest setting from 640 digits on.
DECIMAL_BITS = 2048
_SHOWN_KEY = 200


def integer_text(number: int) -> str:
    """A whole number as people write it; one of hundreds of digits in hexadecimal, which costs no arithmetic."""
    return str(number) if number.bit_length() <= DECIMAL_BITS else hex(number)


def part_of(key: Node) -> str | int:
    """A mapping's key as one part of a :data:`Key`: text and whole numbers as they are, the rest as Python writes it."""
    kind = type(key)
    if kind is str or (kind is int and key.bit_length() <= DECIMAL_BITS):
        return key  # type: ignore[no-any-return]
    text = _written(key)
    return text if len(text) <= _SHOWN_KEY else text[:_SHOWN_KEY] + "…"


def _written(key: Node) -> str:
    if type(key) is tuple:
        return f"({', '.join(map(_written, key))}{',' if len(key) == 1 else ''})"
    if type(key) is int:
        return integer_text(key)
    if isinstance(key, NumpyScalar):
        return repr(key.value)
    return key.type_name if isinstance(key, Opaque) else repr(key)


def children(node: Node) -> list[tuple[str | int, Node]]:
    """The parts directly below a node, in order. Parts that would print alike are numbered apart."""
    if isinstance(node, dict):
        pairs = list(node.items())
        if set(map(type, node)) <= {str}:
            return pairs
    elif isinstance(node, Opaque):
        pairs = list(node.attributes().items())
        if not pairs and node.state is not None:
            pairs.append(("state", node.state))
        if node.args:
            alone = not pairs and not node.elements and not node.pairs
            pairs.extend(enumerate(node.args) if alone else [("args", node.args)])
        pairs.extend(enumerate(node.elements))
        pairs.extend(node.pairs)
    elif isinstance(node, (list, tuple)) and not isinstance(node, NumpyScalar):
        return list(enumerate(node))
    else:
        return []
    parts = [(part_of(key), value) for key, value in pairs]
    taken: set[tuple[type, str | int]] = set()
    apart = []
    for part, value in parts:
        count = 2
        unique = part
        while (type(unique), unique) in taken:
            unique = f"{part}#{count}"
            count += 1
        taken.add((type(unique), unique))
        apart.append((unique, value))
    return apart


def is_container(node: Node) -> bool:
    """Whether a node can have parts below it (tensors, scalars and numpy scalars cannot)."""
    return isinstance(node, (dict, list, tuple, Opaque)) and not isinstance(node, (NumpyScalar, Cycle))


def walk(root: Node, limits: Limits = DEFAULT_LIMITS) -> Iterator[Leaf]:
    """Every leaf with its key, in the order of the file.

    An empty container is a leaf, so that nothing vanishes; an :class:`Opaque` is a leaf and its parts follow it; a
    container met inside itself is given as :class:`Cycle`. LimitExceeded when the tree unfolds far beyond its own size
    (memo bombs), nests too deep, or has keys that take far more room than the file (long names at every level).
    """
    if not is_container(root):
        yield (), root
        return
    if isinstance(root, Opaque):
        yield (), root
    first = children(root)
    if not first and not isinstance(root, Opaque):
        yield (), root
        return
    open_keys: dict[int, Key] = {id(root): ()}
    stack: list[tuple[Key, Iterator[tuple[str | int, Node]], int, int]] = [((), iter(first), id(root), 0)]
    seen: set[int] = {id(root)}  # containers met at least once: only going into one again can explode
    fresh = len(first)
    repeated = 0
    spelled = _spelled(first, 0)
    while stack:
        base, rest, identity, width = stack[-1]
        for part, node in rest:
            key = (*base, part)
            if isinstance(node, Tensor):
                yield key, node
                continue
            if not is_container(node):
                yield key, node
                continue
            below = id(node)
            if below in open_keys:
                yield key, Cycle(open_keys[below])
                continue
            parts = children(node)
            if isinstance(node, Opaque) or not parts:
                yield key, node
            if not parts:
                continue
            if below in seen:
                repeated += len(parts)
                if repeated > max(limits.visits_at_least, limits.visits_per_node * fresh):
                    raise LimitExceeded(
                        f"the same containers are referred to so often that the tree unfolds to over {repeated} entries"
                    )
            else:
                fresh += len(parts)
                seen.add(below)
            if len(stack) >= limits.depth:
                raise LimitExceeded(f"containers nest deeper than {limits.depth}")
            inner = width + _part_nbytes(part)
            spelled += _spelled(parts, inner)
            if spelled > limits.keys_nbytes:
                raise LimitExceeded(f"the keys of all entries together take over {limits.keys_nbytes} bytes")
            open_keys[below] = key
            stack.append((key, iter(parts), below, inner))
            break
        else:
            stack.pop()
            open_keys.pop(identity, None)


def _part_nbytes(part: str | int) -> int:
    """Bytes that one part of a key takes: its text and its place in the tuple."""
    return 8 + len(part) if type(part) is str else 8


def _spelled(parts: list[tuple[str | int, Node]], above: int) -> int:
    """Bytes that the keys of ``parts`` take when what stands above them takes ``above``."""
    return above * len(parts) + sum([_part_nbytes(part) for part, _ in parts])
