"""PyTorch files that go into HDF5 and back are what they were, names and values of every kind among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")

from ckpt_tools.cli.app import app  # noqa: E402


def convert(source: Path, target: Path) -> None:
    result = CliRunner().invoke(app, ["convert", str(source), str(target)])
    assert result.exit_code == 0, result.output


def there_and_back(state: dict[Any, Any], tmp_path: Path) -> dict[Any, Any]:
    torch.save(state, tmp_path / "in.pth")
    convert(tmp_path / "in.pth", tmp_path / "middle.h5")
    convert(tmp_path / "middle.h5", tmp_path / "out.pth")
    return dict(torch.load(tmp_path / "out.pth", weights_only=True))


W = torch.arange(3.0)


@pytest.mark.parametrize(
    "state",
    [
        {"a/b": W, "a/c": W + 1},
        {"a": {"b": W, "c": W + 1}},
        {"a/b": {"c": W}, "a": {"d/e": W}},
        {"z": W, "a": W + 1},
        {"layers/dense/vars/0": W, "layers/dense/vars/1": W + 1},
    ],
    ids=str,
)
def test_nesting_and_order(state: dict[Any, Any], tmp_path: Path) -> None:
    back = there_and_back(state, tmp_path)
    assert str(back) == str(state)
