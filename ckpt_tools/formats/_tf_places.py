"""Where TensorFlow puts a checkpoint: which table file a file or directory of a training or a SavedModel means.

Sources: tensorflow/python/checkpoint/checkpoint_management.py, tensorflow/python/saved_model/constants.py.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal

from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.limits import MIB
from ckpt_tools.core.location import SHARD, TAIL_NBYTES, V1_SHARD, Location, at, locate
from ckpt_tools.core.source import Source, kept_open
from ckpt_tools.errors import CkptError, MissingInput
from ckpt_tools.formats import _tf_state
from ckpt_tools.formats._protobuf import BYTES, scan, varint
from ckpt_tools.formats._sorted_table import MAGIC, Table

STATE_FILE = "checkpoint"
#: How the value of the empty key begins: field 1 of BundleHeaderProto is a number, of SavedTensorSlices a message.
_NUM_SHARDS, _METADATA = 0x08, 0x0A
#: Three small numbers in a bundle's header: 6 bytes as TensorFlow writes it.
_LONGEST_HEADER_NBYTES = 64
#: Files of a SavedModel beside the directory ``variables``.
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_BESIDE_VARIABLES = (*_SAVED_MODEL, "fingerprint.pb", "keras_metadata.pb")
_VARIABLES = Path("variables", "variables.index")
#: A state file lists a few dozen paths.
_STATE_NBYTES = MIB
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]*")
_VERSION_NBYTES = 40
#: What is looked for stands among the first fields of a message; graphs follow, which may be large.
_FIELDS = 100


def resolve(location: Location) -> Location | None:
    """The table that ``location`` means; None when it is nothing of TensorFlow's, or a directory of several of them.

    MissingInput when a state file or SavedModel leads to a checkpoint that is not there.
    """
    return location.once("tensorflow table", lambda: _resolve(location))


def _resolve(location: Location) -> Location | None:
    if location.is_directory:
        return _in_directory(location)
    if location.tail.endswith(MAGIC):
        return location
    if location.path.name in _BESIDE_VARIABLES:
        index = location.beside(str(_VARIABLES))
        return at(index, shown=location.shown) if index.is_file() else None
    if _tf_state.looks_like(location.head):
        return _latest(location)
    damaged = begins_like(location.head) or (location.suffix == ".index" and shards_beside(location.path))
    return location if damaged else None


def begins_like(head: bytes) -> Literal["bundle", "v1"] | None:
    """Whose first entry that of a table is: an empty key, and either kind of header as its value."""
    if head[:2] != b"\0\0":
        return None
    try:
        nbytes, begin = varint(head, 2)
        if head[begin] == _NUM_SHARDS and nbytes < _LONGEST_HEADER_NBYTES:
            return "bundle"
        return "v1" if head[begin] == _METADATA and varint(head, begin + 1)[0] < nbytes else None
    except (IndexError, CkptError):
        return None


def table_at(location: Location) -> Table:
    """The table at a resolved location, opened once; errors as :class:`Table` raises them."""

    def opened() -> Table:
        with kept_open(location.path) as source:
            return Table(source)

    return location.once("sorted table", opened)


def is_v1_header(header: bytes | None) -> bool:
    """Whether the value of a table's empty key is a SavedTensorSlices message and not a BundleHeaderProto."""
    return header is not None and header[:1] == bytes((_METADATA,))


def shards_beside(index: Path) -> list[str]:
    """Names of the data files that belong to an index."""
    prefix = index.name.removesuffix(".index")
    return [name for name in _names_in(index.parent) if (match := SHARD.fullmatch(name)) and match["prefix"] == prefix]


def checkpoints_in(directory: Path) -> list[Path]:
    """The TensorFlow checkpoints that lie directly in a directory, as the files that are read for them, by name."""
    names = _names_in(directory)
    found = [directory / name for name in names if name.endswith(".index") and _is_table(directory / name)]
    if STATE_FILE in names:
        # A V1 checkpoint has no suffix to find it by; the state file names it.
        try:
            state = _read_state(directory / STATE_FILE)
        except CkptError:
            return found
        for path in dict.fromkeys([*state.paths, *([state.latest] if state.latest else [])]):
            name = _base_name(path)
            if f"{name}.index" not in names:
                try:
                    location = locate(directory / name)
                except CkptError:
                    continue
                if location.tail.endswith(MAGIC) and location.path not in found:
                    found.append(location.path)
    return found


