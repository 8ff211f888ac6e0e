"""Findings as values: what a reader or a check noticed, with a stable code and a severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How much a finding matters; the order is from least to most."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Issue:
    """One finding. ``code`` is stable and for machines, ``message`` one sentence, ``hint`` an action.

    ``subject`` is the name the finding is about where policies may speak of it: a class or callable of a pickle.
    """

    code: str
    severity: Severity
    where: str
    message: str
    hint: str | None = None
    subject: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "where": self.where,
            "message": self.message,
            "hint": self.hint,
        }
