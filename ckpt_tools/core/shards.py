"""Indexes of sharded sets: JSON files with ``weight_map``, tensor names to the names of files beside the index.

Hugging Face's libraries write them as ``model.safetensors.index.json`` and ``pytorch_model.bin.index.json``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from ckpt_tools.core.keys import printable
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CorruptFile, LimitExceeded, UnreadableInput, damage

_SHARD_NAME = re.compile(r".+-\d+-of-\d+\..+", re.DOTALL)
#: ``….index.json``, and ``….index.fp16.json`` of diffusers' variants
_INDEX_NAME = re.compile(r".+\.index(\..+)?\.json", re.DOTALL)


def weight_map(index: Path) -> dict[str, str] | None:
    """Tensor names to file names, in the order of the index; None when the file is no index.

    CorruptFile when it is one, and a file lies outside its directory or a name stands twice.
    """
    found = contents(index)
    return None if found is None else found[0]


def contents(index: Path) -> tuple[dict[str, str], dict[str, str]] | None:
    """Like :func:`weight_map`, with the texts among the metadata of the index."""
    if not _INDEX_NAME.fullmatch(index.name):
        return None
    with Source(index) as source:
        if source.nbytes > DEFAULT_LIMITS.header_nbytes:
            raise LimitExceeded(f"an index of {source.nbytes} bytes", where=str(index))
        data = source.read(0, source.nbytes)
    with damage(str(index)):
        document = json.loads(data, object_pairs_hook=_without_repetition)
    files = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(files, dict):
        return None
    for file in files.values():
        parts = PurePosixPath(file).parts if isinstance(file, str) else ()
        if not parts or parts[0] == "/" or ".." in parts:
            shown = printable(file[:200]) if isinstance(file, str) else type(file).__name__
            raise CorruptFile(f"a shard that is no file beside the index: {shown}", where=str(index))
    held = document.get("metadata")
    metadata = {key: text for key, text in held.items() if isinstance(text, str)} if isinstance(held, dict) else {}
    return files, metadata


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise CorruptFile(f"an index that names {printable(next(n for n in names if names.count(n) > 1))[:200]} twice")
    return found


def indexes_in(directory: Path) -> list[Path]:
    """The files of a directory that are named like indexes, in order."""
    return sorted(entry for entry in directory.iterdir() if _INDEX_NAME.fullmatch(entry.name) and entry.is_file())


def index_of(shard: Path) -> Path | None:
    """The index beside a file that names it as a shard; None when there is none."""
    if not _SHARD_NAME.fullmatch(shard.name):
        return None
    for index in indexes_in(shard.parent):
        try:
            files = weight_map(index)
        except UnreadableInput:
            continue
        if files is not None and shard.name in files.values():
            return index
    return None
