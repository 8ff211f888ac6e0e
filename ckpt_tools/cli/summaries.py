"""Several checkpoints, a line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ckpt_tools.cli.output import Output, size_text

if TYPE_CHECKING:
    from ckpt_tools.ops.listing import Summary

_HEADINGS = ("path", "format", "iteration", "tensors", "parameters", "size", "age", "")
_NUMBERS = _HEADINGS[2:7]
#: ``59 min``: a table is as wide tomorrow as it is today.
_AGE_WIDTH = 6


def print_summaries(summaries: Iterable[Summary], out: Output) -> None:
    """A table; in a pipe tab-separated lines: path, format, iteration, tensors, parameters, bytes, age, remark."""
    rows = [_row(summary, for_people=out.table) for summary in summaries]
    if not out.table:
        out.lines(rows)
        return
    from ckpt_tools.cli.render import Column, draw_table

    columns = [Column(h, right=h in _NUMBERS, folds=h in ("path", "")) for h in _HEADINGS]
    draw_table(out.console(), columns, rows)


def _row(summary: Summary, *, for_people: bool) -> list[object]:
    remarks = [text for text in (summary.remark, summary.error) if text]
    return [
        summary.path,
        summary.format or "-",
        _number(summary.iteration, for_people=False),
        _number(summary.tensors, for_people=for_people),
        _number(summary.parameters, for_people=for_people),
        size_text(summary.nbytes) if for_people else summary.nbytes,
        _age(summary.age_seconds).rjust(_AGE_WIDTH if for_people else 0),
        "; ".join(remarks),
    ]


def _number(number: int | None, *, for_people: bool) -> str:
    if number is None:
        return "-"
    return f"{number:,}" if for_people else str(number)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
