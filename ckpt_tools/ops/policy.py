"""A policy: which checks are done, how much their findings matter, what is allowed. Read from TOML.

fail-on = "error"                 # or "warning"
allow = ["argparse.Namespace", "myproj.*"]       # classes and callables a pickle may name
required = ["iteration", "main_params/*"]        # globs that must match something
max-nbytes = 2147483648
finite = true                     # as --finite
resume = true                     # as --resume

[severity]                        # of a finding by its code; "off" drops it
values-all-zero = "note"
"resume-*" = "warning"
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.errors import UsageError
from ckpt_tools.ops.checks.codes import HINTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OFF = "off"


@dataclass(frozen=True)
class Policy:
    """What ``verify`` holds checkpoints to. ``severities`` maps globs of codes to a severity, or to None: not told."""

    fail_on: Severity = Severity.ERROR
    allow: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    max_nbytes: int | None = None
    finite: bool = False
    resume: bool = False
    severities: Mapping[str, Severity | None] = field(default_factory=dict)

    def judge(self, issue: Issue) -> Issue | None:
        """The finding with the severity that this policy gives it; None when it drops it. Later globs win."""
        for glob, severity in reversed(list(self.severities.items())):
            if fnmatch.fnmatchcase(issue.code, glob):
                return None if severity is None else dataclasses.replace(issue, severity=severity)
        return issue


def load(path: Path) -> Policy:
    """The policy of a TOML file. UsageError that says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"the policy {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the policy {path} is no TOML: {error}") from None
    return _policy(table, str(path))


def _policy(table: dict[str, Any], where: str) -> Policy:
    known: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "fail-on": ("fail_on", lambda value: _severity(value, where, ("error", "warning"))),
        "allow": ("allow", lambda value: _texts(value, where, "allow")),
        "required": ("required", lambda value: _texts(value, where, "required")),
        "max-nbytes": ("max_nbytes", lambda value: _count(value, where, "max-nbytes")),
        "finite": ("finite", lambda value: _typed(value, bool, where, "finite")),
        "resume": ("resume", lambda value: _typed(value, bool, where, "resume")),
        "severity": ("severities", lambda value: _severities(value, where)),
    }
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise UsageError(f"the policy {where} has {', '.join(unknown)}; known are {', '.join(known)}")
    fields: dict[str, Any] = {}
    for name, value in table.items():
        member, read = known[name]
        fields[member] = read(value)
    return Policy(**fields)


def _typed(value: Any, kind: type, where: str, name: str) -> Any:
    if type(value) is not kind:
        raise UsageError(f"the policy {where}: {name} is {value!r}, expected {kind.__name__}")
    return value


def _count(value: Any, where: str, name: str) -> int:
    found: int = _typed(value, int, where, name)
    if found < 0:
        raise UsageError(f"the policy {where}: {name} is {found}, expected a number of bytes")
    return found


def _texts(value: Any, where: str, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError(f"the policy {where}: {name} is no list of texts")
    return tuple(value)


def _severity(value: Any, where: str, allowed: tuple[str, ...]) -> Severity:
    if value not in allowed:
        raise UsageError(f"the policy {where} has severity {value!r}; known are {', '.join(allowed)}")
    return Severity(value)


def _severities(value: Any, where: str) -> dict[str, Severity | None]:
    table = _typed(value, dict, where, "severity")
    allowed = (*(s.value for s in Severity), _OFF)
    found = {code: None if v == _OFF else _severity(v, where, allowed) for code, v in table.items()}
    for glob in table:
        if not any(fnmatch.fnmatchcase(code, glob) for code in HINTS):
            near = ", ".join(difflib.get_close_matches(glob, HINTS, n=3)) or "integrity-*, safety-*, values-*, …"
            raise UsageError(f"the policy {where}: no finding has the code {glob!r}; there are {near}")
    return found
