"""What a correspondence means for people and for ``convert``: one sentence for each systematic reason, and the rules.

Counts in the sentences are of pairs that came about through the reason, so each sentence holds for all it counts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_tools.mapping.correspondence import Correspondence, LeadingChange, Named, SegmentChange
from ckpt_tools.mapping.kinds import canonical, segments
from ckpt_tools.mapping.rules import Expectation, Rule, literal, plan_moves
from ckpt_tools.mapping.transforms import Transforms

_DIGITS = re.compile(r"\d+")
#: Pairs of spellings that one sentence lists.
_SHOWN = 6
WRITE_MAP = "--write-map map.toml"


@dataclass(frozen=True)
class Reason:
    """``kind`` is for machines; ``text`` one sentence; ``option`` what makes ``ckpt diff`` take it into account."""

    kind: str
    text: str
    option: str | None = None


def name_reasons(
    found: Correspondence,
    a: Sequence[Named],
    b: Sequence[Named],
    *,
    a_levels: Iterable[str] = (),
    b_levels: Iterable[str] = (),
) -> list[Reason]:
    """A reason for each change of names, in the order they were found."""
    reasons: list[Reason] = []
    for change in found.changes:
        if isinstance(change, LeadingChange):
            reasons.append(_leading_reason(change, found, a, b, tuple(a_levels), tuple(b_levels)))
        else:
            reasons.append(_segment_reason(change))
    reasons += _spelling_reasons(found, a, b)
    return reasons


def _leading_reason(
    change: LeadingChange,
    found: Correspondence,
    a: Sequence[Named],
    b: Sequence[Named],
    a_levels: tuple[str, ...],
    b_levels: tuple[str, ...],
) -> Reason:
    old = _raw_prefix(change.old, (a[i].name for i, _ in found.pairs))
    new = _raw_prefix(change.new, (b[j].name for _, j in found.pairs))
    if old and new:
        text = f"{_count(change.matched)} of A below {old!r} {_are(change.matched)} those of B below {new!r}"
        return Reason("prefix", text, f"--rename '{literal(old)}*={literal(new)}*'")
    side, other, prefix, levels = ("A", "B", old, a_levels) if old else ("B", "A", new, b_levels)
    level = next((level for level in sorted(levels, key=len, reverse=True) if prefix.startswith(level)), "")
    rest = prefix[len(level) :]
    everything = len(b if old else a)
    whole = change.matched == everything == change.concerned
    if rest:
        where = f"prefix {rest!r} from {side}" + (f" under {level.rstrip('/')!r}" if level else "")
        text = f"{'all ' if whole and everything > 1 else ''}{_count(change.matched)} {_match(change.matched)}"
        text += f" after removing {where}"
    else:
        text = f"{'all ' if change.matched == everything > 1 else ''}{_count(change.matched)}"
        text += f" of {other} {_are(change.matched)} found in {side} under {level.rstrip('/')!r}"
    if change.rivals:
        text += f"; the same names are also under {', '.join(repr(r.rstrip('.')) for r in change.rivals)}"
    options = [f"--root {level.rstrip('/')}"] if level else []
    options += [f"--strip-prefix {rest}"] if rest else []
    return Reason("prefix" if rest else "root", text, " ".join(options))


def _segment_reason(change: SegmentChange) -> Reason:
    kind, neighbour = change.scope or ("", "")
    where = f" {kind} {_shown(neighbour)!r}" if kind else ""
    names = _count(change.matched)
    if not change.old:
        text = f"{names} of B have {_shown(change.new)!r}{where} that A does not have"
    elif not change.new:
        text = f"{names} of A have {_shown(change.old)!r}{where} that B does not have"
    else:
        text = f"{_shown(change.old)!r} in A is {_shown(change.new)!r} in B{where} ({names})"
    return Reason("rename", text, WRITE_MAP)


def _spelling_reasons(found: Correspondence, a: Sequence[Named], b: Sequence[Named]) -> list[Reason]:
    """What is left when a pair's ends are spelled in two ways, and when the two join their segments differently."""
    spelled: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    slashed = [0, 0]
    dotted = [0, 0]
    for pair in found.pairs:
        if pair in found.identical:
            continue
        ours, theirs = a[pair[0]].name, b[pair[1]].name
        old, new = _ends(a[pair[0]], b[pair[1]])
        if old != new:
            spelled[_spelling_kind(old, new)][old, new] += 1
        common = len(new.split(".")) + 1
        for side, name in enumerate((ours, theirs)):
            tail = "".join(re.findall(r"[./]", name)[-common:])
            slashed[side] += "/" in tail
            dotted[side] += "." in tail
    reasons = [
        Reason(kind, _spelling_text(words, counts), WRITE_MAP)
        for kind, counts in spelled.items()
        for words in (_SPELLING_WORDS[kind],)
    ]
    for one, other, ours, theirs in ((0, 1, "A", "B"), (1, 0, "B", "A")):
        if slashed[one] and not dotted[one] and dotted[other] and not slashed[other]:
            reasons.append(
                Reason("separator", f"{ours} joins the parts of its names with '/', {theirs} with '.'", WRITE_MAP)
            )
    return reasons


