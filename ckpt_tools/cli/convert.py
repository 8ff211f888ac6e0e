"""``ckpt convert``: any readable format to any writable one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text, shape_text, size_text

if TYPE_CHECKING:
    from ckpt_tools.core.dtypes import DType
    from ckpt_tools.ops.comparands import Comparand
    from ckpt_tools.ops.convert import Conversion
    from ckpt_tools.ops.translating import LayoutWishes

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

Names and layouts stay as they are, unless --to-layout translates them. How a tensor has to lie depends on the kind of its
layer: --kind says it, or --like, or the source (Paddle's variable names, Keras' groups). What nothing decides is refused.

  ckpt convert model.pdparams model.pth --to-layout torch

  ckpt convert model.pth model.pdparams --to-layout paddle --like pkg.models:PaddleNet

  ckpt convert model.pth model.pdparams --to-layout paddle --kind 'fc*.weight=linear' --kind 'emb*.weight=embedding'

  ckpt convert ckpt-5 model.pth --to-layout torch --like net.spec.json --write-map map.toml

  ckpt convert snapshot_iter_60.pdz run.pth --to-layout torch --like pkg.models:Net --with-optimizer
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
    to_layout: Annotated[
        str | None,
        typer.Option("--to-layout", metavar="FRAMEWORK", help="Names and layouts of torch, paddle or keras."),
    ] = None,
    from_layout: Annotated[
        str | None,
        typer.Option(
            "--from-layout", metavar="FRAMEWORK", help="Whose names and layouts SRC has, where it is not plain."
        ),
    ] = None,
    like: Annotated[
        list[str],
        typer.Option(
            "--like", metavar="MODEL", help="What DST is for: package.module:attribute, a spec, or a checkpoint."
        ),
    ] = [],
    kind: Annotated[
        list[str],
        typer.Option(
            "--kind", metavar="GLOB=KIND", help="The kind of layer that tensors of SRC belong to: 'fc*.weight=linear'."
        ),
    ] = [],
    partial: Annotated[
        bool, typer.Option("--partial", help="Go on without tensors that have no counterpart in --like.")
    ] = False,
    with_optimizer: Annotated[
        bool,
        typer.Option(
            "--with-optimizer",
            help="Carry the state of Adam or SGD over, where that is sure; needs --like, and goes with neither"
            " --write-map, --dtype, --weights-only nor --averages.",
        ),
    ] = False,
    write_map: Annotated[
        Path | None, typer.Option("--write-map", metavar="FILE", help="Save the translation for --map.")
    ] = None,
    kwargs: Annotated[
        str | None, typer.Option("--kwargs", metavar="JSON", help="Arguments for the model of --like.")
    ] = None,
    kwargs_file: options.KwargsFile = None,
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
    from ckpt_tools.core.sink import is_directory
    from ckpt_tools.errors import UsageError, located
    from ckpt_tools.formats import open_checkpoint, writers
    from ckpt_tools.mapping import rule_files, rules
    from ckpt_tools.ops import convert as conversions
    from ckpt_tools.ops import writing

    out = Output(as_json=as_json, color=color, quiet=quiet)
    path = Path(destination)
    row, path = writers.choose(
        path, _format(to, legacy=legacy), is_directory=destination.endswith("/") or is_directory(path)
    )
    layout = _layout(
        to_layout, from_layout, like, kind, kwargs, kwargs_file, partial=partial, with_optimizer=with_optimizer
    )
    if with_optimizer and (weights_only or averages or write_map is not None or dtype is not None):
        raise UsageError("--with-optimizer goes with neither --weights-only, --averages, --dtype nor --write-map")
    mapping = rule_files.read_rule_file(map_file) if map_file is not None else rule_files.RuleFile()
    if layout is None and write_map is not None:
        raise UsageError("--write-map saves what --to-layout decides, and none is asked for")
    if layout is not None and mapping.recipes:
        raise UsageError("--map makes tensors of several, which leaves nothing for --to-layout: give either")
    wishes = conversions.Wishes(
        row.name,
        root=root,
        globs=Globs(match, exclude),
        weights_only=weights_only,
        averages=averages,
        stages=(
            [rules.strip_prefix(prefix) for prefix in strip_prefix],
            mapping.rules,
            [rules.rename(text) for text in rename],
        ),
        recipes=mapping.recipes,
        layout=layout,
        dtype=_dtype(dtype),
        max_shard_nbytes=_size(max_shard_size),
        allow_loss=allow_loss,
    )
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    with open_checkpoint(source, format=format) as checkpoint:
        # what a pickle names is told leaf by leaf, as losses
        out.issues(issue for issue in checkpoint.issues if not issue.code.startswith("pickle-"))
        with located(checkpoint.location.shown):
            conversion = conversions.plan(checkpoint, path, wishes)
        if dry_run:
            conversion.notes += _obstructions(conversion, overwrite=overwrite)
        refused = (bool(conversion.losses) and not allow_loss) or bool(conversion.obstacles)
        refused = refused and not dry_run
        if not dry_run and not refused:
            total = conversion.write_plan.nbytes * (1 if no_check else 2)
            with out.progress(str(path), total) as progress:
                writing.write(conversion, overwrite=overwrite, check=not no_check, progress=progress)
        if write_map is not None and not conversion.obstacles:
            _write_map(write_map, conversion, overwrite=overwrite)
        if as_json:
            out.json(conversion.to_json())
        else:
            _show(out, conversion, plan=dry_run or verbose, refused=refused)
        if refused:
            conversion.obstacles.refuse(checkpoint.location.shown)
            conversions.refuse_losses(conversion, row.target)
        return _LOST if conversion.losses and conversion.written else 0


convert.__doc__ = HELP


def _layout(
    family: str | None,
    source_family: str | None,
    likes: Sequence[str],
    kinds: Sequence[str],
    kwargs: str | None,
    kwargs_file: Path | None,
    *,
    partial: bool,
    with_optimizer: bool,
) -> LayoutWishes | None:
    """The wishes behind --to-layout and the options that belong to it; None without any of them."""
    from ckpt_tools.errors import UsageError
    from ckpt_tools.mapping.layouts import FAMILIES
    from ckpt_tools.ops.translating import LayoutWishes, parse_kind

    for option, value in (("--to-layout", family), ("--from-layout", source_family)):
        if value is not None and value not in FAMILIES:
            raise UsageError(f"{option} takes {', '.join(FAMILIES)}; got {value!r}")
    if family is None:
        if source_family or likes or kinds or partial or with_optimizer:
            raise UsageError("--from-layout, --like, --kind, --partial and --with-optimizer belong to --to-layout")
        return None
    if partial and not likes:
        raise UsageError("--partial is about what --like has, and none is given")
    if (kwargs or kwargs_file) and not likes:
        raise UsageError("--kwargs is for the model of --like, and none is given")
    return LayoutWishes(
        family,
        [_like(text, kwargs, kwargs_file) for text in likes],
        [parse_kind(text) for text in kinds],
        source_family,
        partial,
        with_optimizer,
    )


def _like(text: str, kwargs: str | None, kwargs_file: Path | None) -> Comparand:
    from ckpt_tools.models import load_model, read_kwargs
    from ckpt_tools.ops.comparands import from_checkpoint, from_document, open_side
    from ckpt_tools.ops.spec import comparand_of

    with ExitStack() as files:
        found = open_side(text, files)
        if isinstance(found, str):
            return comparand_of(load_model(found, read_kwargs(kwargs, kwargs_file)))
        return from_document(found, text) if isinstance(found, dict) else from_checkpoint(found)


def _obstructions(conversion: Conversion, *, overwrite: bool) -> list[str]:
    """What would keep the plan from being carried out where it is to be."""
    from ckpt_tools.errors import WriteRefused
    from ckpt_tools.ops.writing import require_place

    try:
        require_place(conversion, overwrite=overwrite)
    except WriteRefused as refusal:
        return [f"this would be refused: {refusal}" + (f"; {refusal.hint}" if refusal.hint else "")]
    return []


def _write_map(path: Path, conversion: Conversion, *, overwrite: bool) -> None:
    from ckpt_tools.core.sink import write_file
    from ckpt_tools.mapping.rule_files import rules_text

    mapping, source = conversion.mapping, conversion.source.location.shown
    heading = f"What `ckpt convert --to-layout` decided for {source}.\nApply with: ckpt convert SRC DST --map {path}"
    text = rules_text(mapping.rules, heading, mapping.recipes)
    write_file(path, [text.encode("utf-8")], overwrite=overwrite)


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
    _show_obstacles(out, conversion)
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


def _show_obstacles(out: Output, conversion: Conversion) -> None:
    """Each group of ambiguous tensors with the options that settle it, and what has no counterpart."""
    from ckpt_tools.core.keys import listed

    obstacles = conversion.obstacles
    for each in obstacles.ambiguous:
        shapes = ", ".join(dict.fromkeys(map(shape_text, each.shapes)))
        what = listed(each.globs) if len(each.names) == 1 else f"{listed(each.globs)} ({len(each.names)} tensors)"
        out.note(f"ambiguous: {what} {shapes}; one of {'; '.join(each.described)}", style="yellow")
    for title, items in (
        ("conflict", obstacles.conflicts),
        ("no place in the target", obstacles.unplaced),
        ("nothing in the source", obstacles.unfilled),
    ):
        for item in items:
            out.note(f"{title}: {item}", style="yellow")


def _show_moves(out: Output, conversion: Conversion) -> None:
    moves = conversion.moves
    decided = any(move.why for move in moves)
    rows = [
        (
            ", ".join(m.sources) or m.source,
            m.target,
            m.transforms,
            str(m.tensor.info.dtype),
            shape_text(m.tensor.info.shape),
            m.tensor.nbytes,
            *([m.why] if decided else []),
        )
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
        *([Column("decided by")] if decided else []),
    ]
    draw_table(out.console(), columns, rows)
