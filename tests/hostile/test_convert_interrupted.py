"""Conversions that are killed, run out of room, or lose their source half-way: the target is whole or as it was."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from typer.testing import CliRunner

from ckpt_tools.cli.app import app
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.listing import digest

ROOT = Path(__file__).resolve().parent.parent.parent

#: Dies at the N-th call of anything that changes the disk.
KILLER = """
import os, signal, sys
left = int(sys.argv.pop(1))
def deadly(function):
    def call(*arguments, **options):
        global left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return function(*arguments, **options)
    return call
for name in ("write", "pwrite", "fsync", "replace", "unlink", "mkdir", "symlink", "rmdir"):
    setattr(os, name, deadly(getattr(os, name)))
from ckpt_tools.cli.app import main
sys.argv[0] = "ckpt"
main()
"""


def run(folder: Path, code: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        **options,  # type: ignore[call-overload]
    )


def source(folder: Path, value: float) -> None:
    numpy.savez(folder / f"in{value:g}.npz", a=numpy.full((50, 50), value, "f4"), b=numpy.full(7, value, "i8"))


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if not entry.name.startswith("in")}


TARGETS = {
    "one file": ("out.safetensors", []),
    "a TensorFlow prefix": ("out.index", []),
    "shards and an index": ("out.safetensors", ["--max-shard-size", "9KB"]),
    "HDF5": ("out.h5", []),
}


def convert(*arguments: object) -> None:
    result = CliRunner().invoke(app, ["convert", *map(str, arguments)])
    assert result.exit_code == 0, result.output


def digests(path: Path) -> list[str]:
    with open_checkpoint(path) as checkpoint:
        return [digest(tensor) for tensor in checkpoint.tensors.values()]


@pytest.mark.parametrize("what", TARGETS)
def test_killed_at_every_step(what: str, tmp_path: Path) -> None:
    name, options = TARGETS[what]
    source(tmp_path, 1)
    source(tmp_path, 2)
    target = tmp_path / name
    convert(tmp_path / "in1.npz", target, *options)
    index = tmp_path / (f"{name}.index.json" if options else name)
    whole = names(tmp_path)
    old, new = digests(index), digests(tmp_path / "in2.npz")
    assert old == digests(tmp_path / "in1.npz")
    for step in range(100):
        died = run(tmp_path, KILLER, str(step), "convert", "in2.npz", name, *options, "--overwrite")
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert len(whole) > 1 or index.exists()
        if index.exists():  # of several files the index may be gone for a moment; where it is, all it names is whole
            assert digests(index) in (old, new)
        # the next run clears up, whatever was left
        convert(tmp_path / "in1.npz", target, *options, "--overwrite")
        assert names(tmp_path) == whole
        assert digests(index) == old
    assert step > 3
    assert names(tmp_path) == whole
    assert digests(index) == new


@pytest.mark.parametrize("options", [[], ["--max-shard-size", "5KB"]], ids=["one file", "other shards"])
def test_killed_while_a_set_of_shards_is_replaced(options: list[str], tmp_path: Path) -> None:
    """What is left of the old set goes with the next run, whenever the one before was killed."""
    numpy.savez(tmp_path / "in1.npz", **{f"t{i}": numpy.full(1000, i, "f4") for i in range(4)})
    numpy.savez(tmp_path / "in2.npz", a=numpy.ones(1000, "f4"), b=numpy.zeros(1000, "f4"))
    target = tmp_path / "out.safetensors"
    convert(tmp_path / "in2.npz", target, *options)
    whole = names(tmp_path)
    for step in range(100):
        convert(tmp_path / "in1.npz", target, "--max-shard-size", "5KB", "--overwrite")
        assert len(names(tmp_path)) == 5
        died = run(tmp_path, KILLER, str(step), "convert", "in2.npz", target.name, *options, "--overwrite")
        if died.returncode == 0:
            break
        convert(tmp_path / "in2.npz", target, *options, "--overwrite")
        assert names(tmp_path) == whole
    assert step > 3
    assert names(tmp_path) == whole


def test_shards_of_others_stay(tmp_path: Path) -> None:
    source(tmp_path, 1)
    shard = tmp_path / "out-00001-of-00004.safetensors"
    convert(tmp_path / "in1.npz", shard)
    target = tmp_path / "out.safetensors"
    convert(tmp_path / "in1.npz", target)  # nobody asked to replace anything
    assert shard.exists()
    index = tmp_path / "another.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a": shard.name}}))
    convert(tmp_path / "in1.npz", target, "--overwrite")
    assert shard.exists()
    index.write_text("{")  # may name anything
    convert(tmp_path / "in1.npz", target, "--overwrite")
    assert shard.exists()
    index.unlink()
    convert(shard, target, "--overwrite")  # it is read
    assert shard.exists()
    convert(tmp_path / "in1.npz", target, "--overwrite")
    assert not shard.exists()


def test_no_room(tmp_path: Path) -> None:
    source(tmp_path, 1)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "from ckpt_tools.cli.app import main\nmain()"
    )
    for target in ("out.pth", "out.npz", "out.index", "out.pdparams", "out.safetensors", "out.h5"):
        failed = run(tmp_path, code, "convert", "in1.npz", target)
        assert failed.returncode == 5, (target, failed.stderr)
        assert re.fullmatch(r"ckpt: out\.\S+: the file would be larger than is allowed\n", failed.stderr), failed.stderr
        assert names(tmp_path) == set()


def test_no_room_for_the_end_of_a_large_file(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "in1.npz", a=numpy.ones((3, 4 << 20), "f4"))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40 << 20, 40 << 20))\n"
        "from ckpt_tools.cli.app import main\nmain()"
    )
    for target in ("out.pth", "out.safetensors", "out.h5"):
        failed = run(tmp_path, code, "convert", "in1.npz", target)
        assert failed.returncode == 5, failed.stderr
        assert re.fullmatch(r"ckpt: out\.\S+: the file would be larger than is allowed\n", failed.stderr), failed.stderr
        assert names(tmp_path) == set()


def test_the_original_stays_when_there_is_no_room(tmp_path: Path) -> None:
    source(tmp_path, 1)
    (tmp_path / "out.safetensors").write_bytes(b"precious")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "from ckpt_tools.cli.app import main\nmain()"
    )
    assert run(tmp_path, code, "convert", "in1.npz", "out.safetensors", "--overwrite").returncode == 5
    assert names(tmp_path) == {"out.safetensors"}
    assert (tmp_path / "out.safetensors").read_bytes() == b"precious"


def test_a_source_that_shrinks_meanwhile(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "in.npz", a=numpy.ones(5_000_000, "f4"), b=numpy.ones(5_000_000, "f4"))
    code = (
        "import os, sys\n"
        "from ckpt_tools.core import sink\n"
        "old = sink.Sink.write\n"
        "def write(self, data):\n"
        "    if self.position > 10_000_000: os.truncate('in.npz', 20_000_000)\n"
        "    old(self, data)\n"
        "sink.Sink.write = write\n"
        "from ckpt_tools.cli.app import main\nmain()"
    )
    failed = run(tmp_path, code, "convert", "in.npz", "out.pth")
    assert failed.returncode == 4, failed.stderr
    assert "shrank" in failed.stderr
    assert names(tmp_path) == set()


ENDED_WHILE_WRITING = """
import os, signal, sys
from ckpt_tools.core import sink
number, at = int(sys.argv.pop(1)), int(sys.argv.pop(1))
write = sink.Sink.write
def ended(self, data):
    write(self, data)
    if self.position > at:
        os.kill(os.getpid(), number)
