"""What is found below a directory, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from training_runs import OLD, line, snapshot, state_file, written

from ckpt_tools.errors import CkptError, UnknownFormat, UsageError
from ckpt_tools.ops.finding import Finder, Move
from ckpt_tools.ops.paths import survey
from ckpt_tools.ops.repairs import Policy, Repair

Ckpt = Callable[..., "subprocess.CompletedProcess[str]"]


def found(*paths: Path, rebuild: bool = False, **policy: bool) -> dict[str, Repair]:
    return {
        os.path.relpath(repair.path, paths[0]): repair
        for repair in survey(paths, Finder(), Policy(**policy), rebuild=rebuild)
    }


def states(repair: Repair) -> list[str]:
    return [entry.state.value for entry in repair.entries]


def moved_run(directory: Path) -> Path:
    snapshot(directory / "snapshot_iter_30.pdz", 30)
    return written(directory, line(f"{OLD}/snapshot_iter_30.pdz", 30))


def test_every_kind_is_found(tmp_path: Path) -> None:
    moved_run(tmp_path / "speech" / "checkpoints")
    state_file(tmp_path / "tf", "model.ckpt-200")
    state_file(tmp_path / "tf2", "a", state='model_checkpoint_path: "a"').rename(tmp_path / "tf2" / "checkpoint_best")
    (tmp_path / "asr").mkdir()
    (tmp_path / "asr" / "checkpoint_latest").write_text("model_checkpoint_path:1\nmodel_checkpoint_path:2\n")
    (tmp_path / "asr" / "2.pdparams").write_bytes(b"")
    (tmp_path / "best.pdz").symlink_to(f"{OLD}/speech/checkpoints/snapshot_iter_30.pdz")
    (tmp_path / "speech" / "gone").symlink_to("/nowhere/at/all")
    (tmp_path / "relative").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / ".git").mkdir()
    moved_run(tmp_path / ".git")
    (tmp_path / "checkpoint_9.pth").write_bytes(b"PK\3\4")
    (tmp_path / "x.bak-20240501-100000").symlink_to("/nowhere/too")
    repairs = found(tmp_path)
    assert {name: (repair.kind, states(repair)) for name, repair in repairs.items()} == {
        "best.pdz": ("link", ["moved"]),
        "asr/checkpoint_latest": ("paddlespeech-asr", ["missing", "ok"]),
        "speech/gone": ("link", ["missing"]),
        "speech/checkpoints/records.jsonl": ("records", ["moved"]),
        "tf/checkpoint": ("tf-state", ["moved", "missing", "missing", "moved"]),
        "tf2/checkpoint_best": ("tf-state", ["ok"]),
    }
    for repair in repairs.values():
        repair.apply(keep_backup=True)
    assert (tmp_path / "best.pdz").readlink() == Path("speech/checkpoints/snapshot_iter_30.pdz")
    assert all(repair.content is None for repair in found(tmp_path).values())


def test_a_link_keeps_its_backup_and_can_be_absolute(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(b"x")
    link = tmp_path / "latest"
    link.symlink_to("/old/a.pth")
    repair = found(tmp_path, absolute=True)["latest"]
    repair.apply(keep_backup=True)
    assert link.readlink() == tmp_path / "a.pth"
    assert repair.backup is not None
    assert repair.backup.readlink() == Path("/old/a.pth")
    assert found(tmp_path) == {}


def test_a_link_that_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    link = tmp_path / "latest"
    link.symlink_to("/old/a")
    repair = found(link)["."]
    link.unlink()
    link.symlink_to("/other/place/altogether")
    with pytest.raises(CkptError, match="changed while"):
        repair.apply(keep_backup=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "latest"]


def test_asr_lines(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_best"
    path.write_text(
        "model_checkpoint_path:1\nmodel_checkpoint_path:x\nmodel_checkpoint_path:2\nmodel_checkpoint_path:1\n"
    )
    (tmp_path / "1.pdparams").write_bytes(b"")
    repair = found(path)["."]
    assert states(repair) == ["ok", "damaged", "missing", "duplicate"]
    assert repair.error is not None
    repair = found(path, drop_damaged=True, drop_missing=True)["."]
    repair.apply(keep_backup=False)
    assert path.read_text() == "model_checkpoint_path:1\nmodel_checkpoint_path:1\n"
    (tmp_path / "1.pdparams").unlink()
    assert found(path, drop_missing=True)["."].error is not None


def test_what_keeps_no_paths_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="keeps no paths"):
        found(snapshot(tmp_path / "snapshot_iter_1.pdz", 1))


def test_the_same_file_is_looked_at_once(tmp_path: Path) -> None:
    path = moved_run(tmp_path)
    assert len(list(survey([tmp_path, path, tmp_path], Finder(), Policy()))) == 1


@pytest.mark.parametrize("text", ["", "=", "/a=", "=/b", "/a"])
def test_a_move_needs_both_sides(text: str) -> None:
    with pytest.raises(UsageError, match="OLD=NEW"):
        Move.parse(text)


@pytest.mark.parametrize(
    ("text", "path", "moved"),
    [
        ("/a=/b", "/a/x", "/b/x"),
        ("/a/=/b/", "/a/x/y", "/b/x/y"),
        ("/a=/b", "/ab/x", None),
        ("/a=/b", "/a", None),
        ("/k=v/a=/k=w/b", "/k=v/a/x", "/k=w/b/x"),
        (r"C:\runs=/b", r"C:\runs\x\y", "/b/x/y"),
        ("/a=b", "/a/x", "b/x"),
    ],
)
def test_moves(text: str, path: str, moved: str | None) -> None:
    assert Move.parse(text)(path) == (Path(moved) if moved else None)


# -- the command -------------------------------------------------------------------------------------------------------


def test_dry_run_check_repair_and_nothing_to_do(tmp_path: Path, ckpt: Ckpt) -> None:
    path = moved_run(tmp_path / "run")
    before = path.read_bytes()
    shown = ckpt("fix-paths", "run/records.jsonl", "--dry-run")
    assert shown.returncode == 0
    new = tmp_path / "run" / "snapshot_iter_30.pdz"
    assert shown.stdout == f"run/records.jsonl\t1\tmoved\t{OLD}/snapshot_iter_30.pdz\t{new}\t\n"
    checked = ckpt("fix-paths", "run", "--check")
    assert checked.returncode == 1
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["records.jsonl", "snapshot_iter_30.pdz"]
    done = ckpt("fix-paths", "run", "--json")
    assert done.returncode == 0
    (file,) = json.loads(done.stdout)["files"]
    backup = file.pop("backup")
    assert Path(backup).read_bytes() == before
    assert file == {
        "path": "run/records.jsonl",
        "kind": "records",
        "entries": [{"line": 1, "state": "moved", "old": f"{OLD}/snapshot_iter_30.pdz", "new": str(new)}],
        "changed": True,
    }
    assert "younger than a minute" in done.stderr
    after = path.read_bytes()
    again = ckpt("fix-paths", "run")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "nothing to do\n")
    assert path.read_bytes() == after
    assert ckpt("fix-paths", "run", "--check").returncode == 0


def test_exit_codes_of_what_stays(tmp_path: Path, ckpt: Ckpt) -> None:
    moved_run(tmp_path / "good")
    torn = written(tmp_path / "torn", line(f"{OLD}/x.pdz", 1), "{")
    written(tmp_path / "gone", line(f"{OLD}/x.pdz", 1))
    before = torn.read_bytes()
    assert ckpt("fix-paths", "gone").returncode == 1
    assert ckpt("fix-paths", "gone", "--dry-run").returncode == 0
    assert ckpt("fix-paths", "gone", "--drop-missing").returncode == 5
    done = ckpt("fix-paths", ".", "--no-backup")
    assert done.returncode == 4
    assert "hint: ckpt fix-paths torn/records.jsonl --drop-damaged" in done.stderr
    assert torn.read_bytes() == before
    assert str(tmp_path).encode() in (tmp_path / "good" / "records.jsonl").read_bytes()
    assert len(list((tmp_path / "good").iterdir())) == 2


def test_wrong_arguments(tmp_path: Path, ckpt: Ckpt) -> None:
    assert ckpt("fix-paths").returncode == 2
    assert ckpt("fix-paths", ".", "--move", "x").returncode == 2
    assert ckpt("fix-paths", "nothing").returncode == 4
    assert ckpt("fix-paths", ".", "--search", "nothing").returncode == 4
    assert ckpt("fix-paths", ".", "--rebuild").returncode == 0
    assert ckpt("fix-paths", "records.jsonl", "--rebuild").returncode == 4


def test_rebuild(tmp_path: Path, ckpt: Ckpt) -> None:
    snapshot(tmp_path / "run" / "snapshot_iter_30.pdz", 30)
    done = ckpt("fix-paths", ".", "--rebuild")
    assert done.returncode == 0
    assert json.loads((tmp_path / "run" / "records.jsonl").read_text())["iteration"] == 30
    assert ckpt("fix-paths", ".", "--rebuild").stderr == "nothing to do\n"


@pytest.mark.skipif(os.name == "posix" and os.getuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_said(tmp_path: Path, ckpt: Ckpt) -> None:
    moved_run(tmp_path / "closed")
    (tmp_path / "closed").chmod(0)
    try:
        done = ckpt("fix-paths", ".")
        assert done.returncode == 4
        assert "cannot be read" in done.stderr
    finally:
        (tmp_path / "closed").chmod(0o755)


def test_escapes_reach_no_terminal(tmp_path: Path, ckpt: Ckpt) -> None:
    written(tmp_path, line("/old/\x1b[31mred\n.pdz", 1))
    done = ckpt("fix-paths", ".", "--dry-run")
    assert "\x1b" not in done.stdout
    assert "\\x1b[31mred\\x0a.pdz" in done.stdout
