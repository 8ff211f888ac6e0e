"""Listing hostile files executes nothing and imports nothing: an audit hook watches a process that does it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fixture_cases import cases

ROOT = Path(__file__).resolve().parent.parent.parent

WATCHED = """
import json, sys
from ckpt_tools import CkptError, open_checkpoint

paths = json.loads(sys.argv[1])
def look(path):
    try:
        with open_checkpoint(path) as checkpoint:
            for entry in checkpoint.entries:
                if entry.is_tensor and entry.node.nbytes < 1 << 20:
                    try:
                        for _ in entry.node.chunks():
                            pass
                    except CkptError:
                        pass
    except CkptError:
        pass

for path in paths:   # once, so that every module of our own is imported
    look(path)

seen = []
FORBIDDEN = ("import", "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
             "subprocess.Popen", "ctypes.", "marshal.", "pickle.find_class", "socket.", "os.remove", "os.rename",
             "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "shutil.")
armed = False
def hook(event, arguments):
    # ast.literal_eval parses the header of numpy arrays with compile(); what it makes is a tree that nothing runs
    if event == "compile" and arguments[1] == "<unknown>":
        return
    if armed and (event.startswith(FORBIDDEN) or event == "open" and isinstance(arguments[1], str)
                  and set(arguments[1]) & set("wax+")):
        seen.append(f"{event} {arguments!r:.200}")
sys.addaudithook(hook)
armed = True
for path in paths:
    look(path)
armed = False
print(json.dumps(seen))
"""


def test_hostile_files_run_nothing(tmp_path: Path) -> None:
    paths = [str(p) for case in cases("hostile", "not-checkpoints", "stats", "pickle") for p in case.files]
    paths += [str(case.path) for case in cases("torch-zip", "torch-legacy", "paddle-pickle")]
    assert paths
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps(paths)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert list(tmp_path.iterdir()) == []
