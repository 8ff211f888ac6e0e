"""``ckpt convert``: any readable format to any writable one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text, shape_text, size_text

if TYPE_CHECKING:
    from ckpt_tools.core.dtypes import DType
    from ckpt_tools.ops.convert import Conversion

HELP = """Convert a checkpoint to another format: same names, same nesting, same bytes, or a refusal that says why.

DST's suffix decides the format: .pth .pt .bin (PyTorch), .pdz .pdparams .pdopt (Paddle), .safetensors, .npz, .h5
.weights.h5 (Keras, HDF5), .index (TensorFlow prefix); --to says it for any name. What the format cannot hold is listed
and refused before a byte is written; --allow-loss leaves it out. The file appears whole or not at all, after it was
read back and compared.

Examples:

  ckpt convert snapshot_iter_76000.pdz snapshot.pth

  ckpt convert snapshot_iter_76000.pdz encoder.safetensors --root main_params

  ckpt convert 100000_iterations.pth model.pdparams --root model --weights-only

  ckpt convert last.ckpt out.pdparams --root state_dict --strip-prefix model.

  ckpt convert model.pth ckpt-out --to tf-bundle

  ckpt convert big.pth out/ --to safetensors --max-shard-size 5GB --dtype bfloat16

  ckpt convert x.pdparams y.pth --map map.toml --dry-run
