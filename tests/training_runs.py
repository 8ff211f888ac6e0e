"""Training directories for tests: snapshots with their records, state files with empty checkpoints."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

OLD = "/home/user/exp/default/checkpoints"


def snapshot(path: Path, iteration: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"main_params": {}}
    if iteration is not None:
        content = {"epoch": 1, "iteration": iteration, **content}
    path.write_bytes(pickle.dumps(content, 4))
    return path


def line(path: object, iteration: int, **more: object) -> str:
    return json.dumps({"time": "2024-05-01 10:00:00.000001", "path": str(path), "iteration": iteration, **more}) + "\n"


def written(directory: Path, *lines: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "records.jsonl"
    path.write_bytes("".join(lines).encode("utf-8"))
    return path


OLD_RUN = "/home/user/train/run1"
MOVED_STATE = f"""model_checkpoint_path: "{OLD_RUN}/model.ckpt-200"
all_model_checkpoint_paths: "{OLD_RUN}/model.ckpt-50"
all_model_checkpoint_paths: "{OLD_RUN}/model.ckpt-100"
all_model_checkpoint_paths: "{OLD_RUN}/model.ckpt-200"
all_model_checkpoint_timestamps: 1700000000.25
all_model_checkpoint_timestamps: 1700000100.50
all_model_checkpoint_timestamps: 1700000200.75
last_preserved_timestamp: 1699999999.5
"""


def state_file(directory: Path, *names: str, state: str = MOVED_STATE) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / f"{name}.index").write_bytes(b"index")
    path = directory / "checkpoint"
    path.write_bytes(state.encode("utf-8"))
    return path
