"""What a plain listing imports: nothing that costs without being needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: OpenSSL, for digests.
NEEDLESS = ("_hashlib",)
FRAMEWORKS = ("numpy", "h5py", "torch", "paddle", "tensorflow", "keras", "ml_dtypes", "joblib", "safetensors")
#: rich draws for people and progress; in a pipe nothing of it is used.
DRAWING = ("rich.table", "rich.console", "rich.progress", "rich.tree")

SCRIPT = """
import json, sys
from ckpt_tools.cli.app import main
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(path: Path) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, "ls", str(path)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    code, modules = json.loads(result.stderr.splitlines()[-1])
    assert code == 0
    found: list[str] = modules
    return found


@pytest.mark.parametrize(
    "path",
    [
        "torch-zip/training-state/input/checkpoint.pth.tar",
        "torch-legacy/state-dict/input/model.pt",
        "safetensors/plain/input/model.safetensors",
        "paddle-pickle/snapshot/input/snapshot_iter_60.pdz",
        "workspaces/tensorflow/input/training_checkpoints",
    ],
)
def test_plain_listing(fixtures: Path, path: str) -> None:
    modules = imported(fixtures / path)
    assert not [name for name in (*FRAMEWORKS, *NEEDLESS, *DRAWING) if name in modules]
