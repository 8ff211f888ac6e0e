"""Statistics pickles: lists of records, each a dict of metrics with the iteration it was taken at.

``{'train': [{'loss': …, 'iteration': 0}, …], 'test': […]}``, with any names, nested, or one bare list. They are read
symbolically and written back as they were, without the records of iterations that a resumed training will come to again.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ckpt_tools.core import sink
from ckpt_tools.core.byte_stream import Progress
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue
from ckpt_tools.core.keys import Key, names_of
from ckpt_tools.core.limits import MIB
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Dict, NumpyScalar, part_of
from ckpt_tools.errors import CkptError, CorruptFile, UnknownFormat, UnsafePickle, WriteRefused, damage
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.pickles.emit import Emitter, shared_nodes
from ckpt_tools.pickles.findings import foreign
from ckpt_tools.pickles.nodes import Object, Undecoded
from ckpt_tools.pickles.verbatim import VerbatimMachine, meaning

#: What trainers call the counter, the most usual first.
COUNTERS = ("iteration", "iterations", "steps", "step")
#: What the trainers put between the name and the suffix of the copy they keep beside each file they write.
_TWIN_TIME = r"_\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}"
_MAPPINGS = ("collections.OrderedDict", "collections.defaultdict")
#: Lists of records lie in dicts at most this deep: train, validation; clean, noisy.
_DEPTH = 16


@dataclass
class RecordList:
    """One list of records; ``records`` is the node itself, which truncating changes."""

    key: Key
    records: list[Any]
    name: str = ""

    @property
    def shown(self) -> str:
        """The name for people: the bare list has none."""
        return self.name or "(records)"


@dataclass
class Statistics:
    """A statistics pickle, read. ``tail`` are bytes behind the pickle, which readers ignore."""

    path: Path
    source: Source
    status: os.stat_result
    root: Any
    protocol: int
    lists: list[RecordList]
    tail: FileExtent
    issues: list[Issue] = field(default_factory=list)

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> Statistics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def twins(self) -> list[Path]:
        """The time-stamped copies beside the file, the oldest first."""
        return twins_of(self.path)

    def counter(self) -> str:
        """The key under which records keep their iteration: the first usual one that any record has."""
        records = [record for each in self.lists for record in each.records]
        for key in COUNTERS:
            if any(number_at(record, key) is not None for record in records):
                return key
        return COUNTERS[0]


def read(path: Path) -> Statistics:
    """Read a statistics pickle. UnsafePickle when it would call something; its other errors are UnreadableInput.

    Of a torn file the hint copies the newest twin that can be read.
    """
    source = Source(path)
    try:
        return _read(path, source)
    except CkptError as error:
        source.close()
        error.where = error.where or str(path)
        if isinstance(error, CorruptFile) and not isinstance(error, UnsafePickle):
            raise _explained(path, error) from error
        raise
    except BaseException:
        source.close()
        raise


def _read(path: Path, source: Source) -> Statistics:
    status = os.stat(path)
    machine = VerbatimMachine(source)
    with damage(str(path)), _collector_paused():
        root = machine.load()
    issues = foreign(machine, str(path))
    for issue in issues:
        if issue.code == "pickle-foreign-call":
            raise UnsafePickle(issue.message, where=str(path))
    lists = list(_lists_in(root))
    for each, name in zip(lists, names_of([each.key for each in lists])):
        each.name = name if each.key else ""
    if not lists:
        raise UnknownFormat("holds no list of records (dicts), as statistics do", where=str(path))
    tail = FileExtent(source, machine.position, source.nbytes - machine.position)
    return Statistics(path, source, status, root, machine.protocol, lists, tail, issues)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Millions of nodes that all stay: looking for garbage among them again and again takes a third of the time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _lists_in(root: Any) -> Iterator[RecordList]:
    pending: list[tuple[Key, Any]] = [((), root)]
    seen: set[int] = set()
    while pending:
        key, node = pending.pop()
        if isinstance(node, list):
            if not node or any(is_record(record) for record in node):
                yield RecordList(key, node)
            continue
        if len(key) < _DEPTH and is_record(node) and id(node) not in seen:
            seen.add(id(node))
            pending += reversed([((*key, _part(name)), value) for name, value in items_of(node)])


def _part(name: Any) -> str | int:
    return part_of(meaning(name) if isinstance(name, Undecoded) else name)


def is_record(node: Any) -> bool:
    """Whether a node is a dict of any kind."""
    return isinstance(node, Dict) or (isinstance(node, Object) and node.path in _MAPPINGS)


def items_of(record: Any) -> list[tuple[Any, Any]]:
    """The keys and values of a record, as nodes."""
    if isinstance(record, dict):
        return list(record.items())
    first = record.args[-1] if record.args else ()
    if isinstance(first, dict):
        first = first.items()
    elif not isinstance(first, list):
        first = ()
    return [*(tuple(pair) for pair in first if isinstance(pair, (list, tuple)) and len(pair) == 2), *record.pairs]


def value_at(record: Any, key: str) -> Any:
    """The node that a record has under ``key``; KeyError when it has none."""
    if isinstance(record, dict):
        if key in record:
            return record[key]
        return record[Undecoded(key.encode("latin-1", "replace"))]
    return {_part(name): value for name, value in items_of(record)}[key]


def number_at(record: Any, key: str) -> int | float | None:
    """The number that a record has under ``key``: Python's or numpy's, 0-d arrays included; None when it has none."""
    if not is_record(record):
        return None
    try:
        return number(value_at(record, key))
    except KeyError:
        return None


def number(node: Any) -> int | float | None:
    """The number that a node is, if it is one; NaN is none."""
    kind = type(node)
    if kind is not int and kind is not float:
        node = meaning(node)
        if isinstance(node, Tensor) and node.info.shape == () and node.info.dtype.name != "bool":
            node = node.numpy().item()
        if isinstance(node, NumpyScalar):
            node = node.value
    if isinstance(node, bool) or not isinstance(node, (int, float)) or node != node:
        return None
    return node


# -- truncating ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Where a training goes on: records up to ``at`` stay, that of ``at`` itself only when ``inclusive``."""

    at: int
    inclusive: bool = True

    def keeps(self, iteration: int | float) -> bool:
        return iteration <= self.at if self.inclusive else iteration < self.at


