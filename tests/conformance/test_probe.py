"""Exactly one row of the table recognises each fixture, whatever its name says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fixture_cases import Case, readable

from ckpt_tools.core.location import locate
from ckpt_tools.formats import FORMATS, recognise


@pytest.mark.parametrize("case", readable(), ids=lambda case: case.id)
def test_content_decides(case: Case) -> None:
    row = recognise(locate(case.path))
    assert row is not None
    assert row.of_parts or row.name == case.expected["format"]


@pytest.mark.parametrize(
    "case", [c for c in readable() if c.expected["format"] in ("torch-zip", "safetensors", "npz")], ids=lambda c: c.id
)
def test_the_name_does_not_matter(case: Case, tmp_path: Path) -> None:
    if not case.path.is_file() or len(case.files) > 1:
        pytest.skip("a family of files keeps its names")
    for name in ("x", "x.pdparams", "x.index", "x.h5"):
        renamed = tmp_path / name
        shutil.copy(case.path, renamed)
        row = recognise(locate(renamed))
        assert row is not None
        assert row.name == case.expected["format"]


def test_rows_are_complete() -> None:
    names = [row.name for row in FORMATS]
    assert len(names) == len(set(names))
    for row in FORMATS:
        module = row.module()
        assert callable(module.probe)
        assert callable(module.read)
        assert module.__doc__
