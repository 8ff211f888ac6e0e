"""``ckpt ls`` of one checkpoint: whole outputs, every option, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ckpt_tools.cli.app import app


def ls(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ls", *map(str, arguments)])


def lines(*arguments: object) -> list[str]:
    result = ls(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def document(*arguments: object) -> dict[str, Any]:
    result = ls("--json", *arguments)
    assert result.exit_code == 0, result.stderr
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


@pytest.fixture
def snapshot(fixtures: Path) -> Path:
    return fixtures / "paddle-pickle" / "snapshot" / "input" / "snapshot_iter_60.pdz"


@pytest.fixture
def odd_keys(fixtures: Path) -> Path:
    return fixtures / "torch-zip" / "odd-keys" / "input" / "model.pt"


def test_lines(odd_keys: Path) -> None:
    assert lines(odd_keys) == [
        "a.b\tfloat32\t[1]\t4",
        '"a"/"b"\tfloat32\t[2]\t8',
        '"a"/0\tfloat32\t[3]\t12',
        '"a"/"0"\tfloat32\t[4]\t16',
        '"a/b"\tfloat32\t[2]\t8',
        "rows/0\tfloat32\t[1]\t4",
        "rows/1/0\tfloat32\t[2]\t8",
        "rows/1/1\tfloat32\t[3]\t12",
        "(1, 'two')\tfloat32\t[5]\t20",
        '""\tfloat32\t[6]\t24',
        "-3\tfloat32\t[1]\t4",
        "語\tfloat32\t[2]\t8",
        "\\x1b[31mred\\x0a\tfloat32\t[1]\t4",
        " blank \tfloat32\t[1]\t4",
    ]


def test_values_stand_among_the_tensors_with_as_many_columns(snapshot: Path) -> None:
    rows = [line.split("\t") for line in lines(snapshot)]
    assert {len(row) for row in rows} == {4}
    assert rows[:3] == [
        ["epoch", "int", "= 2", ""],
        ["iteration", "int", "= 60", ""],
        ["main_params/0.weight", "float32", "[2, 3]", "24"],
    ]
    with_more = [line.split("\t") for line in lines("--digest", "--stats", snapshot)]
    assert {len(row) for row in with_more} == {11}
    with_remarks = [line.split("\t") for line in lines("-v", snapshot)]
    assert with_remarks[2] == ["main_params/0.weight", "float32", "[2, 3]", "24", "linear_0.w_0"]


def test_digests_and_numbers(fixtures: Path) -> None:
    path = fixtures / "torch-zip" / "shared-storage" / "input" / "model.pt"
    row = lines("--digest", "--stats", "--match", "embed.weight", path)[0].split("\t")
    tensor = document("--digest", "--stats", "--match", "embed.weight", path)["checkpoints"][0]["tensors"][0]
    assert row[:4] == ["embed.weight", "float32", "[4, 2]", "32"]
    assert row[4] == tensor["sha256"]
    assert [float(text) for text in row[5:]] == pytest.approx(list(tensor["stats"].values()), rel=1e-5)


def test_depth(snapshot: Path) -> None:
    assert lines("--depth", 1, snapshot) == ["main_params\t8\t29\t116", "main_optimizer\t24\t58\t232"]
    assert lines("--depth", 2, "--sort", "size", snapshot)[:2] == [
        "main_optimizer/linear_0\t8\t22\t88",
        "main_optimizer/linear_1\t8\t20\t80",
    ]
    assert lines("--depth", 2, "--sort", "name", "--root", "main_params", snapshot) == [
        "main_params/0\t2\t9\t36",
        "main_params/1\t4\t12\t48",
        "main_params/2\t2\t8\t32",
    ]


def test_tree(snapshot: Path, odd_keys: Path) -> None:
    assert lines("--tree", "--depth", 2, snapshot) == [
        "snapshot_iter_60.pdz",
        "├── main_params",
        "│   ├── 0  2 tensors, 9 parameters, 36 B",
        "│   ├── 1  4 tensors, 12 parameters, 48 B",
        "│   └── 2  2 tensors, 8 parameters, 32 B",
        "└── main_optimizer",
        "    ├── linear_0  8 tensors, 22 parameters, 88 B",
        "    ├── batch_norm1d_0  8 tensors, 16 parameters, 64 B",
        "    └── linear_1  8 tensors, 20 parameters, 80 B",
    ]
    assert lines("--tree", "--match", "a.b", "--match", "rows/*", odd_keys) == [
        "model.pt",
        "├── a.b  float32 [1] 4 B",
        "└── rows",
        "    ├── [0]  float32 [1] 4 B",
        "    └── [1]",
        "        ├── [0]  float32 [2] 8 B",
        "        └── [1]  float32 [3] 12 B",
    ]
    digest = document("--digest", odd_keys)["checkpoints"][0]["tensors"][0]["sha256"]
    assert f"├── a.b  float32 [1] 4 B  {digest}" in lines("--tree", "--digest", odd_keys)


def test_sums_and_single_tensors_exclude_each_other(snapshot: Path) -> None:
    for option in ("--digest", "--stats"):
        result = ls("--depth", 1, option, snapshot)
        assert result.exit_code == 2
        assert result.stdout == ""


def test_sorting(odd_keys: Path) -> None:
    def names(order: str) -> list[str]:
        return [line.split("\t")[0] for line in lines("--sort", order, odd_keys)]

    assert names("file")[0] == "a.b"
    assert names("size")[:3] == ['""', "(1, 'two')", '"a"/"0"']
    assert sorted(names("name")) == sorted(names("file"))
    assert names("name").index("rows/0") < names("name").index("rows/1/0")


def test_json_keeps_the_order_of_the_file(odd_keys: Path) -> None:
    assert document("--sort", "size", odd_keys) == document(odd_keys)


def test_choosing(snapshot: Path) -> None:
    def names(*options: str) -> list[str]:
        return [line.split("\t")[0] for line in lines(*options, snapshot)]

    assert names("--match", "*.weight") == [f"main_params/{i}.weight" for i in range(3)]
    assert names("--match", "main_params/*", "--exclude", "*.bias", "--exclude", "_*") == [
        f"main_params/{i}.weight" for i in range(3)
    ]
    assert names("--root", "main_optimizer/LR_Scheduler") == [
        "main_optimizer/LR_Scheduler/last_epoch",
        "main_optimizer/LR_Scheduler/last_lr",
    ]
    nothing = ls("--match", "nothing*", snapshot)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr == f"note: {snapshot}: none of the names is asked for\n"
    assert ls("--match", "nothing*", "-q", snapshot).stderr == ""


def test_a_root_that_is_not_there(snapshot: Path) -> None:
    result = ls("--root", "model", snapshot)
    assert result.exit_code == 2
    assert "nothing lies below 'model'; the top level has main_params, main_optimizer" in result.stderr


def test_storage_that_is_mostly_unused(fixtures: Path) -> None:
    path = fixtures / "torch-zip" / "view-of-large-storage" / "input" / "model.pt"
    result = ls(path)
    assert result.stdout == "first_rows\tfloat32\t[2, 50]\t400\ncolumn\tfloat32\t[40]\t160\n"
    assert result.stderr == (
        f"note: {path}: 7.8 KiB are stored, 7 % of it is used: views keep the whole of what they were cut from\n"
    )


def test_json(fixtures: Path) -> None:
    path = fixtures / "paddle-pickle" / "optimizer" / "input" / "model.pdopt"
    loaded = document(path)
    assert list(loaded) == ["schema", "checkpoints"]
    assert loaded["schema"] == "ckpt.ls/1"
    (checkpoint,) = loaded["checkpoints"]
    assert checkpoint["path"] == str(path)
    assert checkpoint["format"] == "paddle-pickle"
    assert checkpoint["nbytes"] == path.stat().st_size
    assert set(checkpoint["tensors"][0]) >= {"name", "key", "dtype", "shape", "nbytes", "storage"}


def test_several_paths(snapshot: Path, odd_keys: Path) -> None:
    result = ls(odd_keys, snapshot, "--match", "a.b", "--match", "iteration")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"# {odd_keys}",
        "a.b\tfloat32\t[1]\t4",
        f"# {snapshot}",
        "iteration\tint\t= 60\t",
    ]
    assert [c["path"] for c in document(odd_keys, snapshot)["checkpoints"]] == [str(odd_keys), str(snapshot)]


def test_one_of_several_paths_is_unreadable(snapshot: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pt"
    result = ls(missing, snapshot)
    assert result.exit_code == 4
    assert result.stdout.startswith(f"# {snapshot}\n")
    assert result.stderr == f"ckpt: {missing}: no such file, directory or checkpoint prefix\n"
    loaded = ls("--json", missing, snapshot)
    assert loaded.exit_code == 4
    assert [c["path"] for c in json.loads(loaded.stdout)["checkpoints"]] == [str(snapshot)]


def test_nothing_is_printed_of_what_cannot_be_read(fixtures: Path, tmp_path: Path) -> None:
    for options in ([], ["--json"], ["--tree"], ["--digest"]):
        result = ls(*options, fixtures / "torch-zip" / "truncated" / "input" / "model.pt")
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.startswith("ckpt: ")


def test_bytes_that_are_missing(fixtures: Path) -> None:
    folder = fixtures / "tf-bundle" / "missing-shard" / "input"
    assert ls(folder).exit_code == 0
    result = ls("--digest", folder)
    assert result.exit_code == 4
    digests = {line.split("\t")[0]: line.split("\t")[4] for line in result.stdout.splitlines()}
    assert digests["decoder/kernel"] == "-"
    assert len(digests["encoder/bias"]) == 64
    tensors = json.loads(ls("--digest", "--json", folder).stdout)["checkpoints"][0]["tensors"]
    assert {t["name"] for t in tensors if t["sha256"] is None} == {"decoder/kernel", "names"}


def test_values_beyond_a_limit_do_not_end_the_listing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "expanded.pt"
    torch.save({"huge": torch.ones(1).expand(1 << 20, 1 << 20), "small": torch.ones(2)}, path)
    result = ls("--digest", path)
    assert result.exit_code == 4
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["huge", "small"]
    assert "error: huge: " in result.stderr


def test_formats(snapshot: Path, fixtures: Path) -> None:
    assert lines("--format", "pickle", "--match", "iteration", snapshot) == ["iteration\tint\t= 60\t"]
    unknown = ls("--format", "nonsense", snapshot)
    assert unknown.exit_code == 2
    assert "no format is called 'nonsense'; there are sharded, " in unknown.stderr
    for name in ("torch-zip", "tf-bundle", "deepspeed", "safetensors", "npy", "torch-dcp"):
        result = ls("--format", name, snapshot)
        assert result.exit_code == 4, name
        assert result.stderr.startswith(f"ckpt: {snapshot}: "), name


@pytest.mark.parametrize(
    "arguments",
    [[], ["--sort", "colour", "x"], ["--depth", "0", "x"], ["--nonsense", "x"], [""]],
    ids=["no path", "sort", "depth", "option", "empty path"],
)
def test_usage(arguments: list[str]) -> None:
    result = ls(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: " in result.stderr


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    result = ls(tmp_path / "a\x1b[31m.pt")
    assert result.exit_code == 4
    assert "a\\x1b[31m.pt: no such file" in result.stderr
    long_name = tmp_path / ("x" * 300)
    result = ls(long_name)
    assert result.exit_code == 4
    assert result.stderr == f"ckpt: {long_name}: cannot be read: File name too long\n"


def test_members_of_a_family_are_the_same(fixtures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(fixtures / "tf-bundle" / "sharded" / "input", folder)
    names = sorted(path.name for path in folder.iterdir())
    prefix = next(name for name in names if name.endswith(".index")).removesuffix(".index")
    outputs = {ls(folder / name).stdout for name in [prefix, *names]}
    assert len(outputs) == 1
    assert outputs != {""}
