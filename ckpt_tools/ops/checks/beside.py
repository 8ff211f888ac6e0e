"""What the files beside a checkpoint tell of the training that wrote it: its records, its statistics."""

from __future__ import annotations

import re
from pathlib import Path

from ckpt_tools.errors import CkptError
from ckpt_tools.ops import records, statistics
from ckpt_tools.ops.repairs import read_for_repair


def recorded_iteration(checkpoint: Path) -> int | None:
    """The iteration that the records beside a checkpoint have for it; None when they have none."""
    beside = checkpoint.parent / records.NAME
    if not beside.is_file():
        return None
    try:
        content, _ = read_for_repair(beside)
    except CkptError:
        return None
    names = re.compile(r"[\\/]")
    found = [r.iteration for r in records.parse(content).records if names.split(r.path)[-1] == checkpoint.name]
    last = found[-1] if found else None
    return last if isinstance(last, int) else None


def statistics_of(checkpoint: Path) -> tuple[int, Path] | None:
    """The last iteration of the statistics that belong to a checkpoint, and where they are; None when there are none.

    They lie beside it, or, as transcription trainers lay them out, in the same place below ``statistics`` where the
    checkpoint is below ``checkpoints``.
    """
    folders = [checkpoint.parent]
    parts = checkpoint.parts if "checkpoints" in checkpoint.parts else checkpoint.absolute().parts
    if "checkpoints" in parts:
        at = len(parts) - 1 - parts[::-1].index("checkpoints")
        folders.append(Path(*parts[:at], "statistics", *parts[at + 1 : -1]))
    for folder in folders:
        path = folder / "statistics.pkl"
        if path.is_file():
            try:
                with statistics.read(path) as found:
                    last = _last(found)
            except CkptError:
                continue
            if last is not None:
                return last, path
    return None


def _last(found: statistics.Statistics) -> int | None:
    key = found.counter()
    numbers = [statistics.number_at(record, key) for each in found.lists for record in each.records]
    known = [int(number) for number in numbers if number is not None]
    return max(known, default=None)
