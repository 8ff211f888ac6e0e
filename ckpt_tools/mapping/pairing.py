"""Which neutral tensor of a source is which of a target: by the tree that their names are, and never by likelihood.

Going down both trees, what has one name below one place is one, but for numbers that do not say which is which
(:mod:`ckpt_tools.mapping.numbering`). Lists are matched by their numbers, also where Keras counts (``block``, ``block_1``)
what others number; by their order where the numbers differ and, member by member, the structure is the same. Where one side
has all that a place holds below a name that the other does not have (``encoder.layers.0``, ``encoder/block``), the name is
passed over. What is left below a place is paired where structure leaves a single possibility: a whole layer whose parts and
shapes occur once on either side, or a tensor within a layer. Everything else stays unpaired: numbered names of which the
other side has others, and parts of layers that are paired, are nobody else's; and what lies beside something of its shapes
that is paired by name, since letters can be shifted as numbers can.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ckpt_tools.core.keys import listed
from ckpt_tools.mapping.kinds import CONVOLUTIONS, Shape
from ckpt_tools.mapping.numbering import Series, candidate_lists, same_names, series
from ckpt_tools.mapping.spellings import BATCH_COUNTER, Piece

#: So many names may stand around a model (``state_dict.module.model``).
_DEEPEST_WRAPPER = 4


@dataclass(frozen=True)
class Placed:
    """A neutral tensor of one side: its position there, and its shape in torch's layout where that is known."""

    index: int
    piece: Piece
    shape: Shape

    @property
    def signature(self) -> tuple[str, Shape]:
        """What tensors that are each other share whatever they are called and however they lie."""
        return self.piece.last, _extents(self.shape)

    @property
    def speaks(self) -> bool:
        """Whether its name says which part of its layer it is."""
        return bool(self.piece.layer.part) and not self.piece.by_leaf


@dataclass
class _Node:
    """A place in the tree: tensors of its own by the last segment of their names, and places below it by theirs."""

    path: str = ""
    tensors: dict[str, Placed] = field(default_factory=dict)
    children: dict[str, _Node] = field(default_factory=dict)

    def everything(self) -> list[Placed]:
        """All tensors here and below."""
        return [*self.tensors.values(), *(each for child in self.children.values() for each in child.everything())]

    def layers(self) -> list[_Node]:
        """The places here and below that have tensors of their own, without what is below them."""
        own = [_Node(self.path, self.tensors)] if self.tensors else []
        return [*own, *(each for child in self.children.values() for each in child.layers())]

    def below(self, name: str) -> str:
        """The path of a name at this place."""
        return f"{self.path}.{name}" if self.path else name

    def signature(self) -> Hashable:
        """Equal for places that could be each other; None where a name does not say what a tensor is."""
        found = _counted(self.everything())
        return tuple(sorted(each.signature for each in found)) if all(each.speaks for each in found) else None

    def extents(self) -> Hashable:
        """Equal for places that could be each other, as far as shapes tell."""
        return tuple(sorted(_extents(each.shape) for each in _counted(self.everything())))


def _counted(tensors: Iterable[Placed]) -> list[Placed]:
    """Those that have counterparts: counters of batches are torch's alone."""
    return [each for each in tensors if each.piece.last != BATCH_COUNTER]


class How(NamedTuple):
    """What was done to find what has another name: the way, and what became what. ``by_count`` where Keras' count told
    the order."""

    way: str
    pair: str
    by_count: bool = False

    @property
    def said(self) -> str:
        return f"{self.way}: {self.pair}"


class Match(NamedTuple):
    """A tensor of the source, by its position, and what was done to find it where that is not its name alone."""

    ours: int
    how: tuple[How, ...] = ()


Pairs = dict[int, Match]


def pair(ours: Sequence[Placed], theirs: Sequence[Placed], *, by_structure: bool = True) -> Pairs:
    """Matches in ``ours`` for positions in ``theirs``. Without ``by_structure`` names alone are believed."""
    pairs: Pairs = {}
    a, b = _tree(ours), _tree(theirs)
    _Pairing(pairs, by_structure=by_structure).run(*_same_tops(a, b))
    return pairs


