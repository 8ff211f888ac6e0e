"""Renaming rules: an anchored pattern with named pieces, and what becomes of a name that it matches.

A pattern matches whole names. Text stands for itself; ``{piece}`` is one segment (no ``.`` and no ``/``),
``{piece:int}`` digits, ``{piece:any}`` one or more characters of any kind, ``*`` any characters or none. A piece that
occurs twice stands for the same text both times. The target repeats pieces by name and stars in their order. A
backslash before ``{``, ``}``, ``*`` or another backslash takes its meaning away; before other characters it is itself.

A name goes through the rules from top to bottom and stops at the first that matches, unless that rule says to go on:
so rules can swap names, and general ones (a prefix to strip) can stand before special ones.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ckpt_tools.core.keys import SHOWN_NAMES, listed
from ckpt_tools.errors import CkptError, UsageError
from ckpt_tools.mapping.transforms import Transforms, describe

_TOKEN = re.compile(r"\\(?P<escaped>[{}*\\])|\{(?P<piece>[^{}]*)\}|(?P<star>\*)|(?P<stray>[{}])|(?P<text>[^\\{}*]+|\\)")
_PIECE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<kind>int|any))?")
_SPECIAL = re.compile(r"[{}*\\]")
_KINDS = {None: r"[^./]+", "int": r"[0-9]+", "any": r".+"}


def literal(name: str) -> str:
    """The pattern (or target) that means exactly ``name``."""
    return _SPECIAL.sub(r"\\\g<0>", name)


@dataclass(frozen=True)
class Expectation:
    """What must hold for every tensor that a rule moves; None: anything."""

    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    rank: int | None = None

    def broken_by(self, dtype: str, shape: tuple[int, ...]) -> str | None:
        """What is wrong with a tensor of this type and shape, as the end of a sentence; None when nothing is."""
        if self.dtype is not None and dtype != self.dtype:
            return f"is {dtype}, {self.dtype} is expected"
        if self.shape is not None and shape != self.shape:
            return f"has shape {list(shape)}, {list(self.shape)} is expected"
        if self.rank is not None and len(shape) != self.rank:
            return f"has {len(shape)} dimensions, {self.rank} are expected"
        return None


ANYTHING = Expectation()


@dataclass(frozen=True)
class Rule:
    """``source`` is a pattern; ``target`` a template, or None to drop what matches.

    ``transforms`` happen to the values; ``goes_on`` takes the new name to the rules below; ``why`` is for people.
    UsageError, when made, says what is wrong with the text of a rule.
    """

    source: str
    target: str | None
    transforms: Transforms = ()
    expect: Expectation = ANYTHING
    goes_on: bool = False
    why: str = ""
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _template: tuple[str | int, ...] = field(init=False, repr=False, compare=False)
    #: the one name this rule can match, when its pattern has no pieces
    exact: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.source:
            raise UsageError("a rule without a pattern")
        groups: dict[str, int] = {}
        stars: list[int] = []
        regex: list[str] = []
        texts: list[str] = []
        for text, piece in _tokens(self.source):
            if piece is None:
                regex.append(re.escape(text))
                texts.append(text)
            elif piece == "*":
                stars.append(len(groups) + len(stars) + 1)
                regex.append("(.*)")
            else:
                name, kind = _piece(piece, self.source)
                if name in groups:
                    regex.append(f"(?:\\{groups[name]})")
                else:
                    groups[name] = len(groups) + len(stars) + 1
                    regex.append(f"({_KINDS[kind]})")
        object.__setattr__(self, "exact", "".join(texts) if not groups and not stars else None)
        object.__setattr__(self, "_pattern", re.compile("".join(regex), re.DOTALL))
        object.__setattr__(self, "_template", self._parsed_target(groups, stars))

    def _parsed_target(self, groups: Mapping[str, int], stars: Sequence[int]) -> tuple[str | int, ...]:
        if self.target is None:
            if self.transforms:
                raise UsageError(f"the rule for {self.source!r} drops what it transforms")
            return ()
        if not self.target:
            raise UsageError(f"the rule for {self.source!r} has an empty target; to drop names, say drop")
        template: list[str | int] = []
        rest = iter(stars)
        for text, piece in _tokens(self.target):
            if piece is None:
                template.append(text)
            elif piece == "*":
                star = next(rest, None)
                if star is None:
                    raise UsageError(f"the target {self.target!r} has more stars than its pattern {self.source!r}")
                template.append(star)
            else:
                name, _ = _piece(piece, self.target)
                if name not in groups:
                    raise UsageError(f"the target {self.target!r} uses {{{name}}}, which {self.source!r} does not have")
                template.append(groups[name])
        return tuple(template)

    def match(self, name: str) -> str | None:
        """The target for ``name`` ("" when the rule drops it); None when the pattern does not match."""
        if self.exact is not None:
            if name != self.exact:
                return None
            return "".join(part for part in self._template if isinstance(part, str))
        found = self._pattern.fullmatch(name)
        if found is None:
            return None
        return "".join(part if isinstance(part, str) else found[part] for part in self._template)

    def __str__(self) -> str:
        target = "dropped" if self.target is None else self.target
        return f"{self.source} -> {target}" + (f" [{describe(self.transforms)}]" if self.transforms else "")


def _tokens(text: str) -> list[tuple[str, str | None]]:
    """``text`` as pairs: literal text and None, or "" and a piece (``*`` for a star)."""
    tokens: list[tuple[str, str | None]] = []
    for token in _TOKEN.finditer(text):
        if token["stray"]:
            stray = token["stray"]
            raise UsageError(f"{text!r} has a lone {stray!r}; for the character itself write \\{stray}")
        if token["star"]:
            tokens.append(("", "*"))
        elif token["piece"] is not None:
            tokens.append(("", token["piece"]))
        else:
            tokens.append((token["escaped"] or token["text"], None))
    return tokens


def _piece(piece: str, where: str) -> tuple[str, str | None]:
    parsed = _PIECE.fullmatch(piece)
    if parsed is None:
        raise UsageError(
            f"{{{piece}}} in {where!r} is no piece; there are {{name}}, {{name:int}} and {{name:any}},"
            " and a brace itself is written \\{"
        )
    return parsed["name"], parsed["kind"]


def rename(option: str) -> Rule:
    """The rule behind ``--rename OLD=NEW``; an empty NEW drops."""
    old, equals, new = option.partition("=")
    if not equals or not old:
        raise UsageError(f"--rename takes OLD=NEW, got {option!r}")
    return Rule(old, new or None, why="--rename")


def strip_prefix(prefix: str) -> Rule:
    """The rule behind ``--strip-prefix``: only leading text goes, and never a whole name."""
    if not prefix:
        raise UsageError("--strip-prefix needs a prefix")
    return Rule(literal(prefix) + "{rest:any}", "{rest}", goes_on=True, why="--strip-prefix")


@dataclass(frozen=True)
class Move:
    """One name and the name it gets, with everything that happens on the way."""

    source: str
    target: str
    rules: tuple[Rule, ...]

    @property
    def transforms(self) -> Transforms:
        return tuple(step for rule in self.rules for step in rule.transforms)


@dataclass(frozen=True)
class Collision:
    """A target that several names would get."""

    target: str
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return f"{listed(self.sources)} would all be called {self.target}"


@dataclass(frozen=True)
class MovePlan:
    """What rules do to a set of names, before anything is done.

    ``moves`` has every name that stays in, in the given order, those that no rule matched under their own name;
    ``drops`` are the others with the rule that dropped each.
    """

    moves: tuple[Move, ...]
    drops: tuple[Move, ...]
    unused: tuple[Rule, ...]

    @cached_property
    def unmapped(self) -> tuple[str, ...]:
        """Names that no rule matched."""
        return tuple(move.source for move in self.moves if not move.rules)

    @cached_property
    def collisions(self) -> tuple[Collision, ...]:
        """Targets that more than one name would get."""
        sources: dict[str, list[str]] = defaultdict(list)
        for move in self.moves:
            sources[move.target].append(move.source)
        return tuple(Collision(target, tuple(names)) for target, names in sources.items() if len(names) > 1)

    def refuse_collisions(self, error: type[CkptError] = UsageError) -> None:
        """Raise ``error`` naming them when two names would become one."""
        if self.collisions:
            shown = "; ".join(map(str, self.collisions[:SHOWN_NAMES]))
            more = len(self.collisions) - SHOWN_NAMES
            raise error(f"the renaming makes names equal: {shown}" + (f"; and {more} more" if more > 0 else ""))

    def broken_expectations(self, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[str]:
        """A sentence for each tensor that breaks what its rules expect. ``tensors``: dtype and shape by source name."""
        found = []
        for move in self.moves:
            for rule in move.rules:
                if rule.expect is not ANYTHING and move.source in tensors:
                    broken = rule.expect.broken_by(*tensors[move.source])
                    if broken:
                        found.append(f"{move.source} {broken} by the rule {rule}")
        return found


def plan_moves(names: Iterable[str], *stages: Sequence[Rule]) -> MovePlan:
    """Take every name through the rules of each stage, one stage after the other."""
    prepared = [_Stage(rules) for rules in stages]
    moves: list[Move] = []
    drops: list[Move] = []
    for name in names:
        target: str | None = name
        applied: list[Rule] = []
        for stage in prepared:
            if target is not None:
                target = stage.take(target, applied)
        if target is None:
            drops.append(Move(name, "", tuple(applied)))
        else:
            moves.append(Move(name, target, tuple(applied)))
    unused = tuple(rule for stage in prepared for rule, used in zip(stage.rules, stage.used) if not used)
    return MovePlan(tuple(moves), tuple(drops), unused)


class _Stage:
    """Rules made ready for many names: those for exactly one name are looked up, the others tried in order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.used = [False] * len(self.rules)
        self._exact: dict[str, list[int]] = defaultdict(list)
        self._patterns: list[int] = []
        for index, rule in enumerate(self.rules):
            if rule.exact is not None:
                self._exact[rule.exact].append(index)
            else:
                self._patterns.append(index)

    def take(self, name: str, applied: list[Rule]) -> str | None:
        """The name after this stage, None when it is dropped; the rules used are added to ``applied``."""
        at = 0
        while True:
            index, target = self._first(name, at)
            if index is None:
                return name
            rule = self.rules[index]
            self.used[index] = True
            applied.append(rule)
            if rule.target is None:
                return None
            name = target
            if not rule.goes_on:
                return name
            at = index + 1

    def _first(self, name: str, at: int) -> tuple[int | None, str]:
        exact = next((index for index in self._exact.get(name, ()) if index >= at), None)
        for index in self._patterns:
            if index < at:
                continue
            if exact is not None and exact < index:
                break
            target = self.rules[index].match(name)
            if target is not None:
                return index, target
        if exact is None:
            return None, ""
        return exact, self.rules[exact].match(name) or ""
