"""What ``verify`` checks, one module for each kind of question. A check that was not done says so, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ckpt_tools.core.issues import Issue, Severity


class Status(str, Enum):
    """How a check ended. A skipped one never looks like a passed one."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """One check of one path: failed when it found an error or a warning; ``why`` is told of skipped ones."""

    check: str
    path: str
    status: Status
    issues: tuple[Issue, ...] = ()
    why: str | None = None


def done(check: str, path: str, issues: Sequence[Issue] = ()) -> Outcome:
    """The outcome of a check that was done; notes alone do not fail it."""
    failed = any(issue.severity is not Severity.NOTE for issue in issues)
    return Outcome(check, path, Status.FAILED if failed else Status.PASSED, tuple(issues))


def skipped(check: str, path: str, why: str, issues: Sequence[Issue] = ()) -> Outcome:
    """The outcome of a check that was not done."""
    return Outcome(check, path, Status.SKIPPED, tuple(issues), why)
