"""Where ``ckpt convert`` can write: long names, pipes, and what is refused in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import numpy
import pytest
from typer.testing import CliRunner

from ckpt_tools.cli.app import app


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.npz"
    numpy.savez(path, a=numpy.ones(3, "f4"), b=numpy.ones(2, "f4"))
    return path


def convert(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["convert", *map(str, arguments)])
    return result.exit_code, result.stderr


@pytest.mark.parametrize("suffix", [".pth", ".safetensors", ".npz", ".h5", ".pdparams"])
def test_names_as_long_as_the_system_allows(suffix: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / ("a" * (255 - len(suffix)) + suffix)
    assert convert(source, target)[0] == 0
    assert target.exists()
    assert convert(source, target, "--overwrite")[0] == 0
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("length", [250, 300])
def test_longer_names_are_refused(length: int, source: Path, tmp_path: Path) -> None:
    target = tmp_path / ("a" * length + ".index")
    code, said = convert(source, target)
    assert code == 5
    assert said.startswith(f"ckpt: {tmp_path}/aaaa")
    assert said.endswith("cannot be written: File name too long\n")
    assert list(tmp_path.iterdir()) == [source]


def test_a_pipe_is_no_place_for_a_file(source: Path) -> None:
    ends = os.pipe()
    try:
        target = f"/dev/fd/{ends[1]}"
        code, said = convert(source, target, "--to", "npz")
    finally:
        for end in ends:
            os.close(end)
    assert code == 5
    assert said == f"ckpt: {target}: is a device, socket or pipe, not a regular file\n"
