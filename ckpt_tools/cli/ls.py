"""``ckpt ls``: names, dtypes, shapes and sizes of everything in a checkpoint; one line each for many."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text, shape_text, size_text

if TYPE_CHECKING:
    from ckpt_tools.core.checkpoint import Entry
    from ckpt_tools.ops.listing import Listing, Summary

HELP = """List names, dtypes, shapes and sizes of everything in checkpoints.

Structure only: no tensor is loaded, no framework imported, nothing in the file executed. PATH is a file, a directory,
a TensorFlow prefix (ckpt-5), or any member of such a family. A directory with several checkpoints gives a line each.

Examples:

  ckpt ls snapshot_iter_76000.pdz

  ckpt ls 100000_iterations.pth --match 'conv*' --sort size

  ckpt ls training_checkpoints/ckpt-5 --json --digest > ckpt-5.manifest.json
"""


class Sort(str, Enum):
    """Orders of ``--sort``."""

    file = "file"
    name = "name"
    size = "size"


def ls(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, directories or TensorFlow prefixes.")],
    as_json: options.Json = False,
    match: options.Match = [],
    exclude: options.Exclude = [],
    root: options.Root = None,
    tree: Annotated[bool, typer.Option("--tree", help="Draw the names as a tree.")] = False,
    sort: Annotated[Sort, typer.Option("--sort", help="Order of the tensors.")] = Sort.file,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, metavar="N", help="Sums of names up to N parts instead of tensors.")
    ] = None,
    digest: Annotated[bool, typer.Option("--digest", help="SHA-256 of every tensor's values; reads them.")] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Minimum, maximum, mean, deviation, NaN and Inf; reads them.")
    ] = False,
    format: options.FormatName = None,
    color: options.Color = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    from ckpt_tools.cli.boundary import report
    from ckpt_tools.core.keys import Globs
    from ckpt_tools.errors import CkptError
    from ckpt_tools.ops import listing

    out = Output(as_json=as_json, color=color, quiet=quiet)
    globs = Globs(match, exclude)
    documents: list[dict[str, Any]] = []
    code = 0
    for path in paths:
        try:
            found = listing.find(path, format)
            if len(found) > 1 and not as_json:
                code = max(code, _summaries(out, found))
                continue
            for location, row in found:
                with listing.opened(location, row) as checkpoint:
                    with out.progress(
                        str(path), listing.values_nbytes(checkpoint) if digest or stats else 0
                    ) as progress:
                        result = listing.make(
                            checkpoint, globs, root=root, digests=digest, stats=stats, progress=progress
                        )
                    code = max(code, 4 if result.bytes_missing else 0)
                    if as_json:
                        documents.append(result.to_json())
                    elif out.table:
                        _draw(out, result, tree=tree, sort=sort, depth=depth, verbose=verbose)
                    else:
                        if len(paths) > 1:
                            out.lines([[f"# {location.shown}"]])
                        out.lines(_lines(result, sort=sort, depth=depth))
                    if not as_json:
                        out.issues(result.issues)
        except CkptError as error:
            if len(paths) == 1:
                raise
            report(error)
            code = max(code, error.exit_code)
    if as_json:
        out.json({"schema": "ckpt.ls/1", "checkpoints": documents})
    return code


ls.__doc__ = HELP


def _sorted(entries: list[Entry], sort: Sort) -> list[Entry]:
    from ckpt_tools.core.keys import natural_order

    if sort is Sort.name:
        return sorted(entries, key=lambda e: natural_order(e.name))
    if sort is Sort.size:
        return sorted(entries, key=lambda e: -e.node.nbytes if e.is_tensor else 1)
    return entries


def _lines(result: Listing, *, sort: Sort, depth: int | None) -> Iterator[list[object]]:
    """Columns name, dtype, shape, bytes, then what was asked for; of a value: name, type, ``= value``."""
    from ckpt_tools.ops.listing import type_of, value_of

    if depth is not None:
        for group in result.groups(depth):
            yield [group.name, count_text(group.totals.tensors, "tensor"), group.totals.parameters, group.totals.nbytes]
        return
    for entry in _sorted(result.entries, sort):
        if not entry.is_tensor:
            yield [entry.name, type_of(entry.node), f"= {value_of(entry.node)}", ""]
            continue
        info = entry.node.info
        row: list[object] = [entry.name, info.dtype.name, shape_text(info.shape), entry.node.nbytes]
        if result.digests is not None:
            row.append(result.digests.get(entry.name) or "-")
        if result.numbers is not None:
            numbers = result.numbers.get(entry.name)
            row += [_short(v) for v in numbers.to_json().values()] if numbers else ["-"] * 6
        yield row


def _short(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _draw(out: Output, result: Listing, *, tree: bool, sort: Sort, depth: int | None, verbose: bool) -> None:
    from rich.text import Text

    from ckpt_tools.cli.render import Column, cell, draw_table, draw_tree
    from ckpt_tools.ops.listing import type_of, value_of

    console = out.console()
    checkpoint = result.checkpoint
    title = cell(checkpoint.location.shown, "bold")
    title.append(f"  {checkpoint.format}, {checkpoint.producer}, {size_text(checkpoint.nbytes)}", style="dim")
    console.print(title)
    if verbose:
        for name, fact in checkpoint.facts.items():
            console.print(cell(f"  {name}: {fact}", "dim"))
    if tree:
        draw_tree(
            console,
            checkpoint.location.path.name,
            ((e.key or (e.name,), _leaf_text(e)) for e in _sorted(result.entries, sort)),
        )
    elif depth is not None:
        draw_table(
            console,
            [
                Column("part"),
                Column("tensors", right=True),
                Column("parameters", right=True),
                Column("bytes", right=True),
            ],
            [
                [g.name, f"{g.totals.tensors:,}", f"{g.totals.parameters:,}", size_text(g.totals.nbytes)]
                for g in result.groups(depth)
            ],
        )
    else:
        extra = [Column("sha256")] if result.digests is not None else []
        if result.numbers is not None:
            extra += [Column(name, right=True) for name in ("min", "max", "mean", "std", "nan", "inf")]
        rows: list[list[object]] = []
        for entry in _sorted(result.entries, sort):
            if not entry.is_tensor:
                rows.append([entry.name, cell(type_of(entry.node), "dim"), f"= {value_of(entry.node)}", "", ""])
                rows[-1] += [""] * len(extra)
                continue
            tensor = entry.node
            second_name = tensor.alias if tensor.alias not in entry.key[-1:] else None
            remarks = [r for r in (second_name, result.shares.get(entry.name), tensor.note) if r]
            row: list[object] = [
                entry.name,
                cell(tensor.info.dtype.name, "cyan"),
                shape_text(tensor.info.shape),
                size_text(tensor.nbytes),
                cell("; ".join(remarks), "dim"),
            ]
            if result.digests is not None:
                row.append((result.digests.get(entry.name) or "-")[:16])
            if result.numbers is not None:
                numbers = result.numbers.get(entry.name)
                row += [_short(v) for v in numbers.to_json().values()] if numbers else ["-"] * 6
            rows.append(row)
        columns = [Column("name"), Column("dtype"), Column("shape"), Column("size", right=True), Column("")]
        draw_table(console, [*columns, *extra], rows)
    console.print()
    nested = depth is None and any(len(entry.key) > 1 for entry in result.entries)
    for group in result.groups(1) if nested else []:
        console.print(Text("  ").append_text(cell(group.name, "bold")).append(": " + _totals_text(group.totals), "dim"))
    console.print(cell(_totals_text(result.totals), "bold"))
    if result.totals.stored_nbytes > result.totals.viewed_nbytes:
        stored, viewed = result.totals.stored_nbytes, result.totals.viewed_nbytes
        console.print(
            cell(
                f"{size_text(stored)} are stored, {100 * viewed / stored:.3g} % of them is looked at:"
                " views keep the whole of what they were cut from",
                "yellow",
            )
        )


def _totals_text(totals: Any) -> str:
    return (
        f"{count_text(totals.tensors, 'tensor')}, {count_text(totals.parameters, 'parameter')},"
        f" {size_text(totals.nbytes)}"
    )


def _leaf_text(entry: Entry) -> str:
    from ckpt_tools.ops.listing import type_of, value_of

    if entry.is_tensor:
        info = entry.node.info
        return f"{info.dtype.name} {shape_text(info.shape)} {size_text(entry.node.nbytes)}"
    return f"{type_of(entry.node)} = {value_of(entry.node)}"


def _summaries(out: Output, found: list[Any]) -> int:
    """A line for each of several checkpoints; 4 when one of them cannot be read."""
    from ckpt_tools.ops import listing

    summaries = [listing.summarise(location, row) for location, row in found]
    rows = [_summary_row(summary) for summary in summaries]
    headings = ("path", "format", "iteration", "tensors", "parameters", "bytes", "age", "")
    if out.table:
        from ckpt_tools.cli.render import Column, draw_table

        draw_table(out.console(), [Column(h, right=h in headings[2:7]) for h in headings], rows)
    else:
        out.lines(rows)
    return 4 if any(summary.error for summary in summaries) else 0


def _summary_row(summary: Summary) -> list[object]:
    def shown(value: object) -> object:
        return "-" if value is None else value

    return [
        summary.path,
        shown(summary.format),
        shown(summary.iteration),
        shown(summary.tensors),
        shown(summary.parameters),
        summary.nbytes,
        _age(summary.age_seconds),
        summary.error or summary.remark or "",
    ]


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
