"""``ckpt stats``: what a statistics pickle holds; the learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text

if TYPE_CHECKING:
    from ckpt_tools.ops.curves import Curve, Span

HELP = """Show what a statistics pickle holds: lists, iterations, the last and the best of each metric.

Best is the least of losses and errors, by their names, and the most of everything else; the saved checkpoint nearest to
it is named. An array (a value for each class) counts with its mean.

Examples:

  ckpt stats statistics.pkl

  ckpt stats statistics.pkl --plot curves.png --at 100000

  ckpt stats statistics.pkl --plot -
"""

_TEXT_WIDTH, _TEXT_HEIGHT = 72, 12


def stats(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A statistics pickle.")],
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The counter of the records; usually `iteration`.")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the curves: .png, .svg or .pdf (extra `plot`); - draws here."
        ),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", help="Mark where `truncate-stats --at N` would cut.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the drawing if it exists.")] = False,
    as_json: options.Json = False,
    color: options.Color = None,
    quiet: options.Quiet = False,
) -> None:
    from ckpt_tools.ops import curves as metrics
    from ckpt_tools.ops import statistics

    out = Output(as_json=as_json, color=color, quiet=quiet)
    with statistics.read(file) as read:
        out.issues(read.issues)
        key = key or read.counter()
        spans = [metrics.span_of(each, key) for each in read.lists]
        curves = metrics.curves_of(read, key)
        protocol, nbytes, twins = read.protocol, read.source.nbytes, read.twins
    rows = _rows(curves, metrics.checkpoints_beside(file))
    if as_json:
        out.json(
            {
                "schema": "ckpt.stats/1",
                "path": str(file),
                "nbytes": nbytes,
                "protocol": protocol,
                "key": key,
                "lists": [span.to_json() for span in spans],
                "metrics": rows,
                "twins": [str(twin) for twin in twins],
            }
        )
    else:
        _show(out, spans, rows)
    if plot is not None:
        _plot(out, curves, plot, at=at, key=key, overwrite=overwrite)
    if twins:
        out.note(f"{count_text(len(twins), 'time-stamped twin')} beside it")


stats.__doc__ = HELP


def _rows(curves: list[Curve], checkpoints: dict[int, Path]) -> list[dict[str, Any]]:
    from ckpt_tools.ops.curves import nearest
    from ckpt_tools.ops.listing import value_of

    rows = []
    for curve in curves:
        best = curve.best
        near = nearest(checkpoints, best[0]) if best else None
        rows.append(
            {
                "list": curve.list_name,
                "metric": curve.metric,
                "last": value_of(curve.last[1]),
                "last_iteration": curve.last[0],
                "best": best and best[1],
                "best_iteration": best and best[0],
                "less_is_better": curve.less_is_better,
                "checkpoint": str(near[1]) if near else None,
                "checkpoint_iteration": near[0] if near else None,
            }
        )
    return rows


def _show(out: Output, spans: list[Span], rows: list[dict[str, Any]]) -> None:
    lists = [
        [s.shown, s.records, _or_dash(s.first), _or_dash(s.last), s.duplicates, "; ".join(_remarks(s))] for s in spans
    ]
    shown = [
        [
            row["list"],
            row["metric"],
            _short(row["last"]),
            _short(row["best"]),
            _or_dash(row["best_iteration"]),
            _or_dash(row["checkpoint"] and Path(row["checkpoint"]).name),
        ]
        for row in rows
    ]
    if not out.table:
        out.lines(lists)
        out.lines(shown)
        return
    from ckpt_tools.cli.render import Column, draw_table

    console = out.console()
    headings = ("list", "records", "first", "last", "duplicates", "")
    draw_table(console, [Column(heading, right=heading not in ("list", "")) for heading in headings], lists)
    console.print()
    headings = ("list", "metric", "last", "best", "at", "nearest checkpoint")
    draw_table(console, [Column(heading, right=heading in ("last", "best", "at")) for heading in headings], shown)


def _remarks(span: Span) -> list[str]:
    remarks = []
    if not span.ascending:
        remarks.append("not in order")
    if span.unkeyed:
        remarks.append(f"{span.unkeyed} without a number")
    return remarks


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)


def _plot(out: Output, curves: list[Curve], target: str, *, at: int | None, key: str, overwrite: bool) -> None:
    from ckpt_tools.ops.curves import drawn_as_text

    by_metric: dict[str, list[Curve]] = {}
    for curve in curves:
        by_metric.setdefault(curve.metric, []).append(curve)
    if target != "-":
        from ckpt_tools.cli.plots import draw

        draw(by_metric, Path(target), key=key, mark=at, overwrite=overwrite)
        out.note(f"wrote {target}")
        return
    for metric, of_lists in by_metric.items():
        out.lines([[metric]])
        out.lines([line] for line in drawn_as_text(of_lists, width=_TEXT_WIDTH, height=_TEXT_HEIGHT, mark=at))
