"""Do the paths that a run keeps lead to its own checkpoints? The classes are those of ``fix-paths``, which repairs them."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.errors import UnreadableInput
from ckpt_tools.ops import paths
from ckpt_tools.ops.checks import Outcome, done
from ckpt_tools.ops.finding import Finder
from ckpt_tools.ops.repairs import Entry, Policy, Repair, State

_MEANINGS = {
    State.MOVED: ("leads nowhere, and the file is beside it", Severity.ERROR),
    State.ELSEWHERE: ("exists but points outside this directory, which has one of the same name", Severity.ERROR),
    State.MISSING: ("leads nowhere", Severity.ERROR),
    State.AMBIGUOUS: ("leads nowhere, and several files could be meant", Severity.ERROR),
    State.DUPLICATE: ("is named by another line too", Severity.WARNING),
    State.MISMATCH: ("is not the checkpoint that the line says", Severity.ERROR),
    State.DAMAGED: ("cannot be read by the trainer", Severity.ERROR),
}
_DROPPED_BY = {State.MISSING: "--drop-missing", State.DAMAGED: "--drop-damaged"}
#: Paths of one class that are told one by one; the rest is counted.
_SHOWN = 3


def check(path: Path) -> list[Outcome]:
    """An outcome for each file at or below ``path`` that keeps paths; none when there is no such file."""
    try:
        found = list(paths.survey([path], Finder(), Policy()))
    except UnreadableInput:
        return []  # a file that keeps no paths, or none at all: the other checks tell
    # directories that cannot be listed are told by whoever looks for checkpoints
    return [_outcome(repair) for repair in found if repair.kind != "directory"]


def _outcome(repair: Repair) -> Outcome:
    where = str(repair.path)
    issues = []
    if repair.error is not None and not any(entry.state is State.DAMAGED for entry in repair.entries):
        hint = repair.error.hint or f"ckpt fix-paths {shlex.quote(where)} --drop-damaged"
        issues.append(Issue("paths-damaged", Severity.ERROR, where, repair.error.message, hint))
    by_state: dict[State, list[Entry]] = {}
    for entry in repair.entries:
        if entry.state is not State.OK:
            by_state.setdefault(entry.state, []).append(entry)
    for state, entries in by_state.items():
        issues += [_issue(where, entry) for entry in entries[:_SHOWN]]
        if len(entries) > _SHOWN:
            meaning, severity = _MEANINGS[state]
            text = f"{len(entries) - _SHOWN} more paths of which each {meaning}"
            issues.append(Issue(f"paths-{state.value}", severity, where, text))
    issues += [Issue("paths-note", Severity.NOTE, where, note) for note in repair.notes]
    counts = Counter(entry.state for entry in repair.entries)
    if counts[State.ELSEWHERE]:
        text = f"{counts[State.ELSEWHERE]} paths exist but point outside this directory: a resumed run reads and deletes them there"
        issues.append(Issue("paths-outside", Severity.NOTE, where, text))
    return done(f"paths-{repair.kind}", where, issues)


def _issue(where: str, entry: Entry) -> Issue:
    meaning, severity = _MEANINGS[entry.state]
    reason = f" ({entry.reason})" if entry.reason and entry.state is not State.ELSEWHERE else ""
    text = f"line {entry.line}: {entry.old!r} {meaning}{reason}"
    hint = f"ckpt fix-paths {shlex.quote(where)}"
    if entry.state in _DROPPED_BY:
        hint += f" {_DROPPED_BY[entry.state]}"
    return Issue(f"paths-{entry.state.value}", severity, where, text, hint)
