"""``records.jsonl`` of PaddleSpeech's snapshot extension, read so that it can be edited without touching the rest.

Each line is a JSON object ``{"time": …, "path": …, "iteration": …}`` that names a snapshot. The trainer reads the file
through jsonlines, which takes a byte order mark, CRLF, trailing blanks, a leading record separator (0x1e) and a missing
final newline, and fails on an empty line and on anything that is no object. It resumes from the last record, and, when
it rotates, removes the file that the first one names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ckpt_tools.errors import CkptError, CorruptFile, WriteRefused
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.finding import Finder, places_beside
from ckpt_tools.ops.iterations import recorded_iteration
from ckpt_tools.ops.repairs import Entry, Policy, Repair, State, command, read_for_repair

NAME = "records.jsonl"
_MARK = "\ufeff"
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")
_BLANK = re.compile(r"[ \t\r\n]*")
#: What jsonlines lets a line begin with.
_SKIPPED = ("\x1e", _MARK)
#: Damaged lines that an error names.
_NAMED = 4
#: ``snapshot_iter_30.pdz``, ``pwg_snapshot_iter_400000.pdz``: what stands before the number names the series.
_SNAPSHOT = re.compile(r"(?P<series>.*?)(?P<iteration>\d{1,18})(?P<suffix>\.[^.\d]*)?", re.DOTALL)

_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Record:
    """One line that names a snapshot. ``start`` and ``end`` span the text of its path, quotes included."""

    line: int
    path: str
    iteration: int | float | None
    start: int
    end: int


@dataclass(frozen=True)
class Damage:
    """One line that jsonlines or the trainer would fail on."""

    line: int
    text: str
    message: str


@dataclass(frozen=True)
class Records:
    """A parsed file: its lines with their ends, and what each of them is. Lines are numbered from 1."""

    lines: tuple[bytes, ...]
    records: tuple[Record, ...]
    damaged: tuple[Damage, ...]

    def edited(self, replaced: Mapping[int, str], removed: Collection[int] = ()) -> bytes:
        """The file with other paths in some lines and without others. Every other byte stays as it is."""
        paths = {record.line: record for record in self.records}
        kept = []
        for number, line in enumerate(self.lines, 1):
            if number in removed:
                continue
            if number in replaced:
                record = paths[number]
                old = line.decode("utf-8")
                literal = _literal(replaced[number], old[record.start : record.end], record.path)
                line = (old[: record.start] + literal + old[record.end :]).encode("utf-8")
            kept.append(line)
        mark = _MARK.encode("utf-8")
        if 1 in removed and self.lines[0].startswith(mark) and kept:
            kept[0] = mark + kept[0]
        return b"".join(kept)


def parse(data: bytes) -> Records:
    """Parse a records file; whatever cannot be read is a damaged line in the result."""
    lines, records, damaged = [], [], []
    for match in _LINE.finditer(data):
        if not match[0]:
            break
        lines.append(match[0])
        number = len(lines)
        try:
            records.append(_record(match[1], number))
        except (ValueError, RecursionError) as error:
            shown = match[1].decode("utf-8", "replace")
            message = str(error) if type(error) is ValueError else _cause(match[1], error)
            damaged.append(Damage(number, shown, message))
    return Records(tuple(lines), tuple(records), tuple(damaged))


def _record(raw: bytes, number: int) -> Record:
    text = raw.decode("utf-8")
    at = 1 if number == 1 and text.startswith(_MARK) else 0
    if text.startswith(_SKIPPED, at):
        at += 1
    at = _blank(text, at)
    if at == len(text):
        raise ValueError("an empty line")
    if text[at] != "{":
        _decode(text, at)
        raise ValueError("no JSON object")
    fields: dict[str, tuple[Any, int, int]] = {}
    at = _blank(text, at + 1)
    while not text.startswith("}", at):
        if fields:
            at = _blank(text, _after(text, at, ","))
        key, at = _decode(text, at)
        at = _blank(text, _after(text, _blank(text, at), ":"))
        value, end = _decode(text, at)
        if not isinstance(key, str):
            raise ValueError("a key that is no text")
        fields[key] = value, at, end
        at = _blank(text, end)
    if _blank(text, at + 1) != len(text):
        raise ValueError("something follows the JSON object")
    path, start, end = fields.get("path", (None, 0, 0))
    if not isinstance(path, str):
        raise ValueError('no "path" with a text')
    iteration = fields.get("iteration", (None,))[0]
    known = isinstance(iteration, (int, float)) and not isinstance(iteration, bool)
    return Record(number, path, iteration if known else None, start, end)


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _after(text: str, at: int, mark: str) -> int:
    if not text.startswith(mark, at):
        raise json.JSONDecodeError(f"{mark} expected", text, at)
    return at + 1


def _cause(raw: bytes, error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        cut = error.pos >= len(error.doc.rstrip()) or "Unterminated" in error.msg
        return "invalid JSON (truncated)" if cut else f"invalid JSON at character {error.pos + 1}"
    return "invalid JSON"


def _literal(path: str, before: str, old: str) -> str:
    """``path`` as a JSON text in the manner of the one it replaces. Undecodable names need escapes in any case."""
    escaped = before.isascii() and not old.isascii()
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        escaped = True
    return json.dumps(path, ensure_ascii=escaped)


def series_of(name: str) -> tuple[str, int] | None:
    """The series a snapshot's file name belongs to and the iteration it tells; None when it has no number."""
    match = _SNAPSHOT.fullmatch(name)
    return (match["series"] + (match["suffix"] or ""), int(match["iteration"])) if match else None