def _in_directory(location: Location) -> Location | None:
    names = _names_in(location.path)
    if any(name in names for name in _SAVED_MODEL) or (location.path / _VARIABLES).is_file():
        index = location.path / _VARIABLES
        if not index.is_file():
            raise MissingInput(f"a SavedModel without variables: it has no {_VARIABLES}", where=location.shown)
        return at(index, shown=location.shown)
    if STATE_FILE not in names and not any(name.endswith(".index") for name in names):
        return None
    found = checkpoints_in(location.path)
    return at(found[0], shown=location.shown) if len(found) == 1 else None


def _latest(location: Location) -> Location:
    """The checkpoint that a state file names as the latest; in a directory that has moved, the one of that name."""
    latest = _read_state(location.path).latest
    if not latest:
        raise MissingInput("the state file names no latest checkpoint", where=location.shown)
    for path in (location.beside(latest), location.beside(_base_name(latest))):
        try:
            found = locate(path)
        except MissingInput:
            continue
        if found.tail.endswith(MAGIC) or found.suffix == ".index":
            return at(found.path, shown=location.shown)
    raise MissingInput(
        f"names {latest} as the latest checkpoint, which is not there",
        where=location.shown,
        hint=f"ckpt fix-paths {location.shown}",
    )


def _read_state(path: Path) -> _tf_state.State:
    with Source(path) as source:
        return _tf_state.parse(source.peek(0, _STATE_NBYTES))


def _base_name(path: str) -> str:
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name


def _names_in(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(directory))
    except OSError:
        return []


def _is_table(path: Path) -> bool:
    try:
        with Source(path) as source:
            return source.peek(source.nbytes - TAIL_NBYTES, TAIL_NBYTES).endswith(MAGIC)
    except CkptError:
        return False


def family(first: Path) -> list[Path]:
    """The files of a V1 checkpoint, of which ``first`` is one, as far as they are there; and nothing else."""
    match = V1_SHARD.fullmatch(first.name)
    if match is None:
        return [first]
    prefix, count = match["prefix"], int(match["count"])
    wanted = re.compile(re.escape(prefix) + rf"-\d{{5}}-of-{count:05d}")
    return [first.parent / name for name in _names_in(first.parent) if wanted.fullmatch(name)]


def writer_version(table: Path) -> str | None:
    """TensorFlow's version, as the graph beside a checkpoint tells (``P.meta`` or ``saved_model.pb``), if there is one.

    Sources: MetaGraphDef and SavedModel of tensorflow/core/protobuf/meta_graph.proto and saved_model.proto.
    """
    prefix = table.name.removesuffix(".index")
    graphs: list[tuple[Path, tuple[int, ...]]] = [
        (table.parent / f"{prefix}.meta", (1, 5)),  # meta_info_def, tensorflow_version
        (table.parent.parent / "saved_model.pb", (2, 1, 5)),  # meta_graphs before these
    ]
    for path, numbers in graphs[: 2 if table.parent.name == "variables" else 1]:
        try:
            with Source(path) as source:
                version = _text_at(FileExtent(source, 0, source.nbytes), numbers)
        except CkptError:
            continue
        if version is not None and _VERSION.fullmatch(version):
            return version
    return None


def _text_at(extent: FileExtent, numbers: tuple[int, ...]) -> str | None:
    """The text below a chain of field numbers, without reading what lies beside it."""
    offset, nbytes = 0, extent.nbytes
    for wanted in numbers:
        for field in islice(scan(extent, offset, nbytes), _FIELDS):
            if field.number == wanted and field.kind == BYTES and isinstance(field.value, tuple):
                offset, nbytes = field.value
                break
        else:
            return None
    return extent.read(offset, min(nbytes, _VERSION_NBYTES)).decode("ascii", "replace")
