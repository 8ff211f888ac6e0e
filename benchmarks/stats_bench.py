"""How long and how much memory truncating a statistics pickle takes, against ``pickle.load`` and ``pickle.dump``.

``python benchmarks/stats_bench.py`` prints a line for each kind of file. Each measurement is a process of its own.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

_REFERENCE = """
import pickle
with open(source, "rb") as file:
    root = pickle.load(file)
with open(target, "wb") as file:
    pickle.dump(root, file)
"""
_OURS = """
from pathlib import Path
from ckpt_tools.ops import statistics
with statistics.read(Path(source)) as read:
    statistics.truncate(read, statistics.Cut(int(sys.argv[3])), key=read.counter())
    statistics.write(read, Path(target), overwrite=True)
"""
_MEASURED = r"""
import re, sys, time
source, target = sys.argv[1:3]
began = time.perf_counter()
{code}
seconds = time.perf_counter() - began
status = open("/proc/self/status").read()  # getrusage would count what the parent had before exec
print(seconds, int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024)
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


def measure(make: Callable[[], Any], directory: Path) -> None:
    """Print the ratios of time and memory for one kind of file, all records kept and half of them."""
    source, target = directory / "statistics.pkl", directory / "written.pkl"
    with source.open("wb") as file:
        root = make()
        pickle.dump(root, file)
    last = len(next(iter(root.values())))
    del root

    def run(code: str, *arguments: object) -> tuple[float, float]:
        command = [sys.executable, "-c", _MEASURED.replace("{code}", code), source, target, *map(str, arguments)]
        seconds, mib = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return float(seconds), float(mib)

    reference = run(_REFERENCE)
    print(f"{make.__name__}: {source.stat().st_size / 1e6:.0f} MB, pickle {reference[0]:.1f} s {reference[1]:.0f} MiB")
    for at in (last, last // 2):
        seconds, mib = run(_OURS, at)
        print(
            f"  --at {at}: {seconds:.1f} s ({seconds / reference[0]:.1f} x), {mib:.0f} MiB ({mib / reference[1]:.2f} x)"
        )


if __name__ == "__main__":
    for kind in (arrays, numpy_floats, python_floats):
        with tempfile.TemporaryDirectory() as scratch:
            measure(kind, Path(scratch))
