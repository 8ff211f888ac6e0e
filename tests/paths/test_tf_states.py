"""State files of TensorFlow: what each path is, and repairs that touch nothing else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixture_cases import FIXTURES
from training_runs import MOVED_STATE, OLD_RUN, state_file

from ckpt_tools.errors import CkptError, CorruptFile, WriteRefused
from ckpt_tools.ops import tf_states
from ckpt_tools.ops.finding import Finder
from ckpt_tools.ops.repairs import Policy, Repair


def examined(path: Path, **policy: bool) -> Repair:
    return tf_states.examine(path, Finder(), Policy(**policy))


def repaired(path: Path, **policy: bool) -> Repair:
    repair = examined(path, **policy)
    repair.apply(keep_backup=False)
    return repair


def states(repair: Repair) -> list[str]:
    return [entry.state.value for entry in repair.entries]


def test_paths_become_relative_and_everything_else_stays(tmp_path: Path) -> None:
    path = state_file(tmp_path, "model.ckpt-100", "model.ckpt-200")
    repair = repaired(path)
    assert states(repair) == ["moved", "missing", "moved", "moved"]
    assert path.read_text() == MOVED_STATE.replace(f"{OLD_RUN}/model.ckpt-1", "model.ckpt-1").replace(
        f"{OLD_RUN}/model.ckpt-2", "model.ckpt-2"
    )
    assert examined(path).content is None
    assert states(examined(path)) == ["ok", "missing", "ok", "ok"]


def test_a_dropped_path_takes_its_timestamp(tmp_path: Path) -> None:
    path = state_file(tmp_path, "model.ckpt-100", "model.ckpt-200")
    repair = repaired(path, drop_missing=True)
    assert not repair.incomplete
    text = path.read_text()
    assert "model.ckpt-50" not in text
    assert "1700000000.25" not in text
    assert "1700000100.50" in text


def test_absolute_where_asked_for(tmp_path: Path) -> None:
    path = state_file(tmp_path, "model.ckpt-50", "model.ckpt-100", "model.ckpt-200")
    repaired(path, absolute=True)
    assert path.read_text() == MOVED_STATE.replace(OLD_RUN, str(tmp_path))
    assert states(examined(path)) == ["ok"] * 4


def test_where_the_latest_is_gone_the_last_that_is_kept_takes_its_place(tmp_path: Path) -> None:
    path = state_file(tmp_path, "model.ckpt-50")
    assert states(repaired(path)) == ["missing", "moved", "missing", "missing"]
    repair = repaired(path, drop_missing=True)
    assert not repair.incomplete
    assert path.read_text().startswith(
        'model_checkpoint_path: "model.ckpt-50"\nall_model_checkpoint_paths: "model.ckpt-50"\nall_model_checkpoint_timestamps: 1700000000.25\n'
    )
    assert any("resumes from model.ckpt-50" in note for note in repair.notes)


def test_nothing_is_dropped_when_nothing_would_be_left(tmp_path: Path) -> None:
    path = state_file(tmp_path)
    repair = examined(path, drop_missing=True)
    assert isinstance(repair.error, WriteRefused)
    assert repair.content is None


def test_a_copy_that_points_to_the_original(tmp_path: Path) -> None:
    state_file(tmp_path / "old", "ckpt-1")
    path = state_file(tmp_path / "new", "ckpt-1", state=f'model_checkpoint_path: "{tmp_path}/old/ckpt-1"\n')
    assert states(repaired(path)) == ["elsewhere"]
    assert path.read_text() == 'model_checkpoint_path: "ckpt-1"\n'


def test_right_paths_stay_as_they_are_written(tmp_path: Path) -> None:
    text = f'model_checkpoint_path: "{tmp_path}/ckpt-1"\nall_model_checkpoint_paths: "./sub/../ckpt-1"\n'
    (tmp_path / "sub").mkdir()
    path = state_file(tmp_path, "ckpt-1", state=text)
    assert states(repaired(path, absolute=True)) == ["ok", "ok"]
    assert path.read_text() == text


def test_names_below_the_directory_and_of_windows(tmp_path: Path) -> None:
    path = state_file(tmp_path, "best/ckpt-1", state='model_checkpoint_path: "C:\\\\runs\\\\best\\\\ckpt-1"\r\n')
    repaired(path)
    assert path.read_bytes() == b'model_checkpoint_path: "best/ckpt-1"\r\n'


def test_v1_checkpoints_of_one_and_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "one.ckpt-1").write_bytes(b"x")
    for part in range(2):
        (tmp_path / f"many.ckpt-2-{part:05d}-of-00002").write_bytes(b"x")
    state = f'model_checkpoint_path: "{OLD_RUN}/many.ckpt-2-?????-of-00002"\nall_model_checkpoint_paths: "{OLD_RUN}/one.ckpt-1"\n'
    path = state_file(tmp_path, state=state)
    assert states(repaired(path)) == ["moved", "moved"]
    assert path.read_text() == state.replace(OLD_RUN + "/", "")


def test_duplicates_are_told(tmp_path: Path) -> None:
    path = state_file(tmp_path, "a", state='model_checkpoint_path: "a"\nall_model_checkpoint_paths: ["a", "/old/a"]\n')
    assert states(examined(path)) == ["ok", "ok", "duplicate"]


def test_what_makes_tensorflow_ignore_the_file_is_damage(tmp_path: Path) -> None:
    text = 'model_checkpoint_path: "/old/a"\ncolour: "red"\nall_model_checkpoint_paths: "/old/a'
    path = state_file(tmp_path, "a", state=text)
    repair = examined(path)
    assert states(repair) == ["moved", "damaged", "damaged"]
    assert isinstance(repair.error, CorruptFile)
    assert "TensorFlow ignores the whole file" in str(repair.error)
    repaired(path, drop_damaged=True)
    assert path.read_text() == 'model_checkpoint_path: "a"\n'


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", 'all_model_checkpoint_paths: "a"\n', 'model_checkpoint_path: ""\n']
)
def test_a_file_without_the_latest_is_refused(text: str, tmp_path: Path) -> None:
    assert isinstance(examined(state_file(tmp_path, "a", state=text)).error, CorruptFile)


def test_no_text_is_refused(tmp_path: Path) -> None:
    path = state_file(tmp_path, "a")
    path.write_bytes(b'model_checkpoint_path: "\xff"')
    with pytest.raises(CkptError, match="not UTF-8"):
        examined(path)


def test_a_name_that_is_no_text_cannot_be_written(tmp_path: Path) -> None:
    path = state_file(tmp_path / os.fsdecode(b"r\xff"), "a", state='model_checkpoint_path: "/old/a"\n')
    assert isinstance(examined(path, absolute=True).error, WriteRefused)
    assert repaired(path).error is None


@pytest.mark.parametrize("name", ["absolute", "state-list", "state-octal", "state-utf8", "state-windows"])
def test_fixtures(name: str, tmp_path: Path) -> None:
    folder = FIXTURES / "workspaces" / f"tensorflow-{name}"
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    shutil.copytree(folder / "input", tmp_path, dirs_exist_ok=True)
    path = tmp_path / expected["path"] / "checkpoint"
    repair = repaired(path)
    assert repair.error is None
    olds = {entry.old for entry in repair.entries}
    assert olds >= set(expected.get("recorded", [])) | set(expected.get("missing", []))
    assert repair.entries[0].new == Path(expected["latest"]).name
