"""Numbers at the end of names: members of lists (``0``, ``1``), what a user counts (``fc1``, ``fc2``), and what Keras does
(``dense``, ``dense_1``)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_NUMBERED = re.compile(r"(?P<stem>.*?)_?(?P<number>\d+)")


@dataclass(frozen=True)
class Series:
    """Names that differ in their number alone, by it and in its order. A name without one is number 0 of those that count
    from it, as Keras does: then they are ``counted``."""

    stem: str
    members: Mapping[int, str]
    counted: bool

    @property
    def is_list(self) -> bool:
        """Whether these are members of a container, which stand in the order of their numbers."""
        return not self.stem

    @property
    def is_ordered(self) -> bool:
        """Whether the numbers are an order, and not a part of what a user calls something."""
        return self.is_list or self.counted


class SameNames(NamedTuple):
    """Names that both sides have and that mean the same, and those of either side that numbers say nothing of."""

    same: tuple[str, ...]
    barred: frozenset[str]


def series(names: Collection[str]) -> dict[str, Series]:
    """Series of names by their stem; none where two names have one number (``fc1``, ``fc_1``)."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            found[numbered["stem"]].append((int(numbered["number"]), name))
    result = {}
    for stem, numbers in found.items():
        counted = stem in names and all(number for number, _ in numbers)
        members = dict(sorted([(0, stem), *numbers] if counted else numbers))
        if len(members) == len(numbers) + counted:
            result[stem] = Series(stem, members, counted)
    return result


def same_names(ours: Collection[str], theirs: Collection[str]) -> SameNames:
    """What has one name on both sides. ``net.2`` behind an activation is not ``net.2`` of a list without one: where
    either side has numbers that the other has not, no number of that series says which is which; where one side's
    numbers are among the other's, those are the same, and the others have no counterpart."""
    a, b = series(ours), series(theirs)
    barred: set[str] = set()
    for stem in a.keys() & b.keys():
        numbers, others = a[stem].members, b[stem].members
        if len(numbers) == len(others) == 1:
            continue  # no order to be mistaken
        nested = numbers.keys() <= others.keys() or others.keys() <= numbers.keys()
        for members, rest in ((numbers, others), (others, numbers)):
            barred.update(name for number, name in members.items() if not nested or number not in rest)
    shared = set(theirs)
    return SameNames(tuple(name for name in ours if name in shared and name not in barred), frozenset(barred))


def candidate_lists(ours: Collection[str], theirs: Collection[str], *, by_order: bool) -> list[tuple[Series, Series]]:
    """Series of either side, of different names, that can be one list, member by member in the order of their numbers.

    Words before the numbers are the same, or one side has none and the other has no such list of its own: ``fc0`` and
    ``fc1`` are not what Keras counts as ``dense`` and ``dense_1``, in whatever order these were made. The numbers are
    equal, or, ``by_order``, one side has a container and the other has one or what Keras counts.
    """
    a, b = series(ours), series(theirs)
    found = []
    for one in a.values():
        for other in b.values():
            with_list = one.is_list or other.is_list
            if one.stem != other.stem and (one.stem in b or other.stem in a or not with_list):
                continue
            if one.members.keys() == other.members.keys():
                fits = {*one.members.values()}.isdisjoint(other.members.values())
            else:
                fits = by_order and with_list and one.is_ordered and other.is_ordered
            if fits and len(one.members) == len(other.members) > 1:
                found.append((one, other))
    return found
