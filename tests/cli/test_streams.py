"""Terminals, pipes, encodings, interruptions: how results arrive, and how a command ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from terminal import shown

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def odd_keys(fixtures: Path) -> Path:
    return fixtures / "torch-zip" / "odd-keys" / "input" / "model.pt"


@pytest.fixture
def slots(fixtures: Path) -> Path:
    return fixtures / "tf-bundle" / "slots-and-averages" / "input" / "model.ckpt-1"


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which ``ckpt`` is this one."""
    function = f'ckpt() {{ "{sys.executable}" -m ckpt_tools "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", function + script],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        timeout=120,
    )


def test_a_terminal_has_a_table(fixtures: Path) -> None:
    path = fixtures / "torch-zip" / "shared-storage" / "input" / "model.pt"
    code, text = shown("ls", "--no-color", path, columns=200)
    assert code == 0
    rule = "─" * 73
    assert [line.rstrip() for line in text.splitlines()] == [
        f"{path}  torch-zip, torch zip version 3, pickle protocol 2, 2.5 KiB",
        "name           dtype     shape    size",
        rule,
        "embed.weight   float32   [4, 2]   32 B",
        "head.weight    float32   [4, 2]   32 B   shares storage with embed.weight",
        "query          float32   [2, 4]   32 B",
        "key            float32   [2, 4]   32 B   shares storage with query",
        "turned         float32   [4, 6]   96 B   shares storage with query",
        "step           int64     []        8 B",
        "half           float16   [5]      10 B",
        "",
        "7 tensors, 38 parameters, 242 B",
    ]


def test_colour(slots: Path) -> None:
    assert "\x1b[36mfloat32" in shown("ls", slots)[1]
    for text in (shown("ls", "--no-color", slots)[1], shown("ls", slots, NO_COLOR="1")[1]):
        assert "\x1b" not in text
    assert "\x1b[36mfloat32" in shown("ls", "--color", slots, NO_COLOR="1")[1]


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_narrow_terminals_crop_no_name(slots: Path, columns: int) -> None:
    code, text = shown("ls", "--no-color", "--digest", slots, columns=columns)
    assert code == 0
    names = "".join(line[:16].rstrip() for line in text.splitlines())  # the narrowest that a column of names gets
    assert "net/dense/kernel/ExponentialMovingAverage" in names
    for dtype in ("float32", "int64"):
        assert dtype in text
    assert "…" not in text


def test_long_runs_of_values_share_a_line(tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps({"random": (3, tuple(range(100, 725)), None), "short": [1, 2]}))
    _, text = shown("ls", "--no-color", path)
    lines = [line.split() for line in text.splitlines()]
    assert ["random/1/0", "…", "624", "int", "=", "100,", "101,", "102,", "…", "(625", "values)"] in lines
    assert ["short/1", "int", "=", "2"] in lines
    assert len(shown("ls", "--no-color", "-v", path)[1].splitlines()) > 625


def test_many_checkpoints_on_a_terminal(fixtures: Path) -> None:
    folder = fixtures / "workspaces" / "tensorflow" / "input" / "training_checkpoints"
    code, text = shown("ls", "--no-color", "training_checkpoints", columns=120, cwd=folder.parent)
    assert code == 0
    lines = text.splitlines()
    assert lines[0].split() == ["path", "format", "iteration", "tensors", "parameters", "size", "age"]
    assert lines[4].split()[0] == "training_checkpoints/ckpt-4"
    assert lines[4].split()[-1] == "latest"


def test_names_never_drive_the_terminal(tmp_path: Path, odd_keys: Path) -> None:
    evil = tmp_path / "a\x1b[31m\u202e\x9bb.pt"
    shutil.copy(odd_keys, evil)
    for arguments in (["ls"], ["ls", "--tree"], ["ls", "--json"], ["ls", "--depth", "1"]):
        for target in (evil, tmp_path / "missing\x1b]0;title\x07"):
            _, text = shown(*arguments, "--no-color", target, columns=300)
            assert not set(text) & set("\x1b\x07\x9b\u202e"), arguments


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
def test_encodings(odd_keys: Path, encoding: str) -> None:
    lines = shell(f"ckpt ls '{odd_keys}'", PYTHONIOENCODING=encoding)
    assert lines.returncode == 0
    assert ("語" if encoding == "utf-8" else "\\u8a9e") in lines.stdout.decode(encoding)
    loaded = json.loads(shell(f"ckpt ls --json '{odd_keys}'", PYTHONIOENCODING=encoding).stdout)
    assert loaded["checkpoints"][0]["tensors"][11]["name"] == "語"


