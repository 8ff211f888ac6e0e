"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ckpt_tools.core.sink import Sink, SinkSet, backup
from ckpt_tools.errors import WriteRefused


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def dead_process_id() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_new_file_has_its_bytes_and_the_mode_of_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "x.bin"
    old = os.umask(0o027)
    try:
        with Sink(target) as out:
            out.write(b"abc")
            out.write(memoryview(b"def"))
            assert out.position == 6
            assert not target.exists()
    finally:
        os.umask(old)
    assert target.read_bytes() == b"abcdef"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert names(target.parent) == ["x.bin"]


def test_large_writes_go_out_in_pieces_and_progress_adds_up(tmp_path: Path) -> None:
    told: list[int] = []
    data = os.urandom(1000) * 10_000
    with Sink(tmp_path / "x", nbytes=len(data) + 5, progress=told.append) as out:
        out.write(b"12345")
        out.write(data)
    assert (tmp_path / "x").read_bytes() == b"12345" + data
    assert sum(told) == len(data) + 5
    assert len(told) > 2


def test_an_existing_file_is_refused_without_overwrite(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    with pytest.raises(WriteRefused, match="exists already"):
        Sink(target)
    assert names(tmp_path) == ["x"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "x"
    with pytest.raises(WriteRefused, match="exists already"), Sink(target) as out:
        out.write(b"new")
        target.write_bytes(b"somebody else's")
    assert target.read_bytes() == b"somebody else's"
    assert names(tmp_path) == ["x"]


def test_replacing_keeps_the_mode(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    target.chmod(0o604)
    with Sink(target, overwrite=True) as out:
        out.write(b"new")
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root may give files away")
def test_replacing_keeps_the_owner(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    os.chown(target, 12345, 54321)
    target.chmod(0o4750)
    with Sink(target, overwrite=True) as out:
        out.write(b"new")
    status = target.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 54321, 0o4750)


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("real/x")
    with Sink(link, overwrite=True) as out:
        out.write(b"new")
    assert link.is_symlink()
    assert (tmp_path / "real" / "x").read_bytes() == b"new"
    assert names(tmp_path / "real") == ["x"]


@pytest.mark.parametrize("kind", ["directory", "loop", "pipe"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "x"
    if kind == "directory":
        target.mkdir()
    elif kind == "loop":
        target.symlink_to("y")
        (tmp_path / "y").symlink_to("x")
    else:
        os.mkfifo(target)
    before = names(tmp_path)
    with pytest.raises(WriteRefused):
        Sink(target, overwrite=True)
    assert names(tmp_path) == before


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "x"
    with pytest.raises(KeyboardInterrupt), Sink(target) as out:
        out.write(b"half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    dead, living = dead_process_id(), os.getppid()
    for name in (f".x.ckpt-{dead}.tmp", f".x.ckpt-{living}.tmp", f".y.ckpt-{dead}.tmp", f".x.ckpt-{os.getpid()}.tmp"):
        (tmp_path / name).write_bytes(b"half")
    with Sink(tmp_path / "x") as out:
        out.write(b"whole")
    assert names(tmp_path) == sorted([f".x.ckpt-{living}.tmp", f".y.ckpt-{dead}.tmp", "x"])


def test_a_name_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    target = tmp_path / ("é" * 120 + "x" * 15)
    with Sink(target) as out:
        out.write(b"1")
    assert target.read_bytes() == b"1"


def test_too_little_room_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(WriteRefused, match=r"bytes are to be written, \d+ are free"):
        Sink(tmp_path / "made" / "x", nbytes=1 << 62)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "no room"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "larger than is allowed"),
        (errno.EIO, "cannot be written"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_refusal_of_the_system_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str, call: str
) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(WriteRefused, match=said) as caught, Sink(target, overwrite=True) as out:
        out.write(b"new")
    assert caught.value.exit_code == 5
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(WriteRefused, match="cannot be written: Permission denied"):
            Sink(tmp_path / "x")
    finally:
        tmp_path.chmod(0o755)


def test_a_set_is_put_in_place_index_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace = os.replace

    def watch(source: str, target: str) -> None:
        order.append(os.path.basename(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    for overwrite in (False, True):
        with SinkSet(tmp_path / "m.index", overwrite=overwrite) as files:
            files.index.write(b"index")
            for number in range(2):
                files.part(tmp_path / f"m.data-{number}").write(b"data")
    assert order == ["m.data-0", "m.data-1", "m.index"] * 2
    assert names(tmp_path) == ["m.data-0", "m.data-1", "m.index"]


def test_a_set_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "m.index").write_bytes(b"old")
    (tmp_path / "m.data").write_bytes(b"old")
    with pytest.raises(RuntimeError), SinkSet(tmp_path / "m.index", overwrite=True) as files:
        files.part(tmp_path / "m.data").write(b"new")
        raise RuntimeError
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == {"m.data": b"old", "m.index": b"old"}


def test_a_part_that_exists_refuses_the_set(tmp_path: Path) -> None:
    (tmp_path / "m.data").write_bytes(b"old")
    with pytest.raises(WriteRefused), SinkSet(tmp_path / "m.index") as files:
        files.part(tmp_path / "m.data")
    assert names(tmp_path) == ["m.data"]


def test_backups_never_replace_one_another(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"one")
    target.chmod(0o640)
    kept = backup(target)
    assert kept.name.startswith("x.bak-")
    with Sink(target, overwrite=True) as out:
        out.write(b"two")
    again = backup(target)
    assert (kept.read_bytes(), again.read_bytes()) == (b"one", b"two")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640


def test_a_backup_is_a_copy_where_files_have_one_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"one")
    target.chmod(0o640)
    os.utime(target, ns=(10**18, 10**18))

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    kept = backup(target)
    target.write_bytes(b"changed in place")
    assert kept.read_bytes() == b"one"
    assert (stat.S_IMODE(kept.stat().st_mode), kept.stat().st_mtime_ns) == (0o640, 10**18)
    assert backup(target) != kept


KILLER = """
import os, sys
calls, wanted, when = 0, int(sys.argv[1]), sys.argv[2]
def deadly(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == wanted and when == "before":
            os._exit(9)
        result = function(*args, **kwargs)
        if calls == wanted and when == "after":
            os._exit(9)
        return result
    return call
for name in ("open", "write", "pwrite", "fsync", "close", "replace", "link", "unlink", "fchmod"):
    setattr(os, name, deadly(getattr(os, name)))
"""


def killed(script: str, directory: Path, call: int, when: str) -> bool:
    """Run ``script`` in ``directory`` until its ``call``-th system call; whether it got that far."""
    source = KILLER + textwrap.dedent(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", source, str(call), when], cwd=directory, env=environment, check=False)
    assert done.returncode in (0, 9)
    return done.returncode == 9


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_call_the_file_is_old_or_new(tmp_path: Path, when: str) -> None:
    script = """
    from ckpt_tools.core.sink import Sink, backup
    calls = 0
    backup("x")
    with Sink("x", overwrite=True) as out:
        out.write(b"new" * 2_000_000)
    """
    new = b"new" * 2_000_000
    seen = set()
    call = 1
    while True:
        directory = tmp_path / f"{call}"
        directory.mkdir()
        (directory / "x").write_bytes(b"old")
        if not killed(script, directory, call, when):
            break
        content = (directory / "x").read_bytes()
        assert content in (b"old", new)
        seen.add(content)
        for name in names(directory):
            if ".bak-" in name:
                assert (directory / name).read_bytes() == b"old"
        with Sink(directory / "x", overwrite=True) as out:
            out.write(new)
        assert [name for name in names(directory) if ".bak-" not in name] == ["x"]
        call += 1
    assert call > 6
    assert seen == {b"old", new}


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_call_a_set_is_old_or_new_or_has_no_index(tmp_path: Path, when: str) -> None:
    script = """
    from ckpt_tools.core.sink import SinkSet
    calls = 0
    with SinkSet("m.index", overwrite=True) as files:
        files.index.write(b"new")
        for name in ("m.0", "m.1"):
            files.part(name).write(b"new")
    """
    call, without_index = 1, 0
    while True:
        directory = tmp_path / f"{call}"
        directory.mkdir()
        for name in ("m.0", "m.1", "m.index"):
            (directory / name).write_bytes(b"old")
        if not killed(script, directory, call, when):
            break
        index = directory / "m.index"
        if index.exists():
            assert (directory / "m.0").read_bytes() == (directory / "m.1").read_bytes() == index.read_bytes()
        else:
            without_index += 1
        call += 1
    assert without_index > 2
