"""Sharded sets: files of another format behind an index JSON, shown as the one checkpoint they are.

The index says which file holds which tensor; names count as one part of a key, as in the shards. Tensors of a shard
that is missing or damaged are listed without type and shape, which only the shard knows.
"""

from __future__ import annotations

from pathlib import Path

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.dtypes import UNKNOWN
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import natural_order, printable
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.shards import contents, indexes_in, weight_map
from ckpt_tools.core.tensors import AbsentTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict, Node
from ckpt_tools.errors import CorruptFile
from ckpt_tools.formats._metadata_values import tree_of
from ckpt_tools.formats._parts import Parts
from ckpt_tools.formats._safetensors_header import METADATA
from ckpt_tools.formats._values import OUTLINE


def probe(location: Location) -> str | None:
    """Why this is a sharded set, or None. A directory is one when exactly one index lies in it."""
    index = _index(location)
    return None if index is None else f"an index with weight_map: {index.name}"


def _index(location: Location) -> Path | None:
    candidates = indexes_in(location.path) if location.is_directory else [location.path]
    found = [path for path in candidates if weight_map(path) is not None]
    return found[0] if len(found) == 1 else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The index and the structure of every shard."""
    index = _index(location)
    found = None if index is None else contents(index)
    if index is None or found is None:
        raise CorruptFile("no index with a weight_map, or several")
    files, metadata = found
    parts = Parts(index.parent, limits)
    try:
        root = Dict()
        for name in sorted(set(files.values()), key=natural_order):
            _add(root, name, [tensor for tensor, file in files.items() if file == name], parts)
        tree, odd = _outlined(root, metadata, index.name)
        return Checkpoint(
            parts.format,
            location,
            tree,
            producer=parts.producer,
            nbytes=index.stat().st_size + parts.nbytes,
            issues=parts.issues + odd,
            facts={"shards": str(len(set(files.values())))},
            sources=parts.sources,
            parts=list(parts.opened.values()),
            limits=limits,
        )
    except BaseException:
        parts.close()
        raise


def _add(root: Dict, name: str, expected: list[str], parts: Parts) -> None:
    """Put what the shard ``name`` holds into ``root``; ``expected`` is what the index says it holds."""
    part = parts.open(name)
    held = {} if part is None else part.root
    if not isinstance(held, dict):
        raise CorruptFile(f"{name} holds no names")
    for key, node in held.items():
        if key in root and not isinstance(node, Tensor):  # each shard repeats what is said about the whole
            continue
        if key in root:
            message = f"{printable(str(key))} is in an earlier shard too; that one is shown"
            _say(parts, "integrity-repeated-tensor", name, message)
        else:
            root[key] = node
    indexed = set(expected)
    strange = [key for key, node in held.items() if isinstance(node, Tensor) and key not in indexed]
    if strange:
        _say(parts, "integrity-unindexed-tensor", name, f"{_some(strange)} not in the index")
    lost = [tensor for tensor in expected if tensor not in held]
    if lost and part is not None:
        _say(parts, "integrity-missing-tensor", name, f"{_some(lost)} in the index and not in {name}")
    for tensor in lost:
        reason = parts.lacking.get(name, f"it is not in {name}, where the index says it is")
        root.setdefault(tensor, AbsentTensor(TensorInfo(UNKNOWN, ()), reason, note=f"type and shape unknown: {reason}"))


def _outlined(root: Dict, metadata: dict[str, str], where: str) -> tuple[Node, list[Issue]]:
    """The tree that an outline in the metadata of the index describes; the tensors by name where there is none."""
    tensors = {key: node for key, node in root.items() if isinstance(node, Tensor)}
    if OUTLINE not in metadata or len(tensors) < len(root) - (METADATA in root):
        return root, []
    tree, issues = tree_of(tensors, {**root.get(METADATA, {}), **metadata}, where)
    return (root, issues) if issues else (tree, [])


def _some(names: list[str]) -> str:
    shown = ", ".join(printable(str(name)) for name in names[:3])
    return f"{shown} is" if len(names) == 1 else f"{shown}{' …' if len(names) > 3 else ''} ({len(names)} tensors) are"


def _say(parts: Parts, code: str, where: str, message: str) -> None:
    parts.issues.append(Issue(code, Severity.ERROR, where, message))
