"""Distributed checkpoints that ``torch.distributed.checkpoint`` keeps as safetensors files, a few for each rank.

Source: torch/distributed/checkpoint/hf_storage.py. Files are called ``shard-<rank>-model-<i>-of-<n>.safetensors``; the
entry ``DCP_SHARDING_INFO`` of their ``__metadata__`` says at which index of the whole each tensor of the file begins.
Nothing says how large the whole is: it reaches as far as its parts do, so a file that is missing at the end of all
dimensions goes unnoticed unless its number is missing too.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import natural_order, printable
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import DCP_SAFETENSORS, Location
from ckpt_tools.core.tensors import AbsentTensor, AssembledTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CorruptFile
from ckpt_tools.formats._parts import Parts

_METADATA = "__metadata__"
_OFFSETS = "DCP_SHARDING_INFO"

#: the pieces of one tensor: the index in the whole where each begins, and the piece
Pieces = dict[tuple[int, ...], Tensor]


def probe(location: Location) -> str | None:
    """Why this is such a directory, or None."""
    found = _names(location)
    return f"a directory with {found[0]}" if found else None


def _names(location: Location) -> list[str]:
    if not location.is_directory:
        return []
    found = (entry.name for entry in location.path.iterdir() if DCP_SAFETENSORS.fullmatch(entry.name))
    return sorted(found, key=natural_order)


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of every file, and the whole tensors that they are parts of."""
    parts = Parts(location.path, limits)
    try:
        names = _names(location)
        pieces: dict[str, Pieces] = {}
        _check_count(names, parts)
        for name in names:
            _collect(name, pieces, parts)
        return Checkpoint(
            parts.format,
            location,
            Dict({name: _whole(name, of_it, parts) for name, of_it in pieces.items()}),
            producer="torch.distributed.checkpoint, safetensors",
            nbytes=parts.nbytes,
            issues=parts.issues,
            facts={"shards": str(len(names))},
            sources=parts.sources,
            parts=list(parts.opened.values()),
            limits=limits,
        )
    except BaseException:
        parts.close()
        raise


def _check_count(names: list[str], parts: Parts) -> None:
    """A finding for each rank that has fewer files than their names say."""
    found: dict[str, set[int]] = {}
    counts: dict[str, int] = {}
    for name in names:
        rank, index, count = re.findall(r"\d+", name)
        found.setdefault(rank, set()).add(int(index))
        counts[rank] = int(count)
    for rank, indexes in found.items():
        if len(indexes) < counts[rank]:
            message = f"shard {rank} has {len(indexes)} of {counts[rank]} files"
            parts.issues.append(Issue("integrity-missing-shard", Severity.ERROR, f"shard-{rank}", message))


def _collect(name: str, pieces: dict[str, Pieces], parts: Parts) -> None:
    part = parts.open(name)
    if part is None:
        return
    held = part.root if isinstance(part.root, dict) else {}
    metadata = held.get(_METADATA)
    text = metadata.get(_OFFSETS) if isinstance(metadata, dict) else None
    offsets = json.loads(text) if isinstance(text, str) else {}
    for key, tensor in held.items():
        if isinstance(tensor, Tensor):
            starts = _starts(offsets, key, tensor)
            pieces.setdefault(key, {}).setdefault(starts, tensor)


def _starts(offsets: Any, name: str, tensor: Tensor) -> tuple[int, ...]:
    entry = offsets.get(name) if isinstance(offsets, dict) else None
    if entry is None:
        return (0,) * len(tensor.info.shape)
    starts = entry.get("saved_offsets") if isinstance(entry, dict) else None
    if (
        not isinstance(starts, list)
        or len(starts) != len(tensor.info.shape)
        or any(type(start) is not int or start < 0 for start in starts)
    ):
        raise CorruptFile(f"{_OFFSETS} of {printable(name)} is no index into it")
    return tuple(starts)


def _whole(name: str, pieces: Pieces, parts: Parts) -> Tensor:
    """The tensor that the pieces make up; without bytes, and a finding, where they do not."""
    first = next(iter(pieces.values()))
    ends = [tuple(start + n for start, n in zip(starts, piece.info.shape)) for starts, piece in pieces.items()]
    info = TensorInfo(first.info.dtype, tuple(map(max, zip(*ends))))
    if len(pieces) == 1 and first.info == info:
        return first
    try:
        if any(
            piece.info.dtype is not info.dtype or len(piece.info.shape) != len(ends[0]) for piece in pieces.values()
        ):
            raise CorruptFile("its parts differ in type or in their number of dimensions")
        return AssembledTensor(info, list(pieces.items()), note=f"{len(pieces)} chunks")
    except CorruptFile as error:
        parts.issues.append(Issue("integrity-chunks", Severity.ERROR, printable(name), error.message))
        return AbsentTensor(info, error.message)
