"""PyTorch files that go into HDF5 and back are what they were, names and values of every kind among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")

from ckpt_tools.cli.app import app  # noqa: E402
from ckpt_tools.formats import open_checkpoint  # noqa: E402


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


@pytest.mark.parametrize(
    "state",
    [
        {"w": W, "user@host": "secret"},
        {"@a\0": "1", "w": W},
        {"w": W, "w@unit": "m", "@version": "1"},
        {"g": {"w": W}, "g@a": "beside a group"},
        {"g": {"@a": "in a group without tensors"}, "w": W},
        {"g": {"@a": "in a group", "w": W}},
        {"w": W, "": {"@a": "below an empty name"}},
        {"@layer_names": "what Keras lists", "weight_names1": W, "weight_names1@weight_names1": "x"},
        {"layers": {"vars": {"@name": "what Keras calls a layer", "0": W}}},
        {"w": W.bfloat16(), "w@dtype": "what Keras tells of bfloat16"},
        {"w": W, "@b\udc80": "1", "w@a": "\udc80", "@\ud800": "\ud800"},
    ],
    ids=ascii,
)
def test_texts_beside_tensors(state: dict[Any, Any], tmp_path: Path) -> None:
    back = there_and_back(state, tmp_path)
    assert ascii(sorted(back.items())) == ascii(sorted(state.items()))


def test_texts_of_tensors_are_attributes(tmp_path: Path) -> None:
    torch.save({"@version": "1", "g": {"@kind": "k", "w": W, "w@unit": "m"}}, tmp_path / "in.pth")
    convert(tmp_path / "in.pth", tmp_path / "out.weights.h5")
    with h5py.File(tmp_path / "out.weights.h5") as file:
        assert file.attrs["version"] == "1"
        assert file["g"].attrs["kind"] == "k"
        assert file["g/w"].attrs["unit"] == "m"
        assert list(file) == ["g"]


@pytest.mark.parametrize(
    "state",
    [
        {"\udc80": W},
        {"\udcff/x": W, "é": W + 1},
        {"\udcff": {"@a": "b", "x\udc80": W.bfloat16(), "x\udc80@unit": "m"}, "w": W},
        {"\udcff": {"\udc80": {"x": W}, "y": W}},
    ],
    ids=ascii,
)
def test_names_of_any_bytes(state: dict[Any, Any], tmp_path: Path) -> None:
    assert ascii(there_and_back(state, tmp_path)) == ascii(state)


@pytest.mark.parametrize("name", ["\ud800", "\udcc3\udca9"], ids=ascii)
@pytest.mark.parametrize("check", [[], ["--no-check"]])
def test_names_that_would_come_back_as_others(name: str, check: list[str], tmp_path: Path) -> None:
    torch.save({name: W}, tmp_path / "in.pth")
    target = tmp_path / "out.h5"
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "in.pth"), str(target), *check])
    assert result.exit_code == 5, result.output
    assert "cannot be written as UTF-8" in result.stderr
    assert not target.exists()


def test_names_of_attributes_of_any_bytes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file[b"g\xff/w"] = [1.0]
        file[b"g\xff"].attrs.create(b"a\xfe", 2)
        file[b"g\xff/w"].attrs[b"b\xfd"] = "text"
        file.id.links.create_soft(b"soft\xff", b"g\xff/w")
        file.attrs["text"] = b"\xff"
    convert(tmp_path / "in.h5", tmp_path / "out.h5")
    for name in ("in.h5", "out.h5"):
        with open_checkpoint(tmp_path / name) as checkpoint:
            group = checkpoint.root["g\udcff"]
            assert group["@a\udcfe"].value == 2
            assert group["w@b\udcfd"] == "text"
            assert [leaf.key for leaf in checkpoint if leaf.key[-1] == "w"] == [("g\udcff", "w")]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)], ids=str)
def test_empty_tensors_of_every_type(shape: tuple[int, ...], tmp_path: Path) -> None:
    types = [
        *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
        *(torch.complex32, torch.bfloat16, torch.float16, torch.bool, torch.uint64),
    ]
    state = {str(kind): torch.zeros(shape, dtype=kind) for kind in types}
    back = there_and_back(state, tmp_path)
    assert {name: (t.dtype, tuple(t.shape)) for name, t in back.items()} == {str(kind): (kind, shape) for kind in types}
