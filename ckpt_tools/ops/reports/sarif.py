"""SARIF 2.1.0 (OASIS): a rule for each code, a result for each finding, a location for each path."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.ops.verify import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.NOTE: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}


def render(report: Report, version: str) -> str:
    """The report as a document; ``version`` is this package's."""
    artifacts = {issue: outcome.path for outcome in report.outcomes for issue in outcome.issues}
    codes = sorted({issue.code for issue in report.issues})
    run = {
        "tool": {
            "driver": {
                "name": "ckpt",
                "version": version,
                "rules": [{"id": code, "shortDescription": {"text": code.replace("-", " ")}} for code in codes],
            }
        },
        "results": [_result(issue, artifacts[issue], codes, report) for issue in report.issues],
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": report.verdict != "unreadable"}],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(issue: Issue, path: str, codes: list[str], report: Report) -> dict[str, Any]:
    text = issue.message if issue.where == path else f"{issue.where}: {issue.message}"
    result: dict[str, Any] = {
        "ruleId": issue.code,
        "ruleIndex": codes.index(issue.code),
        "level": _LEVELS[issue.severity],
        "message": {"text": f"{text}. {issue.hint}" if issue.hint else text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"ckpt/1": _fingerprint(issue)},
    }
    if report.known:
        result["baselineState"] = "unchanged" if report.is_known(issue) else "new"
    return result


def _uri(path: str) -> str:
    posix = PurePosixPath(Path(path).as_posix())
    return f"file://{quote(str(posix))}" if posix.is_absolute() else quote(str(posix))


def _fingerprint(issue: Issue) -> str:
    return hashlib.sha256(
        "\0".join((issue.code, issue.where, issue.message)).encode("utf-8", "surrogatepass")
    ).hexdigest()
