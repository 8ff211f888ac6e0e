"""One verdict on checkpoints: every check done or skipped with its reason, every finding with a code and a severity.

Damage in a file of a known format is a finding, not an error of the command: the other files are still looked at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.location import Location
from ckpt_tools.errors import (
    CkptError,
    CorruptFile,
    LimitExceeded,
    MissingInput,
    UnknownFormat,
    UnreadableInput,
    UnsafePickle,
    UsageError,
)
from ckpt_tools.formats import families
from ckpt_tools.formats.table import Format
from ckpt_tools.ops import listing
from ckpt_tools.ops.checks import Outcome, Status, done, expectation, integrity, safety, weights_only
from ckpt_tools.ops.checks import locations as location_checks
from ckpt_tools.ops.manifests import Manifest
from ckpt_tools.ops.policy import Policy

SCHEMA = "ckpt.verify/1"

_SEVERITIES = list(Severity)


@dataclass(frozen=True)
class Request:
    """What to hold checkpoints to. ``fits`` compares one with a model or a spec."""

    policy: Policy = field(default_factory=Policy)
    manifests: Sequence[Manifest] | None = None
    fits: Callable[[Checkpoint], Outcome] | None = None
    finite: bool = False
    resume: bool = False
    format: str | None = None


@dataclass(frozen=True)
class Subject:
    """One checkpoint to be verified, or the error that finding it ended in."""

    location: Location
    row: Format | CkptError


@dataclass
class Report:
    """All outcomes, in the order of the subjects. ``known`` are findings of a baseline: told, not held against it."""

    outcomes: list[Outcome]
    fail_on: Severity
    #: checkpoints that could be opened, newest last, with whether an error was found in them
    opened: list[tuple[str, bool]] = field(default_factory=list)
    known: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def issues(self) -> list[Issue]:
        """Every finding, worst first."""
        found = list(dict.fromkeys(issue for outcome in self.outcomes for issue in outcome.issues))
        return sorted(found, key=lambda issue: -_SEVERITIES.index(issue.severity))

    def is_known(self, issue: Issue) -> bool:
        """Whether a baseline has this finding."""
        return _identity(issue) in self.known

    @property
    def failing(self) -> list[Issue]:
        """The findings that make it unsound."""
        least = _SEVERITIES.index(self.fail_on)
        return [i for i in self.issues if _SEVERITIES.index(i.severity) >= least and not self.is_known(i)]

    @property
    def verdict(self) -> str:
        """``sound``, ``unsound``, or ``unreadable`` when there was nothing that could be looked at."""
        if self.outcomes and all(outcome.check == "readable" for outcome in self.outcomes):
            return "unreadable"
        return "unsound" if self.failing else "sound"

    @property
    def exit_code(self) -> int:
        return {"sound": 0, "unsound": 1, "unreadable": 4}[self.verdict]

    @property
    def newest_good(self) -> str | None:
        """The newest of several checkpoints that nothing speaks against."""
        good = [path for path, sound in self.opened if sound]
        return good[-1] if good and len(self.opened) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """The document of ``verify --json``."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "newest_good": self.newest_good,
            "checks": [
                {"name": o.check, "path": o.path, "status": o.status.value, **({"why": o.why} if o.why else {})}
                for o in self.outcomes
            ],
            "issues": [{**i.to_json(), **({"known": True} if self.is_known(i) else {})} for i in self.issues],
        }


def _identity(issue: Issue) -> tuple[str, str, str]:
    return issue.code, issue.where, issue.message


