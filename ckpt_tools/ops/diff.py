"""What differs between two comparands, why, and the rules that make A fit B.

Names are paired first (:mod:`ckpt_tools.mapping.correspondence`), then the pairs' axes, types, and, when asked, values
are compared. Weights are kept apart from optimizer state, counters and averages throughout.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise
from typing import Any

from ckpt_tools.core.keys import Globs
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.strides import row_major_strides
from ckpt_tools.core.tensors import AbsentTensor, StridedTensor, Tensor, TensorInfo
from ckpt_tools.errors import MissingBytes, UsageError
from ckpt_tools.mapping.correspondence import Correspondence, Named, correspond
from ckpt_tools.mapping.kinds import canonical, segments
from ckpt_tools.mapping.orientation import Orientation, Pair, orient
from ckpt_tools.mapping.reasons import WRITE_MAP, Reason, mapping_rules, name_reasons
from ckpt_tools.mapping.rules import MovePlan, Rule, literal, plan_moves
from ckpt_tools.mapping.transforms import Permute, Transforms, describe, shape_after
from ckpt_tools.ops.closeness import Closeness, compare, transformed
from ckpt_tools.ops.comparands import Comparand, Row
from ckpt_tools.ops.listing import digest

#: Extents of the corner of two tensors that is looked at to tell which way one of them lies.
_CORNER = 48
#: Tensors are loaded whole for that only below this.
_WHOLE_NBYTES = 16 * 1024 * 1024
#: Names that one note or reason lists.
_SHOWN = 4
#: Closest names are looked for among this many of the same ending at most, and for this many names.
_NEIGHBOURS = 64
_SUGGESTED = 400
_LIKE_ENOUGH = 0.6
#: what another shape takes off the likeness of names
_OTHER_SHAPE = 0.15
_BATCH_COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class Options:
    """What ``compare_sides`` takes into account. ``strip`` goes off the names of both sides, ``renames`` and ``rules``
    apply to A's; names that ``ignored`` lets through are left out. ``values`` compares values with ``rtol``, ``atol``."""

    strip: tuple[Rule, ...] = ()
    renames: tuple[Rule, ...] = ()
    rules: tuple[Rule, ...] = ()
    ignored: Globs | None = None
    chosen: Globs = field(default_factory=Globs)
    weights_only: bool = False
    values: bool = False
    rtol: float = 0.0
    atol: float = 0.0


@dataclass
class Lists:
    """The classes of difference, as rows for JSON and for people."""

    only_a: list[dict[str, Any]] = field(default_factory=list)
    only_b: list[dict[str, Any]] = field(default_factory=list)
    shape: list[dict[str, Any]] = field(default_factory=list)
    dtype: list[dict[str, Any]] = field(default_factory=list)
    value: list[dict[str, Any]] = field(default_factory=list)
    ambiguous: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def __bool__(self) -> bool:
        return any(vars(self).values())


@dataclass
class Difference:
    """The answer. ``equal`` is under the options given; ``paired`` counts weights that have a partner; ``moved`` are
    layers with how far their values moved, the farthest first."""

    a: str
    b: str
    reasons: list[Reason]
    weights: Lists
    optimizer: Lists
    notes: list[str]
    paired: int
    moved: list[tuple[str, float]]
    _make_rules: Callable[[], tuple[Rule, ...]] = field(repr=False)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """What takes A's names and layouts to B's; none when nothing systematic stands between them."""
        return self._make_rules() if self.reasons else ()

    @property
    def equal(self) -> bool:
        return not self.reasons and not self.weights and not self.optimizer

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "ckpt.diff/1",
            "equal": self.equal,
            "a": self.a,
            "b": self.b,
            "reasons": [{"kind": r.kind, "text": r.text, "option": r.option} for r in self.reasons],
            **self.weights.to_json(),
            "optimizer": self.optimizer.to_json(),
            "notes": self.notes,
            "map": [_rule_row(rule) for rule in self.rules],
            "paired": self.paired,
            "moved": [{"layer": layer, "relative": _number(amount)} for layer, amount in self.moved],
        }