_SPELLING_WORDS = {
    "batch-norm": "the statistics of normalisation layers have the other framework's names",
    "weight-norm": "weight norm is spelled in another way",
    "recurrent": "recurrent layers have the other framework's names",
    "spelling": "the parts of layers have the other framework's names",
}


_STATISTICS = frozenset({"running_mean", "running_var", "_mean", "_variance", "moving_mean", "moving_variance"})


def _spelling_kind(old: str, new: str) -> str:
    if {old, new} & _STATISTICS:
        return "batch-norm"
    if old.startswith("parametrizations.") or new.startswith("parametrizations."):
        return "weight-norm"
    return "recurrent" if new.startswith(("weight_ih", "weight_hh", "bias_ih")) or "recurrent" in new else "spelling"


def _spelling_text(words: str, counts: Counter[tuple[str, str]]) -> str:
    shown = ", ".join(f"{old} is {new}" for (old, new), _ in counts.most_common(_SHOWN))
    more = len(counts) - _SHOWN
    return f"{words}: {shown}" + (f" and {more} more" if more > 0 else "") + f" ({_count(sum(counts.values()))})"


def _ends(ours: Named, theirs: Named) -> tuple[str, str]:
    """The ends of two names, where they are two spellings of the same part; otherwise empty texts."""
    old, new = _end(segments(ours.name)), _end(segments(theirs.name))
    if old == new or canonical(ours.name, ours.layer)[-1] != canonical(theirs.name, theirs.layer)[-1]:
        return "", ""
    return old, new


def _end(parts: Sequence[str]) -> str:
    """The last segment, or the three that torch's parametrisations need."""
    return ".".join(parts[-3:] if len(parts) > 3 and parts[-3] == "parametrizations" else parts[-1:])


def _raw_prefix(dotted: str, names: Iterable[str]) -> str:
    """The leading part as the names themselves write it."""
    if not dotted:
        return ""
    for name in names:
        if name[: len(dotted)].replace("/", ".") == dotted:
            return name[: len(dotted)]
    return dotted


def _count(number: int) -> str:
    return f"{number} name" + ("" if number == 1 else "s")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _match(number: int) -> str:
    return "matches" if number == 1 else "match"


def _shown(template: str) -> str:
    return template.replace("#", "N")


# ---- rules


def mapping_rules(
    found: Correspondence,
    a: Sequence[Named],
    b: Sequence[Named],
    transforms: Mapping[tuple[int, int], Transforms],
    drops: Iterable[Rule] = (),
) -> tuple[Rule, ...]:
    """Rules that take every paired name of A to its partner in B, with its transforms, and every other name of A to
    none of B's: general ones as far as they get each name right, exact ones for the rest."""
    wanted = {a[i].name: b[j].name for i, j in found.pairs}
    names = [each.name for each in a]
    general = [*_general_rules(found, a, b)]
    if general:
        used = {id(rule) for rule in plan_moves(names, general).unused}
        general = [rule for rule in general if id(rule) not in used]
    plan = plan_moves(names, general)
    reached = {move.source: move.target for move in plan.moves}
    wrong = {name for name, target in wanted.items() if reached[name] != target}
    if len(wrong) * 2 > len(wanted) or plan.collisions:
        general, reached = [], {name: name for name in names}
        wrong = {name for name, target in wanted.items() if name != target}
    goals = set(wanted.values())
    strays = {name for name in names if name not in wanted and reached[name] in goals and name not in goals}
    steps = {b[j].name: transforms[i, j] for i, j in found.pairs if transforms.get((i, j))}
    exact = [
        Rule(literal(name), literal(wanted.get(name, name)), steps.get(wanted.get(name, ""), ()))
        for name in names
        if name in wrong or name in strays
    ]
    settled = {wanted[name] for name in wrong}
    turning = {target: each for target, each in steps.items() if target not in settled}
    still = {target for target in goals if target not in turning}
    return (*drops, *exact, *general, *_transform_rules(turning, still))


