"""Writing a planned conversion, whatever the format."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from ckpt_tools.formats import open_checkpoint, writers
from ckpt_tools.ops import convert, writing


@pytest.mark.parametrize(
    "name", ["x.pth", "x.pdparams", "x.safetensors", "x.npz", "x.index", "x.weights.h5", "x.h5"], ids=str
)
def test_progress_tells_of_every_byte(name: str, tmp_path: Path) -> None:
    numpy.savez(tmp_path / "in.npz", a=numpy.ones((300, 400), "f4"), b=numpy.arange(5))
    nbytes = 300 * 400 * 4 + 5 * 8
    row, path = writers.choose(tmp_path / name, None, is_directory=False)
    told: list[int] = []
    with open_checkpoint(tmp_path / "in.npz") as source:
        conversion = convert.plan(source, path, convert.Wishes(row.name))
        writing.write(conversion, overwrite=False, check=False, progress=told.append)
    assert nbytes <= sum(told) <= conversion.write_plan.nbytes
