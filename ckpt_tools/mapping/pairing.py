"""Which neutral tensor of a source is which of a target: by the tree that their names are, and never by likelihood.

Going down both trees, what has one name below one place is one. Lists are matched by their numbers, also where Keras
counts (``block``, ``block_1``) what others number. Where one side has all that a place holds below a name that
the other does not have (``encoder.layers.0``, ``encoder/block``), the name is passed over. What is left below a place is
paired where structure leaves a single possibility: a layer, or a tensor, whose parts and shapes occur once on either side.
Everything else stays unpaired.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ckpt_tools.mapping.kinds import CONVOLUTIONS, Shape
from ckpt_tools.mapping.spellings import BATCH_COUNTER, Piece

#: So many names may stand around a model (``state_dict.module.model``).
_DEEPEST_WRAPPER = 4
_NUMBERED = re.compile(r"(?P<stem>.*?)_?(?P<number>\d+)")


@dataclass(frozen=True)
class Placed:
    """A neutral tensor of one side: its position there, and its shape in torch's layout where that is known."""

    index: int
    piece: Piece
    shape: Shape

    @property
    def signature(self) -> tuple[str, Shape]:
        """What tensors that are each other share whatever they are called and however they lie."""
        return self.piece.last, tuple(sorted(self.shape))

    @property
    def speaks(self) -> bool:
        """Whether its name says which part of its layer it is."""
        return bool(self.piece.layer.part) and not self.piece.by_leaf


@dataclass
class _Node:
    """A place in the tree: tensors of its own by the last segment of their names, and places below it by theirs."""

    tensors: dict[str, Placed] = field(default_factory=dict)
    children: dict[str, _Node] = field(default_factory=dict)

    def everything(self) -> list[Placed]:
        """All tensors here and below."""
        return [*self.tensors.values(), *(each for child in self.children.values() for each in child.everything())]

    def signature(self) -> object:
        """Equal for places that could be each other; None where a name does not say what a tensor is."""
        return _signature(self.everything())


def _signature(tensors: Sequence[Placed]) -> object:
    """What a group of tensors shares with one that could be the same. Counters of batches are torch's alone."""
    found = [each for each in tensors if each.piece.last != BATCH_COUNTER]
    return tuple(sorted(each.signature for each in found)) if all(each.speaks for each in found) else None


Pairs = dict[int, int]
Left = tuple[list[Placed], list[Placed]]


def pair(ours: Sequence[Placed], theirs: Sequence[Placed], *, by_structure: bool = True) -> Pairs:
    """Positions in ``ours`` for positions in ``theirs``. Without ``by_structure`` names alone are believed."""
    pairs: Pairs = {}
    a, b = _tree(ours), _tree(theirs)
    _Pairing(pairs, by_structure=by_structure).run(*_same_tops(a, b))
    return pairs


def _tree(tensors: Iterable[Placed]) -> _Node:
    root = _Node()
    for each in tensors:
        node = root
        for part in (*filter(None, each.piece.prefix.replace("/", ".").split(".")), *each.piece.path):
            node = node.children.setdefault(part, _Node())
        node.tensors[each.piece.last] = each
    return root


def _same_tops(a: _Node, b: _Node) -> tuple[_Node, _Node]:
    """The places of either side that are the model: the roots, or below a name that only one side has around it
    (``module.``, the name of a Keras model). What lies outside stays over."""
    while not _overlap(a, b):
        inner_a, inner_b = _inner(a, b), _inner(b, a)
        if inner_a is not None and inner_b is None:
            return inner_a, b
        if inner_b is not None and inner_a is None:
            return a, inner_b
        if inner_a is not None or not (_is_wrapper(a) and _is_wrapper(b)):
            break
        (a,), (b,) = a.children.values(), b.children.values()
    return a, b


def _inner(node: _Node, other: _Node) -> _Node | None:
    """The one place nearest below that has names in common with another; None when there is none, or several."""
    level = list(node.children.values())
    for _ in range(_DEEPEST_WRAPPER):
        fitting = [each for each in level if _overlap(each, other)]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
        level = [child for each in level for child in each.children.values()]
    return None


def _overlap(a: _Node, b: _Node) -> bool:
    return not (a.children.keys().isdisjoint(b.children) and a.tensors.keys().isdisjoint(b.tensors))


def _is_wrapper(node: _Node) -> bool:
    return not node.tensors and len(node.children) == 1


def _unwrapped(a: _Node, b: _Node) -> tuple[_Node, _Node]:
    """Two places that are one and hold the like, without a name that only one of them has around all that it holds."""
    inner_a, inner_b = a, b
    while not _overlap(inner_a, inner_b) and _is_wrapper(inner_a) != _is_wrapper(inner_b):
        if _is_wrapper(inner_a):
            (inner_a,) = inner_a.children.values()
        else:
            (inner_b,) = inner_b.children.values()
    if inner_a is a and inner_b is b:
        return a, b
    holds = a.signature()
    return (inner_a, inner_b) if holds is not None and holds == b.signature() else (a, b)


