"""placeholder"""

from __future__ import annotations

from pathlib import Path

from ckpt_tools.ops.checks import Outcome


def check(path: Path) -> list[Outcome]:
    return []


def recorded_iteration(path: Path) -> int | None:
    return None


def statistics_of(path: Path) -> tuple[int, Path] | None:
    return None
