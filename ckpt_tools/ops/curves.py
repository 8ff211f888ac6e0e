"""What a statistics pickle says: the course of each metric, its best value, and the saved checkpoint nearest to it."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ckpt_tools.core.limits import MIB
from ckpt_tools.core.sink import LEFT_BESIDE
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.ops.numbers import has_numbers
from ckpt_tools.ops.statistics import RecordList, Statistics, is_record, items_of, number, number_at
from ckpt_tools.pickles.verbatim import meaning

#: Arrays of a record (a value for each class) are shown by their mean; larger ones are no metric.
_MEAN_NBYTES = MIB
#: Metrics of which less is better, by the words in their names.
_LESS_IS_BETTER = re.compile(
    r"(?:^|[^a-z])(?:loss|losses|err|error|errors|mae|mse|rmse|mape|wer|cer|per|eer|der|ter|nll|ppl|perplexity|fid|lr)"
    r"(?:$|[^a-z])|loss$|error$",
    re.IGNORECASE,
)
#: Files that are checkpoints by their suffix; the number that ends the name is the iteration.
_CHECKPOINT = re.compile(
    r".*?(?P<iteration>\d{1,18})[^\d]*\.(?:pth|pt|pdz|pdparams|ckpt|index|h5|keras|safetensors)", re.DOTALL
)
#: Trainers keep statistics and checkpoints in parallel trees of these names.
_STATISTICS, _CHECKPOINTS = "statistics", "checkpoints"
#: Directories looked through for checkpoints, where the parallel tree is not quite parallel.
_DIRECTORIES = 200

Point = tuple["int | float", float]


@dataclass(frozen=True)
class Curve:
    """One metric of one list: (iteration, value) in the order of the records."""

    list_name: str
    metric: str
    points: tuple[Point, ...]

    @property
    def less_is_better(self) -> bool:
        return _LESS_IS_BETTER.search(self.metric) is not None

    @property
    def last(self) -> Point:
        return self.points[-1]

    @property
    def best(self) -> Point | None:
        """The first of the best finite values; None when there is none."""
        finite = [point for point in self.points if math.isfinite(point[1])]
        if not finite:
            return None
        return (min if self.less_is_better else max)(finite, key=lambda point: point[1])


@dataclass(frozen=True)
class Span:
    """The iterations of one list. ``duplicates`` counts the records beyond the first of each iteration."""

    name: str
    shown: str
    records: int
    unkeyed: int
    first: int | float | None
    last: int | float | None
    duplicates: int
    ascending: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "records": self.records,
            "unkeyed": self.unkeyed,
            "first": self.first,
            "last": self.last,
            "duplicates": self.duplicates,
            "ascending": self.ascending,
        }


def span_of(each: RecordList, key: str) -> Span:
    """The iterations of a list."""
    iterations = [n for record in each.records if (n := number_at(record, key)) is not None]
    return Span(
        each.name,
        each.shown,
        len(each.records),
        len(each.records) - len(iterations),
        min(iterations, default=None),
        max(iterations, default=None),
        sum(times - 1 for times in Counter(iterations).values()),
        all(a <= b for a, b in pairwise(iterations)),
    )


def curves_of(statistics: Statistics, key: str) -> list[Curve]:
    """Every metric of every list, in the order of the file."""
    return [curve for each in statistics.lists for curve in _curves(each, key)]


def _curves(each: RecordList, key: str) -> Iterator[Curve]:
    points: dict[str, list[Point]] = {}
    for record in each.records:
        iteration = number_at(record, key)
        if iteration is None or not is_record(record):
            continue
        for name, node in items_of(record):
            metric = meaning(name)
            if isinstance(metric, str) and metric != key:
                value = _value(node)
                if value is not None:
                    points.setdefault(metric, []).append((iteration, value))
    for metric, values in points.items():
        yield Curve(each.shown, metric, tuple(values))


def _value(node: Any) -> float | None:
    """A metric's value: a number, or the mean of an array. NaN is one."""
    if type(node) is float:
        return node
    found = number(node)
    if found is not None:
        return float(found)
    made = meaning(node)
    value = getattr(made, "value", made)
    if isinstance(value, float):
        return value
    if isinstance(made, Tensor) and made.info.count > 0 and made.nbytes <= _MEAN_NBYTES and has_numbers(made):
        return float(made.numpy().astype("float64").mean())
    return None


