"""Rule files: TOML that a person can read and edit.

    schema = "ckpt.map/1"

    [[rule]]
    from = "module.{rest:any}"
    to = "{rest}"
    goes-on = true

    [[rule]]
    from = "{layer:any}.num_batches_tracked"
    drop = true

A rule has ``from`` and either ``to`` or ``drop = true``; ``transform``, ``expect`` (``dtype``, ``shape``, ``rank``),
``goes-on`` and ``why`` are optional. Anything else is an error, so that a misspelt key is not silently without effect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckpt_tools.errors import MissingInput, UnreadableInput, UsageError
from ckpt_tools.mapping.rules import ANYTHING, Expectation, Rule
from ckpt_tools.mapping.transforms import describe, parse_transforms

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = "ckpt.map/1"

_KEYS = {"from": str, "to": str, "drop": bool, "transform": str, "expect": dict, "goes-on": bool, "why": str}
_EXPECTS = {"dtype": str, "shape": list, "rank": int}


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a file. MissingInput or UnreadableInput when there is no such text, UsageError when it is wrong."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise MissingInput("no such file", where=str(path)) from None
    except OSError as error:
        raise UnreadableInput(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise UnreadableInput("is no UTF-8 text, a rule file is TOML", where=str(path)) from None
    return parse_rules(text, str(path))


def parse_rules(text: str, where: str) -> tuple[Rule, ...]:
    """The rules in TOML ``text``; ``where`` is what errors call it."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"is no TOML: {error}", where=where) from None
    schema = document.pop("schema", SCHEMA)
    if schema != SCHEMA:
        raise UsageError(f"says schema {schema!r}, {SCHEMA!r} is expected", where=where)
    rows = document.pop("rule", [])
    if document:
        raise UsageError(f"has {', '.join(document)}, which no rule file has; rules stand under [[rule]]", where=where)
    if not isinstance(rows, list):
        raise UsageError("has one [rule]; rules stand under [[rule]]", where=where)
    return tuple(_rule(row, f"{where}: rule {number}") for number, row in enumerate(rows, 1))


def _rule(row: Any, where: str) -> Rule:
    if not isinstance(row, dict):
        raise UsageError("is no table", where=where)
    _check(row, _KEYS, where)
    if "from" not in row:
        raise UsageError("has no 'from'", where=where)
    if ("to" in row) == (row.get("drop") is True):
        raise UsageError("needs either 'to' or 'drop = true'", where=where)
    expected = row.get("expect", {})
    _check(expected, _EXPECTS, where)
    shape = expected.get("shape")
    if shape is not None and not all(type(extent) is int for extent in shape):
        raise UsageError("expects a shape that is no list of whole numbers", where=where)
    try:
        return Rule(
            row["from"],
            row.get("to"),
            parse_transforms(row["transform"]) if "transform" in row else (),
            Expectation(expected.get("dtype"), None if shape is None else tuple(shape), expected.get("rank"))
            if expected
            else ANYTHING,
            row.get("goes-on", False),
            row.get("why", ""),
        )
    except UsageError as error:
        error.where = where
        raise


def _check(row: dict[str, Any], known: dict[str, type], where: str) -> None:
    for key, value in row.items():
        if key not in known:
            raise UsageError(f"has {key!r}; there are {', '.join(known)}", where=where)
        if type(value) is not known[key]:
            raise UsageError(f"{key!r} is a {type(value).__name__}, a {known[key].__name__} is expected", where=where)


def rules_text(rules: Sequence[Rule], heading: str = "") -> str:
    """The rule file that reads back as ``rules``; ``heading`` becomes comment lines."""
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    lines.append(f"schema = {_quoted(SCHEMA)}")
    for rule in rules:
        lines += ["", "[[rule]]"]
        if rule.why:
            lines.append(f"why = {_quoted(rule.why)}")
        lines.append(f"from = {_quoted(rule.source)}")
        lines.append("drop = true" if rule.target is None else f"to = {_quoted(rule.target)}")
        if rule.transforms:
            lines.append(f"transform = {_quoted(describe(rule.transforms))}")
        if rule.expect is not ANYTHING:
            lines.append(f"expect = {{ {', '.join(_expectations(rule.expect))} }}")
        if rule.goes_on:
            lines.append("goes-on = true")
    return "\n".join(lines) + "\n"


def _expectations(expect: Expectation) -> list[str]:
    parts = []
    if expect.dtype is not None:
        parts.append(f"dtype = {_quoted(expect.dtype)}")
    if expect.shape is not None:
        parts.append(f"shape = {list(expect.shape)}")
    if expect.rank is not None:
        parts.append(f"rank = {expect.rank}")
    return parts


def _quoted(text: str) -> str:
    """A TOML string: in single quotes where that needs no escapes, since patterns may hold backslashes."""
    if "'" not in text and text.isprintable():
        return f"'{text}'" if "\\" in text or '"' in text else f'"{text}"'
    # JSON's escapes are among TOML's; DEL is the one character TOML wants escaped and JSON does not
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
