"""Every fixture lists as the framework that wrote it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fixture_cases import Case, cases, readable
from typer.testing import CliRunner

from ckpt_tools.cli.app import app

BOOKKEEPING = {"_CHECKPOINTABLE_OBJECT_GRAPH"}


def listed(case: Case, path: str) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(app, ["ls", "--json", "--digest", str(case.input / path)])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)["checkpoints"]


def text(key: list[Any]) -> tuple[str, ...]:
    return tuple(f"{type(part).__name__}:{part}" for part in key)


def below(key: list[Any], roots: list[list[Any]]) -> bool:
    return any(key[: len(root)] == root for root in roots)


@pytest.mark.parametrize("case", readable(), ids=lambda case: case.id)
def test_listing(case: Case) -> None:
    expected = case.expected
    for path in [expected["path"], *expected.get("also", [])]:
        code, checkpoints = listed(case, path)
        assert code == expected.get("digest_exit", 0)
        assert len(checkpoints) == 1
        found = checkpoints[0]
        assert found["format"] == expected["format"]
        open_keys = expected.get("open", [])
        tensors = {text(t["key"]): t for t in found["tensors"] if t["name"] not in BOOKKEEPING}
        if expected["tensors"] is not None:
            wanted = [t for t in expected["tensors"] if t["key"] != ["_CHECKPOINTABLE_OBJECT_GRAPH"]]
            compare_tensors(tensors, wanted, open_keys)
        if expected.get("values") is not None:
            compare_values(found["values"], expected["values"], open_keys)
        for group in expected.get("shared", []):
            assert len({tensors[text(key)]["storage"] for key in group}) == 1, group


def compare_tensors(tensors: dict[Any, dict[str, Any]], wanted: list[dict[str, Any]], open_keys: list[Any]) -> None:
    for tensor in wanted:
        if tensor.get("key") is None:
            like = [t for t in tensors.values() if same(t, tensor)]
            assert like, tensor
            continue
        ours = tensors.get(text(tensor["key"]))
        assert ours is not None, f"{tensor['key']} is not listed; there are {list(tensors)[:10]}"
        assert same(ours, tensor), (ours, tensor)
        if tensor.get("alias") is not None:
            assert ours.get("alias") == tensor["alias"]
    known = {text(t["key"]) for t in wanted if t.get("key") is not None}
    extra = [t["key"] for key, t in tensors.items() if key not in known and not below(t["key"], open_keys)]
    assert not extra, extra


def same(ours: dict[str, Any], tensor: dict[str, Any]) -> bool:
    return all(
        ours[member] == tensor[member]
        for member in ("dtype", "shape", "nbytes", "sha256")
        if tensor.get(member) is not None and member in tensor
    )


def compare_values(ours: list[dict[str, Any]], wanted: list[dict[str, Any]], open_keys: list[Any]) -> None:
    listed_values = {text(v["key"]): v for v in ours}
    for value in wanted:
        found = listed_values.get(text(value["key"]))
        assert found is not None, f"value {value['key']} is not listed; there are {list(listed_values)[:10]}"
        assert found["type"] == value["type"], (found, value)
        if "value" in value and value["value"] is not None:
            assert found["value"] == value["value"], (found, value)
    known = {text(v["key"]) for v in wanted}
    scalars = {"int", "float", "bool", "str", "NoneType"}
    extra = [
        v
        for key, v in listed_values.items()
        if key not in known and v["type"] in scalars and not below(v["key"], open_keys)
    ]
    assert not extra, extra


@pytest.mark.parametrize(
    "case",
    # what is expected of whole workspaces is about repairing and verifying them
    [c for c in cases() if c.expected.get("exit", 0) != 0 and "path" in c.expected and c.group != "workspaces"],
    ids=lambda case: case.id,
)
def test_refusal(case: Case) -> None:
    result = CliRunner().invoke(app, ["ls", str(case.path)])
    exits = case.expected["exit"]
    assert result.exit_code in (exits if isinstance(exits, list) else [exits]), result.output
    if result.exit_code == 0:
        return
    sentence = result.stderr.lower()
    assert sentence.startswith("ckpt: ")
    assert "traceback" not in sentence
    assert "internal error" not in sentence
    for word in case.expected.get("says", []):
        assert word.lower() in sentence, sentence
