"""One listed checkpoint: a table or a tree for people, tab-separated lines for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ckpt_tools.cli.output import Output, count_text, shape_text, size_text

if TYPE_CHECKING:
    from ckpt_tools.core.checkpoint import Entry
    from ckpt_tools.ops.listing import Group, Listing, Totals

#: Digits of a digest in a table; lines and JSON have all of them.
_SHOWN_DIGEST = 16
#: Characters of a value in a table, where names and shapes need the room.
_SHOWN_VALUE = 60
#: Plain values numbered in a row that get a line each in a table; longer runs (states of random generators, losses of
#: every epoch) share one.
_LONGEST_RUN = 10
_VALUES_OF_A_RUN = 3
#: Of stored bytes: views of all but a few elements are no surprise, those of a few rows of a batch are.
_TOLD_SHARE = 0.5


class Sort(str, Enum):
    """Orders of ``--sort``."""

    file = "file"
    name = "name"
    size = "size"


@dataclass(frozen=True)
class View:
    """How a listing is shown."""

    tree: bool
    sort: Sort
    depth: int | None
    verbose: bool

    def show(self, result: Listing, out: Output, *, titled: bool) -> None:
        """Print a listing, and its issues on stderr. ``titled``: it is one of several."""
        shown = result.checkpoint.location.shown
        if out.table:
            self._draw(result, out)
        else:
            if titled:
                out.lines([[f"# {shown}"]])
            if self.tree:
                self._draw_tree(result, out)
            else:
                out.lines(list(self._lines(result)))
        remarks = [_stored_remark(result.totals)]
        if not result.entries and result.checkpoint.entries:
            remarks.append("none of the names is asked for")
        for remark in filter(None, remarks):
            if not out.quiet:
                out.note(f"note: {shown}: {remark}")
        out.issues(result.issues)

    def _entries(self, result: Listing) -> list[Entry]:
        from ckpt_tools.core.keys import natural_order

        if self.sort is Sort.name:
            return sorted(result.entries, key=lambda e: natural_order(e.name))
        if self.sort is Sort.size:
            return sorted(result.entries, key=lambda e: -e.node.nbytes if e.is_tensor else 1)
        return result.entries

    def _groups(self, result: Listing, depth: int) -> list[Group]:
        from ckpt_tools.core.keys import natural_order

        groups = result.groups(depth)
        if self.sort is Sort.name:
            return sorted(groups, key=lambda g: natural_order(g.name))
        if self.sort is Sort.size:
            return sorted(groups, key=lambda g: -g.totals.nbytes)
        return groups

    def _lines(self, result: Listing) -> Iterator[list[object]]:
        """Columns name, dtype, shape, bytes, then what was asked for; of a value: name, type, ``= value``.

        With ``depth`` the columns name, tensors, parameters, bytes.
        """
        if self.depth is not None:
            for group in self._groups(result, self.depth):
                yield [group.name, group.totals.tensors, group.totals.parameters, group.totals.nbytes]
            return
        for entry in self._entries(result):
            if entry.is_tensor:
                info = entry.node.info
                row: list[object] = [entry.name, info.dtype.name, shape_text(info.shape), entry.node.nbytes]
            else:
                row = [entry.name, _type(entry), f"= {_value(entry)}", ""]
            row += _asked(entry, result)
            if self.verbose:
                row.append(_remarks(entry, result))
            yield row

    def _draw(self, result: Listing, out: Output) -> None:
        from ckpt_tools.cli.render import cell

        console = out.console()
        checkpoint = result.checkpoint
        title = cell(checkpoint.location.shown, "bold")
        told = ", ".join(filter(None, [checkpoint.format, checkpoint.producer, size_text(checkpoint.nbytes)]))
        console.print(title.append_text(cell(f"  {told}", "not bold dim")), soft_wrap=True)
        if self.verbose:
            for name, fact in checkpoint.facts.items():
                console.print(cell(f"  {name}: {fact}", "dim"), soft_wrap=True)
        if self.tree:
            self._draw_tree(result, out)
        elif self.depth is not None:
            self._draw_groups(result, self.depth, out)
        else:
            self._draw_entries(result, out)
        console.print()
        nested = self.depth is None and any(len(entry.key) > 1 for entry in result.entries)
        for group in result.groups(1) if nested else []:
            line = cell(f"  {group.name}", "bold").append_text(cell(f": {_totals_text(group.totals)}", "not bold dim"))
            console.print(line, soft_wrap=True)
        console.print(cell(_totals_text(result.totals), "bold"), soft_wrap=True)

    def _draw_tree(self, result: Listing, out: Output) -> None:
        from ckpt_tools.cli.render import draw_tree

        rows: Iterator[tuple[tuple[str | int, ...], str]]
        if self.depth is not None:
            rows = ((group.parts, _totals_text(group.totals)) for group in self._groups(result, self.depth))
        else:
            rows = ((entry.key or (entry.name,), _leaf_text(entry, result)) for entry in self._entries(result))
        draw_tree(out.console(), result.checkpoint.location.path.name, rows)

    def _draw_groups(self, result: Listing, depth: int, out: Output) -> None:
        from ckpt_tools.cli.render import Column, draw_table

        headings = ("tensors", "parameters", "size")
        rows = [
            [g.name, f"{g.totals.tensors:,}", f"{g.totals.parameters:,}", size_text(g.totals.nbytes)]
            for g in self._groups(result, depth)
        ]
        draw_table(out.console(), [Column("part", folds=True), *(Column(h, right=True) for h in headings)], rows)

    def _draw_entries(self, result: Listing, out: Output) -> None:
        from ckpt_tools.cli.render import Column, cell, draw_table

        asked = [Column("sha256")] if result.digests is not None else []
        if result.numbers is not None:
            asked += [Column(name, right=True) for name in ("min", "max", "mean", "std", "nan", "inf")]
        rows: list[list[object]] = []
        for run in self._runs(self._entries(result)):
            entry = run[0]
            if entry.is_tensor:
                info = entry.node.info
                columns: list[object] = [shape_text(info.shape), size_text(entry.node.nbytes)]
                numbers = _asked(entry, result, digits=_SHOWN_DIGEST)
                name, kind = entry.name, cell(info.dtype.name, "cyan")
                remark = cell(_remarks(entry, result), "dim")
            else:
                columns, numbers = ["", ""], [""] * len(asked)
                name = entry.name if len(run) == 1 else f"{entry.name} … {run[-1].key[-1]}"
                kind = cell(_type(entry), "dim")
                remark = cell(self._shortened(run))
            rows.append([name, kind, *columns, *numbers, remark])
        columns_before = [Column("name", folds=True), Column("dtype"), Column("shape"), Column("size", right=True)]
        draw_table(out.console(), [*columns_before, *asked, Column("", folds=True)], rows)

    def _runs(self, entries: list[Entry]) -> Iterator[list[Entry]]:
        """The entries, each alone; but long runs of plain values under one key together, unless all was asked for."""
        for holder, group in groupby(entries, key=_holder_of_plain):
            run = list(group)
            if holder is not None and len(run) > _LONGEST_RUN and not self.verbose:
                yield run
            else:
                yield from ([entry] for entry in run)

    def _shortened(self, run: list[Entry]) -> str:
        if len(run) > 1:
            values = ", ".join(str(_value(entry)) for entry in run[:_VALUES_OF_A_RUN])
            return f"= {values}, … ({len(run)} values)"
        text = str(_value(run[0]))
        if len(text) <= _SHOWN_VALUE or self.verbose:
            return f"= {text}"
        return f"= {text[:_SHOWN_VALUE]}… ({len(text):,} characters)"


def _holder_of_plain(entry: Entry) -> tuple[Any, ...] | None:
    """What numbers a plain value among others of its type; None for everything else."""
    plain = type(entry.node) in (int, float, bool) and len(entry.key) > 1 and type(entry.key[-1]) is int
    return (entry.key[:-1], type(entry.node)) if plain else None


def _type(entry: Entry) -> str:
    from ckpt_tools.ops.listing import type_of

    return type_of(entry.node)


def _value(entry: Entry) -> Any:
    from ckpt_tools.ops.listing import value_of

    return value_of(entry.node)


def _asked(entry: Entry, result: Listing, *, digits: int | None = None) -> list[str]:
    """The digest (its first ``digits``) and the numbers that were asked for: ``-`` where a tensor has none, nothing for a value."""
    columns = []
    absent = "-" if entry.is_tensor else ""
    if result.digests is not None:
        columns.append((result.digests.get(entry.name) or absent)[:digits])
    if result.numbers is not None:
        numbers = result.numbers.get(entry.name)
        columns += [_short(v) for v in numbers.to_json().values()] if numbers else [absent] * 6
    return columns


def _short(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _remarks(entry: Entry, result: Listing) -> str:
    """A tensor's second name if that tells more than its name does, whom it shares bytes with, what it is."""
    if not entry.is_tensor:
        return ""
    alias = entry.node.alias
    told = alias if alias is not None and str(entry.key[-1] if entry.key else "") != alias else None
    return "; ".join(remark for remark in (told, result.shares.get(entry.name), entry.node.note) if remark)


def _leaf_text(entry: Entry, result: Listing) -> str:
    if not entry.is_tensor:
        return f"{_type(entry)} = {_value(entry)}"
    info = entry.node.info
    return "  ".join(
        [f"{info.dtype.name} {shape_text(info.shape)} {size_text(entry.node.nbytes)}", *_asked(entry, result)]
    )


def _totals_text(totals: Totals) -> str:
    return (
        f"{count_text(totals.tensors, 'tensor')}, {count_text(totals.parameters, 'parameter')},"
        f" {size_text(totals.nbytes)}"
    )


def _stored_remark(totals: Totals) -> str | None:
    stored, viewed = totals.stored_nbytes, totals.viewed_nbytes
    if viewed > _TOLD_SHARE * stored or not stored:
        return None
    share = f"{100 * viewed / stored:.3g} %"
    return f"{size_text(stored)} are stored, {share} of it is used: views keep the whole of what they were cut from"
