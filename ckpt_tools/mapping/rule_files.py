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
``goes-on`` and ``why`` are optional. Tensors that rules cannot make, for one becomes several or several one, are made
beside them, from names as they are before the rules:

    [[make]]
    to = "attend.in_proj_bias"
    from = ["attend.q_proj.bias", "attend.k_proj.bias", "attend.v_proj.bias"]
    join = "concat"

    [[make]]
    to = "norm.num_batches_tracked"
    fill = { value = 0.0, dtype = "int64", shape = [] }

``transform`` is then one text for each name of ``from``, ``then`` what follows the joining, ``alias`` the second name that
Paddle's and Keras' files have for a tensor. Anything else is an error, so
that a misspelt key is not silently without effect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpt_tools.errors import MissingInput, UnreadableInput, UsageError
from ckpt_tools.mapping.recipes import JOINS, Filling, Ingredient, Recipe
from ckpt_tools.mapping.rules import ANYTHING, Expectation, Rule
from ckpt_tools.mapping.transforms import describe, parse_transforms

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = "ckpt.map/1"

_KEYS = {"from": str, "to": str, "drop": bool, "transform": str, "expect": dict, "goes-on": bool, "why": str}
_EXPECTS = {"dtype": str, "shape": list, "rank": int}
_MAKE_KEYS = {
    "to": str,
    "from": list,
    "transform": list,
    "join": str,
    "then": str,
    "fill": dict,
    "why": str,
    "alias": str,
}
_FILLED = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
_FILLS = {"value": float, "dtype": str, "shape": list}


@dataclass(frozen=True)
class RuleFile:
    """What a file says: rules, and recipes for the tensors that are made beside them."""

    rules: tuple[Rule, ...] = ()
    recipes: tuple[Recipe, ...] = ()


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a file that has nothing but rules. Errors as for :func:`read_rule_file`."""
    found = read_rule_file(path)
    if found.recipes:
        raise UsageError("makes tensors of several or of none, which only convert can do", where=str(path))
    return found.rules


def read_rule_file(path: Path) -> RuleFile:
    """What a file says. MissingInput or UnreadableInput when there is no such text, UsageError when it is wrong."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise MissingInput("no such file", where=str(path)) from None
    except OSError as error:
        raise UnreadableInput(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise UnreadableInput("is no UTF-8 text, a rule file is TOML", where=str(path)) from None
    return parse_rule_file(text, str(path))


def parse_rules(text: str, where: str) -> tuple[Rule, ...]:
    """The rules in TOML ``text``; ``where`` is what errors call it."""
    return parse_rule_file(text, where).rules


def parse_rule_file(text: str, where: str) -> RuleFile:
    """What TOML ``text`` says; ``where`` is what errors call it."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"is no TOML: {error}", where=where) from None
    schema = document.pop("schema", SCHEMA)
    if schema != SCHEMA:
        raise UsageError(f"says schema {schema!r}, {SCHEMA!r} is expected", where=where)
    rows, makes = document.pop("rule", []), document.pop("make", [])
    if document:
        raise UsageError(f"has {', '.join(document)}, which no rule file has; rules stand under [[rule]]", where=where)
    if not isinstance(rows, list) or not isinstance(makes, list):
        raise UsageError("has one [rule] or [make]; rules stand under [[rule]], recipes under [[make]]", where=where)
    return RuleFile(
        tuple(_rule(row, f"{where}: rule {number}") for number, row in enumerate(rows, 1)),
        tuple(_recipe(row, f"{where}: make {number}") for number, row in enumerate(makes, 1)),
    )


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


def _recipe(row: Any, where: str) -> Recipe:
    if not isinstance(row, dict):
        raise UsageError("is no table", where=where)
    _check(row, _MAKE_KEYS, where)
    if "to" not in row or ("from" in row) == ("fill" in row):
        raise UsageError("needs 'to' and either 'from' or 'fill'", where=where)
    names, join = row.get("from", []), row.get("join", "")
    transforms = row.get("transform", [""] * len(names))
    if not all(isinstance(text, str) for text in (*names, *transforms)) or len(transforms) != len(names):
        raise UsageError("'from' is a list of names, 'transform' has a text for each of them", where=where)
    if join not in ("", *JOINS) or (len(names) > 1) != bool(join):
        raise UsageError(f"several names need one 'join' of {', '.join(JOINS)}, one name none", where=where)
    try:
        ingredients = tuple(
            Ingredient(name, parse_transforms(text) if text else ()) for name, text in zip(names, transforms)
        )
        then = parse_transforms(row["then"]) if "then" in row else ()
    except UsageError as error:
        error.where = where
        raise
    filling = _filling(row["fill"], where) if "fill" in row else None
    return Recipe(row["to"], ingredients, join, then, filling, row.get("why", ""), row.get("alias", ""))


def _filling(row: dict[str, Any], where: str) -> Filling:
    _check(row, _FILLS, where)
    shape = row.get("shape")
    if len(row) < len(_FILLS) or shape is None or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise UsageError("'fill' has value, dtype and shape", where=where)
    if row["dtype"] not in _FILLED:
        raise UsageError(f"fills with {row['dtype']!r}; there are {', '.join(_FILLED)}", where=where)
    return Filling(row["dtype"], tuple(shape), row["value"])


def _check(row: dict[str, Any], known: Mapping[str, type], where: str) -> None:
    for key, value in row.items():
        if key not in known:
            raise UsageError(f"has {key!r}; there are {', '.join(known)}", where=where)
        if type(value) is not known[key]:
            raise UsageError(f"{key!r} is a {type(value).__name__}, a {known[key].__name__} is expected", where=where)


def rules_text(rules: Sequence[Rule], heading: str = "", recipes: Sequence[Recipe] = ()) -> str:
    """The rule file that reads back as ``rules`` and ``recipes``; ``heading`` becomes comment lines."""
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
    for recipe in recipes:
        lines += ["", "[[make]]", *_recipe_lines(recipe)]
    return "\n".join(lines) + "\n"


def _recipe_lines(recipe: Recipe) -> list[str]:
    lines = [f"why = {_quoted(recipe.why)}"] if recipe.why else []
    lines.append(f"to = {_quoted(recipe.target)}")
    if recipe.alias:
        lines.append(f"alias = {_quoted(recipe.alias)}")
    if recipe.filling is not None:
        filling = recipe.filling
        shape, value = list(filling.shape), float(filling.value)
        return [*lines, f"fill = {{ value = {value!r}, dtype = {_quoted(filling.dtype)}, shape = {shape} }}"]
    lines.append(f"from = [{', '.join(_quoted(each.source) for each in recipe.ingredients)}]")
    if any(each.steps for each in recipe.ingredients):
        lines.append(f"transform = [{', '.join(_quoted(describe(each.steps)) for each in recipe.ingredients)}]")
    if recipe.join:
        lines.append(f"join = {_quoted(recipe.join)}")
    if recipe.steps:
        lines.append(f"then = {_quoted(describe(recipe.steps))}")
    return lines


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
