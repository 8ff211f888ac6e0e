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
    storage: str | None
    alias: str | None


@dataclass(frozen=True)
class Manifest:
    """One checkpoint as it was listed: its tensors, and type and value of its other leaves, by key."""

    path: str
    format: str
    tensors: Mapping[Key, Row]
    values: Mapping[Key, tuple[str, Any]]


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
        return parse(document)


def parse(document: Mapping[str, Any]) -> list[Manifest]:
    """The checkpoints of a document whose schema is a manifest's. CorruptFile when it is not as it should be."""
    return [_manifest(row) for row in objects(document["checkpoints"], "checkpoints")]


def objects(rows: Any, what: str) -> list[dict[str, Any]]:
    """``rows`` if they are a list of objects. CorruptFile otherwise."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CorruptFile(f"its {what} are no list of objects")
    return rows


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape as JSON has it. CorruptFile when it is none."""
    if not isinstance(shape, list) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise CorruptFile(f"{shape!r:.100} is no shape")
    return tuple(shape)


def _manifest(listed: dict[str, Any]) -> Manifest:
    tensors = {
        _key(row["key"]): Row(
            str(row["name"]),
            str(row["dtype"]),
            shape_of(row["shape"]),
            _text(row.get("sha256")),
            _text(row.get("storage")),
            _text(row.get("alias")),
        )
        for row in objects(listed["tensors"], "tensors")
    }
    values = {_key(row["key"]): (str(row["type"]), row.get("value")) for row in objects(listed["values"], "values")}
    return Manifest(str(listed["path"]), str(listed["format"]), tensors, values)


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise CorruptFile(f"{value!r:.100} is no text")
    return value


def _key(key: Any) -> Key:
    if not isinstance(key, list) or not all(isinstance(part, (str, int)) for part in key):
        raise CorruptFile(f"{key!r:.100} is no key")
    return tuple(key)