sink.Sink.write = ended
from ckpt_tools.__main__ import main
main()
"""


@pytest.mark.parametrize("at", [0, 17 << 20], ids=["small", "beside a thread"])
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],
)
def test_ended_while_it_writes(number: int, code: int, at: int, tmp_path: Path) -> None:
    numpy.savez(tmp_path / "in1.npz", a=numpy.ones(max(at // 3, 1), "f4"))
    died = run(tmp_path, ENDED_WHILE_WRITING, str(number), str(at), "convert", "in1.npz", "out.pth")
    assert died.returncode == code
    assert (died.stdout, died.stderr) == ("", "")
    assert names(tmp_path) == set()


def test_signals_that_are_ignored_stay_ignored(tmp_path: Path) -> None:
    source(tmp_path, 1)
    code = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{ENDED_WHILE_WRITING}"
    lived = run(tmp_path, code, str(int(signal.SIGHUP)), "0", "convert", "in1.npz", "out.pth")
    assert lived.returncode == 0, lived.stderr
    assert names(tmp_path) == {"out.pth"}


@pytest.mark.parametrize("module", ["typing", "typer", "ckpt_tools.formats", "ckpt_tools.core.rebuild"])
def test_interrupted_while_it_starts(module: str, tmp_path: Path) -> None:
    """Not even a word, whatever is being loaded; nothing that takes time is loaded before signals are seen to."""
    source(tmp_path, 1)
    code = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from ckpt_tools.__main__ import main\n"
        "main()"
    )
    died = run(tmp_path, code, "convert", "in1.npz", "out.pth")
    assert died.returncode == 130
    assert (died.stdout, died.stderr) == ("", "")
    assert names(tmp_path) == set()