class _Pairing:
    def __init__(self, pairs: Pairs, *, by_structure: bool) -> None:
        self.pairs = pairs
        self.by_structure = by_structure

    def run(self, a: _Node, b: _Node) -> Left:
        """Pair two places that are one; gives back what is left on either side."""
        if self.by_structure:
            a, b = _unwrapped(a, b)
        for name in a.tensors.keys() & b.tensors.keys():
            self._take(a.tensors[name], b.tensors[name])
        left_a = [each for name, each in a.tensors.items() if name not in b.tensors]
        left_b = [each for name, each in b.tensors.items() if name not in a.tensors]
        same = [(name, name) for name in a.children if name in b.children]
        open_a = {name: child for name, child in a.children.items() if name not in b.children}
        open_b = {name: child for name, child in b.children.items() if name not in a.children}
        same += _same_lists(open_a, open_b)
        if self.by_structure:
            matched_a, matched_b = {one for one, _ in same}, {other for _, other in same}
            same += _unique(
                {name: child.signature() for name, child in open_a.items() if name not in matched_a},
                {name: child.signature() for name, child in open_b.items() if name not in matched_b},
            )
        for one, other in same:
            below_a, below_b = self.run(a.children[one], b.children[other])
            left_a += below_a
            left_b += below_b
        matched_a, matched_b = {one for one, _ in same}, {other for _, other in same}
        left_a += [each for name, child in a.children.items() if name not in matched_a for each in child.everything()]
        left_b += [each for name, child in b.children.items() if name not in matched_b for each in child.everything()]
        if self.by_structure:
            left_a, left_b = self._layers(left_a, left_b)
            left_a, left_b = self._tensors(left_a, left_b)
        return left_a, left_b

    def _take(self, ours: Placed, theirs: Placed) -> None:
        self.pairs[theirs.index] = ours.index

    def _layers(self, left_a: list[Placed], left_b: list[Placed]) -> Left:
        """Pair layers whose parts and shapes occur once on either side."""
        a, b = _by_layer(left_a), _by_layer(left_b)
        done: set[int] = set()
        for one, other in _unique(
            {key: _signature(group) for key, group in a.items()},
            {key: _signature(group) for key, group in b.items()},
        ):
            theirs = {each.piece.last: each for each in b[other]}
            for each in a[one]:
                if each.piece.last in theirs:
                    self._take(each, theirs[each.piece.last])
                    done.update((id(each), id(theirs[each.piece.last])))
        return [each for each in left_a if id(each) not in done], [each for each in left_b if id(each) not in done]

    def _tensors(self, left_a: list[Placed], left_b: list[Placed]) -> Left:
        """Pair tensors for which there is one possibility on either side."""
        done: set[int] = set()
        ours, theirs = _by_extents(left_a), _by_extents(left_b)
        for extents, rivals in ours.items():
            for each in rivals:
                fitting = [other for other in theirs.get(extents, ()) if _could_be(each, other)]
                if len(fitting) == 1 and sum(_could_be(rival, fitting[0]) for rival in rivals) == 1:
                    self._take(each, fitting[0])
                    done.update((id(each), id(fitting[0])))
        return [each for each in left_a if id(each) not in done], [each for each in left_b if id(each) not in done]


def _by_extents(tensors: Sequence[Placed]) -> dict[tuple[int, ...], list[Placed]]:
    found: dict[tuple[int, ...], list[Placed]] = defaultdict(list)
    for each in tensors:
        found[tuple(sorted(each.shape))].append(each)
    return found


def _by_layer(tensors: Sequence[Placed]) -> dict[object, list[Placed]]:
    found: dict[object, list[Placed]] = defaultdict(list)
    for each in tensors:
        found[each.piece.prefix, each.piece.path].append(each)
    return found


Name = TypeVar("Name")


def _unique(ours: Mapping[Name, object], theirs: Mapping[Name, object]) -> list[tuple[Name, Name]]:
    """Names whose signatures occur once on either side."""
    a, b = _inverted(ours), _inverted(theirs)
    return [(a[each][0], b[each][0]) for each in a if len(a[each]) == 1 and len(b.get(each, ())) == 1]


def _inverted(signatures: Mapping[Name, object]) -> dict[object, list[Name]]:
    found: dict[object, list[Name]] = defaultdict(list)
    for name, signature in signatures.items():
        if signature is not None:
            found[signature].append(name)
    return found


def _same_lists(ours: Mapping[str, _Node], theirs: Mapping[str, _Node]) -> list[tuple[str, str]]:
    """Members of lists that have the same numbers and, number by number, the same structure, where no other list of
    either side has. Words before the numbers are the same, or one side has none: ``fc0`` and ``fc1`` are not what Keras
    counts as ``dense`` and ``dense_1``, in whatever order these were made."""
    a, b = _lists(ours), _lists(theirs)
    matched = _unique(
        {stem: _list_signature(members) for stem, members in a.items()},
        {stem: _list_signature(members) for stem, members in b.items()},
    )
    return [
        (a[one][number][0], b[other][number][0])
        for one, other in matched
        if one == other or not one or not other
        for number in a[one]
    ]


def _lists(children: Mapping[str, _Node]) -> dict[str, dict[int, tuple[str, _Node]]]:
    """Children by stem and number. A name without a number is number 0 of those that count from it, as Keras does."""
    found: dict[str, dict[int, tuple[str, _Node]]] = defaultdict(dict)
    for name, child in children.items():
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            found[numbered["stem"]][int(numbered["number"])] = (name, child)
    for stem, members in found.items():
        if stem in children and 0 not in members:
            members[0] = (stem, children[stem])
    return {stem: dict(sorted(members.items())) for stem, members in found.items() if len(members) > 1}


def _list_signature(members: Mapping[int, tuple[str, _Node]]) -> object:
    signatures = [child.signature() for _, child in members.values()]
    return None if None in signatures else (tuple(members), tuple(signatures))


def _could_be(ours: Placed, theirs: Placed) -> bool:
    """Whether nothing known speaks against it that two tensors of the same extents are each other."""
    a, b = ours.piece.layer, theirs.piece.layer
    kinds = {a.kind, b.kind}
    return (a.part == b.part or not a.part or not b.part) and (
        "" in kinds or len({kind.removesuffix("_cell") for kind in kinds}) == 1 or kinds <= CONVOLUTIONS
    )
