"""The command lines of ``truncate-stats`` and ``stats``."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fixture_cases import FIXTURES

from ckpt_tools.ops.curves import Curve

Ckpt = Callable[..., "subprocess.CompletedProcess[str]"]


def statistics_file(directory: Path, last: int = 5) -> Path:
    path = directory / "statistics.pkl"
    rows = [{"loss": 1 / (n + 1), "auc": n / 10, "iteration": n * 1000} for n in range(last)]
    path.write_bytes(pickle.dumps({"train": rows, "test": rows[::2]}, 4))
    return path


def test_truncating_in_place(tmp_path: Path, ckpt: Ckpt) -> None:
    path = statistics_file(tmp_path)
    path.chmod(0o600)
    before = path.read_bytes()
    for option, code in (("--dry-run", 0), ("--check", 1)):
        done = ckpt("truncate-stats", "statistics.pkl", "--at", 2000, option)
        assert (done.returncode, done.stdout) == (code, "train\t3\t2\ntest\t2\t1\n")
        assert path.read_bytes() == before
    done = ckpt("truncate-stats", "statistics.pkl", "--at", 2000, "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert Path(document.pop("backup")).read_bytes() == before
    assert document == {
        "schema": "ckpt.truncate-stats/1",
        "path": "statistics.pkl",
        "at": 2000,
        "lists": [{"name": "train", "kept": 3, "dropped": 2}, {"name": "test", "kept": 2, "dropped": 1}],
        "changed": True,
        "twins": [],
    }
    assert path.stat().st_mode & 0o777 == 0o600
    after = path.read_bytes()
    again = ckpt("truncate-stats", "statistics.pkl", "--at", 2000)
    assert (again.returncode, again.stderr) == (0, "nothing to do\n")
    assert path.read_bytes() == after
    assert ckpt("truncate-stats", "statistics.pkl", "--at", 2000, "--check").returncode == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_before_output_and_overwrite(tmp_path: Path, ckpt: Ckpt) -> None:
    path = statistics_file(tmp_path)
    before = path.read_bytes()
    done = ckpt("truncate-stats", "statistics.pkl", "--before", 2000, "--output", "new/other.pkl")
    assert done.returncode == 0
    assert path.read_bytes() == before
    assert len(pickle.loads((tmp_path / "new" / "other.pkl").read_bytes())["train"]) == 2
    refused = ckpt("truncate-stats", "statistics.pkl", "--at", 0, "--output", "new/other.pkl")
    assert refused.returncode == 5
    assert "exists already" in refused.stderr
    assert ckpt("truncate-stats", "statistics.pkl", "--at", 0, "-o", "new/other.pkl", "--overwrite").returncode == 0


def test_the_iteration_of_a_checkpoint(tmp_path: Path, ckpt: Ckpt) -> None:
    source = FIXTURES / "workspaces" / "transcription" / "input"
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    (statistics,) = (tmp_path / "workspace").rglob("statistics.pkl")
    (checkpoint,) = (tmp_path / "workspace").rglob("2000_iterations.pth")
    done = ckpt("truncate-stats", statistics, "--at-checkpoint", checkpoint, "--json", "--prune-backups", 0)
    document = json.loads(done.stdout)
    assert document["at"] == 2000
    assert document["twins"] == []
    assert all(each["dropped"] for each in document["lists"])
    assert "1 removed" in done.stderr
    best = json.loads(ckpt("stats", statistics, "--json").stdout)["metrics"][0]
    assert best["checkpoint"] == str(checkpoint)


def test_wrong_arguments(tmp_path: Path, ckpt: Ckpt) -> None:
    statistics_file(tmp_path)
    assert ckpt("truncate-stats", "statistics.pkl").returncode == 2
    assert ckpt("truncate-stats", "statistics.pkl", "--at", 1, "--before", 2).returncode == 2
    assert ckpt("truncate-stats", "statistics.pkl", "--at", "x").returncode == 2
    assert ckpt("truncate-stats", "nothing.pkl", "--at", 1).returncode == 4
    assert ckpt("truncate-stats", ".", "--at", 1).returncode == 4
    refused = ckpt("truncate-stats", "statistics.pkl", "--at", -1)
    assert refused.returncode == 5
    assert "--allow-empty" in refused.stderr
    assert ckpt("truncate-stats", "statistics.pkl", "--at", 1, "--key", "epoch").returncode == 5


def test_what_is_shown(tmp_path: Path, ckpt: Ckpt) -> None:
    path = statistics_file(tmp_path)
    rows = pickle.loads(path.read_bytes())
    rows["test"] += [{"loss": math.nan, "iteration": 1000, "ap": [1]}, {"loss": math.inf, "name": "x"}]
    path.write_bytes(pickle.dumps(rows))
    (tmp_path / "3000_iterations.pth").write_bytes(b"")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "ckpt-1000.index").write_bytes(b"")
    done = ckpt("stats", "statistics.pkl")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "train\t5\t0\t4000\t0\t",
        "test\t5\t0\t4000\t0\tnot in order; 1 without a number",
        "train\tloss\t0.2\t0.2\t4000\t3000_iterations.pth",
        "train\tauc\t0.4\t0.4\t4000\t3000_iterations.pth",
        "test\tloss\tNaN\t0.2\t4000\t3000_iterations.pth",
        "test\tauc\t0.4\t0.4\t4000\t3000_iterations.pth",
    ]
    document = json.loads(ckpt("stats", "statistics.pkl", "--json").stdout)
    assert document["schema"] == "ckpt.stats/1"
    assert document["lists"][1] == {
        "name": "test", "records": 5, "unkeyed": 1, "first": 0, "last": 4000, "duplicates": 0, "ascending": False,
    }  # fmt: skip
    assert document["metrics"][2]["last"] == "NaN"


def test_drawn_in_the_terminal(tmp_path: Path, ckpt: Ckpt) -> None:
    statistics_file(tmp_path)
    done = ckpt("stats", "statistics.pkl", "--plot", "-", "--at", 2000)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "loss" in lines
    assert sum("|" in line for line in lines) > 10
    assert any("o train   x test" in line for line in lines)


def test_drawings_that_cannot_be_made(tmp_path: Path, ckpt: Ckpt) -> None:
    statistics_file(tmp_path)
    assert ckpt("stats", "statistics.pkl", "--plot", "x.gif").returncode == 2
    (tmp_path / "x.png").write_bytes(b"")
    assert ckpt("stats", "statistics.pkl", "--plot", "x.png").returncode == 5


def test_drawings_are_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from ckpt_tools.cli.plots import draw

    curves = {"$loss_1$": [Curve("train", "$loss_1$", ((0, 1.0), (1000, 0.5), (2000, math.nan)))]}
    for name in ("x.png", "x.svg", "x.pdf"):
        draw(curves, tmp_path / name, key="iteration", mark=1000, overwrite=False)
        first = (tmp_path / name).read_bytes()
        assert len(first) > 1000
        draw(curves, tmp_path / name, key="iteration", mark=1000, overwrite=True)
        assert (tmp_path / name).read_bytes() == first


DEADLY = """
import os, sys
calls, wanted = 0, int(sys.argv[1])
def deadly(function):
    def call(*args, **kwargs):
        global calls
        calls += armed
        if calls == wanted:
            os._exit(9)
        return function(*args, **kwargs)
    return call
