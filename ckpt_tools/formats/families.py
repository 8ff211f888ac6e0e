"""Which checkpoints a directory holds: its files and subdirectories, those of one family counted once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ckpt_tools.core.location import SHARD, V1_SHARD, Location, at
from ckpt_tools.errors import CkptError, CorruptFile
from ckpt_tools.formats import recognise
from ckpt_tools.formats.table import Format

#: Files that lie beside checkpoints and are none: records, logs, backups and temporary files of this and other tools.
_COMPANIONS = re.compile(
    r"(checkpoint|.*\.(meta|jsonl|json|txt|log|ya?ml|md|toml|cfg|csv|py|sh|lock|pbtxt|pb)|events\.out\..*"
    r"|.*\.bak-\d.*|\..*"
    # a Paddle program and the structured names beside its parameters
    r"|.*\.pdmodel|__model__|.*\.pdiparams\.info|__(variables|params)\.info__)",
    re.DOTALL,
)


def members(directory: Path) -> Iterator[tuple[Location, Format | CkptError]]:
    """The checkpoints directly inside ``directory``, by name; a damaged one comes with its error.

    Files that are no checkpoint, and shards whose index is listed, are passed over.
    """
    names = sorted(entry.name for entry in os.scandir(directory))
    present = set(names)
    parted: set[str] = set()  # prefixes of V1 checkpoints in several files that have been given
    for name in names:
        shard = SHARD.fullmatch(name)
        if _COMPANIONS.fullmatch(name) or (shard and shard["prefix"] + ".index" in present):
            continue
        path = directory / name
        shown = str(path)
        if name.endswith(".index"):
            shown = shown[: -len(".index")]
        try:
            location = at(path, shown=shown)
            row = recognise(location)
        except CorruptFile as error:
            yield Location(path, shown, path.is_dir()), error
            continue
        except (CkptError, OSError):
            continue
        part = V1_SHARD.fullmatch(name) if row is not None and row.name == "tf-v1" else None
        if part and part["prefix"] in parted:
            continue
        if part:
            parted.add(part["prefix"])
            location = at(path, shown=str(directory / part["prefix"]))
        if row is not None:
            yield location, row


def below(directory: Path, depth: int = 12) -> Iterator[tuple[Location, Format | CkptError]]:
    """The checkpoints anywhere below ``directory``; hidden directories and links to directories are not entered."""
    found = list(members(directory))
    yield from found
    taken = {location.path for location, _ in found}
    if depth:
        for entry in sorted(os.scandir(directory), key=lambda e: e.name):
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and path not in taken:
                yield from below(path, depth - 1)
