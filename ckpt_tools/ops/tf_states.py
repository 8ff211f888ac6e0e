"""Repairs of TensorFlow's ``checkpoint`` files. Only paths change; the n-th timestamp goes with the n-th path.

Relative paths are read from the directory of the file, so they survive the next move: what is repaired becomes
relative unless absolute ones are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ckpt_tools.core.location import member_of_prefix
from ckpt_tools.errors import CkptError, CorruptFile, WriteRefused
from ckpt_tools.formats import _tf_state
from ckpt_tools.formats._tf_state import Problem, Value
from ckpt_tools.ops.finding import Finder, places_beside
from ckpt_tools.ops.repairs import Entry, Policy, Repair, State, command, read_for_repair


def is_prefix(path: Path) -> bool:
    """Whether a checkpoint of TensorFlow's has this prefix."""
    return member_of_prefix(os.fspath(path)) is not None


def examine(path: Path, finder: Finder, policy: Policy) -> Repair:
    """What a state file needs. UnreadableInput when it cannot be read."""
    data, seen = read_for_repair(path)
    state = _tf_state.parse(data)
    repair = Repair(path, "tf-state", seen=seen)
    values = state.values(_tf_state.LATEST) + state.values(_tf_state.ALL)
    found = {value: _entry(value, path, finder, policy) for value in values}
    _mark_duplicates(state, found, path)
    latest_missing = _replace_latest(state, found)
    problems = [
        Entry(p.line, State.DAMAGED, state.text[p.start : p.end].strip(), None, p.message, dropped=policy.drop_damaged)
        for p in state.problems
    ]
    repair.entries = sorted([*found.values(), *problems], key=lambda entry: entry.line)
    repair.error = _obstacle(state, found, path, policy)
    if state.timestamps and len(state.timestamps) != len(state.paths):
        repair.notes.append(f"{len(state.timestamps)} timestamps for {len(state.paths)} paths: TensorFlow ignores them")
    if latest_missing:
        repair.notes.append(f"the latest checkpoint is not here; a training resumes from {latest_missing}")
    if repair.error is not None:
        return repair
    replaced = {value: e.new for value, e in found.items() if e.new is not None and e.new != e.old}
    removed = {value for value, entry in found.items() if entry.dropped}
    removed |= _timestamps_of(state, removed)
    dropped: tuple[Problem, ...] = state.problems if policy.drop_damaged else ()
    content = state.edited(replaced=replaced, removed=removed, dropped=dropped).encode("utf-8")
    repair.content = content if content != data else None
    return repair


def _entry(value: Value, path: Path, finder: Finder, policy: Policy) -> Entry:
    beside = places_beside(path)
    written = value.content
    now = beside[0] / written if written and not _is_of_windows(written) else None
    found = finder.find(written, now, beside, is_prefix)
    if found.target is None:
        dropped = policy.drop_missing and found.state is State.MISSING and value.field == _tf_state.ALL
        return Entry(value.line, found.state, written, None, found.reason, dropped=dropped)
    if found.state is State.OK:
        return Entry(value.line, State.OK, written, written, found.reason)
    new = str(found.target) if policy.absolute else os.path.relpath(found.target, beside[0])
    return Entry(value.line, found.state, written, new, found.reason)


def _is_of_windows(path: str) -> bool:
    return path[1:3] in (":\\", ":/") or path.startswith("\\\\")


def _mark_duplicates(state: _tf_state.State, found: dict[Value, Entry], path: Path) -> None:
    known: dict[str, Value] = {}
    base = places_beside(path)[0]
    for value in state.values(_tf_state.ALL):
        entry = found[value]
        if entry.new is None:
            continue
        first = known.setdefault(os.path.realpath(base / entry.new), value)
        if first is not value:
            reason = f"line {first.line} names it too"
            found[value] = Entry(value.line, State.DUPLICATE, entry.old, entry.new, reason)


def _replace_latest(state: _tf_state.State, found: dict[Value, Entry]) -> str | None:
    """Where missing paths are dropped, the latest becomes the last that is kept: TensorFlow refuses a file without."""
    latest = state.values(_tf_state.LATEST)
    listed = [found[value] for value in state.values(_tf_state.ALL)]
    if not latest or found[latest[-1]].state is not State.MISSING or not any(entry.dropped for entry in listed):
        return None
    kept = [entry.new for entry in listed if entry.new is not None]
    if not kept:
        return None
    for value in latest:
        found[value] = Entry(value.line, State.MISSING, found[value].old, kept[-1], "the last that is kept")
    return kept[-1]


def _obstacle(state: _tf_state.State, found: Mapping[Value, Entry], path: Path, policy: Policy) -> CkptError | None:
    """Why the file is left alone, if it is."""
    if state.problems and not policy.drop_damaged:
        first = state.problems[0]
        return CorruptFile(
            f"line {first.line}: {first.message}; TensorFlow ignores the whole file",
            where=str(path),
            hint=command(path, "--drop-damaged"),
        )
    if not state.latest:
        return CorruptFile("names no model_checkpoint_path, without which TensorFlow refuses it", where=str(path))
    if any(entry.dropped for entry in found.values()) and all(entry.new is None for entry in found.values()):
        return WriteRefused("none of its checkpoints would be left", where=str(path))
    for entry in found.values():
        try:
            (entry.new or "").encode("utf-8")
        except UnicodeEncodeError:
            return WriteRefused(f"{entry.new} is no UTF-8 text, a state file can hold no other", where=str(path))
    return None


def _timestamps_of(state: _tf_state.State, removed: set[Value]) -> set[Value]:
    paths, timestamps = state.values(_tf_state.ALL), state.values(_tf_state.TIMESTAMPS)
    if len(paths) != len(timestamps):
        return set()
    return {stamp for value, stamp in zip(paths, timestamps) if value in removed}
