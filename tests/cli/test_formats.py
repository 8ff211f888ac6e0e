"""``ckpt formats``: the table itself, and that it tells the truth."""

from __future__ import annotations

import json
from pathlib import Path

from terminal import shown
from typer.testing import CliRunner

from ckpt_tools.cli.app import app
from ckpt_tools.formats.table import FORMATS


def test_lines() -> None:
    result = CliRunner().invoke(app, ["formats"])
    assert result.exit_code == 0
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == [row.name for row in FORMATS]
    assert {len(row) for row in rows} == {6}
    assert {row[1] for row in rows} == {"yes"}


def test_json() -> None:
    document = json.loads(CliRunner().invoke(app, ["formats", "--json"]).stdout)
    assert list(document) == ["schema", "formats"]
    assert document["schema"] == "ckpt.formats/1"
    names = [row["name"] for row in document["formats"]]
    assert {"torch-zip", "torch-legacy", "pickle", "paddle-pickle", "tf-bundle", "safetensors"} <= set(names)
    by_name = {row["name"]: row for row in document["formats"]}
    assert by_name["hdf5"]["extra"] == "hdf5"
    assert by_name["torch-zip"]["extra"] is None


def test_every_format_has_a_module_with_both_functions() -> None:
    for row in FORMATS:
        module = row.module()
        assert callable(module.probe)
        assert callable(module.read)


def test_on_a_terminal(tmp_path: Path) -> None:
    code, text = shown("formats", "--no-color", columns=120, cwd=tmp_path)
    assert code == 0
    assert text.splitlines()[0].split() == ["format", "read", "write", "suffixes", "recognised", "by", "extra"]
    assert "\x1b" not in text
