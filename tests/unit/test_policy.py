"""Policies: what a TOML file may say, and what is said of one that says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.errors import UsageError
from ckpt_tools.ops import policy


def load(tmp_path: Path, text: str) -> policy.Policy:
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return policy.load(path)


def test_everything_it_can_say(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
        fail-on = "warning"
        allow = ["argparse.*"]
        required = ["model/*"]
        max-nbytes = 100
        finite = true
        resume = true
        [severity]
        "resume-*" = "note"
        resume-optimizer-lost = "error"
        values-denormal = "off"
        """,
    )
    assert found.fail_on is Severity.WARNING
    assert found.allow == ("argparse.*",)
    assert found.required == ("model/*",)
    assert found.max_nbytes == 100
    assert found.finite
    assert found.resume

    def judged(code: str) -> Severity | None:
        issue = found.judge(Issue(code, Severity.WARNING, "x", "y"))
        return issue.severity if issue else None

    assert judged("resume-no-optimizer") is Severity.NOTE
    assert judged("resume-optimizer-lost") is Severity.ERROR
    assert judged("values-denormal") is None
    assert judged("safety-call") is Severity.WARNING


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fail_on = 'error'", "fail_on"),
        ("fail-on = 'note'", "'note'"),
        ("allow = 'all'", "allow"),
        ("max-nbytes = '2GiB'", "max-nbytes"),
        ("finite = 1", "finite"),
        ("[severity]\nx = 'loud'", "'loud'"),
        ("fail-on = ", "no TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load(tmp_path, text)
