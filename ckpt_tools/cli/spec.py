"""``ckpt spec``: names, shapes, types and layer kinds of a live model, saved once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text, shape_text

HELP = """Describe a live model as JSON that `ckpt diff` and `ckpt convert` take in its place, without the framework.

MODEL is `package.module:attribute`: a class, a factory or an instance; torch, paddle, keras, tf.Module,
tf.train.Checkpoint, or a mapping of names to shapes. It is your own code and is run; the working directory is importable.

Examples:

  ckpt spec pkg.models:Net -o net.spec.json

  ckpt spec pkg.models:Net --kwargs '{"classes_num": 88}'

  ckpt diff x.pth net.spec.json
"""


def spec(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="package.module:attribute", show_default=False)],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file when it exists.")] = False,
    kwargs: Annotated[
        str | None, typer.Option("--kwargs", metavar="JSON", help="Arguments for the constructor or factory.")
    ] = None,
    kwargs_file: options.KwargsFile = None,
    as_json: options.Json = False,
    color: options.Color = None,
    quiet: options.Quiet = False,
) -> int:
    from ckpt_tools.core.sink import destination, write_file
    from ckpt_tools.models import load_model, read_kwargs
    from ckpt_tools.ops.spec import spec_of

    out = Output(as_json=as_json, color=color, quiet=quiet)
    if output is not None:
        destination(output, overwrite=overwrite)
    document = spec_of(load_model(model, read_kwargs(kwargs, kwargs_file)))
    if output is not None:
        write_file(output, [json.dumps(document, indent=1).encode() + b"\n"], overwrite=overwrite)
        if not quiet:
            out.note(f"{count_text(len(document['tensors']), 'tensor')} described in {output}")
    if as_json or (output is None and not out.table):
        out.json(document)
    elif output is None:
        _draw(out, document)
    return 0


spec.__doc__ = HELP


def _draw(out: Output, document: dict[str, object]) -> None:
    from ckpt_tools.cli.render import Column, draw_table

    rows = document["tensors"]
    assert isinstance(rows, list)
    draw_table(
        out.console(),
        [Column("name"), Column("dtype"), Column("shape"), Column("kind"), Column("role")],
        [[r["name"], r["dtype"], shape_text(r["shape"]), r["kind"] or "", r["role"] or ""] for r in rows],
    )
