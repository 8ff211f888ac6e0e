"""A manifest: the JSON that ``ckpt ls --json`` prints, kept to say later what a checkpoint was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpt_tools.core.keys import Key
from ckpt_tools.errors import CorruptFile, MissingInput, UnknownFormat, UnreadableInput, damage

SCHEMA = "ckpt.ls/1"


@dataclass(frozen=True)
class Row:
    """One tensor of a manifest; ``sha256`` is None when the listing was made without digests."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str | None


@dataclass(frozen=True)
class Manifest:
    """One checkpoint as it was listed: its tensors and values by key."""

    path: str
    format: str
    tensors: Mapping[Key, Row]
    values: Mapping[Key, Any]


def load(path: Path) -> list[Manifest]:
    """The checkpoints of a manifest. UnknownFormat when the file is none, CorruptFile when it is broken."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingInput("no such manifest", where=str(path)) from None
    except OSError as error:
        raise UnreadableInput(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"a manifest that is no JSON: {error}", where=str(path)) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnknownFormat(
            f"not a manifest: its schema is not {SCHEMA}",
            where=str(path),
            hint="make one with: ckpt ls CHECKPOINT --json --digest > FILE",
        )
    with damage(str(path)):
        checkpoints = document["checkpoints"]
        if not isinstance(checkpoints, list):
            raise CorruptFile("a manifest whose checkpoints are no list")
        return [_manifest(row) for row in checkpoints]


def _manifest(row: Any) -> Manifest:
    if not isinstance(row, dict) or not isinstance(row["tensors"], list) or not isinstance(row["values"], list):
        raise CorruptFile("a manifest entry without tensors and values")
    tensors = {}
    for tensor in row["tensors"]:
        if not isinstance(tensor, dict):
            raise CorruptFile("a tensor of the manifest that is no object")
        shape, sha256 = tensor["shape"], tensor.get("sha256")
        if (
            not isinstance(shape, list)
            or not all(type(n) is int for n in shape)
            or not isinstance(tensor["dtype"], str)
            or not isinstance(sha256, (str, type(None)))
        ):
            raise CorruptFile("a tensor of the manifest without dtype, shape and sha256")
        tensors[_key(tensor["key"])] = Row(str(tensor["name"]), tensor["dtype"], tuple(shape), sha256)
    if not all(isinstance(value, dict) for value in row["values"]):
        raise CorruptFile("a value of the manifest that is no object")
    values = {_key(value["key"]): value.get("value") for value in row["values"]}
    return Manifest(str(row["path"]), str(row["format"]), tensors, values)


def _key(key: Any) -> Key:
    if not isinstance(key, list) or not all(isinstance(part, (str, int)) for part in key):
        raise CorruptFile("a key of the manifest that is no list of text and numbers")
    return tuple(key)