def _tree(tensors: Iterable[Placed]) -> _Node:
    root = _Node()
    for each in tensors:
        node = root
        for part in (*filter(None, each.piece.prefix.replace("/", ".").split(".")), *each.piece.path):
            node = node.children.setdefault(part, _Node(node.below(part)))
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
        #: shapes of what was paired by its name, with the places of either side that it is at
        self._named: set[tuple[str, str, Hashable]] = set()

    def run(self, a: _Node, b: _Node, how: tuple[How, ...] = ()) -> _Left:
        """Pair two places that are one; gives back the layers that are left on either side."""
        if self.by_structure:
            a, b = _unwrapped(a, b)
        self._tensors(a, b, how)
        same, barred = same_names(a.children, b.children)
        matched = [(name, name, how) for name in same]
        self._named |= {(a.path, b.path, a.children[name].extents()) for name in same if not name.isdecimal()}
        matched += [(one, other, (*how, *why)) for one, other, why in self._lists(a, b)]
        open_a, open_b = _open(a.children, matched, 0, barred), _open(b.children, matched, 1, barred)
        if self.by_structure:
            for one, other in self._unique(open_a, open_b):
                matched.append((one, other, (*how, _by_structure(open_a.pop(one).path, open_b.pop(other).path))))
        members = _members(a.children) | _members(b.children)
        left_a = [each for child in open_a.values() for each in child.layers()]
        left_b = [each for child in open_b.values() for each in child.layers()]
        for one, other, why in matched:
            below_a, below_b = self.run(a.children[one], b.children[other], why)
            if members.isdisjoint((one, other)):
                left_a += below_a
                left_b += below_b
        return self._layers(left_a, left_b, how) if self.by_structure else (left_a, left_b)

    def _take(self, ours: Placed, theirs: Placed, how: tuple[How, ...]) -> None:
        self.pairs[theirs.index] = Match(ours.index, how)

    def _tensors(self, a: _Node, b: _Node, how: tuple[How, ...]) -> None:
        """Pair the tensors of a layer: by names, then those for which there is one possibility on either side."""
        same, barred = same_names(a.tensors, b.tensors)
        for name in same:
            self._take(a.tensors[name], b.tensors[name], how)
        if not self.by_structure:
            return
        done = barred.union(same)
        ours = {name: each for name, each in a.tensors.items() if name not in done}
        theirs = {name: each for name, each in b.tensors.items() if name not in done}
        named = {_extents(a.tensors[name].shape) for name in same if not a.tensors[name].speaks}
        for extents in (_extents, _long_extents):
            for one, other in _only_possible(ours, theirs, extents):
                if _extents(ours[one].shape) in named:
                    continue  # what has a name on both sides may be one of these two
                speaks = not (one.isdecimal() or other.isdecimal())  # a position names nothing that could differ
                why = (_by_structure(a.below(one), b.below(other)),) if speaks else ()
                self._take(ours.pop(one), theirs.pop(other), (*how, *why))

    def _lists(self, a: _Node, b: _Node) -> list[tuple[str, str, tuple[How, ...]]]:
        """Members of lists that have the same structure, one by one, where no other list of either side has."""
        fitting = [
            (one, other)
            for one, other in candidate_lists(a.children, b.children, by_order=self.by_structure)
            if all(
                self._fit(a.children[ours], b.children[theirs])
                for ours, theirs in zip(one.members.values(), other.members.values())
            )
        ]
        return [
            (ours, theirs, _in_order(a, b, one, other))
            for one, other in fitting
            if sum(one.stem == each.stem or other.stem == rival.stem for each, rival in fitting) == 1
            for ours, theirs in zip(one.members.values(), other.members.values())
        ]

    def _fit(self, a: _Node, b: _Node) -> bool:
        """Whether two places have the same parts and shapes. Where names do not say what a part is, pairing tells it."""
        ours, theirs = a.signature(), b.signature()
        if ours is not None and theirs is not None:
            return ours == theirs
        if len(_counted(a.everything())) != len(_counted(b.everything())):
            return False
        trial = _Pairing({}, by_structure=self.by_structure)
        trial.run(a, b)
        used = {match.ours for match in trial.pairs.values()}
        return all(each.index in used for each in _counted(a.everything())) and all(
            each.index in trial.pairs for each in _counted(b.everything())
        )

    def _unique(self, ours: Mapping[Name, _Node], theirs: Mapping[Name, _Node]) -> list[tuple[Name, Name]]:
        """Places whose parts and shapes occur once on either side."""
        found = _unique(
            {name: node.signature() for name, node in ours.items()},
            {name: node.signature() for name, node in theirs.items()},
        )
        done_a, done_b = {one for one, _ in found}, {other for _, other in found}
        alike = _unique(
            {name: node.extents() for name, node in ours.items() if name not in done_a},
            {name: node.extents() for name, node in theirs.items() if name not in done_b},
        )
        found += [(one, other) for one, other in alike if self._fit(ours[one], theirs[other])]
        return [(one, other) for one, other in found if not self._may_be_shifted(ours[one], theirs[other])]

    def _may_be_shifted(self, a: _Node, b: _Node) -> bool:
        """Whether two places lie beside one that has a name on both sides and their shapes: ``a`` and ``b`` may have become
        ``b`` and ``c``, as numbers are shifted."""
        above, others = a.path.rpartition(".")[0], b.path.rpartition(".")[0]
        return (above, others, a.extents()) in self._named

    def _layers(self, left_a: list[_Node], left_b: list[_Node], how: tuple[How, ...]) -> _Left:
        """Pair whole layers, wherever they lie, whose parts and shapes occur once on either side."""
        ours, theirs = dict(enumerate(left_a)), dict(enumerate(left_b))
        for one, other in self._unique(ours, theirs):
            a, b = ours.pop(one), theirs.pop(other)
            self._tensors(a, b, (*how, _by_structure(a.path, b.path)))
        return [*ours.values()], [*theirs.values()]


