"""Writes ``torch-legacy``: the stream that ``torch.save`` wrote before 1.6, for programs that read nothing newer.

Source: torch/serialization.py, ``_legacy_save``. The object's pickle is that of the zip format, but for one more part in
each persistent id. Refused: the element types that came after the format (float8, uint16 and their kin), which torch
writes into such streams and cannot read back.
"""

from __future__ import annotations

from ckpt_tools.core.tensors import CompositeTensor, Tensor
from ckpt_tools.core.tree import Dict, Node
from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import _torch_pickle
from ckpt_tools.formats._torch_stream import MAGIC_NUMBER
from ckpt_tools.formats._writing import Feed, Output, PlannedFile, Request, Target, WritePlan
from ckpt_tools.pickles.assembler import Assembler

_PROTOCOL_VERSION = 1001
#: What torch writes on every machine of today; readers ignore it.
_MACHINE = {
    "protocol_version": _PROTOCOL_VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
#: The sixth part of a persistent id says which part of a storage is meant: all of it.
_WHOLE_STORAGE = b"Nt"
_COUNT_NBYTES = 8


def _reason_lost(node: Node) -> str | None:
    if isinstance(node, Tensor):
        parts = node.parts.values() if isinstance(node, CompositeTensor) else (node,)
        for part in parts:
            if part.info.dtype.torch and not _torch_pickle.has_storage_class(part.info.dtype):
                return f"of dtype {part.info.dtype}, which PyTorch's legacy files cannot give back"
    return _torch_pickle.reason_lost(node)


TARGET = Target(
    "a legacy PyTorch file",
    _reason_lost,
    keeps_sharing=True,
    nests=True,
    keeps_attributes=True,
    remark=_torch_pickle.remark,
)


def plan(root: Node, request: Request) -> WritePlan:
    """The stream of a tree, in one file."""
    if request.max_shard_nbytes is not None:
        raise WriteRefused("PyTorch's legacy files are not written in shards", where=str(request.path))
    pickled = _torch_pickle.assembled(root, _WHOLE_STORAGE)
    in_order = sorted(range(len(pickled.storages)), key=str)  # keys are sorted as texts
    head = b"".join(
        (
            _pickle(MAGIC_NUMBER),
            _pickle(_PROTOCOL_VERSION),
            _pickle(_MACHINE),
            pickled.pickle,
            _pickle([str(index) for index in in_order]),
        )
    )
    storages = [pickled.storages[index] for index in in_order]

    def write(output: Output, feed: Feed) -> None:
        output.write(head)
        for values in storages:
            output.write(values.info.count.to_bytes(_COUNT_NBYTES, "little"))
            for chunk in feed(values):
                output.write(chunk)

    nbytes = len(head) + sum(_COUNT_NBYTES + values.info.nbytes for values in storages)
    return WritePlan([PlannedFile(request.path, nbytes, write)], pickled.notes)


def _pickle(value: object) -> bytes:
    assembler: Assembler[bytes] = Assembler(2, lambda assembler, node: None)
    assembler.tree(Dict(value) if isinstance(value, dict) else value)
    return b"".join(part for part in assembler.parts() if isinstance(part, bytes))