def test_the_reader_of_the_pipe_left(odd_keys: Path) -> None:
    result = shell(f"ckpt ls '{odd_keys}' | true; echo ${{PIPESTATUS[0]}}")
    assert result.stdout.strip() == b"141"
    assert result.stderr == b""
    result = shell("ckpt ls nowhere 2>&1 | true; echo ${PIPESTATUS[0]}")
    assert result.stdout.strip() == b"141"


def test_closed_streams(odd_keys: Path) -> None:
    assert shell(f"ckpt ls '{odd_keys}' >&-").returncode == 0
    assert shell("ckpt ls nowhere 2>&-").returncode == 4
    assert shell("ckpt ls nowhere 2>&-").stdout == b""
    assert shell(f"ckpt ls '{odd_keys}' >&- 2>&- <&-").returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_stdout(odd_keys: Path) -> None:
    result = shell(f"ckpt ls '{odd_keys}' >/dev/full")
    assert result.returncode == 5
    assert result.stderr == b"ckpt: No space left on device\n"


def test_interrupted(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 32,)}
        numpy.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (4 << 32))
    process = subprocess.Popen(
        [sys.executable, "-m", "ckpt_tools", "ls", "--digest", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, b"", b"")


def test_progress_goes_to_stderr_and_leaves_nothing(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "x.npy", numpy.zeros(10))
    code, text = shown("ls", "--digest", "--no-color", tmp_path / "x.npy", columns=200)
    assert code == 0
    assert text.splitlines()[3].split()[:2] == [".", "float64"]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_devices(ckpt: Run, path: str) -> None:
    result = ckpt("ls", path)
    assert (result.returncode, result.stdout) == (4, "")
    assert result.stderr == f"ckpt: {path}: a device, socket or pipe, not a regular file\n"


def test_a_pipe_is_not_waited_for(ckpt: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    assert ckpt("ls", "pipe.pt").returncode == 4
    assert ckpt("show", "pipe.pt", "x").returncode == 4


def test_not_enough_memory(monkeypatch: pytest.MonkeyPatch, odd_keys: Path) -> None:
    from typer.testing import CliRunner

    from ckpt_tools.cli.app import app
    from ckpt_tools.ops import listing

    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(listing, "find", exhausted)
    result = CliRunner().invoke(app, ["ls", str(odd_keys)])
    assert (result.exit_code, result.stderr) == (4, "ckpt: there is not enough memory\n")


def test_a_bug_is_one_line(monkeypatch: pytest.MonkeyPatch, odd_keys: Path) -> None:
    from typer.testing import CliRunner

    from ckpt_tools.cli.app import app
    from ckpt_tools.ops import listing

    def broken(*_: object) -> None:
        raise TypeError("oops\x1b[31m")

    monkeypatch.setattr(listing, "find", broken)
    monkeypatch.delenv("CKPT_DEBUG", raising=False)
    result = CliRunner().invoke(app, ["ls", str(odd_keys)])
    assert result.exit_code == 70
    assert result.stderr == "ckpt: internal error: TypeError: oops\\x1b[31m; CKPT_DEBUG=1 shows where\n"


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from ckpt_tools import open_checkpoint
    from ckpt_tools.errors import TruncatedFile

    path = tmp_path / "x.npy"
    numpy.save(path, numpy.zeros(1000))
    with open_checkpoint(path) as checkpoint:
        os.truncate(path, 500)
        with pytest.raises(TruncatedFile):
            checkpoint.tensors["."].numpy()


def test_version_and_help(ckpt: Run) -> None:
    from ckpt_tools import __version__

    assert ckpt("--version").stdout == f"ckpt {__version__}\n"
    for arguments in (["--help"], ["ls", "--help"], ["show", "-h"], ["formats", "--help"]):
        result = ckpt(*arguments)
        assert result.returncode == 0
        assert "Usage: " in result.stdout
    assert "Examples:" in ckpt("ls", "--help").stdout
    assert ckpt("nonsense").returncode == 2
