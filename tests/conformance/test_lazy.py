"""Listing touches structure only: no tensor bytes are read, and no array library or framework is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fixture_cases import Case, readable

ROOT = Path(__file__).resolve().parent.parent.parent

#: Formats whose structure lies behind a library (HDF5) or behind compression (joblib streams).
THROUGH_A_LIBRARY = {"hdf5", "keras"}

LIST_WITHOUT = """
import json, sys

BLOCKED = {"torch", "paddle", "tensorflow", "keras", "numpy", "ml_dtypes", "h5py", "joblib", "safetensors"}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
        return None

sys.meta_path.insert(0, Blocker())
from ckpt_tools import open_checkpoint
failed = {}
for path in json.loads(sys.argv[1]):
    try:
        with open_checkpoint(path) as checkpoint:
            list(checkpoint.entries)
    except Exception as error:
        failed[path] = f"{type(error).__name__}: {error}"
print(json.dumps(failed))
"""


def test_listing_needs_no_array_library() -> None:
    paths = [str(c.path) for c in readable() if c.expected["format"] not in THROUGH_A_LIBRARY]
    assert paths
    done = subprocess.run(
        [sys.executable, "-c", LIST_WITHOUT, json.dumps(paths)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


@pytest.mark.parametrize(
    "case",
    [c for c in readable() if c.expected["format"] not in THROUGH_A_LIBRARY | {"joblib"}],
    ids=lambda case: case.id,
)
def test_listing_reads_no_tensor_bytes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are forbidden to hand out chunks while the tree is read and walked."""
    from ckpt_tools import open_checkpoint
    from ckpt_tools.core import tensors

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("tensor bytes were read")

    for kind in (tensors.StridedTensor, tensors.AssembledTensor, tensors.CompositeTensor):
        monkeypatch.setattr(kind, "chunks", refuse)
    with open_checkpoint(case.path) as checkpoint:
        assert len(checkpoint.entries) >= len(checkpoint.tensors)
