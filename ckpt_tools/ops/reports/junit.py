"""JUnit XML: a suite for each path, a test case for each check; findings below the bar are system output."""

from __future__ import annotations

import re

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from ckpt_tools.core.issues import Issue
from ckpt_tools.ops.baselines import Finding
from ckpt_tools.ops.checks import Outcome, Status
from ckpt_tools.ops.verify import Report

#: Characters that XML 1.0 has no way to hold (Extensible Markup Language 1.0, section 2.2).
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """The report as a document."""
    document = JUnitXml("ckpt verify")
    suites: dict[str, TestSuite] = {}
    for outcome in report.outcomes:
        path = _text(outcome.path)
        if path not in suites:
            suites[path] = TestSuite(path)
        suites[path].add_testcase(_case(outcome, report))
    for suite in suites.values():
        document.add_testsuite(suite)
    document.update_statistics()
    text: str = document.tostring().decode("utf-8")
    return text + "\n"


def _case(outcome: Outcome, report: Report) -> TestCase:
    case = TestCase(outcome.check, classname=_text(outcome.path), time=0.0)
    failing = [issue for issue in outcome.issues if report.fails(Finding(outcome.path, issue))]
    told = [issue for issue in outcome.issues if issue not in failing]
    if failing:
        failure = Failure(_text(failing[0].message), failing[0].code)
        failure.text = _text("\n".join(_line(issue) for issue in failing))
        case.result = [failure]
    elif outcome.status is Status.SKIPPED:
        case.result = [Skipped(_text(outcome.why or ""))]
    if told:
        case.system_out = _text("\n".join(_line(issue) for issue in told))
    return case


def _line(issue: Issue) -> str:
    hint = f" ({issue.hint})" if issue.hint else ""
    return f"{issue.severity.value} {issue.code}: {issue.where}: {issue.message}{hint}"


def _text(text: str) -> str:
    return _NO_XML.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
