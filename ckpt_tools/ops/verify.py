"""One verdict on checkpoints: every check done or skipped with its reason, every finding with a code and a severity.

Damage in a file of a known format is a finding, not an error of the command: the other files are still looked at.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import natural_order
from ckpt_tools.core.location import HEAD_NBYTES, Location
from ckpt_tools.core.source import Source
from ckpt_tools.errors import (
    CkptError,
    CorruptFile,
    LimitExceeded,
    MissingInput,
    Placeholder,
    UnknownFormat,
    UnreadableInput,
    UnsafePickle,
)
from ckpt_tools.formats import families
from ckpt_tools.formats.table import Format
from ckpt_tools.ops import listing
from ckpt_tools.ops.baselines import SCHEMA, Finding
from ckpt_tools.ops.checks import Outcome, Status, done, expectation, integrity, safety, weights_only
from ckpt_tools.ops.checks.codes import HINTS
from ckpt_tools.ops.manifests import Manifest
from ckpt_tools.ops.policy import Policy

#: The outcome of what could not be looked at at all, and the one about directories, which no checkpoint is needed for.
_READABLE = "readable"
_UNFINISHED = "resume-unfinished"
_SEVERITIES = list(Severity)


@dataclass(frozen=True)
class Request:
    """What to hold checkpoints to. ``fits`` compares one with a model or a spec."""

    policy: Policy = field(default_factory=Policy)
    manifests: Sequence[Manifest] | None = None
    #: the entry of the manifests that is about a checkpoint, by its path
    entries: Mapping[str, Manifest] = field(default_factory=dict)
    fits: Callable[[Checkpoint], Outcome] | None = None
    finite: bool = False
    resume: bool = False
    format: str | None = None


@dataclass(frozen=True)
class Subject:
    """One checkpoint to be verified, or the error that finding it ended in."""

    location: Location
    row: Format | CkptError
    #: it was met in a directory, not named
    walked: bool = False


@dataclass
class Verified:
    """What was found in one checkpoint, and how far the training was that wrote it."""

    subject: Subject
    outcomes: list[Outcome] = field(default_factory=list)
    iteration: int | None = None

    def errors(self, policy: Policy) -> list[Issue]:
        """The findings that are errors by a policy."""
        judged = [policy.judge(issue) for outcome in self.outcomes for issue in outcome.issues]
        return [issue for issue in judged if issue is not None and issue.severity is Severity.ERROR]


@dataclass
class Report:
    """All outcomes, in the order of the subjects. ``known`` are findings of a baseline: told, not held against it."""

    outcomes: list[Outcome]
    fail_on: Severity
    #: checkpoints that could be opened, newest last, with whether nothing of note was found in them
    opened: list[tuple[str, bool]] = field(default_factory=list)
    known: frozenset[Finding] = frozenset()

    @cached_property
    def findings(self) -> list[Finding]:
        """Every issue with its path, worst first."""
        found = dict.fromkeys(Finding(o.path, issue) for o in self.outcomes for issue in o.issues)
        return sorted(found, key=lambda finding: -_SEVERITIES.index(finding.issue.severity))

    def fails(self, finding: Finding) -> bool:
        """Whether a finding makes it unsound: grave enough, and not known."""
        grave = _SEVERITIES.index(finding.issue.severity) >= _SEVERITIES.index(self.fail_on)
        return grave and finding not in self.known

    @property
    def verdict(self) -> str:
        """``sound``, ``unsound``, or ``unreadable`` when there was nothing that could be looked at."""
        looked_at = [o for o in self.outcomes if o.check not in (_READABLE, _UNFINISHED)]
        if self.outcomes and not looked_at:
            return "unreadable"
        return "unsound" if any(map(self.fails, self.findings)) else "sound"

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
            "issues": [
                {**f.issue.to_json(), "path": f.path, **({"known": True} if f in self.known else {})}
                for f in self.findings
            ],
        }


def subjects(path: str | os.PathLike[str], format: str | None = None) -> Iterator[Subject]:
    """The checkpoints that a path stands for; of a directory, all below it."""
    try:
        where = Path(path)
        if format is None and where.is_dir():
            found = listing.find(path)
            if len(found) == 1 and found[0][0].path == where:
                yield Subject(*found[0])
                return
            for location, row in families.below(where, strangers=True):
                yield Subject(location, row, walked=True)
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
    outcomes: list[Outcome] = []
    found: list[Subject] = []
    for path in paths:
        about_paths = _about_paths(Path(path))
        outcomes += about_paths
        if (request.resume or request.policy.resume) and Path(path).is_dir():
            from ckpt_tools.ops.checks import resume

            outcomes += [resume.unfinished(directory, names) for directory, names in _directories(Path(path))]
        if not (about_paths and Path(path).is_file()):
            mine = list(subjects(path, request.format))
            if not (about_paths and all(_nothing_there(s) for s in mine)):
                found += mine
    if request.manifests is not None:
        request = replace(request, entries=expectation.assign(request.manifests, [s.location.shown for s in found]))
    verified = _verify_all(found, request, jobs, progress)
    for of_one in verified:
        outcomes += of_one.outcomes
    if request.manifests is not None and found:
        outcomes.append(expectation.completeness(request.manifests, request.entries, [os.fspath(p) for p in paths]))
    report = Report([_judged(outcome, request.policy) for outcome in outcomes], request.policy.fail_on)
    report.opened = _by_age(verified, request.policy)
    return report


def _verify_all(
    found: Sequence[Subject], request: Request, jobs: int, progress: Callable[[int], None]
) -> list[Verified]:
    """The outcomes of each subject, in their order. An exception in one, Ctrl-C too, soon ends the others."""
    stopped = threading.Event()

    def told(nbytes: int) -> None:
        if stopped.is_set():
            raise _Stopped
        progress(nbytes)

    if jobs == 1:
        return [verify(subject, request, progress) for subject in found]
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(lambda subject: verify(subject, request, told), found))
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


class _Stopped(BaseException):
    """Ends a thread whose result nobody waits for any more."""


def _by_age(verified: Sequence[Verified], policy: Policy) -> list[tuple[str, bool]]:
    """Checkpoints that could be opened, newest last: by iteration where all lie in one directory and have one, else by
    the time of their last change."""
    opened = [one for one in verified if not any(outcome.check == _READABLE for outcome in one.outcomes)]
    paths = [one.subject.location.path for one in opened]
    by_iteration = len({path.parent for path in paths}) == 1 and all(one.iteration is not None for one in opened)

    def age(one: Verified) -> tuple[float, tuple[object, ...]]:
        return one.iteration if by_iteration and one.iteration is not None else _changed(one), _shown_order(one)

    return [(one.subject.location.shown, not one.errors(policy)) for one in sorted(opened, key=age)]


def _shown_order(one: Verified) -> tuple[object, ...]:
    return natural_order(one.subject.location.shown)


def _changed(one: Verified) -> float:
    try:
        return one.subject.location.path.stat().st_mtime
    except OSError:
        return 0.0


def _about_paths(path: Path) -> list[Outcome]:
    """What the paths are worth that are kept at or below ``path``. Files that keep some are text."""
    try:
        with Source(path) as source:
            if b"\0" in source.peek(0, HEAD_NBYTES):
                return []
    except CkptError:
        pass  # a directory, or nothing; whoever looks for checkpoints tells
    from ckpt_tools.ops.checks import locations  # costs as much as all checks of a small file

    return locations.check(path)


def _nothing_there(subject: Subject) -> bool:
    return isinstance(subject.row, (UnknownFormat, MissingInput))


def _directories(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every directory below ``top`` that can be listed, with all names in it."""
    for directory, below, files in os.walk(top):
        names = [*below, *files]
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield Path(directory), names