_Left = tuple[list[_Node], list[_Node]]
Name = TypeVar("Name", bound=Hashable)


def _open(
    children: Mapping[str, _Node], matched: Iterable[tuple[str, str, object]], side: int, barred: Collection[str]
) -> dict[str, _Node]:
    """The places that have no counterpart yet, and may have one by structure."""
    done = {names[side] for names in matched}
    return {name: child for name, child in children.items() if name not in done and name not in barred}


def _members(names: Collection[str]) -> set[str]:
    """Members of lists: what is left of one is no part of another."""
    return {
        name
        for each in series(names).values()
        if each.is_list or len(each.members) > 1
        for name in each.members.values()
    }


def _by_structure(ours: str, theirs: str) -> How:
    return How("paired by structure", f"{ours} -> {theirs}")


def _in_order(a: _Node, b: _Node, one: Series, other: Series) -> tuple[How, ...]:
    """What is to be said of two lists: nothing where numbers that somebody wrote are equal."""
    by_count = one.counted or other.counted
    if one.members.keys() == other.members.keys() and not by_count:
        return ()
    ours, theirs = ([node.below(name) for name in each.members.values()] for node, each in ((a, one), (b, other)))
    return (How("paired in order", f"{listed(ours)} -> {listed(theirs)}", by_count),)


def _only_possible(
    ours: Mapping[str, Placed], theirs: Mapping[str, Placed], extents: Callable[[Shape], Shape]
) -> list[tuple[str, str]]:
    """Names of tensors of one layer that could be each other, and nothing else of it."""
    rivals: dict[Shape, list[str]] = defaultdict(list)
    for name, each in theirs.items():
        rivals[extents(each.shape)].append(name)
    fitting = [
        (one, other)
        for one, each in ours.items()
        for other in rivals.get(extents(each.shape), ())
        if _could_be(each, theirs[other])
    ]
    times_a, times_b = Counter(one for one, _ in fitting), Counter(other for _, other in fitting)
    return [(one, other) for one, other in fitting if times_a[one] == times_b[other] == 1]


def _extents(shape: Shape) -> Shape:
    return tuple(sorted(shape))


def _long_extents(shape: Shape) -> Shape:
    """Without the axes that only some frameworks have (PReLU's shared ones)."""
    return tuple(sorted(extent for extent in shape if extent != 1))


def _unique(ours: Mapping[Name, Hashable], theirs: Mapping[Name, Hashable]) -> list[tuple[Name, Name]]:
    """Names whose signatures occur once on either side."""
    a, b = _inverted(ours), _inverted(theirs)
    return [(a[each][0], b[each][0]) for each in a if len(a[each]) == 1 and len(b.get(each, ())) == 1]


def _inverted(signatures: Mapping[Name, Hashable]) -> dict[Hashable, list[Name]]:
    found: dict[Hashable, list[Name]] = defaultdict(list)
    for name, signature in signatures.items():
        if signature is not None:
            found[signature].append(name)
    return found


def _could_be(ours: Placed, theirs: Placed) -> bool:
    """Whether nothing known speaks against it that two tensors of the same extents are each other."""
    a, b = ours.piece.layer, theirs.piece.layer
    kinds = {a.kind, b.kind}
    return (a.part == b.part or not a.part or not b.part) and (
        "" in kinds or len({kind.removesuffix("_cell") for kind in kinds}) == 1 or kinds <= CONVOLUTIONS
    )