def _general_rules(found: Correspondence, a: Sequence[Named], b: Sequence[Named]) -> Iterator[Rule]:
    separators = sorted({match for each in a for match in re.findall(r"[./]", each.name)})
    for change in found.changes:
        if isinstance(change, LeadingChange):
            old = _raw_prefix(change.old, (a[i].name for i, _ in found.pairs))
            new = _raw_prefix(change.new, (b[j].name for _, j in found.pairs))
            yield Rule(literal(old) + "{rest:any}", literal(new) + "{rest}", goes_on=True)
        else:
            for separator in separators:
                yield from _segment_rules(change, separator)
    yield from _spelling_rules(found, a, b)


def _segment_rules(change: SegmentChange, separator: str) -> Iterator[Rule]:
    """A rule for each place where the segments can stand: in the middle, at the front, at the end."""
    if change.scope is not None or not change.old or not change.new:
        return  # exact rules say these more plainly
    numbers = _numbers()
    old = "".join("{" + numbers(n) + ":int}" if piece == "#" else literal(piece) for n, piece in _pieces(change.old))
    new = "".join("{" + numbers(n) + "}" if piece == "#" else literal(piece) for n, piece in _pieces(change.new))
    old, new = old.replace(".", separator), new.replace(".", separator)
    for head in ("{head:any}" + separator, ""):
        for tail in (separator + "{tail:any}", ""):
            if head or tail:
                yield Rule(head + old + tail, head.replace(":any", "") + new + tail.replace(":any", ""), goes_on=True)


def _numbers() -> Callable[[int], str]:
    return lambda count: "n" if count == 1 else f"n{count}"


def _pieces(template: str) -> Iterator[tuple[int, str]]:
    """Text and ``#`` of a template in turn, each ``#`` with its number."""
    count = 0
    for piece in re.split("(#)", template):
        if piece == "#":
            count += 1
        if piece:
            yield count, piece


def _spelling_rules(found: Correspondence, a: Sequence[Named], b: Sequence[Named]) -> Iterator[Rule]:
    seen: dict[tuple[str, str], None] = {}
    for pair in found.pairs:
        if pair not in found.identical:
            old, new = _ends(a[pair[0]], b[pair[1]])
            if old != new:
                width = len(old)
                name, other = a[pair[0]].name, b[pair[1]].name
                if len(name) > width and len(other) > len(new):
                    seen[name[-width - 1 :], other[-len(new) - 1 :]] = None
    for ours, theirs in seen:
        yield Rule("{layer:any}" + literal(ours), "{layer}" + literal(theirs), goes_on=True)


def _transform_rules(turning: Mapping[str, Transforms], still: set[str]) -> Iterator[Rule]:
    """Rules for the transforms of targets: one for names that differ in numbers only, where none of them stays as it is."""
    groups: dict[tuple[str, Transforms, int], list[str]] = defaultdict(list)
    for target, steps in turning.items():
        groups[_DIGITS.sub("#", target), steps, 0].append(target)
    others = Counter(_DIGITS.sub("#", target) for target in (*turning, *still))
    for (template, steps, _), targets in groups.items():
        if len(targets) > 1 and others[template] == len(targets):
            numbers = _numbers()
            source = "".join("{" + numbers(n) + ":int}" if p == "#" else literal(p) for n, p in _pieces(template))
            result = "".join("{" + numbers(n) + "}" if p == "#" else literal(p) for n, p in _pieces(template))
            yield Rule(source, result, steps, _rank_of(steps))
        else:
            for target in targets:
                yield Rule(literal(target), literal(target), steps, _rank_of(steps))


def _rank_of(steps: Transforms) -> Expectation:
    axes = getattr(steps[0], "axes", None)
    return Expectation(rank=len(axes)) if axes is not None else Expectation()