def checkpoints_beside(path: Path) -> dict[int, Path]:
    """The saved checkpoints that belong to a statistics file, by iteration.

    They lie beside it, in ``checkpoints`` next to or below its directory, or in a tree ``checkpoints`` parallel to its
    tree ``statistics``; where that lacks a level, anywhere below what the two have in common.
    """
    found: dict[int, Path] = {}
    for directory in _directories(path.resolve().parent):
        try:
            names = sorted(entry.name for entry in os.scandir(directory))
        except OSError:
            continue
        for name in names:
            match = _CHECKPOINT.fullmatch(name)
            if match is not None and not LEFT_BESIDE.fullmatch(name):
                found.setdefault(int(match["iteration"]), directory / name.removesuffix(".index"))
    return found


def _directories(directory: Path) -> Iterable[Path]:
    beside = [directory, directory / _CHECKPOINTS, directory.parent / _CHECKPOINTS]
    parts = directory.parts
    if _STATISTICS in parts:
        at = len(parts) - 1 - parts[::-1].index(_STATISTICS)
        parallel = Path(*parts[:at], _CHECKPOINTS, *parts[at + 1 :])
        root = Path(*parts[:at], _CHECKPOINTS)
        while not parallel.is_dir() and parallel != root:
            parallel = parallel.parent
        if parallel.is_dir():
            beside += [Path(below) for below, _ in zip(_walk(parallel), range(_DIRECTORIES))]
    return dict.fromkeys(beside)


def _walk(top: Path) -> Iterator[str]:
    for directory, below, _ in os.walk(top):
        below.sort()
        yield directory


def nearest(checkpoints: dict[int, Path], iteration: int | float) -> tuple[int, Path] | None:
    """The checkpoint nearest to an iteration, the earlier of two; None when there is none."""
    if not checkpoints:
        return None
    closest = min(checkpoints, key=lambda saved: (abs(saved - iteration), saved))
    return closest, checkpoints[closest]


def drawn_as_text(curves: Sequence[Curve], *, width: int, height: int, mark: int | None = None) -> list[str]:
    """The curves of one metric as lines of text; a column of bars stands at the iteration ``mark``."""
    points = [(x, y) for curve in curves for x, y in curve.points if math.isfinite(y)]
    if not points:
        return ["(no finite value)"]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    grid = [[" "] * width for _ in range(height)]

    def column(x: float) -> int:
        return round((x - left) / (right - left) * (width - 1)) if right > left else 0

    if mark is not None and left <= mark <= right:
        for row in grid:
            row[column(mark)] = "|"
    for symbol, curve in zip(_SYMBOLS * (1 + len(curves) // len(_SYMBOLS)), curves):
        for x, y in curve.points:
            if math.isfinite(y):
                level = (y - low) / (high - low) if high > low else 0.5
                grid[height - 1 - round(level * (height - 1))][column(x)] = symbol
    scale = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    margin = max(map(len, scale))
    lines = [f"{label:>{margin}} ┤{''.join(row).rstrip()}" for label, row in zip(scale, grid)]
    lines.append(" " * margin + " └" + "─" * width)
    lines.append(" " * (margin + 2) + f"{left:<{width // 2}}{right:>{width - width // 2}}")
    legend = "   ".join(f"{symbol} {curve.list_name}" for symbol, curve in zip(_SYMBOLS, curves))
    lines.append(" " * (margin + 2) + legend)
    return lines


_SYMBOLS = "ox+*#@%&"
