"""Directories: a line for each checkpoint, which is the latest, and nothing left out in silence."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ckpt_tools import open_checkpoint
from ckpt_tools.cli.app import app
from ckpt_tools.errors import UnknownFormat, UnreadableInput, UsageError
from ckpt_tools.formats import families


def ckpt(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def rows(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


@pytest.fixture
def speech(fixtures: Path) -> Path:
    return fixtures / "workspaces" / "paddlespeech" / "input" / "exp" / "default" / "checkpoints"


@pytest.fixture
def training(fixtures: Path, tmp_path: Path) -> Path:
    """A TensorFlow run that may be changed."""
    folder = tmp_path / "training_checkpoints"
    shutil.copytree(fixtures / "workspaces" / "tensorflow" / "input" / "training_checkpoints", folder)
    return folder


@pytest.fixture
def model(fixtures: Path) -> Path:
    return fixtures / "torch-zip" / "state-dict" / "input" / "model.pt"


def test_snapshots(speech: Path) -> None:
    result = ckpt("ls", speech)
    assert result.exit_code == 0
    assert [row[:6] for row in rows(result)] == [
        [str(speech / f"snapshot_iter_{n}.pdz"), "paddle-pickle", str(n), "10", "22", "1260"] for n in (30, 60, 90)
    ]


def test_snapshots_far_below(fixtures: Path, speech: Path) -> None:
    assert len(rows(ckpt("ls", fixtures / "workspaces" / "paddlespeech" / "input"))) == 3


def test_the_latest_of_tensorflow(training: Path) -> None:
    result = ckpt("ls", training)
    assert result.exit_code == 0
    assert [(Path(row[0]).name, row[1], row[2], row[7]) for row in rows(result)] == [
        ("ckpt-2", "tf-bundle", "2", ""),
        ("ckpt-3", "tf-bundle", "3", ""),
        ("ckpt-4", "tf-bundle", "4", "latest"),
    ]
    state = training / "checkpoint"
    state.write_text(state.read_text().replace('path: "ckpt-4"', 'path: "/gone/elsewhere/ckpt-3"', 1))
    assert [row[7] for row in rows(ckpt("ls", training))] == ["", "latest", ""]


def test_a_latest_that_is_not_there(training: Path) -> None:
    for file in training.glob("ckpt-4.*"):
        file.unlink()
    result = ckpt("ls", training)
    assert result.exit_code == 0
    assert len(rows(result)) == 2
    assert "names ckpt-4 as the latest checkpoint, which is not there" in result.stderr
    assert "hint: ckpt fix-paths" in result.stderr


def test_a_damaged_state_file(training: Path) -> None:
    (training / "checkpoint").write_bytes(b'model_checkpoint_path: "\xff"\n')
    result = ckpt("ls", training)
    assert result.exit_code == 0
    assert len(rows(result)) == 3
    assert "warning: " in result.stderr


@pytest.mark.parametrize(
    ("name", "iteration"),
    [
        ("model.ckpt-100", "100"),
        ("epoch=01-val_loss=0.25.pt", "1"),
        ("weights.05-0.125.pt", "5"),
        ("100000_iterations.pth", "100000"),
        ("model.pth.tar", "-"),
        ("best_0.875.pt", "-"),
        ("checkpoint_7.pth.tar", "7"),
        ("9" * 30 + ".pt", "-"),
    ],
)
def test_iterations_in_names(tmp_path: Path, model: Path, name: str, iteration: str) -> None:
    shutil.copy(model, tmp_path / name)
    shutil.copy(model, tmp_path / "other.pt")
    found = {Path(row[0]).name: row[2] for row in rows(ckpt("ls", tmp_path))}
    assert found == {name: iteration, "other.pt": "-"}


def test_everything_is_told_of(fixtures: Path, tmp_path: Path, model: Path, training: Path) -> None:
    shutil.copy(model, tmp_path / "10.pt")
    shutil.copy(model, tmp_path / "9.pt")
    shutil.copy(fixtures / "torch-zip" / "truncated" / "input" / "model.pt", tmp_path / "broken.pt")
    deep = tmp_path / "runs" / "one"
    deep.mkdir(parents=True)
    shutil.copy(model, deep / "model.pt")
    (tmp_path / ".git").mkdir()
    shutil.copy(model, tmp_path / ".git" / "hidden.pt")
    (tmp_path / "README.md").write_text("text")
    (tmp_path / "notes").write_text("text")
    (tmp_path / "latest.pt").symlink_to("nowhere.pt")
    (tmp_path / "circle.pt").symlink_to("circle.pt")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "socket").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe.pt")
    result = ckpt("ls", tmp_path)
    assert result.exit_code == 4
    assert [(str(Path(row[0]).relative_to(tmp_path)), row[1]) for row in rows(result)] == [
        ("9.pt", "torch-zip"),
        ("10.pt", "torch-zip"),
        ("broken.pt", "-"),
        ("circle.pt", "-"),
        ("latest.pt", "-"),
        ("runs/one/model.pt", "torch-zip"),
        ("training_checkpoints/ckpt-2", "tf-bundle"),
        ("training_checkpoints/ckpt-3", "tf-bundle"),
        ("training_checkpoints/ckpt-4", "tf-bundle"),
    ]
    remarks = {Path(row[0]).name: row[7] for row in rows(result)}
    assert "truncated" in remarks["broken.pt"]
    assert remarks["latest.pt"] == "a link to nowhere.pt, which leads nowhere"
    assert remarks["ckpt-4"] == "latest"


def test_data_without_its_index(training: Path) -> None:
    (training / "ckpt-3.index").unlink()
    result = ckpt("ls", training)
    assert result.exit_code == 4
    assert [(Path(row[0]).name, row[1]) for row in rows(result)] == [
        ("ckpt-2", "tf-bundle"),
        ("ckpt-3", "-"),
        ("ckpt-4", "tf-bundle"),
    ]
    assert rows(result)[1][7] == "the data of a TensorFlow checkpoint without its index"


def test_what_may_not_be_opened(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(model, tmp_path / "a.pt")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed.pt").write_bytes(b"")
    real_scandir, real_open = os.scandir, os.open

    def scandir(path: str | Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return real_scandir(path)

    def open_(path: str | Path, *rest: int) -> int:
        if Path(path).name == "closed.pt":
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *rest)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "listdir", lambda path=".": [entry.name for entry in scandir(path)])  # type: ignore[attr-defined]
    monkeypatch.setattr(os, "open", open_)
    result = ckpt("ls", tmp_path)
    assert result.exit_code == 4
    found = {Path(row[0]).name: row[7] for row in rows(result)}
    assert found == {
        "a.pt": "",
        "closed": "cannot be read: Permission denied",
        "closed.pt": "cannot be opened: Permission denied",
    }
    with pytest.raises(UnreadableInput, match="Permission denied"):
        open_checkpoint(tmp_path / "closed")


def test_one_checkpoint_is_listed_in_full(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "run" / "step"
    folder.mkdir(parents=True)
    shutil.copy(model, folder / "model.pt")
    (tmp_path / "run" / "log.txt").write_text("text")
    assert ckpt("ls", tmp_path / "run").stdout == ckpt("ls", model).stdout
    with open_checkpoint(tmp_path / "run") as checkpoint:
        assert checkpoint.location.path == folder / "model.pt"
    name = next(iter(checkpoint.tensors))
    assert ckpt("show", tmp_path / "run", name).exit_code == 0


def test_one_damaged_checkpoint(fixtures: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures / "torch-zip" / "truncated" / "input" / "model.pt", tmp_path / "broken.pt")
    for command in (["ls"], ["ls", "--json"]):
        result = ckpt(*command, tmp_path)
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.startswith(f"ckpt: {tmp_path / 'broken.pt'}: ")


def test_one_has_to_be_named(speech: Path) -> None:
    result = ckpt("show", speech, "x")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "3 checkpoints" in result.stderr
    assert all(f"snapshot_iter_{n}.pdz" in result.stderr for n in (30, 60, 90))
    with pytest.raises(UsageError):
        open_checkpoint(speech)


def test_long_directories_name_some(tmp_path: Path, model: Path) -> None:
    for n in range(20):
        shutil.copy(model, tmp_path / f"{n}.pt")
    with pytest.raises(UsageError, match=r"20 checkpoints.*7\.pt and 12 more$"):
        open_checkpoint(tmp_path)


def test_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    result = ckpt("ls", tmp_path)
    assert result.exit_code == 4
    assert result.stderr == f"ckpt: {tmp_path}: a directory without a checkpoint in it\n"
    with pytest.raises(UnknownFormat):
        open_checkpoint(tmp_path)


def test_options_about_contents_list_each(speech: Path) -> None:
    result = ckpt("ls", "--match", "iteration", speech)
    assert result.stdout.splitlines() == [
        line for n in (30, 60, 90) for line in (f"# {speech / f'snapshot_iter_{n}.pdz'}", f"iteration\tint\t= {n}\t")
    ]
    documents = json.loads(ckpt("ls", "--json", speech).stdout)["checkpoints"]
    assert [len(d["tensors"]) for d in documents] == [10, 10, 10]


def test_json_of_a_directory_with_a_damaged_one(fixtures: Path, tmp_path: Path, model: Path) -> None:
    shutil.copy(model, tmp_path / "good.pt")
    shutil.copy(fixtures / "torch-zip" / "truncated" / "input" / "model.pt", tmp_path / "broken.pt")
    result = ckpt("ls", "--json", tmp_path)
    assert result.exit_code == 4
    assert [d["path"] for d in json.loads(result.stdout)["checkpoints"]] == [str(tmp_path / "good.pt")]
    assert "broken.pt" in result.stderr


def test_links_to_checkpoints(tmp_path: Path, model: Path) -> None:
    (tmp_path / "latest.pt").symlink_to(model)
    assert ckpt("ls", tmp_path / "latest.pt").stdout == ckpt("ls", model).stdout
    (tmp_path / "gone.pt").symlink_to("nowhere.pt")
    result = ckpt("ls", tmp_path / "gone.pt")
    assert result.exit_code == 4
    assert result.stderr == f"ckpt: {tmp_path / 'gone.pt'}: a link to nowhere.pt, which leads nowhere\n"


def test_natural_order(tmp_path: Path, model: Path) -> None:
    for name in ("snapshot_100.pt", "snapshot_60.pt", "snapshot_9.pt"):
        shutil.copy(model, tmp_path / name)
    assert [location.path.name for location, _ in families.members(tmp_path)] == [
        "snapshot_9.pt",
        "snapshot_60.pt",
        "snapshot_100.pt",
    ]
