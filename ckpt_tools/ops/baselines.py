"""Findings that were known before: the JSON of an earlier ``verify``, held against those of a new one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

from ckpt_tools.core.issues import Issue
from ckpt_tools.errors import UsageError

SCHEMA = "ckpt.verify/1"


class Finding(NamedTuple):
    """An issue and the path that was being verified when it was found."""

    path: str
    issue: Issue


#: A finding without its path, so that it is the same in another working directory: code, place and message.
_Essence = tuple[str, str, str]


def essence(path: str, code: str, where: str, message: str) -> _Essence:
    """What of a finding is left when the directories it was found in are taken away."""
    name = PurePath(path).name
    return code, where.replace(path, name), message.replace(path, name)


class Baseline:
    """Which findings an earlier verification had."""

    def __init__(self, known: Mapping[_Essence, list[str]]) -> None:
        self._known = known

    def known_among(self, findings: Iterable[Finding]) -> frozenset[Finding]:
        """Those that are known. Paths may have been given from elsewhere: of two, one ends in the other; when several
        new findings could be the same known one by that, none of them is."""
        groups: dict[_Essence, list[Finding]] = {}
        for finding in findings:
            path, issue = finding
            groups.setdefault(essence(path, issue.code, issue.where, issue.message), []).append(finding)
        found: set[Finding] = set()
        for same, group in groups.items():
            for path in self._known.get(same, ()):
                exact = [finding for finding in group if _parts(finding.path) == _parts(path)]
                near = exact or [finding for finding in group if _one_ends_in_the_other(finding.path, path)]
                if len({finding.path for finding in near}) == 1:
                    found.update(near)
        return frozenset(found)


def load(path: Path) -> Baseline:
    """The findings of an earlier ``verify --json``. UsageError when the file is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError("another schema")
        known: dict[_Essence, list[str]] = {}
        for row in document["issues"]:
            texts = [row[member] for member in ("path", "code", "where", "message")]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("an issue without path, code, where and message")
            known.setdefault(essence(*texts), []).append(texts[0])
        return Baseline(known)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"the baseline {path} is no document of ckpt verify --json: {error}") from None


def _parts(path: str) -> tuple[str, ...]:
    return PurePath(os.path.normpath(path)).parts


def _one_ends_in_the_other(one: str, other: str) -> bool:
    short, long = sorted((_parts(one), _parts(other)), key=len)
    return long[len(long) - len(short) :] == short