def _rule_row(rule: Rule) -> dict[str, Any]:
    row: dict[str, Any] = {"from": rule.source}
    row |= {"drop": True} if rule.target is None else {"to": rule.target}
    row |= {"transform": describe(rule.transforms)} if rule.transforms else {}
    row |= {"goes-on": True} if rule.goes_on else {}
    return row


def compare_sides(
    a: Comparand, b: Comparand, options: Options, progress: Callable[[int], None] | None = None
) -> Difference:
    """Compare two comparands. UsageError when the renaming makes names equal or a prefix to strip is nowhere."""
    return _Comparison(a, b, options, progress).run()


def values_nbytes(a: Comparand, b: Comparand) -> int:
    """Bytes that comparing all values reads, for progress."""
    return sum(row.tensor.nbytes for side in (a, b) for row in side.rows if row.tensor is not None)


class _Comparison:
    """One run. Positions are those of ``rows_a`` and ``rows_b``, what is left of either side after selection."""

    def __init__(self, a: Comparand, b: Comparand, options: Options, progress: Callable[[int], None] | None) -> None:
        self.a, self.b, self.options, self.progress = a, b, options, progress
        self.notes: list[str] = []
        self.weights, self.optimizer = Lists(), Lists()
        self.rows_a, self.plan = self._moved(a, (options.strip, options.renames, options.rules))
        self.rows_b, plan_b = self._moved(b, (options.strip,))
        self._report_unused(plan_b)
        self.names_a = [move.target for move in self.plan.moves]
        self.names_b = [move.target for move in plan_b.moves]
        self.given = [move.transforms for move in self.plan.moves]
        #: names of A that are second names of tensors which have a partner under their first
        self.repeated: list[str] = []

    def _moved(self, side: Comparand, stages: Sequence[Sequence[Rule]]) -> tuple[list[Row], MovePlan]:
        """The rows that take part, and their names after the rules of the command line."""
        rows = [row for row in side.rows if self._takes_part(row)]
        plan = plan_moves([row.name for row in rows], *stages)
        plan.refuse_collisions()
        broken = plan.broken_expectations({row.name: (row.dtype, row.shape) for row in rows})
        if broken:
            raise UsageError("; ".join(broken[:_SHOWN]), where=side.label)
        dropped = {move.source for move in plan.drops}
        return [row for row in rows if row.name not in dropped], plan

    def _takes_part(self, row: Row) -> bool:
        ignored = self.options.ignored
        if not self.options.chosen(row.name) or (ignored is not None and ignored(row.name)):
            return False
        return row.role is Role.WEIGHT or not self.options.weights_only

    def _report_unused(self, plan_b: MovePlan) -> None:
        unused_b = set(plan_b.unused)
        for rule in self.plan.unused:
            if rule in self.options.strip:
                if rule in unused_b:
                    raise UsageError(f"no name on either side begins with {rule.source.removesuffix('{rest:any}')!r}")
            else:
                hint = "" if rule.exact is None else "; a pattern matches whole names, '*' stands for any text"
                self.notes.append(f"the rule {rule} matches nothing{hint}")

    def run(self) -> Difference:
        found, naming_a, naming_b = self._paired()
        named_a, named_b = _named(self.rows_a, self.names_a, naming_a), _named(self.rows_b, self.names_b, naming_b)
        levels = (self.a.levels, self.b.levels)
        reasons = name_reasons(found, named_a, named_b, a_levels=levels[0], b_levels=levels[1])
        for mine, side, other, naming in ((self.a, "A", "B", naming_a), (self.b, "B", "A", naming_b)):
            text = f"{other} has the {_NAMINGS.get(naming, naming)} of {side}'s tensors"
            if naming and mine.is_model:  # a model has no one name for its tensors: that is how this format calls them
                self.notes.append(text)
            elif naming:
                reasons.insert(0, Reason("naming", text, WRITE_MAP))
        if found.undecided:
            places = ", ".join(repr(place.rstrip(".")) for place in found.undecided)
            self.notes.append(
                f"the names fit equally well under each of {places}; say which by --root or --strip-prefix"
            )
        transforms = self._orient(found)
        reasons += self._layout_reasons(found, transforms)
        squares = self._compare_pairs(found, transforms)
        reasons += self._leftovers(found)
        self._note_order(found)
        self._note_sharing(found)
        self._compare_scalars()
        weights = sum(self.rows_a[i].role is Role.WEIGHT for i, _ in found.pairs)
        return Difference(
            self.a.label,
            self.b.label,
            reasons,
            self.weights,
            self.optimizer,
            self.notes,
            weights,
            _farthest(squares),
            lambda: self._rules(found, transforms),
        )

    # ---- names

    def _paired(self) -> tuple[Correspondence, str, str]:
        """The pairs under the names as they are, or, where those leave both sides with weights that have no partner,
        under the other names one side has for them, if that pairs more."""
        best: tuple[int, Correspondence, str, str] | None = None
        for naming_a, naming_b in self._namings():
            found = correspond(
                _named(self.rows_a, self.names_a, naming_a),
                _named(self.rows_b, self.names_b, naming_b),
                a_levels=self.a.levels,
                b_levels=self.b.levels,
            )
            count = sum(
                self.rows_a[i].role is Role.WEIGHT
                # names of another kind have to be borne out by the shapes
                and (not (naming_a or naming_b) or sorted(self.rows_a[i].shape) == sorted(self.rows_b[j].shape))
                for i, j in found.pairs
            )
            if best is None or count > best[0]:
                best = (count, found, naming_a, naming_b)
            if count >= min(_weights(self.rows_a), _weights(self.rows_b)):
                break
        assert best is not None
        return best[1:]

    def _namings(self) -> list[tuple[str, str]]:
        ours = ["", *dict.fromkeys(kind for row in self.rows_a for kind in row.other_names)]
        theirs = ["", *dict.fromkeys(kind for row in self.rows_b for kind in row.other_names)]
        return [(one, other) for one in ours for other in theirs if not (one and other)]

    # ---- axes

    def _orient(self, found: Correspondence) -> dict[tuple[int, int], Orientation]:
        open_pairs = [pair for pair in found.pairs if not self.given[pair[0]]]
        shapes = [
            Pair(self.rows_a[i].shape, self.rows_b[j].shape, self.rows_a[i].layer, self.rows_b[j].layer)
            for i, j in open_pairs
        ]
        oriented = orient(
            shapes, self.a.family, self.b.family, lambda index, steps: self._look(open_pairs[index], steps)
        )
        result = dict(zip(open_pairs, oriented))
        for pair in found.pairs:
            if pair not in result:
                steps = self.given[pair[0]]
                reached = shape_after(steps, self.rows_a[pair[0]].shape)
                result[pair] = Orientation(steps, reached == self.rows_b[pair[1]].shape, decided_by="map")
        for (i, j), each in result.items():
            if each.ambiguous:
                row = {"name": self.rows_a[i].name, "name_b": self.rows_b[j].name, "shape": list(self.rows_a[i].shape)}
                why = f"{self.a.family} and {self.b.family} store a Linear transposed, an Embedding not"
                self._lists(i, j).ambiguous.append({**row, "why": why})
        return result

    def _look(self, pair: tuple[int, int], steps: Transforms) -> bool | None:
        """Which way values lie, where both sides can be looked at."""
        ours, theirs = self.rows_a[pair[0]], self.rows_b[pair[1]]
        if ours.tensor is None or isinstance(ours.tensor, AbsentTensor):
            return None
        try:
            if theirs.sha256 is not None:
                as_is, turned = (digest(transformed(ours.tensor, s)) == theirs.sha256 for s in ((), steps))
            elif theirs.tensor is None or isinstance(theirs.tensor, AbsentTensor):
                return None
            else:
                as_is = _alike(ours.tensor, theirs.tensor, ())
                turned = _alike(ours.tensor, theirs.tensor, steps)
        except MissingBytes:
            return None
        return None if as_is == turned else turned

    def _layout_reasons(self, found: Correspondence, oriented: Mapping[tuple[int, int], Orientation]) -> list[Reason]:
        groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for i, j in found.pairs:
            each = oriented[i, j]
            if each.steps and each.fits and each.decided_by != "map":
                layer = Pair((), (), self.rows_a[i].layer, self.rows_b[j].layer).layer
                groups[layer.kind, describe(each.steps), each.decided_by].append(self.rows_a[i].name)
        reasons = []
        for (kind, steps, decided_by), names in groups.items():
            what = f"{kind} weights" if kind else "matrices"
            only = f"{what[:-1] if kind else 'matrix'}" if len(names) == 1 else what
            how = "transposed" if steps == "permute(1, 0)" else f"in another layout, {steps}"
            by = {"shape": "by their shapes", "kind": "by the kind of layer", "values": "by their values"}[decided_by]
            text = f"{len(names)} {only} of A {'is' if len(names) == 1 else 'are'} B's {how} ({by}): {_some(names)}"
            reasons.append(Reason("layout", text, WRITE_MAP))
        return reasons

    # ---- pairs

    def _lists(self, i: int | None, j: int | None) -> Lists:
        row = self.rows_a[i] if i is not None else self.rows_b[j or 0]
        return self.weights if row.role is Role.WEIGHT else self.optimizer

    def _compare_pairs(
        self, found: Correspondence, oriented: Mapping[tuple[int, int], Orientation]
    ) -> dict[str, list[float]]:
        """Shapes, types and values; the sums of squares (of differences, of values) by layer."""
        squares: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        zero_signs = compared = 0
        for i, j in found.pairs:
            ours, theirs, lists = self.rows_a[i], self.rows_b[j], self._lists(i, j)
            names: dict[str, Any] = {"name": ours.name}
            if theirs.name != ours.name:
                names["name_b"] = theirs.name
            if not oriented[i, j].fits:
                lists.shape.append(
                    names | {"a": list(ours.shape), "b": list(theirs.shape), "note": _misfit(ours, theirs)}
                )
            if ours.dtype != theirs.dtype and ours.dtype and theirs.dtype:
                lists.dtype.append(names | {"a": ours.dtype, "b": theirs.dtype})
            if self.options.values and oriented[i, j].fits and not oriented[i, j].ambiguous:
                result = self._closeness(ours, theirs, oriented[i, j].steps)
                if result is None:
                    continue
                compared += 1
                zero_signs += result.zero_signs
                if result.state == "differ" or (result.state == "close" and result.differing):
                    layer = "/".join(segments(ours.name)[:-1]) or ours.name
                    if ours.role is Role.WEIGHT:
                        squares[layer][0] += math.inf if result.relative == math.inf else result.squares
                        squares[layer][1] += result.base_squares
                if result.state == "differ":
                    lists.value.append(names | _value_row(result))
        if self.options.values:
            self.notes.append(
                f"{compared} tensor{'' if compared == 1 else 's'} compared by value; NaN equals NaN, 0.0 equals -0.0"
            )
            if zero_signs:
                self.notes.append(
                    f"0.0 on one side and -0.0 on the other, {zero_signs} times: equal, though not the same bits"
                )
        return squares

    def _closeness(self, ours: Row, theirs: Row, steps: Transforms) -> Closeness | None:
        try:
            if ours.tensor is not None and theirs.tensor is not None:
                options = self.options
                return compare(
                    ours.tensor, theirs.tensor, steps, rtol=options.rtol, atol=options.atol, progress=self.progress
                )
            one, other = (ours, theirs) if ours.tensor is not None else (theirs, ours)
            known = other.sha256
            if known is None:
                return None
            mine = one.sha256 if one.tensor is None else digest(transformed(one.tensor, steps), self.progress)
        except MissingBytes:
            for row in (ours, theirs):
                if isinstance(row.tensor, AbsentTensor) and not row.tensor.by_design:
                    raise
            return None
        same = mine == known
        return Closeness("equal" if same else "differ", differing=0 if same else None)

    # ---- what has no partner

    def _leftovers(self, found: Correspondence) -> list[Reason]:
        paired_a, paired_b = {i for i, _ in found.pairs}, {j for _, j in found.pairs}
        left_a = [i for i in range(len(self.rows_a)) if i not in paired_a]
        left_b = [j for j in range(len(self.rows_b)) if j not in paired_b]
        reasons: list[Reason] = []
        left_a, left_b = self._take_packed_attention(left_a, left_b, reasons)
        left_a = self._set_aside(left_a, self.rows_a, {self.rows_a[i].name for i in paired_a}, "A", self.b, reasons)
        left_b = self._set_aside(left_b, self.rows_b, {self.rows_b[j].name for j in paired_b}, "B", self.a, reasons)
        nearest_a = _nearest([self.rows_a[i] for i in left_a], [self.rows_b[j] for j in left_b])
        nearest_b = {near: name for name, near in nearest_a.items()}
        for i in left_a:
            self._lists(i, None).only_a.append(_row(self.rows_a[i], nearest_a))
        for j in left_b:
            self._lists(None, j).only_b.append(_row(self.rows_b[j], nearest_b))
        return reasons

    def _take_packed_attention(
        self, left_a: list[int], left_b: list[int], reasons: list[Reason]
    ) -> tuple[list[int], list[int]]:
        """Take out torch's packed attention projections and the three of the other side that they stand for."""
        names_a = {self.names_a[i]: i for i in left_a}
        names_b = {self.names_b[j]: j for j in left_b}
        taken_a: set[int] = set()
        taken_b: set[int] = set()
        packs: list[str] = []
        for one, taken, other, taken_parts in (
            (names_a, taken_a, names_b, taken_b),
            (names_b, taken_b, names_a, taken_a),
        ):
            for name, index in one.items():
                layer, pack, part = name.rpartition("in_proj_")
                wanted = [f"{layer}{projection}_proj.{part}" for projection in "qkv"]
                if pack and all(each in other for each in wanted):
                    packs.append(name)
                    taken.add(index)
                    taken_parts.update(other[each] for each in wanted)
        if packs:
            text = f"query, key and value projections are one tensor on one side, three on the other: {_some(packs)}"
            reasons.append(Reason("attention", text))
        return [i for i in left_a if i not in taken_a], [j for j in left_b if j not in taken_b]

    def _set_aside(
        self, left: list[int], rows: Sequence[Row], paired: set[str], side: str, other: Comparand, reasons: list[Reason]
    ) -> list[int]:
        """Take out of ``left`` what is no difference, or has a reason of its own."""
        mine = self.a if side == "A" else self.b
        kept: list[int] = []
        aside: Counter[tuple[Role, str]] = Counter()
        repeats: list[tuple[str, str]] = []
        second_biases: list[str] = []
        explained = set(paired)
        for index in left:
            row = rows[index]
            why = self._why_private(row, mine, other)
            if why:
                aside[row.role, why] += 1
            elif row.same_as is not None and row.same_as in explained:
                repeats.append((row.name, row.same_as))
            elif other.family == "keras" and row.name.replace("bias_hh", "bias_ih") in paired - {row.name}:
                second_biases.append(row.name)
                explained.add(row.name)
            else:
                kept.append(index)
        for (role, why), count in aside.items():
            tensors = "1 tensor is" if count == 1 else f"{count} tensors are"
            self.notes.append(f"left out of {side}: {tensors} {role.value}, {why}")
        if second_biases:
            names = "1 name" if len(second_biases) == 1 else f"{len(second_biases)} names"
            text = (
                f"Keras has one recurrent bias where {side} has two: {names} without a partner ({_some(second_biases)})"
            )
            reasons.append(Reason("recurrent-bias", text))
        if repeats:
            shown = _some([f"{name} is {first}" for name, first in repeats])
            names = "1 name" if len(repeats) == 1 else f"{len(repeats)} names"
            text = f"{names} of {side} only are second names of tensors that both have: {shown}"
            if mine.family == "paddle":  # which lists every recurrent tensor twice, and takes either
                self.notes.append(text)
            else:
                reasons.append(Reason("alias", text, WRITE_MAP if side == "A" else "--ignore GLOB"))
            if side == "A":
                self.repeated = [name for name, _ in repeats]
        return kept

    @staticmethod
    def _why_private(row: Row, mine: Comparand, other: Comparand) -> str:
        """Why a tensor without a partner is no difference; "" when it is one. Batch counters belong to torch only,
        random states to the process that ran, and a model has nothing of an optimizer."""
        if row.role is Role.WEIGHT:
            return ""
        is_batch_counter = segments(row.name)[-1] == _BATCH_COUNTER
        if (
            mine.family != other.family
            and mine.family
            and other.family
            and (is_batch_counter or row.role is Role.OTHER)
        ):
            return f"{other.family} has none"
        if other.is_model and not is_batch_counter:
            return "a model has none"
        return "a file of weights has none" if mine.is_model and row.role is Role.OTHER else ""

    # ---- notes

    def _note_order(self, found: Correspondence) -> None:
        if self.a.is_model or self.b.is_model:
            return
        partners = [j for i, j in found.pairs if self.rows_a[i].role is Role.WEIGHT]
        if any(later < earlier for earlier, later in pairwise(partners)):
            self.notes.append("the order of the names differs")

    def _note_sharing(self, found: Correspondence) -> None:
        if self.a.is_model or self.b.is_model:
            return
        tied: dict[str, list[str]] = defaultdict(list)
        for i, j in found.pairs:
            ours, theirs = self.rows_a[i], self.rows_b[j]
            if (ours.same_as is None) != (theirs.same_as is None):
                side, row = ("A", ours) if ours.same_as else ("B", theirs)
                tied[side].append(f"{row.name} with {row.same_as}")
        for side, names in tied.items():
            self.notes.append(f"shared in {side} only: {_some(names)}")

    def _compare_scalars(self) -> None:
        if self.a.is_model or self.b.is_model:
            return
        takes = self.options.chosen
        ignored = self.options.ignored
        rows = []
        for name in [*self.a.values, *(name for name in self.b.values if name not in self.a.values)]:
            ours, theirs = self.a.values.get(name), self.b.values.get(name)
            if ours != theirs and takes(name) and not (ignored is not None and ignored(name)):
                rows.append({"name": name, "a": _value(ours), "b": _value(theirs)})
        if not rows:
            return
        if self.options.values and not self.options.weights_only:
            self.optimizer.value += rows
        else:
            names = _some([str(row["name"]) for row in rows])
            what = (
                "1 value that is no tensor differs"
                if len(rows) == 1
                else f"{len(rows)} values that are no tensors differ"
            )
            self.notes.append(f"{what} ({names}); such count under --values")

    # ---- rules

    def _rules(self, found: Correspondence, oriented: Mapping[tuple[int, int], Orientation]) -> tuple[Rule, ...]:
        """Rules from A's own names to B's; what the command line renamed already is part of them."""
        named_a, named_b = _named(self.rows_a, None, ""), _named(self.rows_b, None, "")
        steps = {pair: each.steps for pair, each in oriented.items() if each.fits and each.steps}
        drops = [Rule(literal(name), None, why="a second name") for name in self.repeated]
        return mapping_rules(found, named_a, named_b, steps, drops)


