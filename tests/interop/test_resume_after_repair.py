"""After a repair the real readers go on: jsonlines, a trainer that rotates its snapshots, TensorFlow's managers."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ckpt_tools.ops.finding import Finder
from ckpt_tools.ops.paths import survey
from ckpt_tools.ops.repairs import Policy

jsonlines = pytest.importorskip("jsonlines")


def repair(path: Path, **policy: bool) -> None:
    for found in survey([path], Finder(), Policy(**policy)):
        assert found.error is None
        found.apply(keep_backup=True)


def digests(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


class Trainer:
    """Trains nothing, and keeps snapshots as PaddleSpeech's extension does."""

    max_size = 3

    def __init__(self, out: Path) -> None:
        self.directory = out / "checkpoints"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.records: list[dict[str, Any]] = []
        self.iteration = 0
        self.loaded: str | None = None
        if (self.directory / "records.jsonl").exists():
            with jsonlines.open(self.directory / "records.jsonl") as reader:
                self.records = list(reader)
            self.loaded = self.records[-1]["path"]
            self.iteration = json.loads(Path(self.loaded).read_text())["iteration"]

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            self.iteration += 10
            path = (self.directory / f"snapshot_iter_{self.iteration}.pdz").resolve()
            path.write_text(json.dumps({"iteration": self.iteration}))
            self.records.append({"time": str(datetime.now()), "path": str(path), "iteration": self.iteration})
            if len(self.records) > self.max_size:
                Path(self.records[0]["path"]).unlink()
                self.records.pop(0)
            with jsonlines.open(self.directory / "records.jsonl", mode="w") as writer:
                writer.write_all(self.records)


def test_without_a_repair_the_copy_destroys_the_original(tmp_path: Path) -> None:
    Trainer(tmp_path / "old").run(3)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    Trainer(tmp_path / "new").run(1)
    assert not (tmp_path / "old" / "checkpoints" / "snapshot_iter_10.pdz").exists()


def test_a_copied_training_resumes_and_leaves_the_original_alone(tmp_path: Path) -> None:
    Trainer(tmp_path / "old").run(5)
    before = digests(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    repair(tmp_path / "new")
    trainer = Trainer(tmp_path / "new")
    assert trainer.loaded == str(tmp_path / "new" / "checkpoints" / "snapshot_iter_50.pdz")
    trainer.run(5)
    assert digests(tmp_path / "old") == before
    kept = [name for name in digests(tmp_path / "new") if name.endswith(".pdz")]
    assert kept == [f"checkpoints/snapshot_iter_{n}.pdz" for n in (100, 80, 90)]


def test_a_moved_training_resumes(tmp_path: Path) -> None:
    Trainer(tmp_path / "old").run(4)
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(FileNotFoundError):
        Trainer(tmp_path / "new")
    repair(tmp_path / "new")
    Trainer(tmp_path / "new").run(4)


def test_tensorflow_finds_its_latest_checkpoint_again(tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    state = tensorflow.compat.v1.train
    value = tensorflow.Variable(0.0)
    old = tmp_path / "old"
    manager = tensorflow.train.CheckpointManager(tensorflow.train.Checkpoint(v=value), str(old), max_to_keep=3)
    for number in range(4):
        value.assign(float(number))
        manager.save()
    paths = [str(old / f"ckpt-{number}") for number in (2, 3, 4)]
    state.update_checkpoint_state(str(old), paths[-1], paths, all_model_checkpoint_timestamps=[1.5, 2.5, 3.25])
    (tmp_path / "old").rename(tmp_path / "new ü")
    new = tmp_path / "new ü"
    assert tensorflow.train.latest_checkpoint(str(new)) is None
    repair(new)
    assert tensorflow.train.latest_checkpoint(str(new)) == str(new / "ckpt-4")
    assert list(state.get_checkpoint_state(str(new)).all_model_checkpoint_timestamps) == [1.5, 2.5, 3.25]
    fresh = tensorflow.Variable(-1.0)
    manager = tensorflow.train.CheckpointManager(tensorflow.train.Checkpoint(v=fresh), str(new), max_to_keep=3)
    assert manager.restore_or_initialize() == str(new / "ckpt-4")
    assert float(fresh) == 3.0
    manager.save()
    assert not (new / "ckpt-2.index").exists()
    new.rename(tmp_path / "newer")
    assert tensorflow.train.latest_checkpoint(str(tmp_path / "newer")) == str(tmp_path / "newer" / "ckpt-5")


def test_tensorflow_reads_what_was_dropped_and_quoted(tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    get = tensorflow.compat.v1.train.get_checkpoint_state
    (tmp_path / 'it\'s "训"\\n.index').write_bytes(b"")
    old = 'model_checkpoint_path: "/old/it\\\'s \\"训\\"\\\\n"\r\nall_model_checkpoint_paths: [\'/old/gone\', "/old/" \'it\\\'s \\"训\\"\\\\n\']\r\nall_model_checkpoint_timestamps: [1, 2.50]\r\n'
    (tmp_path / "checkpoint").write_bytes(old.encode("utf-8"))
    repair(tmp_path, drop_missing=True)
    state = get(str(tmp_path))
    assert state.model_checkpoint_path == str(tmp_path / 'it\'s "训"\\n')
    assert list(state.all_model_checkpoint_paths) == [state.model_checkpoint_path]
    assert list(state.all_model_checkpoint_timestamps) == [2.5]
    assert b"2.50" in (tmp_path / "checkpoint").read_bytes()
