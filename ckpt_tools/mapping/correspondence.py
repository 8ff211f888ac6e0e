"""Which name of one checkpoint is which name of another, found from the names at hand.

Names are compared as segments (cut at ``.`` and ``/``) whose last one is spelled as torch spells it. What differs
systematically is found as changes: another leading part, another segment. A change is taken only when it holds for
every name it concerns, so nothing is claimed of names that fit as they are; single coincidences are left to the reader.

Cost: a few dictionary look-ups for each segment of each name. Segments are compared by their templates (digits as
``#``), of which even large models have few.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple, Union

from ckpt_tools.mapping.kinds import LayerPart, Shape, canonical

#: Changes are looked for, one after the other, at most this often: no honest pair needs more than a handful.
_ROUNDS = 24
#: Leading parts that are tried out in one round, the most frequent first.
_TRIED_PREFIXES = 12
#: Up to so many names below a leading part may be a layer or two that happen to have the same names.
_FEW = 4
#: The part of pairs that need the same extents; below it they are other layers that only have names alike.
_ALIKE = 0.9
#: Names that are asked where they might lead; what they suggest is checked against all.
_ASKED = 4096
#: Renamed segments that are tried out in one round, the most frequent first.
_TRIED_SEGMENTS = 64
#: A renamed segment may stand for at most this many segments on either side (``parametrizations.weight.original0``).
_WIDEST = 3
#: Above this many templates only single segments are compared, which keeps the cost near-linear.
_MANY_TEMPLATES = 4000
#: One name that would fit under another name is a coincidence; two are the least that make a rule.
_SUPPORT = 2

_DIGITS = re.compile(r"\d+")


class Named(NamedTuple):
    """A tensor as far as names are concerned. ``weighs`` is False for optimizer state, counters and averages."""

    name: str
    shape: Shape
    layer: LayerPart | None = None
    weighs: bool = True


@dataclass(frozen=True)
class LeadingChange:
    """``old`` at the front of A's names is ``new`` in B's; both end in a separator, or are empty.

    ``matched`` names fit through it, ``concerned`` begin with ``old`` (with ``new`` in B when ``old`` is empty);
    ``rivals`` are other leading parts that fit as many names, of which fewer are weights.
    """

    old: str
    new: str
    matched: int
    concerned: int
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True)
class SegmentChange:
    """Segments ``old`` in A's names are ``new`` in B's; ``#`` stands for digits, the same on both sides.

    ``scope`` narrows it: ("after", segment), ("before", segment), ("below", first segment), or None for everywhere.
    """

    old: str
    new: str
    matched: int
    scope: tuple[str, str] | None = None


Change = Union[LeadingChange, SegmentChange]


@dataclass
class Correspondence:
    """Pairs of positions (in A, in B), in the order of A, and the changes that led to them, in order.

    ``identical`` are the pairs whose names are equal as they are.
    """

    pairs: list[tuple[int, int]]
    identical: set[tuple[int, int]]
    changes: list[Change] = field(default_factory=list)
    #: leading parts of one side that fit the other equally well, so that none was taken
    undecided: tuple[str, ...] = ()


def correspond(
    a: Sequence[Named], b: Sequence[Named], *, a_levels: Iterable[str] = (), b_levels: Iterable[str] = ()
) -> Correspondence:
    """Pair the names of ``a`` with those of ``b``.

    ``a_levels`` and ``b_levels`` are the dicts of either tree, as leading parts of names (``main_params/``).
    """
    return _Matcher(a, b, _dotted(a_levels), _dotted(b_levels)).run()


def _dotted(levels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({level.replace("/", ".") for level in levels}, key=len, reverse=True))


def _spelled(named: Sequence[Named]) -> list[str]:
    """Canonical names joined by dots; where two tensors would share one, both keep their own segments."""
    spelled = [".".join(canonical(each.name, each.layer)) for each in named]
    counts = Counter(spelled)
    if len(counts) < len(spelled):
        spelled = [each.name.replace("/", ".") if counts[s] > 1 else s for s, each in zip(spelled, named)]
    return spelled


class _Matcher:
    """``current`` are A's names on their way to B's. A matched name's current form is B's."""

    def __init__(
        self, a: Sequence[Named], b: Sequence[Named], a_levels: tuple[str, ...], b_levels: tuple[str, ...]
    ) -> None:
        self.a, self.b = a, b
        self.a_levels, self.b_levels = a_levels, b_levels
        self.current = _spelled(a)
        self.targets = _spelled(b)
        self.partner: dict[int, int] = {}
        self.open_a: dict[str, int] = {}
        self.open_b: dict[str, int] = {}
        self.changes: list[Change] = []
        #: for each name of A, the changes it went through
        self._applied: dict[int, list[int]] = defaultdict(list)
        self.undecided: tuple[str, ...] = ()

    def run(self) -> Correspondence:
        by_name = {each.name: j for j, each in enumerate(self.b)}
        for i, each in enumerate(self.a):
            j = by_name.get(each.name)
            if j is not None:
                self.partner[i] = j
                self.current[i] = self.targets[j]
        identical = set(self.partner.items())
        taken = set(self.partner.values())
        self.open_a = {self.current[i]: i for i in range(len(self.a)) if i not in self.partner}
        self.open_b = {self.targets[j]: j for j in range(len(self.b)) if j not in taken}
        self._match()
        for _ in range(_ROUNDS):
            if not self.open_a or not self.open_b or self.undecided:
                break
            if not any(
                not self.undecided and change()
                for change in (
                    self._take_leading_part_away,
                    self._take_wrapper_away,
                    self._change_segments,
                    self._replace_leading_part,
                    self._change_in_order,
                )
            ):
                break
        return Correspondence(sorted(self.partner.items()), identical, self._counted(), self.undecided)

    def _counted(self) -> list[Change]:
        """The changes with the number of pairs that came about through each: later changes complete earlier ones."""
        counts = Counter(index for i in self.partner for index in self._applied.get(i, ()))
        return [replace(change, matched=counts[index]) for index, change in enumerate(self.changes) if counts[index]]

    def _match(self) -> None:
        for name in [name for name in self.open_a if name in self.open_b]:
            self.partner[self.open_a.pop(name)] = self.open_b.pop(name)

    def _apply(self, change: Change, rename: Callable[[str], str | None]) -> None:
        """Take a change: every open name of A that it concerns gets its new form."""
        renamed: dict[str, int] = {}
        for name, i in self.open_a.items():
            new = rename(name)
            if new is None or new in renamed:
                renamed[name] = i
            else:
                renamed[new] = i
                self._applied[i].append(len(self.changes))
        for name, i in renamed.items():
            self.current[i] = name
        self.open_a = renamed
        self.changes.append(change)
        self._match()

    # ---- leading parts

    def _take_leading_part_away(self) -> bool:
        """A's names are B's below something, or the other way round."""
        votes: Counter[tuple[str, str]] = Counter()
        for name in _sample(self.open_a):
            votes.update((name[:at], "") for at in _cuts(name) if name[at:] in self.open_b)
        for name in _sample(self.open_b):
            votes.update(("", name[:at]) for at in _cuts(name) if name[at:] in self.open_a)
        return self._change_leading(votes)

    def _replace_leading_part(self) -> bool:
        """A's names and B's have the same ends below different beginnings."""
        votes: Counter[tuple[str, str]] = Counter()
        ends: dict[str, str] = {}
        for name in self.open_b:
            for at in _cuts(name):
                ends[name[at:]] = "" if name[at:] in ends else name
        own: Counter[str] = Counter(name[at:] for name in self.open_a for at in _cuts(name))
        for name in self.open_a:
            for at in _cuts(name):
                other = ends.get(name[at:])
                if other is not None:  # the longest end that both have; of use when nobody else has it
                    if other and own[name[at:]] == 1:
                        votes[name[:at], other[: len(other) - len(name) + at]] += 1
                    break
        return self._change_leading(votes)

    def _change_leading(self, votes: Mapping[tuple[str, str], int]) -> bool:
        ranked = sorted(votes, key=lambda pair: (-votes[pair], pair))
        tried = [self._try_leading(old, new) for old, new in ranked[:_TRIED_PREFIXES]]
        good = [attempt for attempt in tried if attempt is not None]
        if not good:
            return False
        best = max(good, key=lambda attempt: attempt.rank)
        others = [
            each for each in good if each is not best and (each.targets == best.targets or each.sources == best.sources)
        ]
        if any(each.rank == best.rank for each in others):
            if best.change.matched * 2 >= min(len(self.open_a), len(self.open_b)):
                choices = [best, *(each for each in others if each.rank == best.rank)]
                self.undecided = tuple(sorted(each.change.old or each.change.new for each in choices))
            return False
        change = replace(best.change, rivals=tuple(each.change.old or each.change.new for each in others))
        self._apply(change, _leading_renamer(change.old, change.new))
        return True

    def _take_wrapper_away(self) -> bool:
        """Every name of one side, and none of the other, begins with the same segment, below which the names begin as
        the other side's do. They need not fit yet: something else may differ as well."""
        first_a = {name.partition(".")[0] for name in self.open_a}
        first_b = {name.partition(".")[0] for name in self.open_b}
        for wrapped, names, firsts, others in (
            (True, self.current, first_a, first_b),
            (False, self.targets, first_b, first_a),
        ):
            if len(firsts) != 1 or firsts & others:
                continue
            (wrapper,) = firsts
            inner = {name.split(".")[1] for name in (self.open_a if wrapped else self.open_b) if "." in name}
            outside = any(not name.startswith(f"{wrapper}.") for name in names)
            if outside or not inner or len(inner & others) * 2 < max(len(inner), len(others)):
                continue
            old, new = (f"{wrapper}.", "") if wrapped else ("", f"{wrapper}.")
            self._apply(LeadingChange(old, new, 0, len(names)), _leading_renamer(old, new))
            return True
        return False

    def _try_leading(self, old: str, new: str) -> _Leading | None:
        """The change with what it would match, or None when it does not hold for every name it concerns."""
        concerned_a = [i for i, name in enumerate(self.current) if name.startswith(old)]
        concerned_b = [j for j, name in enumerate(self.targets) if name.startswith(new)]
        taken = set(self.partner.values())
        if (old and any(i in self.partner for i in concerned_a)) or (new and any(j in taken for j in concerned_b)):
            return None
        matched, sources, targets, alike, weigh = 0, set(), set(), 0, 0
        for i in concerned_a:
            j = self.open_b.get(new + self.current[i][len(old) :])
            if j is not None and i not in self.partner:
                matched += 1
                sources.add(i)
                targets.add(j)
                alike += sorted(self.a[i].shape) == sorted(self.b[j].shape)
                weigh += self.a[i].weighs and self.b[j].weighs
        concerned = len(concerned_a) if old else len(concerned_b)
        if old and new:
            concerned = max(len(concerned_a), len(concerned_b))
        whole = all(
            _is_whole(prefix, names, levels)
            for prefix, names, levels in ((old, self.current, self.a_levels), (new, self.targets, self.b_levels))
            if prefix
        )
        enough = matched * 2 >= min(len(self.open_a), len(self.open_b), concerned)
        holds = (matched == concerned and matched >= _SUPPORT) or (whole and matched and enough)
        everything = matched == len(self.a) == len(self.b)
        many = matched > _FEW and not (old and new)
        if not holds or not (everything or (many and alike * 2 >= matched) or _shapes_agree(alike, matched)):
            return None
        return _Leading(
            LeadingChange(old, new, matched, concerned), frozenset(sources), frozenset(targets), (weigh, matched, alike)
        )

    # ---- segments

    def _change_segments(self) -> bool:
        candidates = self._segment_candidates()
        votes: Counter[tuple[str, str]] = Counter()
        for hits in candidates.values():
            for hit in hits:
                votes[hit.old, hit.new] += len(hit.names) + sum(hit.alike)
        readings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for (old, new), count in votes.items():
            if count >= _SUPPORT:
                readings[old].append((count, _likeness(old, new)))
        order = sorted(
            (pair for pair in votes if votes[pair] >= _SUPPORT),
            key=lambda pair: (-votes[pair], -_likeness(*pair), pair),
        )
        changed = False
        for old, new in order[:_TRIED_SEGMENTS]:
            if readings[old].count((votes[old, new], _likeness(old, new))) > 1:
                continue  # two equally good readings: neither is claimed
            changed |= self._try_segment(old, new, candidates)
        return changed

    def _segment_candidates(self) -> dict[str, list[_Hit]]:
        """For each template of an open name of A, the smallest changes that make it a template of B."""
        templates_a, templates_b = _by_template(self.open_a), _by_template(self.open_b)
        widest = _WIDEST if len(templates_a) + len(templates_b) <= _MANY_TEMPLATES else 1
        index: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for template, names in templates_b.items():
            for before, middle, after in _gaps(template, widest):
                index[before, after].append((middle, names[0]))
        found: dict[str, list[_Hit]] = {}
        for template, names in templates_a.items():
            hits: dict[tuple[str, str], _Hit] = {}
            least = 2 * _WIDEST + 1
            for before, middle, after in _gaps(template, widest):
                for other, example in index.get((before, after), ()):
                    size = _count(middle) + _count(other)
                    if middle == other or size > least:
                        continue
                    if size < least:
                        least = size
                        hits.clear()
                    new = other if other.count("#") == middle.count("#") else _literal(example, before, other)
                    hits[middle, new] = _Hit(middle, new, before, after, names, [])
            for hit in hits.values():
                rename = _segment_renamer(hit.old, hit.new, None if hit.old else next(_scopes([hit])))
                for name in names:
                    j = self.open_b.get(rename(name) or "")
                    if j is not None:
                        hit.alike.append(sorted(self.b[j].shape) == sorted(self.a[self.open_a[name]].shape))
            found[template] = [hit for hit in hits.values() if hit.alike]
        return found

    def _try_segment(self, old: str, new: str, candidates: Mapping[str, list[_Hit]]) -> bool:
        hits = [hit for each in candidates.values() for hit in each if (hit.old, hit.new) == (old, new)]
        for scope in _scopes(hits):
            rename = _segment_renamer(old, new, scope)
            renamed = {name: to for name in self.open_a if (to := rename(name)) is not None}
            fitting = [name for name, to in renamed.items() if to in self.open_b]
            if len(set(renamed.values())) < len(renamed):
                continue  # it would make different names equal
            if len(fitting) < _SUPPORT or self._is_broken(rename, fitting, candidates):
                continue
            alike = sum(
                sorted(self.a[self.open_a[name]].shape) == sorted(self.b[self.open_b[renamed[name]]].shape)
                for name in fitting
            )
            if not _shapes_agree(alike, len(fitting)) or not any(self.a[self.open_a[name]].shape for name in fitting):
                continue  # that scalars are alike says nothing
            self._apply(SegmentChange(old, new, len(fitting), scope), rename)
            return True
        return False

    def _is_broken(
        self, rename: Callable[[str], str | None], fitting: Sequence[str], candidates: Mapping[str, list[_Hit]]
    ) -> bool:
        """Whether a name that the change concerns fits without it, or fits through another change instead."""
        if any(rename(self.current[i]) is not None for i in self.partner):
            return True
        fits = {_DIGITS.sub("#", name) for name in fitting}
        return any(
            hits and template not in fits and any(rename(name) is not None for name in hits[0].names)
            for template, hits in candidates.items()
        )

    # ---- several segments at once

    def _change_in_order(self) -> bool:
        """Pair what is left by its order among tensors of the same shape, and see whether renaming segments explains
        every single pair. The order is only where the idea comes from; the names have to bear it out."""
        left = {name: i for name, i in self.open_a.items() if self.a[i].weighs}
        right = {name: j for name, j in self.open_b.items() if self.b[j].weighs}
        by_shape: dict[tuple[int, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for name, i in left.items():
            by_shape[tuple(sorted(self.a[i].shape))][0].append(name)
        for name, j in right.items():
            by_shape[tuple(sorted(self.b[j].shape))][1].append(name)
        if len(left) < _SUPPORT or any(len(ours) != len(theirs) for ours, theirs in by_shape.values()):
            return False
        if not any(by_shape):  # scalars only
            return False
        forth: dict[str, str] = {}
        for ours, theirs in by_shape.values():
            for name, other in zip(ours, theirs):
                parts, others = name.split("."), other.split(".")
                if len(parts) != len(others):
                    return False
                for part, partner in zip(parts, others):
                    old, new = _DIGITS.sub("#", part), _DIGITS.sub("#", partner)
                    if _DIGITS.findall(part) != _DIGITS.findall(partner) or forth.setdefault(old, new) != new:
                        return False
        renamed = {old: new for old, new in forth.items() if old != new}
        kept = [name for name in left if not any(_DIGITS.sub("#", part) in renamed for part in name.split("."))]
        if not renamed or kept or any(self._stays(old) for old in renamed):
            return False
        changes = {
            old: (new, sum(old in _DIGITS.sub("#", name).split(".") for name in left)) for old, new in renamed.items()
        }
        if min(count for _, count in changes.values()) < _SUPPORT and len(left) < 2 * _SUPPORT:
            return False
        for old, (new, count) in changes.items():
            self._apply(SegmentChange(old, new, count), _segment_renamer(old, new))
        return True

    def _stays(self, template: str) -> bool:
        return any(template in _DIGITS.sub("#", self.current[i]).split(".") for i in self.partner)


class _Leading(NamedTuple):
    change: LeadingChange
    sources: frozenset[int]
    targets: frozenset[int]
    rank: tuple[int, int, int]


class _Hit(NamedTuple):
    """``old`` between ``before`` and ``after`` in the template of ``names`` is ``new`` in a name of B; ``alike`` has an
    entry for each name that then exists in B: whether the shapes are the same but for their order."""

    old: str
    new: str
    before: str
    after: str
    names: list[str]
    alike: list[bool]


def _shapes_agree(alike: int, matched: int) -> bool:
    """Whether enough of the pairs have the same extents, in whatever order, to be the same tensors."""
    return alike >= matched * _ALIKE


def _cuts(name: str) -> Iterator[int]:
    """Where segments begin, but for the first: the longest end comes first."""
    at = name.find(".") + 1
    while at:
        yield at
        at = name.find(".", at) + 1


def _sample(names: Mapping[str, int]) -> Sequence[str]:
    """All names, or about :data:`_ASKED` spread evenly."""
    listed = list(names)
    return listed[:: len(listed) // _ASKED + 1]


def _is_whole(prefix: str, names: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether every name of the level that ``prefix`` begins with has the whole prefix."""
    level = next((level for level in levels if prefix.startswith(level)), "")
    return all(name.startswith(prefix) for name in names if name.startswith(level))


def _by_template(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[_DIGITS.sub("#", name)].append(name)
    return found


def _gaps(template: str, widest: int) -> Iterator[tuple[str, str, str]]:
    """Every way to cut a template into what is before, up to ``widest`` segments, and what is after. Never all of it."""
    parts = template.split(".")
    for width in range(0 if widest > 1 else 1, min(widest, len(parts) - 1) + 1):
        for at in range(len(parts) - width + 1):
            if width or 0 < at < len(parts):
                yield ".".join(parts[:at]), ".".join(parts[at : at + width]), ".".join(parts[at + width :])


def _count(middle: str) -> int:
    return middle.count(".") + 1 if middle else 0


def _literal(example: str, before: str, middle: str) -> str:
    """The segments of ``example`` that ``middle`` is the template of."""
    parts = example.split(".")
    start = _count(before)
    return ".".join(parts[start : start + _count(middle)])


@lru_cache(maxsize=4096)
def _likeness(old: str, new: str) -> float:
    return SequenceMatcher(None, old, new, autojunk=False).ratio()


def _scopes(hits: Sequence[_Hit]) -> Iterator[tuple[str, str] | None]:
    """Where a segment change may hold: everywhere, or only after, before or below segments its hits have. What is put
    in where nothing was needs a neighbour."""
    if any(hit.old for hit in hits):
        yield None
    neighbours = {
        "after": [hit.before.rpartition(".")[2] for hit in hits],
        "before": [hit.after.partition(".")[0] for hit in hits],
        "below": [hit.before.partition(".")[0] for hit in hits],
    }
    for kind, segments in neighbours.items():
        for segment in dict.fromkeys(segments):
            if segment:
                yield kind, segment


def _leading_renamer(old: str, new: str) -> Callable[[str], str | None]:
    """A function that puts ``new`` in the place of a leading ``old``; None where a name has no such beginning."""
    return lambda name: new + name[len(old) :] if name.startswith(old) and name != old else None


def _segment_renamer(old: str, new: str, scope: tuple[str, str] | None = None) -> Callable[[str], str | None]:
    """A function that renames ``old`` in a dotted name, once; None where the name does not have it in this scope.

    Empty ``old`` means that ``new`` is put in, which needs a scope.
    """
    kind, neighbour = scope or ("", "")
    middle = _pattern(old)
    if not old:
        if kind == "after":
            pattern = rf"(?P<head>(?:^|.*\.){_pattern(neighbour)}\.)(?P<tail>.+)$"
        elif kind == "before":
            pattern = rf"(?P<head>^|.*\.)(?P<tail>{_pattern(neighbour)}(?:\..*)?)$"
        else:
            return lambda name: None
    else:
        head = {
            "after": rf"(?:^|.*\.){_pattern(neighbour)}\.",
            "below": rf"^{_pattern(neighbour)}\.(?:.*\.)?",
        }.get(kind, r"^|.*\.")
        tail = rf"\.{_pattern(neighbour)}(?:\..*)?" if kind == "before" else r"(?:\..*)?"
        pattern = rf"(?P<head>{head})(?P<middle>{middle})(?P<tail>{tail})$"
    matcher = re.compile(pattern, re.DOTALL)
    quick = old.partition("#")[0]

    def rename(name: str) -> str | None:
        if quick not in name:
            return None
        found = matcher.match(name)
        if found is None:
            return None
        if not old:
            return f"{found['head']}{new}.{found['tail']}"
        digits = iter(_DIGITS.findall(found["middle"]))
        filled = re.sub("#", lambda _: next(digits, "#"), new)
        if not filled:
            return found["head"] + found["tail"].lstrip(".") if found["tail"] else None
        return found["head"] + filled + found["tail"]

    return rename


def _pattern(template: str) -> str:
    return r"\d+".join(re.escape(piece) for piece in template.split("#"))
