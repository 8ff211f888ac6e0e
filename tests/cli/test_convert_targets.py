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


@pytest.mark.parametrize(("format", "suffix"), [("safetensors", ".safetensors"), ("torch-zip", ".pth")])
def test_shards_have_a_suffix_whatever_the_target_is_called(
    format: str, suffix: str, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    assert convert(source, target, "--to", format, "--max-shard-size", "12B")[0] == 0
    made = {f"out-0000{number}-of-00002{suffix}" for number in (1, 2)} | {f"out{suffix}.index.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"in.npz", *made}
    code, said = convert(source, target, "--to", format, "--max-shard-size", "12B")
    assert (code, "exists already" in said) == (5, True)
    assert convert(source, target, "--to", format)[0] == 0  # in one piece it is called what was asked for
    assert target.exists()


def test_a_dry_run_says_what_stands_in_the_way(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.safetensors"
    assert "refused" not in convert(source, target, "--dry-run")[1]
    assert convert(source, target)[0] == 0
    code, said = convert(source, target, "--dry-run")
    assert code == 0
    assert f"note: this would be refused: {target}: exists already; --overwrite replaces it\n" in said
    assert "refused" not in convert(source, target, "--dry-run", "--overwrite")[1]
    assert convert(source, target, "--overwrite", "--max-shard-size", "12B")[0] == 0
    assert "belongs to a checkpoint of that name" in convert(source, target, "--dry-run")[1]


@pytest.mark.parametrize(
    ("target", "renaming"),
    [("out.index", "a=b"), ("out.h5", "a=b"), ("out.h5", "a=b/c"), ("out.h5", "a=.."), ("out.index", "a=\0")],
)
def test_refused_names_are_told_with_their_file(target: str, renaming: str, source: Path, tmp_path: Path) -> None:
    code, said = convert(source, tmp_path / target, "--rename", renaming)
    assert code == 5
    assert said.startswith(f"ckpt: {source}: ")


def test_the_lost_are_named_when_nothing_is_left(tmp_path: Path) -> None:
    source = tmp_path / "in.npz"
    numpy.savez(source, a=numpy.array(["text"]))
    code, said = convert(source, tmp_path / "out.pth", "--allow-loss")
    assert code == 5
    assert said == f"ckpt: {source}: no tensor is left to be written: a: of dtype str128\n"


def test_one_value_is_counted_as_one(tmp_path: Path) -> None:
    source = tmp_path / "in.npz"
    numpy.savez(source, a=numpy.array([1e30, 1], "f4"), b=numpy.array([1e30, 1e30], "f4"))
    code, said = convert(source, tmp_path / "out.pth", "--dtype", "float16")
    assert code == 0
    assert "note: 1 value of a is beyond the range of float16\n" in said
    assert "note: 2 values of b are beyond the range of float16\n" in said


@pytest.mark.parametrize("exponent", [28, 40])
def test_many_values_of_few_bytes_are_over_a_limit(exponent: int, tmp_path: Path) -> None:
    """However much room there is on the disk."""
    torch = pytest.importorskip("torch")
    source = tmp_path / "in.pth"
    torch.save({"a": torch.ones(1).expand(2**exponent)}, source)
    for options in ([], ["--dtype", "float16"]):
        code, said = convert(source, tmp_path / "out.npz", *options)
        assert code == 4
        assert said == (
            f"ckpt: {source}: a: a view of 4 bytes claims {4 << exponent} bytes of values\n"
            "hint: --exclude NAME leaves it out\n"
        )
