"""Sets of shards as Hugging Face's libraries write them: ``NAME-00001-of-00002.EXT`` and ``NAME.EXT.index.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ckpt_tools.core.shards import weight_map
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Node
from ckpt_tools.errors import UnreadableInput, WriteRefused
from ckpt_tools.formats._writing import Feed, Output, PlannedFile, Request, WritePlan, shards


def set_path(path: Path, suffix: str) -> Path:
    """The name of the checkpoint that is cut into shards: these have the format's suffix where ``path`` has none."""
    return path if path.suffix else path.with_suffix(suffix)


def shard_path(path: Path, number: int, count: int) -> Path:
    """The name of shard ``number`` (from 1) of the checkpoint that would be ``path`` in one piece."""
    return path.with_name(f"{path.stem}-{number:05d}-of-{count:05d}{path.suffix}")


def index_path(path: Path) -> Path:
    """The name of the index."""
    return path.with_name(f"{path.name}.index.json")


def index_file(
    path: Path, runs: Sequence[Sequence[tuple[str, Tensor]]], metadata: Mapping[str, str] | None = None
) -> PlannedFile:
    """The index of the shards ``runs``; ``metadata`` goes beside the total size."""
    weight_map = {name: shard_path(path, n, len(runs)).name for n, run in enumerate(runs, 1) for name, _ in run}
    total = sum(tensor.nbytes for run in runs for _, tensor in run)
    text = json.dumps({"metadata": {"total_size": total, **(metadata or {})}, "weight_map": weight_map}, indent=2)
    data = text.encode("ascii") + b"\n"

    def write(output: Output, feed: Feed) -> None:
        output.write(data)

    return PlannedFile(index_path(path), len(data), write)


def state_dict_runs(root: Node, request: Request) -> list[list[tuple[str, Tensor]]]:
    """The tensors of a flat state dict in runs of the size asked for. WriteRefused when the tree is no state dict."""
    if not isinstance(root, dict) or not all(
        type(key) is str and isinstance(node, Tensor) for key, node in root.items()
    ):
        raise WriteRefused(
            "only a flat state dict can be cut into shards, and this tree is nested or holds values",
            where=str(request.path),
            hint="--root KEY takes one state dict out of it, --match '*.weight' only tensors",
        )
    return shards(list(root.items()), request.max_shard_nbytes)


def plan_of(path: Path, files: Sequence[PlannedFile], notes: Sequence[str] = ()) -> WritePlan:
    """The plan that writes ``files``, one or a set, as the checkpoint ``path``, and clears away what was called so before.

    Shards beside it that no index names belong to nobody: a run that was killed while it replaced a set leaves such.
    Those that the index of another checkpoint names are left to it.
    """
    taken = {file.path.name for file in files}
    names = {file.name for file in path.parent.iterdir()} - taken if path.parent.is_dir() else set()
    pattern = re.compile(rf"{re.escape(path.stem)}-\d{{5}}-of-\d{{5}}{re.escape(path.suffix)}", re.DOTALL)
    shards = [path.with_name(name) for name in sorted(names) if pattern.fullmatch(name)]
    index = index_path(path)
    if shards:
        named = _named_by_others(path.parent, names - {index.name})
        shards = [shard for shard in shards if named is not None and shard.name not in named]
    # the index stands first: without it the shards are nobody's
    whole = [file for file in (index, path) if file.name in names]
    if index.name in names:
        return WritePlan(files, list(notes), obsolete=[*whole, *shards])
    return WritePlan(files, list(notes), obsolete=whole, orphans=shards)


def _named_by_others(directory: Path, names: Iterable[str]) -> set[str] | None:
    """The files that indexes among ``names`` name; None when one of these cannot be read."""
    found: set[str] = set()
    try:
        for name in names:
            found.update((weight_map(directory / name) or {}).values())
    except UnreadableInput:
        return None
    return found
