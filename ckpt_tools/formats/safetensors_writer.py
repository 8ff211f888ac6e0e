"""Writes ``safetensors``, in one file or in shards with an index.

Tensors stand in the header in the order of the tree; their bytes are sorted by the width of their elements, wide ones
first, so that each begins at a multiple of its width as the library's own writer has it. Values and the outline
(:mod:`ckpt_tools.formats._values`) go into ``__metadata__``, of shards into the metadata of the index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Dict, Node
from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import _values
from ckpt_tools.formats._metadata_values import text_of
from ckpt_tools.formats._safetensors_header import LENGTH_NBYTES, METADATA, Entry, check
from ckpt_tools.formats._shard_index_writer import index_file, plan_of, set_path, shard_path
from ckpt_tools.formats._writing import (
    Feed,
    Output,
    PlannedFile,
    Request,
    Target,
    WritePlan,
    kind_of_special,
    refuse_collisions,
    shards,
)

#: The library's writer pads the header so that the data begin at a multiple of this.
_HEADER_ALIGNMENT = 8
#: transformers reads no file whose metadata do not name a framework; the bytes are the same for all of them.
_FRAMEWORK = {"format": "pt"}


def _reason_lost(node: Node) -> str | None:
    if isinstance(node, Tensor):
        special = kind_of_special(node)
        if special is not None:
            return special
        dtype = node.info.dtype
        return None if dtype.safetensors else f"of dtype {dtype}"
    return _values.reason_lost(node)


TARGET = Target("a safetensors file", _reason_lost)


def plan(root: Node, request: Request) -> WritePlan:
    """The file of a tree, or shards of at most the size asked for and their index."""
    root, own = _metadata_of(root)
    flat = _values.flatten(root, (int, float, bool, str))
    texts = {name: text_of(value) for name, value in flat.values}
    if flat.outline is not None:
        texts[_values.OUTLINE] = flat.outline
    refuse_collisions([(name, name) for name in (*texts, *own)])
    refuse_collisions([(name, name) for name, _ in flat.tensors] + [(METADATA, "the metadata of the file")])
    metadata = {**_FRAMEWORK, **own, **texts}
    runs = shards(flat.tensors, request.max_shard_nbytes)
    if len(runs) == 1:
        return plan_of(request.path, [_file(runs[0], metadata, request.path)])
    own = {**_FRAMEWORK, **own}
    path = set_path(request.path, ".safetensors")
    files = [_file(run, own, shard_path(path, n, len(runs))) for n, run in enumerate(runs, 1)]
    files.append(index_file(path, runs, texts))
    return plan_of(path, files)


def _metadata_of(root: Node) -> tuple[Node, dict[str, str]]:
    """The tree without the metadata of the safetensors file it came from, and those: below a key, or an attribute."""
    held = root.get(METADATA) if isinstance(root, Dict) else None
    if held is None and isinstance(root, Dict) and isinstance(root.attributes, dict):
        held = root.attributes.get(METADATA)
    if not isinstance(held, dict) or not all(isinstance(text, str) for item in held.items() for text in item):
        return root, {}
    rest = Dict(((key, node) for key, node in root.items() if key != METADATA), type_name=root.type_name)
    return rest, dict(held)


def _file(tensors: Sequence[tuple[str, Tensor]], metadata: Mapping[str, str], path: Path) -> PlannedFile:
    in_file = sorted(tensors, key=lambda item: -item[1].info.dtype.bit_width)
    entries: dict[str, Entry] = {}
    reached = 0
    for name, tensor in in_file:
        entries[name] = Entry(name, tensor.info, reached, reached + tensor.nbytes)
        reached += tensor.nbytes
    check(entries.values(), reached)
    members: dict[str, object] = {METADATA: dict(metadata)}
    for name, _ in tensors:
        entry = entries[name]
        members[name] = {
            "dtype": entry.info.dtype.safetensors,
            "shape": list(entry.info.shape),
            "data_offsets": [entry.begin, entry.end],
        }
    text = json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "strict")
    text += b" " * (-(LENGTH_NBYTES + len(text)) % _HEADER_ALIGNMENT)
    if len(text) > DEFAULT_LIMITS.header_nbytes:
        raise WriteRefused(
            f"the header would have {len(text)} bytes, the format allows {DEFAULT_LIMITS.header_nbytes}",
            where=str(path),
        )

    def write(output: Output, feed: Feed) -> None:
        output.write(len(text).to_bytes(LENGTH_NBYTES, "little") + text)
        for _, tensor in in_file:
            for chunk in feed(tensor):
                output.write(chunk)

    return PlannedFile(path, LENGTH_NBYTES + len(text) + reached, write)
