"""Truncating a statistics pickle, against ``pickle.load`` and ``pickle.dump`` of the same; and walking many runs."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from files import Files
from measure import CKPT, Section, in_turn, python

_REFERENCE = """
import pickle, sys
source, target = sys.argv[1:3]
with open(source, "rb") as file:
    root = pickle.load(file)
with open(target, "wb") as file:
    pickle.dump(root, file)
"""
_OURS = """
import sys
from pathlib import Path
source, target = sys.argv[1:3]
from ckpt_tools.ops import statistics
with statistics.read(Path(source)) as read:
    statistics.truncate(read, statistics.Cut(int(sys.argv[3])), key=read.counter())
    statistics.write(read, Path(target), overwrite=True)
"""


def arrays(count: int = 30_000) -> Any:
    """Two arrays of 527 classes in each record: 500 MB."""
    random = numpy.random.default_rng(0)
    return {
        name: [{"ap": random.random(527), "auc": random.random(527), "iteration": n} for n in range(count)]
        for name in ("bal", "test")
    }


def numpy_floats(count: int = 350_000) -> Any:
    """Three numpy floats in each record: 50 MB."""
    return {
        name: [
            {"ap": numpy.float64(n), "auc": numpy.float64(-n), "loss": numpy.float64(n / 7), "iteration": n}
            for n in range(count)
        ]
        for name in ("bal", "test")
    }


def python_floats(count: int = 800_000) -> Any:
    """Two Python floats in each record: 50 MB."""
    return {name: [{"loss": n / 3, "acc": n / 7, "iteration": n} for n in range(count)] for name in ("train", "test")}


def _write(make: Callable[[int], Any], count: int, target: Path) -> None:
    with target.open("wb") as file:
        pickle.dump(make(count), file)


def runs(folder: Path, count: int) -> Path:
    """``count`` run directories with five snapshots and moved records each."""
    top = folder / f"runs-{count}"
    snapshots = {n: pickle.dumps({"epoch": n, "iteration": n, "main_params": {}}, 4) for n in range(10, 60, 10)}
    for run in range(count):
        here = top / f"run{run:04}" / "checkpoints"
        if here.exists():
            continue
        here.mkdir(parents=True)
        lines = []
        for number, content in snapshots.items():
            (here / f"snapshot_iter_{number}.pdz").write_bytes(content)
            path = f"/old/run{run:04}/checkpoints/snapshot_iter_{number}.pdz"
            lines.append(json.dumps({"time": "2024-01-02 03:04:05.5", "path": path, "iteration": number}))
        (here / "records.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return top


_KINDS: tuple[tuple[str, Callable[[int], Any], int, float], ...] = (
    ("500 MB of arrays", arrays, 30_000, 3),
    ("50 MB of numpy floats", numpy_floats, 350_000, 10),
    ("50 MB of Python floats", python_floats, 800_000, 10),
)
#: How much smaller the files are that only show that this still runs.
_SMALLER = 1000


def measure(files: Files) -> Section:
    """The table for statistics and moved runs."""
    section = Section(
        "Statistics and moved runs",
        "Truncating to half the records, as a process that reads and writes, beside one that runs `pickle.load` and"
        " `pickle.dump`; `ckpt fix-paths --check` over a tree of moved runs with five snapshots each. Best of runs in turn.",
    )
    for label, make, count, most in _KINDS:
        count = count // _SMALLER if files.small else count
        source = files.folder / f"{make.__name__}.pkl"
        if not source.exists():
            # in a process of its own: what this one has held would count as held by those it starts
            writer = multiprocessing.get_context("spawn").Process(target=_write, args=(make, count, source))
            writer.start()
            writer.join()
        target = files.folder / f"{make.__name__}-cut.pkl"
        measured = in_turn(
            {"ours": python(_OURS, source, target, count // 2), "pickle": python(_REFERENCE, source, target)}, runs=2
        )
        section.ratio(f"{label} / pickle", measured["ours"].best, measured["pickle"].best, at_most=most)
        peaks = measured["ours"].peak_nbytes, measured["pickle"].peak_nbytes
        section.share(f"{label}, peak memory / pickle's", *peaks, at_most=1.5)
    count = 20 if files.small else 2000
    took = in_turn({"ours": (*CKPT, "fix-paths", "--check", str(runs(files.folder, count)))}, runs=3)["ours"]
    section.seconds(f"a tree of {count:,} runs checked", took.best, at_most=5)
    return section