@dataclass(frozen=True)
class Outcome:
    """What truncating does to one list."""

    name: str
    shown: str
    kept: int
    dropped: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kept": self.kept, "dropped": self.dropped}


def truncate(
    statistics: Statistics, cut: Cut, *, key: str, skip_unkeyed: bool = False, allow_empty: bool = False
) -> list[Outcome]:
    """Take the records of later iterations out of ``statistics``; nothing is written.

    WriteRefused when records have no number under ``key`` (they stay with ``skip_unkeyed``), and when no record at all
    would be left (unless ``allow_empty``).
    """
    unkeyed: list[str] = []
    kept: dict[int, list[Any]] = {}
    outcomes = []
    for each in statistics.lists:
        if id(each.records) not in kept:
            kept[id(each.records)] = stays = []
            for index, record in enumerate(each.records):
                iteration = number_at(record, key)
                if iteration is None:
                    unkeyed.append(f"{each.name}[{index}]")
                if iteration is None or cut.keeps(iteration):
                    stays.append(record)
        count = len(kept[id(each.records)])
        outcomes.append(Outcome(each.name, each.shown, count, len(each.records) - count))
    if unkeyed and not skip_unkeyed:
        raise _unkeyed(statistics, key, unkeyed)
    if any(outcome.dropped for outcome in outcomes) and not any(outcome.kept for outcome in outcomes):
        if not allow_empty:
            raise WriteRefused(
                f"no record is of iteration {cut.at} or before; all lists would be empty",
                where=str(statistics.path),
                hint="--allow-empty writes it all the same",
            )
    for each in statistics.lists:
        each.records[:] = kept[id(each.records)]
    return outcomes


def _unkeyed(statistics: Statistics, key: str, unkeyed: Sequence[str]) -> WriteRefused:
    shown = ", ".join(unkeyed[:5]) + (f" and {len(unkeyed) - 5} more" if len(unkeyed) > 5 else "")
    return WriteRefused(
        f"no number under {key!r} in {shown}",
        where=str(statistics.path),
        hint="--key names another counter; --skip-unkeyed keeps such records",
    )


def write(
    statistics: Statistics,
    output: Path | None,
    *,
    overwrite: bool = False,
    keep_backup: bool = True,
    progress: Progress | None = None,
) -> Path | None:
    """Write ``statistics`` to ``output``, or in place of what was read; returns the backup, if one was kept."""
    nbytes = statistics.source.nbytes
    with _collector_paused():
        if output is not None:
            with sink.Sink(output, overwrite=overwrite, nbytes=nbytes, progress=progress) as out:
                _emit(statistics, out)
            return None
        with sink.replacing(
            statistics.path, statistics.status, keep_backup=keep_backup, nbytes=nbytes, progress=progress
        ) as (out, kept):
            _emit(statistics, out)
        return kept


def _emit(statistics: Statistics, out: sink.Sink) -> None:
    Emitter(out.write, protocol=statistics.protocol, shared=shared_nodes(statistics.root)).dump(statistics.root)
    for piece in statistics.tail.chunks(0, statistics.tail.nbytes, MIB):
        out.write(piece)


# -- twins --------------------------------------------------------------------------------------------------------


def twins_of(path: Path) -> list[Path]:
    """The time-stamped copies of a statistics file beside it, the oldest first."""
    pattern = re.compile(re.escape(path.stem) + _TWIN_TIME + r"\.(?:pkl|pickle|p)", re.DOTALL)
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent) if pattern.fullmatch(entry.name))
    except OSError:
        return []
    return [path.parent / name for name in names]


def prune(twins: Sequence[Path], keep: int) -> list[Path]:
    """Remove all but the newest ``keep`` twins; returns those that are gone."""
    gone = list(twins[: max(len(twins) - keep, 0)])
    for twin in gone:
        try:
            twin.unlink(missing_ok=True)
        except OSError as error:
            raise WriteRefused(f"cannot be removed: {error.strerror}", where=str(twin)) from error
    return gone


def _explained(path: Path, error: CkptError) -> CkptError:
    """Why a file is no statistics pickle: another format, or torn, and then which twin could take its place."""
    try:
        with open_checkpoint(path) as checkpoint:
            if "pickle" not in checkpoint.format:
                return UnknownFormat(f"is {checkpoint.format}, a statistics pickle was expected", where=str(path))
    except CkptError:
        pass
    for twin in reversed(twins_of(path)):
        try:
            read_whole(twin)
        except CkptError:
            continue
        error.hint = f"cp -p {shlex.quote(str(twin))} {shlex.quote(str(path))}"
        break
    return error


def read_whole(path: Path) -> None:
    """Read a statistics pickle to see whether it can be read. UnreadableInput when not."""
    with Source(path) as source:
        _read(path, source)