def _judged(outcome: Outcome, policy: Policy) -> Outcome:
    issues = [judged for issue in outcome.issues if (judged := policy.judge(_with_hint(issue))) is not None]
    if outcome.status is Status.SKIPPED:
        return Outcome(outcome.check, outcome.path, outcome.status, tuple(issues), outcome.why)
    return done(outcome.check, outcome.path, issues)


def _with_hint(issue: Issue) -> Issue:
    return issue if issue.hint else replace(issue, hint=HINTS.get(issue.code))


def verify(subject: Subject, request: Request, progress: Callable[[int], None]) -> Verified:
    """All checks of one checkpoint. What an error keeps from being done is not among them."""
    shown = subject.location.shown
    verified = Verified(subject)
    try:
        with listing.opened(subject.location, subject.row) as checkpoint:
            _ = checkpoint.entries  # walking the tree may end in a limit
            verified.iteration = listing.iteration_of(checkpoint)
            for outcome in _checks(checkpoint, request, progress):
                verified.outcomes.append(outcome)
    except UnsafePickle as error:
        verified.outcomes.append(done("safety-code", shown, [_issue("safety-call", shown, error)]))
    except LimitExceeded as error:
        verified.outcomes.append(done("integrity-structure", shown, [_issue("integrity-limit", shown, error)]))
    except CorruptFile as error:
        verified.outcomes.append(done("integrity-structure", shown, [_issue("integrity-damaged", shown, error)]))
    except UnreadableInput as error:
        # a file that is only named like a checkpoint may be there for another purpose
        stranger = subject.walked and isinstance(error, UnknownFormat) and not isinstance(error, Placeholder)
        severity = Severity.WARNING if stranger else Severity.ERROR
        verified.outcomes.append(done(_READABLE, shown, [_issue("integrity-unreadable", shown, error, severity)]))
    return verified


def _issue(code: str, shown: str, error: CkptError, severity: Severity = Severity.ERROR) -> Issue:
    return Issue(code, severity, error.where or shown, error.message, error.hint)


def _checks(checkpoint: Checkpoint, request: Request, progress: Callable[[int], None]) -> Iterable[Outcome]:
    policy = request.policy
    odd = integrity.audit(checkpoint)
    yield integrity.structure(checkpoint, odd)
    yield safety.code(checkpoint, policy.allow)
    yield safety.archive(checkpoint, odd)
    yield weights_only.takes(checkpoint)
    sound: frozenset[str] = frozenset()
    if request.manifests is not None:
        entry = request.entries.get(checkpoint.location.shown)
        outcome, sound = expectation.manifest(checkpoint, entry, progress)
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
        from ckpt_tools.ops.checks import beside, resume

        yield resume.optimizer(checkpoint)
        yield resume.iteration(checkpoint, beside.recorded_iteration(checkpoint.location.path))
        yield resume.expected_path(checkpoint.location.path)
        found = beside.statistics_of(checkpoint.location.path)
        if found is not None:
            yield resume.statistics(checkpoint, *found)
