"""Runs of bytes side by side: which of them overlap, and what lies between and behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """The bytes ``[start, end)`` of a file, and what they are, for people."""

    start: int
    end: int
    name: str


def overlapping(runs: Iterable[Run]) -> Iterator[tuple[Run, Run]]:
    """Each run that begins inside an earlier one, behind the one it overlaps. Empty runs overlap nothing."""
    reaching: Run | None = None
    for run in sorted(run for run in runs if run.start < run.end):
        if reaching is not None and run.start < reaching.end:
            yield reaching, run
        if reaching is None or run.end > reaching.end:
            reaching = run


def between(runs: Iterable[Run], start: int, end: int) -> Iterator[Run]:
    """What of ``[start, end)`` belongs to no run, in order; each is named after the run in front of it."""
    name = ""
    for run in sorted(runs):
        if run.start > start:
            yield Run(start, min(run.start, end), name)
        if run.end > start:
            start, name = run.end, run.name
    if start < end:
        yield Run(start, end, name)