"""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_LOST = 3
#: As many losses as the sentence of a refusal names itself.
_LISTED_IN_ERROR = 8


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A file, directory or TensorFlow prefix.")],
    destination: Annotated[str, typer.Argument(metavar="DST", help="A file or prefix; a directory needs --to.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="torch-zip, torch-legacy, paddle-pickle, tf-bundle, safetensors, npz or hdf5, whatever DST is called.",
        ),
    ] = None,
    root: options.Root = None,
    match: options.Match = [],
    exclude: options.Exclude = [],
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="Leave out optimizer state, counters and values.")
    ] = False,
    averages: Annotated[
        bool, typer.Option("--averages", help="Weights only, moving averages in place of those that have one.")
    ] = False,
    strip_prefix: Annotated[
        list[str],
        typer.Option("--strip-prefix", metavar="PREFIX", help="Take PREFIX off the names that begin with it."),
    ] = [],
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Rename by the rules of a TOML file (`ckpt diff --write-map`)."),
    ] = None,
    rename: Annotated[
        list[str],
        typer.Option(
            "--rename",
            metavar="OLD=NEW",
            help="Rename by one rule, after --map: 'net.{rest:any}={rest}'; no NEW drops.",
        ),
    ] = [],
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="NAME", help="Floating tensors become this: bfloat16, float16, float32, …"),
    ] = None,
    max_shard_size: Annotated[
        str | None,
        typer.Option("--max-shard-size", metavar="SIZE", help="Several files and an index, each up to 5GB, say."),
    ] = None,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="PyTorch's stream from before 1.6 instead of a zip.")
    ] = False,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Go on without what the target cannot hold.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not read the result back and compare it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show the plan and write nothing.")] = False,
    as_json: options.Json = False,
    format: options.FormatName = None,
    color: options.Color = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    from ckpt_tools.core.keys import Globs
    from ckpt_tools.errors import UsageError
    from ckpt_tools.formats import open_checkpoint, writers
    from ckpt_tools.mapping import rule_files, rules
    from ckpt_tools.ops import convert as conversions
    from ckpt_tools.ops import writing

    out = Output(as_json=as_json, color=color, quiet=quiet)
    path = Path(destination)
    row, path = writers.choose(
        path, _format(to, legacy=legacy), is_directory=destination.endswith("/") or path.is_dir()
    )
    wishes = conversions.Wishes(
        row.name,
        root=root,
        globs=Globs(match, exclude),
        weights_only=weights_only,
        averages=averages,
        stages=(
            [rules.strip_prefix(prefix) for prefix in strip_prefix],
            rule_files.read_rules(map_file) if map_file is not None else (),
            [rules.rename(text) for text in rename],
        ),
        dtype=_dtype(dtype),
        max_shard_nbytes=_size(max_shard_size),
        allow_loss=allow_loss,
    )
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    with open_checkpoint(source, format=format) as checkpoint:
        # what a pickle names is told leaf by leaf, as losses
        out.issues(issue for issue in checkpoint.issues if not issue.code.startswith("pickle-"))
        conversion = conversions.plan(checkpoint, path, wishes)
        refused = bool(conversion.losses) and not allow_loss and not dry_run
        if not dry_run and not refused:
            total = conversion.write_plan.nbytes * (1 if no_check else 2)
            with out.progress(str(path), total) as progress:
                writing.write(conversion, overwrite=overwrite, check=not no_check, progress=progress)
        if as_json:
            out.json(conversion.to_json())
        else:
            _show(out, conversion, plan=dry_run or verbose, refused=refused)
        if refused:
            conversions.refuse_losses(conversion, row.target)
        return _LOST if conversion.losses and conversion.written else 0


convert.__doc__ = HELP


def _format(to: str | None, *, legacy: bool) -> str | None:
    from ckpt_tools.errors import UsageError

    if not legacy:
        return to
    if to not in (None, "torch-zip", "torch-legacy"):
        raise UsageError(f"--legacy is a form of PyTorch's files, not of {to}")
    return "torch-legacy"


def _dtype(name: str | None) -> DType | None:
    from ckpt_tools.core.casting import FLOATS, float_named
    from ckpt_tools.errors import UsageError

    if name is None:
        return None
    found = float_named(name)
    if found is None:
        raise UsageError(f"--dtype takes a floating type, {', '.join(FLOATS)}; got {name!r}")
    return found


def _size(text: str | None) -> int | None:
    """``5GB`` counts in thousands as Hugging Face does, ``5GiB`` in 1024s."""
    from ckpt_tools.errors import UsageError

    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    nbytes = 0
    if match:
        power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
        nbytes = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
    if nbytes <= 0:
        raise UsageError(f"--max-shard-size takes a size such as 5GB or 500MiB, got {text!r}")
    return nbytes


def _show(out: Output, conversion: Conversion, *, plan: bool, refused: bool) -> None:
    """The plan's lines on stdout when asked for; notes, losses and the result on stderr."""
    if plan:
        _show_moves(out, conversion)
    if not out.quiet:
        for note in conversion.notes:
            out.note(f"note: {note}")
    if not refused or len(conversion.losses) > _LISTED_IN_ERROR:
        for loss in conversion.losses:
            out.note(f"lost: {loss}", style="yellow")
    if out.quiet or refused:
        return
    if conversion.dropped:
        out.note(f"left out: {count_text(len(conversion.dropped), 'entry', 'entries')}")
    what = f"{count_text(len(conversion.moves), 'tensor')}, {count_text(conversion.values, 'value')}"
    size = size_text(conversion.write_plan.nbytes)
    verb = "wrote" if conversion.written else "would write"
    for file in conversion.write_plan.files[:-1] if plan else ():
        out.note(f"{verb} {file.path}")
    out.note(f"{verb} {conversion.write_plan.files[-1].path}: {conversion.writer}, {what}, {size}")


def _show_moves(out: Output, conversion: Conversion) -> None:
    moves = conversion.moves
    rows = [
        (m.source, m.target, m.transforms, str(m.tensor.info.dtype), shape_text(m.tensor.info.shape), m.tensor.nbytes)
        for m in moves
    ]
    if not out.table:
        out.lines(rows)
        return
    from ckpt_tools.cli.render import Column, draw_table

    columns = [
        Column("from"),
        Column("to"),
        Column("transform"),
        Column("dtype"),
        Column("shape"),
        Column("bytes", right=True),
    ]
    draw_table(out.console(), columns, rows)
