"""Workflow commands of GitHub Actions: a line for each finding, shown beside the file it is about."""

from __future__ import annotations

from ckpt_tools.core.issues import Severity
from ckpt_tools.ops.verify import Report

_COMMANDS = {Severity.NOTE: "notice", Severity.WARNING: "warning", Severity.ERROR: "error"}


def render(report: Report) -> str:
    """The lines; findings of a baseline are left out."""
    lines = []
    for finding in report.findings:
        path, issue = finding
        if finding in report.known:
            continue
        text = issue.message if issue.where == path else f"{issue.where}: {issue.message}"
        text += f" ({issue.hint})" if issue.hint else ""
        command = _COMMANDS[issue.severity]
        lines.append(f"::{command} file={_property(path)},title={_property(issue.code)}::{_data(text)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
