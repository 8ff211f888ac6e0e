"""Options that several commands have, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def path(text: str) -> Path:
    """A path as typed. The empty one, which an unset variable leaves behind, is not the current directory."""
    if not text:
        raise typer.BadParameter("an empty path")
    return Path(text)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Match = Annotated[
    list[str],
    typer.Option("--match", metavar="GLOB", help="Only names that this glob matches, whole or from a part on."),
]
Exclude = Annotated[list[str], typer.Option("--exclude", metavar="GLOB", help="Not the names that this glob matches.")]
Root = Annotated[str | None, typer.Option("--root", metavar="KEY", help="Only what lies below this key.")]
FormatName = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Read as this format instead of looking; see `ckpt formats`."),
]
Color = Annotated[
    bool | None, typer.Option("--color/--no-color", help="Colour, or none; by default on a terminal without NO_COLOR.")
]
Kwargs = Annotated[
    str | None, typer.Option("--kwargs", metavar="JSON", help="Arguments for the model's constructor or factory.")
]
KwargsFile = Annotated[
    Path | None, typer.Option("--kwargs-file", metavar="FILE", help="The same from a JSON, TOML or YAML file.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes, no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")]
