"""The fixtures as values: what a user hands over, and the right answer that the frameworks gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


@dataclass(frozen=True)
class Case:
    """One fixture: ``fixtures/<group>/<name>``."""

    group: str
    name: str
    folder: Path
    expected: dict[str, Any]

    @property
    def input(self) -> Path:
        return self.folder / "input"

    @property
    def path(self) -> Path:
        return self.input / self.expected["path"]

    @property
    def id(self) -> str:
        return f"{self.group}/{self.name}"

    @property
    def files(self) -> list[Path]:
        return sorted(p for p in self.input.rglob("*") if p.is_file())


def cases(*groups: str) -> list[Case]:
    """All fixtures, or those of some groups."""
    found = []
    for answer in sorted(FIXTURES.glob("*/*/expected.json")):
        folder = answer.parent
        group = folder.parent.name
        if not groups or group in groups:
            found.append(Case(group, folder.name, folder, json.loads(answer.read_text(encoding="utf-8"))))
    return found


def readable() -> list[Case]:
    """Those that a listing reads."""
    return [case for case in cases() if case.expected.get("exit", 0) == 0 and "tensors" in case.expected]