_NAMINGS = {
    "file": "second names (variable names of the format)",
    "variable": "variable names",
    "object": "object paths",
    "group": "group paths",
    "attribute": "attributes",
}


def _named(rows: Sequence[Row], names: Sequence[str] | None, naming: str) -> list[Named]:
    """Rows for pairing, under their own names or those of another kind; a name that two rows have is no name."""
    own = [row.name for row in rows] if names is None else names
    if naming:
        others = [row.other_names.get(naming) for row in rows]
        counts = Counter(others)
        own = [other if other is not None and counts[other] == 1 else name for other, name in zip(others, own)]
    return [Named(name, row.shape, row.layer, row.role is Role.WEIGHT) for name, row in zip(own, rows)]


def _weights(rows: Iterable[Row]) -> int:
    return sum(row.role is Role.WEIGHT for row in rows)


def _row(row: Row, nearest: Mapping[str, str]) -> dict[str, Any]:
    found = {"name": row.name, "dtype": row.dtype, "shape": list(row.shape), "role": row.role.value}
    return found | ({"nearest": nearest[row.name]} if row.name in nearest else {})


def _value_row(result: Closeness) -> dict[str, Any]:
    row: dict[str, Any] = {"state": result.state, "count": result.count, "differing": result.differing}
    if result.max_abs is not None:
        row |= {
            "max_abs": _number(result.max_abs),
            "at": None if result.at is None else list(result.at),
            "relative": _number(result.relative),
        }
    if result.nan_on_one_side:
        row["nan_on_one_side"] = result.nan_on_one_side
    return row


