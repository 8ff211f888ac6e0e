"""What ``verify`` says of whole directories: paths, resumption, the newest good checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixture_cases import FIXTURES
from typer.testing import CliRunner

from ckpt_tools.cli.app import app

WORKSPACES = FIXTURES / "workspaces"


def verify(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["verify", "--json", *map(str, arguments)])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


def run(*arguments: object) -> int:
    return CliRunner().invoke(app, list(map(str, arguments))).exit_code


def codes(document: dict[str, Any]) -> set[str]:
    return {issue["code"] for issue in document["issues"]}


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    shutil.copytree(WORKSPACES / "paddlespeech" / "input" / "exp", tmp_path / "exp")
    return tmp_path / "exp" / "default" / "checkpoints"


def test_a_moved_run_is_unsound_until_it_is_repaired(speech: Path) -> None:
    code, document = verify(speech)
    assert code == 1
    assert "paths-moved" in codes(document)
    hint = next(issue["hint"] for issue in document["issues"] if issue["code"] == "paths-moved")
    assert hint.startswith("ckpt fix-paths ")
    assert run("fix-paths", speech, "--no-backup") == 0
    code, document = verify(speech)
    assert code == 0
    assert "paths-moved" not in codes(document)


def test_a_copy_that_points_to_the_original_is_unsound(speech: Path, tmp_path: Path) -> None:
    assert run("fix-paths", speech, "--no-backup") == 0
    copy = tmp_path / "copy"
    shutil.copytree(speech, copy)
    code, document = verify(copy)
    assert code == 1
    assert {"paths-elsewhere", "paths-outside"} <= codes(document)


def test_the_newest_good_checkpoint_is_named(speech: Path) -> None:
    assert run("fix-paths", speech, "--no-backup") == 0
    for age, number in enumerate((90, 60, 30)):
        path = speech / f"snapshot_iter_{number}.pdz"
        os.utime(path, (path.stat().st_mtime - 100 * age,) * 2)
    newest = speech / "snapshot_iter_90.pdz"
    assert verify(speech)[1]["newest_good"] == str(newest)
    whole, times = newest.read_bytes(), newest.stat()
    newest.write_bytes(whole[: len(whole) // 2])
    os.utime(newest, (times.st_atime, times.st_mtime))
    code, document = verify(speech)
    assert code == 1
    assert document["newest_good"] == str(speech / "snapshot_iter_60.pdz")
    assert "integrity-damaged" in codes(document)


def test_a_line_that_says_another_iteration_is_a_mismatch(speech: Path) -> None:
    assert run("fix-paths", speech, "--no-backup") == 0
    (speech / "snapshot_iter_90.pdz").write_bytes((speech / "snapshot_iter_60.pdz").read_bytes())
    code, document = verify(speech, "--resume")
    assert code == 1
    assert {"paths-mismatch", "resume-iteration-mismatch"} <= codes(document)


def test_what_an_interrupted_save_left_is_a_warning(speech: Path) -> None:
    assert run("fix-paths", speech, "--no-backup") == 0
    (speech / "snapshot_iter_120.pdz.tmp").write_bytes(b"\x80")
    code, document = verify(speech, "--resume")
    assert code == 0
    assert "resume-unfinished-save" in codes(document)
    assert verify(speech, "--resume", "--fail-on", "warning")[0] == 1


def test_transcription_workspace(tmp_path: Path) -> None:
    shutil.copytree(WORKSPACES / "transcription" / "input" / "workspace", tmp_path / "workspace")
    checkpoints = next((tmp_path / "workspace" / "checkpoints").rglob("1000_iterations.pth")).parent
    code, document = verify(checkpoints / "1000_iterations.pth", "--resume")
    assert code == 0
    assert {"resume-no-optimizer", "resume-statistics-ahead"} <= codes(document)
    hint = next(i["hint"] for i in document["issues"] if i["code"] == "resume-statistics-ahead")
    assert hint.startswith("ckpt truncate-stats ")
    # the trainer writes below max_note_shift=N/ and resumes without that level
    deeper = checkpoints.parent / "max_note_shift=0" / checkpoints.name
    deeper.parent.mkdir()
    checkpoints.rename(deeper)
    _, document = verify(deeper / "1000_iterations.pth", "--resume")
    issue = next(i for i in document["issues"] if i["code"] == "resume-path-level")
    words = issue["hint"].split()
    assert words[:2] == ["ln", "-s"]
    Path(words[3]).symlink_to(words[2])
    _, document = verify(deeper / "1000_iterations.pth", "--resume")
    assert "resume-path-level" not in codes(document)


def test_tensorflow_directories() -> None:
    code, document = verify(WORKSPACES / "tensorflow" / "input" / "training_checkpoints", "--resume")
    assert code == 0
    assert {check["name"] for check in document["checks"]} >= {"paths-tf-state", "integrity-checksums"}
    code, document = verify(WORKSPACES / "tensorflow-absolute" / "input" / "run1")
    assert code == 1
    assert {"paths-moved", "paths-missing"} <= codes(document)


def test_an_optimizer_that_does_not_fit_or_was_lost(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    other = torch.nn.Linear(5, 4)
    for net in (model, other):
        net.register_buffer("steps", torch.zeros(()))

    def state(net: torch.nn.Module, *, stepped: bool) -> dict[str, Any]:
        optimizer = torch.optim.Adam(net.parameters())
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter) * float(stepped)
        optimizer.step()
        return optimizer.state_dict()

    def verdict(optimizer: dict[str, Any], *options: str) -> set[str]:
        path = tmp_path / "step_10.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer, "step": 10}, path)
        return {code for code in codes(verify(path, "--resume", *options)[1]) if code.startswith("resume-")}

    assert verdict(state(model, stepped=True)) == set()
    assert verdict(state(other, stepped=True)) == {"resume-optimizer-mismatch"}
    assert verdict(state(model, stepped=False)) == {"resume-optimizer-lost"}


def test_paddle_accumulators_that_do_not_fit(tmp_path: Path) -> None:
    import paddle

    net = paddle.nn.Linear(3, 2)
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    net(paddle.ones([1, 3])).sum().backward()
    optimizer.step()
    state = {key: value for key, value in optimizer.state_dict().items() if hasattr(value, "shape")}
    path = tmp_path / "snapshot_iter_5.pdz"

    def verdict(changed: dict[str, Any]) -> set[str]:
        snapshot = {"epoch": 1, "iteration": 5, "main_params": net.state_dict(), "main_optimizer": changed}
        paddle.save(snapshot, str(path))
        return {code for code in codes(verify(path, "--resume")[1]) if code.startswith("resume-")}

    assert verdict(state) == set()
    name = next(key for key in state if "w_0_moment1" in key)
    assert verdict({**state, name: paddle.zeros([7, 7])}) == {"resume-optimizer-mismatch"}
    assert verdict({**state, "linear_99.w_0_moment1_0": paddle.zeros([3, 2])}) == {"resume-optimizer-mismatch"}


def test_a_snapshot_of_progress_only_is_sound(tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "progress.pkl"
    path.write_bytes(pickle.dumps({"epoch": 3, "iteration": 70}))
    code, document = verify(path, "--resume")
    assert code == 0
    assert "resume-no-tensors" in codes(document)
