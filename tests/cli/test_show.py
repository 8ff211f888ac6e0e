"""``ckpt show``: one leaf of any kind, slices, names, ``--save``, exit codes."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ckpt_tools.cli.app import app

numpy = pytest.importorskip("numpy")


def show(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["show", *map(str, arguments)])


def document(*arguments: object) -> dict[str, Any]:
    result = show("--json", *arguments)
    assert result.exit_code == 0, result.stderr
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


@pytest.fixture
def ramp(tmp_path: Path) -> Path:
    path = tmp_path / "ramp.npz"
    numpy.savez(
        path,
        ramp=numpy.arange(6, dtype="f4").reshape(2, 3),
        odd=numpy.array([numpy.nan, numpy.inf, -1.0, 3.0]),
        text=numpy.array(["a", "b\x1b[31m"]),
        day=numpy.array(["2024-01-02"], "M8[D]"),
        record=numpy.array([(1, [0.5, 1.5])], dtype=[("a", "i4"), ("b", "f4", (2,))]),
        huge=numpy.array([1.7e308, 1.7e308, -1.7e308]),
        empty=numpy.zeros((0, 3)),
    )
    return path


def test_a_tensor(ramp: Path) -> None:
    assert show(ramp, "ramp").stdout.splitlines()[:5] == [
        "ramp  float32 [2, 3]  24 B",
        "  min 0, max 5, mean 2.5, std 1.70783, 0 NaN, 0 Inf, 1 zero",
        "[[0. 1. 2.]",
        " [3. 4. 5.]]",
        f"  {0:>12} {'#' * 30} 1",
    ]


@pytest.mark.parametrize(
    ("index", "values"),
    [
        ("[0]", [0, 1, 2]),
        ("[-1, :]", [3, 4, 5]),
        ("[:, 1]", [1, 4]),
        ("[..., ::2]", [[0, 2], [3, 5]]),
        ("[1, 2]", 5),
        ("[:0]", []),
        ("[]", [[0, 1, 2], [3, 4, 5]]),
        ("[5:, 0]", []),
    ],
)
def test_slices(ramp: Path, index: str, values: Any) -> None:
    assert document(ramp, f"ramp{index}")["values"] == values


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("[2]", "the shape is [2, 3]: 2 is outside dimension 0"),
        ("[0, 0, 0]", "the shape is [2, 3]: the slice has 3 parts"),
        ("[::-1]", "the slice steps by -1"),
        ("[1:2:3:4]", "is no slice"),
        ("[,]", "is no index"),
        ("[-]", "is no index"),
    ],
)
def test_slices_that_do_not_fit(ramp: Path, index: str, said: str) -> None:
    result = show(ramp, f"ramp{index}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_what_is_not_finite(ramp: Path) -> None:
    loaded = document(ramp, "odd")
    assert loaded["values"] == ["NaN", "Infinity", -1.0, 3.0]
    assert loaded["stats"] == {"min": -1.0, "max": 3.0, "mean": 1.0, "std": 2.0, "nan": 1, "inf": 1}


def test_numbers_whose_sums_overflow(ramp: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = document(ramp, "huge")
    assert loaded["stats"]["max"] == 1.7e308
    assert loaded["stats"]["std"] is None
    assert show(ramp, "huge").exit_code == 0


def test_texts_times_and_records(ramp: Path) -> None:
    assert show(ramp, "text").stdout == "text  str192 [2]  48 B\n['a' 'b\\x1b[31m']\n"
    assert document(ramp, "day")["values"] == ["2024-01-02"]
    assert document(ramp, "record")["values"] == [[1, [0.5, 1.5]]]
    assert document(ramp, "empty")["values"] == []


def test_composite_tensors(fixtures: Path) -> None:
    quantized = fixtures / "torch-zip" / "quantized" / "input" / "model.pt"
    parts = document(quantized, "per_channel")["parts"]
    assert list(parts) == ["values", "scales", "zero_points"]
    assert numpy.array(parts["values"]["values"]).shape == (2, 3)
    sparse = fixtures / "torch-zip" / "sparse" / "input" / "model.pt"
    shown = show(sparse, "coo")
    assert shown.exit_code == 0
    assert "  indices  int64" in shown.stdout
    assert show(sparse, "coo[0]").exit_code == 2
    assert show(sparse, "coo", "--save", "x.npy").exit_code == 2


def test_strings(fixtures: Path) -> None:
    folder = fixtures / "tf-bundle" / "object-based" / "input"
    listed = CliRunner().invoke(app, ["ls", "--json", str(folder)])
    names = [
        t["name"]
        for t in json.loads(listed.stdout)["checkpoints"][0]["tensors"]
        if t["dtype"] == "string" and t["shape"]
    ]
    name = names[0]
    everything = document(folder, name)["values"]
    assert document(folder, f"{name}[0]")["values"] == everything[:1]
    assert document(folder, f"{name}[1:]")["values"] == everything[1:]
    assert show(folder, f"{name}[99]").exit_code == 2
    graph = show(folder, "_CHECKPOINTABLE_OBJECT_GRAPH").stdout
    assert max(map(len, graph.splitlines())) < 1000


def test_values(fixtures: Path, tmp_path: Path) -> None:
    snapshot = fixtures / "paddle-pickle" / "snapshot" / "input" / "snapshot_iter_60.pdz"
    assert show(snapshot, "iteration").stdout == "iteration\tint\t= 60\n"
    loaded = document(snapshot, "iteration")
    assert loaded["schema"] == "ckpt.show/1"
    assert (loaded["type"], loaded["value"]) == ("int", 60)
    result = show(snapshot, "iteration", "--save", tmp_path / "x.npy")
    assert result.exit_code == 2
    assert not (tmp_path / "x.npy").exists()


def test_names(fixtures: Path) -> None:
    path = fixtures / "torch-zip" / "odd-keys" / "input" / "model.pt"
    for name, shape in [
        ("a.b", [1]),
        ('"a"/"b"', [2]),
        ('"a"/0', [3]),
        ('"a"/"0"', [4]),
        ("rows/1/0", [2]),
        ("(1, 'two')", [5]),
        ('""', [6]),
        ("\x1b[31mred\n", [1]),
        ("\\x1b[31mred\\x0a", [1]),
        ("語", [2]),
    ]:
        assert document(path, name)["shape"] == shape, name


def test_the_end_of_a_name(fixtures: Path) -> None:
    snapshot = fixtures / "paddle-pickle" / "snapshot" / "input" / "snapshot_iter_60.pdz"
    assert document(snapshot, "0.weight")["name"] == "main_params/0.weight"
    several = show(snapshot, "weight")
    assert several.exit_code == 2
    assert "3 names end in 'weight': main_params/0.weight, " in several.stderr
    none = show(snapshot, "main_params/0.wieght")
    assert none.exit_code == 2
    assert "hint: did you mean main_params/0.weight" in none.stderr


def test_saving(ramp: Path, tmp_path: Path) -> None:
    target = tmp_path / "saved.npy"
    result = show(ramp, "ramp[:, 1:]", "--save", target)
    assert result.exit_code == 0
    assert result.stderr == f"wrote {target}\n"
    assert numpy.load(target).tolist() == [[1, 2], [4, 5]]
    refused = show(ramp, "ramp", "--save", target)
    assert refused.exit_code == 5
    assert numpy.load(target).tolist() == [[1, 2], [4, 5]]
    assert show(ramp, "text", "--save", target, "--overwrite").exit_code == 0
    assert numpy.load(target).tolist() == ["a", "b\x1b[31m"]


def test_what_has_no_bytes(fixtures: Path) -> None:
    meta = fixtures / "torch-zip" / "meta" / "input" / "model.pt"
    name = json.loads(CliRunner().invoke(app, ["ls", "--json", str(meta)]).stdout)["checkpoints"][0]["tensors"][0][
        "name"
    ]
    result = show(meta, name)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"ckpt: {meta}: {name}: a meta tensor\n"


def test_the_leaf_that_is_everything(tmp_path: Path) -> None:
    path = tmp_path / "lone.pkl"
    path.write_bytes(pickle.dumps(numpy.arange(3)))
    assert document(path, ".")["values"] == [0, 1, 2]