def _number(value: float | None) -> float | str | None:
    """A number as JSON can hold it."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity"


def _value(found: tuple[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {"type": found[0], "value": found[1]}


def _misfit(ours: Row, theirs: Row) -> str | None:
    if len(ours.shape) == 2 and ours.shape == theirs.shape[::-1]:
        same = None
        if ours.tensor is not None and theirs.tensor is not None:
            try:
                same = _alike(ours.tensor, theirs.tensor, (Permute((1, 0)),))
            except MissingBytes:
                same = None
        return "transposed values" if same else "the reverse shape"
    part = canonical(ours.name, ours.layer)[-1]
    if part.startswith("bias_ih") and {len(ours.shape), len(theirs.shape)} == {1, 2}:
        return "Keras keeps both biases of a GRU in one tensor"
    if sorted(extent for extent in ours.shape if extent != 1) == sorted(e for e in theirs.shape if e != 1):
        return "as many elements, in another shape"
    return None


def _alike(a: Tensor, b: Tensor, steps: Transforms) -> bool:
    """Whether the values of a corner of ``a``, after ``steps``, are those of ``b``: to tell layouts apart."""
    if all(isinstance(step, Permute) for step in steps):
        turned = transformed(a, steps)
        a, b = _corner(turned), _corner(b)
    elif max(a.nbytes, b.nbytes) > _WHOLE_NBYTES:
        return False
    else:
        a = transformed(a, steps)
    if a.info.shape != b.info.shape:
        return False
    loose = a.info.dtype != b.info.dtype
    return compare(a, b, rtol=1e-2 if loose else 0.0, atol=1e-6 if loose else 0.0).state != "differ"


def _corner(tensor: Tensor) -> Tensor:
    """The first elements along each axis; the tensor itself where it is no view of a storage and small."""
    if not isinstance(tensor, StridedTensor):
        return tensor
    strides = tensor.strides or row_major_strides(tensor.info.shape)
    info = TensorInfo(tensor.info.dtype, tuple(min(extent, _CORNER) for extent in tensor.info.shape))
    return StridedTensor(info, tensor.storage, tensor.offset, strides, conj=tensor.conj, neg=tensor.neg)


def _nearest(left: Sequence[Row], right: Sequence[Row]) -> dict[str, str]:
    """For names without a partner the most similar one of the other side that has the same ending or shape."""
    by_end: dict[object, list[Row]] = defaultdict(list)
    for row in right:
        by_end[canonical(row.name, row.layer)[-1]].append(row)
        by_end[row.shape].append(row)
    found: dict[str, str] = {}
    for row in left[:_SUGGESTED]:
        near = [*by_end[canonical(row.name, row.layer)[-1]][:_NEIGHBOURS], *by_end[row.shape][:_NEIGHBOURS]]
        scored = [(_likeness(row, other), other.name) for other in near]
        score, name = max(scored, default=(0.0, ""))
        if score >= _LIKE_ENOUGH:
            found[row.name] = name
    return found


def _likeness(ours: Row, theirs: Row) -> float:
    """How much two names are alike, apart from an ending that they share: ``q.weight`` is not like ``z.weight``."""
    path, end = segments(ours.name)[:-1], segments(ours.name)[-1]
    other, other_end = segments(theirs.name)[:-1], segments(theirs.name)[-1]
    if end != other_end or not path or not other:
        path, other = [*path, end], [*other, other_end]
    ratio = SequenceMatcher(None, ".".join(path), ".".join(other), autojunk=False).ratio()
    return ratio if ours.shape == theirs.shape else ratio - _OTHER_SHAPE


def _farthest(squares: Mapping[str, Sequence[float]]) -> list[tuple[str, float]]:
    """Layers with the norm of their change by the norm of their values, the largest first."""
    moved = [
        (layer, math.sqrt(change / base) if base else math.inf) for layer, (change, base) in squares.items() if change
    ]
    return sorted(moved, key=lambda each: -each[1])


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
