"""SARIF 2.1.0 (OASIS): a rule for each code, a result for each finding, a location for each path."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ckpt_tools.core.issues import Severity
from ckpt_tools.ops.baselines import Finding
from ckpt_tools.ops.verify import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.NOTE: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}


def render(report: Report, version: str) -> str:
    """The report as a document; ``version`` is this package's."""
    codes = sorted({issue.code for _, issue in report.findings})
    index = {code: at for at, code in enumerate(codes)}
    run = {
        "tool": {
            "driver": {
                "name": "ckpt",
                "version": version,
                "rules": [{"id": code, "shortDescription": {"text": code.replace("-", " ")}} for code in codes],
            }
        },
        "results": [_result(finding, index[finding.issue.code], report) for finding in report.findings],
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": report.verdict != "unreadable"}],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: Finding, rule: int, report: Report) -> dict[str, Any]:
    path, issue = finding
    text = issue.message if issue.where == path else f"{issue.where}: {issue.message}"
    result: dict[str, Any] = {
        "ruleId": issue.code,
        "ruleIndex": rule,
        "level": _LEVELS[issue.severity],
        "message": {"text": f"{text}. {issue.hint}" if issue.hint else text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"ckpt/1": _fingerprint(finding)},
    }
    if report.known:
        result["baselineState"] = "unchanged" if finding in report.known else "new"
    return result


def _uri(path: str) -> str:
    posix = PurePosixPath(Path(path).as_posix())
    return f"file://{quote(str(posix))}" if posix.is_absolute() else quote(str(posix))


def _fingerprint(finding: Finding) -> str:
    path, issue = finding
    same = "\0".join((path, issue.code, issue.where, issue.message))
    return hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()
