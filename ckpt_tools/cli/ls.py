"""``ckpt ls``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ckpt_tools.cli import options


def ls(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...")],
    match: options.Match = [],
    exclude: options.Exclude = [],
    root: options.Root = None,
    digest: Annotated[bool, typer.Option("--digest", help="SHA-256 of every tensor's values.")] = False,
    as_json: options.Json = False,
    format: options.FormatName = None,
) -> int:
    """List names, dtypes, shapes and sizes of everything in checkpoints."""
    from ckpt_tools.core.keys import Globs
    from ckpt_tools.errors import MissingBytes
    from ckpt_tools.formats import open_checkpoint
    from ckpt_tools.ops import listing

    globs = Globs(match, exclude)
    documents = []
    code = 0
    for path in paths:
        with open_checkpoint(path, format=format) as checkpoint:
            labels = listing.StorageLabels()
            tensors, values = [], []
            issues = [issue.to_json() for issue in checkpoint.issues]
            for entry in listing.selected(checkpoint, globs, root):
                if entry.is_tensor:
                    sha = None
                    if digest:
                        try:
                            sha = listing.digest(entry.node)
                        except MissingBytes:
                            code = 0 if getattr(entry.node, "meta", False) else 4
                    tensors.append(listing.tensor_row(entry, labels, sha, digests=digest))
                else:
                    values.append(listing.value_row(entry))
            documents.append(
                {
                    "path": str(path),
                    "format": checkpoint.format,
                    "producer": checkpoint.producer,
                    "nbytes": checkpoint.nbytes,
                    "tensors": tensors,
                    "values": values,
                    "issues": issues,
                }
            )
    json.dump({"schema": "ckpt.ls/1", "checkpoints": documents}, sys.stdout)
    return code