armed = 0
for name in ("write", "fsync", "close", "replace", "link", "unlink", "fchmod"):
    setattr(os, name, deadly(getattr(os, name)))
import ckpt_tools.cli.app
import ckpt_tools.core.sink, ckpt_tools.ops.statistics, ckpt_tools.ops.paths
sys.argv = ["ckpt", *sys.argv[2:]]
armed = 1
ckpt_tools.cli.app.main()
"""


@pytest.mark.parametrize(
    "arguments", [("truncate-stats", "statistics.pkl", "--at", "2000"), ("fix-paths", "records.jsonl")]
)
def test_killed_at_any_write_sync_or_rename(arguments: tuple[str, ...], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(directory: Path, call: int) -> int:
        command = [sys.executable, "-c", DEADLY, str(call), *arguments]
        return subprocess.run(command, cwd=directory, env=environment, check=False, capture_output=True).returncode

    def prepared(name: str) -> tuple[Path, Path]:
        directory = tmp_path / name
        directory.mkdir()
        statistics_file(directory)
        (directory / "s_iter_1.pdz").write_bytes(b"")
        (directory / "records.jsonl").write_text('{"path": "/old/s_iter_1.pdz", "iteration": 1}\n')
        return directory, directory / arguments[1]

    directory, target = prepared("whole")
    old = target.read_bytes()
    assert run(directory, 0) == 0
    new = target.read_bytes().replace(b"/whole/", b"/@/")
    seen = set()
    for call in range(1, 60):
        directory, target = prepared(str(call))
        if run(directory, call) != 9:
            break
        content = target.read_bytes().replace(f"/{call}/".encode(), b"/@/")
        assert content in (old, new)
        seen.add(content)
        assert run(directory, 0) == 0
        assert target.read_bytes().replace(f"/{call}/".encode(), b"/@/") == new
        left = {path.name for path in directory.iterdir() if ".bak-" not in path.name}
        assert left == {"statistics.pkl", "s_iter_1.pdz", "records.jsonl"}
    assert seen == {old, new}
