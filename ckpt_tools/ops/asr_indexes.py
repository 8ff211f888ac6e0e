"""``checkpoint_latest`` and ``checkpoint_best`` of PaddleSpeech's ASR trainers.

Lines ``model_checkpoint_path:<n>``; the trainer takes the number behind the last colon of the last line and loads
``<n>.pdparams`` and ``<n>.pdopt`` beside the file. There are no paths in it that could move, only numbers without files.
"""

from __future__ import annotations

import re
from pathlib import Path

from ckpt_tools.errors import CkptError, CorruptFile, WriteRefused
from ckpt_tools.ops.finding import places_beside
from ckpt_tools.ops.repairs import Entry, Policy, Repair, State, command, read_for_repair

NAMES = ("checkpoint_latest", "checkpoint_best")
_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_NUMBER = re.compile(r"(?:.*:)?\s*(-?\d{1,18})\s*", re.DOTALL)


def examine(path: Path, policy: Policy) -> Repair:
    """What such a file needs. UnreadableInput when it cannot be read."""
    data, seen = read_for_repair(path)
    repair = Repair(path, "paddlespeech-asr", seen=seen)
    lines = [match for match in _LINE.finditer(data) if match[0]]
    first_lines: dict[str, int] = {}
    for line, match in enumerate(lines, 1):
        text = match[1].decode("utf-8", "replace")
        number = _NUMBER.fullmatch(text)
        if number is None:
            reason = "no number behind a colon"
            repair.entries.append(Entry(line, State.DAMAGED, text, None, reason, dropped=policy.drop_damaged))
        elif not any((place / f"{number[1]}.pdparams").is_file() for place in places_beside(path)):
            reason = f"{number[1]}.pdparams is not here"
            repair.entries.append(Entry(line, State.MISSING, text, None, reason, dropped=policy.drop_missing))
        else:
            first = first_lines.setdefault(number[1], line)
            state, reason = (State.OK, "") if first == line else (State.DUPLICATE, f"line {first} names it too")
            repair.entries.append(Entry(line, state, text, text, reason))
    repair.error = _obstacle(repair, policy)
    if repair.error is None:
        content = b"".join(match[0] for match, entry in zip(lines, repair.entries) if not entry.dropped)
        repair.content = content if content != data else None
    return repair


def _obstacle(repair: Repair, policy: Policy) -> CkptError | None:
    """Why the file is left alone, if it is."""
    where = str(repair.path)
    damaged = [entry for entry in repair.entries if entry.state is State.DAMAGED]
    if damaged and not policy.drop_damaged:
        message = f"line {damaged[0].line}: {damaged[0].reason}"
        return CorruptFile(message, where=where, hint=command(repair.path, "--drop-damaged"))
    if not repair.entries:
        return CorruptFile("names no checkpoint", where=where)
    if all(entry.dropped for entry in repair.entries):
        return WriteRefused("none of its checkpoints would be left", where=where)
    return None
