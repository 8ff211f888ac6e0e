"""Whole commands, timed from outside: wall time and peak memory, the contenders in turn so that drift hits all alike."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
CKPT = (sys.executable, "-m", "ckpt_tools")


@dataclass(frozen=True)
class Run:
    """One contender's figures: seconds of each run, and the largest peak memory in bytes."""

    seconds: tuple[float, ...]
    peak_nbytes: int

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def middle(self) -> float:
        return median(self.seconds)


def python(code: str, *arguments: object) -> tuple[str, ...]:
    """The command that runs a piece of Python."""
    return (sys.executable, "-c", code, *map(str, arguments))


def once(command: Sequence[str]) -> tuple[float, int]:
    """Seconds and peak memory of one run; its output goes nowhere. RuntimeError when it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    began = time.perf_counter()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled once, and so shall this be
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1 is the answer "no" of diff and verify
        raise RuntimeError(
            f"{' '.join(command)} ended with {process.returncode}: {said.decode(errors='replace')[-2000:]}"
        )
    return seconds, usage.ru_maxrss * 1024


def in_turn(
    commands: dict[str, Sequence[str]], *, runs: int = 5, made: Mapping[str, Path] | None = None
) -> dict[str, Run]:
    """Every command ``runs`` times, A B C A B C …, after one run of each that is not counted.

    ``made`` has the files that commands write: each is removed before its command runs, so that all find the memory
    that the last file took, and none pays for keeping an old file while it writes a new one; and they are gone in the
    end. With ``CKPT_BENCH_ONCE`` in the environment, once and that is all: to see that it still works.
    """
    first_counted = 0 if "CKPT_BENCH_ONCE" in os.environ else 1
    runs = runs if first_counted else 0
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    peaks = dict.fromkeys(commands, 0)
    for turn in range(runs + 1):
        for name, command in commands.items():
            if made:
                made[name].unlink(missing_ok=True)
            took, peak = once(command)
            peaks[name] = max(peaks[name], peak)
            if turn >= first_counted:
                seconds[name].append(took)
    for path in (made or {}).values():
        path.unlink()
    return {name: Run(tuple(taken), peaks[name]) for name, taken in seconds.items()}


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, the figures, and what they were meant to stay within."""

    what: str
    figure: str
    meant: str
    holds: bool


@dataclass
class Section:
    """One table of the report."""

    title: str
    about: str
    rows: list[Row] = field(default_factory=list)

    def ratio(
        self, what: str, ours: float, theirs: float, *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """A line that compares two times: ours as a multiple of theirs, or theirs of ours with ``at_least``."""
        if at_most is not None:
            value = ours / theirs
            self.rows.append(
                Row(what, f"{value:.2f} × ({ours:.3f} s / {theirs:.3f} s)", f"≤ {at_most:g} ×", value <= at_most)
            )
        elif at_least is not None:
            value = theirs / ours
            self.rows.append(
                Row(
                    what,
                    f"{value:.1f} × faster ({ours:.3f} s / {theirs:.3f} s)",
                    f"≥ {at_least:g} ×",
                    value >= at_least,
                )
            )

    def memory(self, what: str, nbytes: int, *, at_most_mib: int) -> None:
        """A line about peak memory."""
        mib = nbytes / (1 << 20)
        self.rows.append(Row(what, f"{mib:.0f} MiB", f"≤ {at_most_mib} MiB", mib <= at_most_mib))

    def share(self, what: str, ours: int, theirs: int, *, at_most: float) -> None:
        """A line about peak memory as a multiple of another's."""
        value = ours / theirs
        figure = f"{value:.2f} × ({ours >> 20} MiB / {theirs >> 20} MiB)"
        self.rows.append(Row(what, figure, f"≤ {at_most:g} ×", value <= at_most))

    def seconds(self, what: str, took: float, *, at_most: float) -> None:
        """A line about a time by itself."""
        self.rows.append(Row(what, f"{took:.1f} s", f"≤ {at_most:g} s", took <= at_most))

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", self.about, "", "| what | measured | meant | holds |", "|---|---|---|---|"]
        lines += [f"| {r.what} | {r.figure} | {r.meant} | {'yes' if r.holds else 'no'} |" for r in self.rows]
        return "\n".join(lines) + "\n"
