"""``ckpt show``: one leaf of a checkpoint, with values and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text, shape_text, size_text

if TYPE_CHECKING:
    import numpy

    from ckpt_tools.ops.showing import Shown

HELP = """Show one tensor or value of a checkpoint: values, extremes, mean, deviation, NaN and Inf, a histogram.

NAME is the name that `ckpt ls` prints, or its end as long as only one name ends so. A slice may follow in brackets, as
numpy writes it: 'encoder.weight[0, :5]'.

Examples:

  ckpt show snapshot_iter_76000.pdz main_params/encoder.embed.0.weight

  ckpt show model.pth 'fc.weight[:2, ::10]'

  ckpt show model.pth fc.weight --save fc.npy
"""

#: Values printed of a tensor before its middle is left out; numpy's own default is as large.
_EDGE_ITEMS = 3
_PRINTED_WHOLE = 100
_BINS = 12
_BAR_WIDTH = 30
#: Bytes of one element of a string tensor that are printed; the JSON has all.
_SHOWN_STRING = 200


def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", parser=options.path, help="A checkpoint.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `ckpt ls` prints, with a slice if wanted.")],
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE.npy", help="Write the values (or the slice) as a numpy file.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.npy if it exists.")] = False,
    as_json: options.Json = False,
    format: options.FormatName = None,
    color: options.Color = None,
    quiet: options.Quiet = False,
) -> None:
    from ckpt_tools.errors import damage
    from ckpt_tools.formats import open_checkpoint
    from ckpt_tools.ops import listing, showing

    out = Output(as_json=as_json, color=color, quiet=quiet)
    with open_checkpoint(path, format=format) as checkpoint:
        entry, index = showing.choose(checkpoint, name)
        if not entry.is_tensor:
            if save is not None:
                raise showing.not_savable(entry)
            row = listing.value_row(entry)
            if as_json:
                out.json({"schema": "ckpt.show/1", "path": str(path), **row})
            else:
                out.lines([[entry.name, row["type"], f"= {row['value']}"]])
            return
        with damage(f"{path}: {entry.name}"):
            with out.progress(entry.name, 2 * entry.node.nbytes) as progress:
                shown = showing.look(entry, index, bins=_BINS, progress=progress)
            if save is not None:
                showing.save(entry, index, save, overwrite=overwrite)
                out.note(f"wrote {save}")
        if as_json:
            out.json({"schema": "ckpt.show/1", "path": str(path), **shown.to_json(listing.StorageLabels())})
        else:
            _print(out, shown)


show.__doc__ = HELP


def _print(out: Output, shown: Shown, indent: str = "") -> None:
    from ckpt_tools.cli.render import cell

    console = out.console()
    tensor = shown.entry.node

    def line(text: str, style: str = "") -> None:
        console.print(cell(f"{indent}{text}", style), soft_wrap=True)

    title = cell(f"{indent}{shown.entry.name}", "bold")
    info = f"  {tensor.info.dtype.name} {shape_text(tensor.info.shape)}  {size_text(tensor.nbytes)}"
    console.print(title.append_text(cell(info, "not bold cyan")), soft_wrap=True)
    for remark in (tensor.alias, tensor.note):
        if remark:
            line(f"  {remark}", "dim")
    numbers = shown.numbers
    if numbers is not None:
        facts = [
            f"{k} {v:.6g}" for k, v in numbers.to_json().items() if k in ("min", "max", "mean", "std") and v is not None
        ]
        facts += [count_text(numbers.nan, "NaN", "NaN"), f"{numbers.inf:,} Inf", count_text(numbers.zeros, "zero")]
        line("  " + ", ".join(facts))
    if shown.values is not None:
        for text in _values_text(shown.values).splitlines():
            line(text)
    for element in shown.strings or ():
        more = f"… ({len(element):,} bytes)" if len(element) > _SHOWN_STRING else ""
        line(f"  {element[:_SHOWN_STRING]!r}{more}")
    if shown.strings is not None and shown.of_strings > len(shown.strings):
        line(f"  … ({shown.of_strings:,} elements)")
    if numbers is not None and numbers.min is not None and numbers.max is not None and shown.counts:
        step = (numbers.max - numbers.min) / len(shown.counts)
        top = max(shown.counts) or 1
        for i, count in enumerate(shown.counts):
            bar = "#" * round(_BAR_WIDTH * count / top)
            line(f"  {numbers.min + i * step:>12.4g} {bar:<{_BAR_WIDTH}} {count}", "dim")
    for part in shown.parts:
        _print(out, part, indent + "  ")


def _values_text(values: numpy.ndarray) -> str:
    import numpy

    return numpy.array2string(values, threshold=_PRINTED_WHOLE, edgeitems=_EDGE_ITEMS, max_line_width=100)