def rebuilt(snapshots: Iterable[tuple[Path, int]]) -> bytes:
    """Records made anew for snapshots and their iterations, as the trainer writes them.

    Each series stands together, in the order of iterations; the one that went furthest comes last, since training
    resumes from the last record. ``time`` is that of the file.
    """
    series: dict[str, list[tuple[int, Path]]] = {}
    for path, iteration in snapshots:
        found = series_of(path.name)
        series.setdefault(found[0] if found else path.name, []).append((iteration, path))
    ordered = sorted((sorted(members) for members in series.values()), key=lambda members: members[-1])
    lines = []
    for members in ordered:
        for iteration, path in members:
            record = {"time": str(_modified(path)), "path": str(path), "iteration": iteration}
            lines.append(json.dumps(record, ensure_ascii=not _encodes(str(path))) + "\n")
    return "".join(lines).encode("utf-8")


def _modified(path: Path) -> datetime:
    seconds, nanoseconds = divmod(path.stat().st_mtime_ns, 1_000_000_000)
    return datetime.fromtimestamp(seconds).replace(microsecond=nanoseconds // 1000)


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def examine(path: Path, finder: Finder, policy: Policy) -> Repair:
    """What a records file needs. UnreadableInput when it cannot be read."""
    data, seen = read_for_repair(path)
    parsed = parse(data)
    repair = Repair(path, "records", seen=seen)
    repair.entries = sorted(
        [*_entries(parsed, path, finder, policy), *_damages(parsed, policy)], key=lambda entry: entry.line
    )
    repair.error = _obstacle(parsed, repair.entries, path, policy)
    if repair.error is not None:
        return repair
    removed = {entry.line for entry in repair.entries if entry.dropped}
    repair.notes += _notes([record for record in parsed.records if record.line not in removed])
    replaced = {e.line: e.new for e in repair.entries if e.new is not None and e.new != e.old}
    content = parsed.edited(replaced, removed)
    repair.content = content if content != data else None
    return repair


def _entries(parsed: Records, path: Path, finder: Finder, policy: Policy) -> Iterator[Entry]:
    beside = places_beside(path)
    first_lines: dict[str, int] = {}
    for record in parsed.records:
        now = Path(record.path) if record.path.startswith("/") else None
        found = finder.find(record.path, now, beside, os.path.isfile)
        if found.target is None:
            dropped = policy.drop_missing and found.state is State.MISSING
            yield Entry(record.line, found.state, record.path, None, found.reason, dropped=dropped)
            continue
        state, reason = found.state, found.reason
        disagreement = _disagreement(record, found.target)
        first = first_lines.setdefault(os.path.realpath(found.target), record.line)
        if disagreement:
            state, reason = State.MISMATCH, disagreement
        elif first != record.line:
            state, reason = State.DUPLICATE, f"line {first} names it too"
        new = record.path if found.state is State.OK else str(found.target)
        yield Entry(record.line, state, record.path, new, reason)


def _damages(parsed: Records, policy: Policy) -> list[Entry]:
    return [
        Entry(damage.line, State.DAMAGED, damage.text, None, damage.message, dropped=policy.drop_damaged)
        for damage in parsed.damaged
    ]


def _obstacle(parsed: Records, entries: Sequence[Entry], path: Path, policy: Policy) -> CkptError | None:
    """Why the file is left alone, if it is."""
    if parsed.damaged and not policy.drop_damaged:
        shown = "; ".join(f"line {damage.line}: {damage.message}" for damage in parsed.damaged[:_NAMED])
        more = f"; and {len(parsed.damaged) - _NAMED} more" if len(parsed.damaged) > _NAMED else ""
        return CorruptFile(shown + more, where=str(path), hint=command(path, "--drop-damaged"))
    if not entries:
        return CorruptFile(
            "holds no record, and training cannot resume from that", where=str(path), hint=command(path, "--rebuild")
        )
    if all(entry.dropped for entry in entries):
        return WriteRefused(
            "no record would be left, and training cannot resume", where=str(path), hint=command(path, "--rebuild")
        )
    return None


def _notes(records: Sequence[Record]) -> list[str]:
    newest: dict[str, int | float] = {}
    for record in records:
        if record.iteration is not None:
            series = _series_name(record)
            newest[series] = max(newest.get(series, record.iteration), record.iteration)
    last = records[-1]
    furthest = newest.get(_series_name(last))
    if last.iteration is None or furthest is None or last.iteration >= furthest:
        return []
    return [f"the last record, from which training resumes, is of iteration {last.iteration}; the newest is {furthest}"]


def _series_name(record: Record) -> str:
    name = re.split(r"[\\/]", record.path)[-1]
    found = series_of(name)
    return found[0] if found else name


def _disagreement(record: Record, snapshot: Path) -> str:
    """How the name, the record and the snapshot itself disagree about the iteration; empty when they do not."""
    told = {"the record": record.iteration, "the name": named_iteration(snapshot.name)}
    told["the file"] = recorded_iteration(snapshot)
    known = {who: iteration for who, iteration in told.items() if iteration is not None}
    if len(set(known.values())) < 2:
        return ""
    return ", ".join(f"{who} says {iteration}" for who, iteration in known.items())


def named_iteration(name: str) -> int | None:
    """The iteration that a snapshot's file name tells; None when it is no snapshot's."""
    found = series_of(name)
    return found[1] if found is not None and "iter" in found[0] else None


def rebuild(directory: Path) -> Repair | None:
    """Records made anew from the snapshots in ``directory``; None when there is none.

    A snapshot that cannot be read is left out and told as damaged: training could not resume from it.
    """
    path = directory / NAME
    snapshots: list[tuple[Path, int]] = []
    repair = Repair(path, "records")
    for file in sorted(directory.glob("*.pdz")):
        named = named_iteration(file.name)
        if named is None or not file.is_file():
            continue
        real = places_beside(file)[-1] / file.name
        inside = recorded_iteration(real)
        if inside is None and not _is_readable(real):
            repair.entries.append(Entry(0, State.DAMAGED, str(real), None, "cannot be read"))
            continue
        snapshots.append((real, named if inside is None else inside))
    if not snapshots and not repair.entries:
        return None
    data = b""
    if path.exists():
        data, repair.seen = read_for_repair(path)
    content = rebuilt(snapshots)
    if not content:
        repair.error = CorruptFile("none of the snapshots can be read", where=str(directory))
    elif content != data:
        repair.content = content
    before = {record.path for record in parse(data).records}
    for record in parse(content).records:
        state = State.OK if record.path in before else State.MOVED
        repair.entries.append(Entry(record.line, state, record.path, record.path))
    return repair


def _is_readable(path: Path) -> bool:
    try:
        open_checkpoint(path).close()
    except CkptError:
        return False
    return True