def baseline(path: Path) -> frozenset[tuple[str, str, str]]:
    """The findings of an earlier ``verify --json``. UsageError when the file is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError("another schema")
        return frozenset((i["code"], i["where"], i["message"]) for i in document["issues"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"the baseline {path} is no document of ckpt verify --json: {error}") from None


def subjects(path: str | os.PathLike[str], format: str | None = None) -> Iterator[Subject]:
    """The checkpoints that a path stands for; of a directory, all below it."""
    try:
        where = Path(path)
        if format is None and where.is_dir():
            found = listing.find(path)
            if len(found) == 1 and found[0][0].path == where:
                yield Subject(*found[0])
                return
            yield from (Subject(location, row) for location, row in families.below(where))
            return
        yield from (Subject(location, row) for location, row in listing.find(path, format))
    except CkptError as error:
        yield Subject(Location(Path(path), os.fspath(path), False), error)


def run(
    paths: Sequence[str | os.PathLike[str]],
    request: Request,
    *,
    jobs: int = 1,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Report:
    """Verify everything that ``paths`` stand for, ``jobs`` checkpoints at a time."""
    report = Report([], request.policy.fail_on)
    found: list[Subject] = []
    for path in paths:
        about_paths = location_checks.check(Path(path))
        report.outcomes += about_paths
        if request.resume and Path(path).is_dir():
            from ckpt_tools.ops.checks import resume

            report.outcomes += [resume.unfinished(d) for d in _directories(Path(path))]
        if not (about_paths and Path(path).is_file()):
            mine = list(subjects(path, request.format))
            if not (about_paths and all(_nothing_there(s) for s in mine)):
                found += mine
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        results = list(pool.map(lambda subject: verify(subject, request, progress), found))
    ages = sorted(zip(found, results), key=lambda pair: _age(pair[0].location))
    for outcomes in results:
        report.outcomes += outcomes
    report.outcomes = [_judged(outcome, request.policy) for outcome in report.outcomes]
    judged = {id(o): _judged(o, request.policy) for outcomes in results for o in outcomes}
    for subject, outcomes in ages:
        if not any(o.check == "readable" for o in outcomes):
            errors = [i for o in outcomes for i in judged[id(o)].issues if i.severity is Severity.ERROR]
            report.opened.append((subject.location.shown, not errors))
    return report


def _nothing_there(subject: Subject) -> bool:
    return isinstance(subject.row, (UnknownFormat, MissingInput))


def _age(location: Location) -> tuple[float, str]:
    try:
        return location.path.stat().st_mtime, location.shown
    except OSError:
        return 0.0, location.shown


def _directories(top: Path) -> Iterator[Path]:
    for directory, below, _ in os.walk(top):
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield Path(directory)


def _judged(outcome: Outcome, policy: Policy) -> Outcome:
    issues = [judged for issue in outcome.issues if (judged := policy.judge(issue)) is not None]
    if outcome.status is Status.SKIPPED:
        return Outcome(outcome.check, outcome.path, outcome.status, tuple(issues), outcome.why)
    return done(outcome.check, outcome.path, issues)


def verify(subject: Subject, request: Request, progress: Callable[[int], None]) -> list[Outcome]:
    """All checks of one checkpoint."""
    shown = subject.location.shown
    try:
        with listing.opened(subject.location, subject.row) as checkpoint:
            _ = checkpoint.entries  # walking the tree may end in a limit
            return list(_checks(checkpoint, request, progress))
    except UnsafePickle as error:
        return [done("safety-code", shown, [_issue("safety-call", shown, error)])]
    except LimitExceeded as error:
        return [done("integrity-structure", shown, [_issue("integrity-limit", shown, error)])]
    except CorruptFile as error:
        return [done("integrity-structure", shown, [_issue("integrity-damaged", shown, error)])]
    except UnreadableInput as error:
        return [done("readable", shown, [_issue("integrity-unreadable", shown, error)])]


def _issue(code: str, shown: str, error: CkptError) -> Issue:
    return Issue(code, Severity.ERROR, error.where or shown, error.message, error.hint)


def _checks(checkpoint: Checkpoint, request: Request, progress: Callable[[int], None]) -> Iterable[Outcome]:
    policy = request.policy
    yield integrity.structure(checkpoint)
    yield safety.code(checkpoint, policy.allow)
    yield weights_only.takes(checkpoint)
    sound: frozenset[str] = frozenset()
    if request.manifests is not None:
        outcome, sound = expectation.manifest(checkpoint, request.manifests, progress)
        yield outcome
    yield integrity.checksums(checkpoint, sound, progress)
    if request.fits is not None:
        yield request.fits(checkpoint)
    if policy.required:
        yield expectation.required(checkpoint, policy.required)
    if policy.max_nbytes is not None:
        yield expectation.size(checkpoint, policy.max_nbytes)
    if request.finite or policy.finite:
        from ckpt_tools.ops.checks import values

        yield values.finite(checkpoint, progress)
    if request.resume or policy.resume:
        from ckpt_tools.ops.checks import resume

        yield resume.optimizer(checkpoint)
        yield resume.iteration(checkpoint, location_checks.recorded_iteration(checkpoint.location.path))
        yield resume.expected_path(checkpoint.location.path)
        beside = location_checks.statistics_of(checkpoint.location.path)
        if beside is not None:
            yield resume.statistics(checkpoint, *beside)
