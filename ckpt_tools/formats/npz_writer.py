"""Writes ``npz``: what ``numpy.load`` takes, members stored and aligned, so that arrays can be mapped.

Source: numpy's ``numpy.lib.format``. Values become arrays of no dimensions, the outline
(:mod:`ckpt_tools.formats._values`) a byte string. Element types that numpy has no word for (bfloat16, float8) are stored
as raw bytes of their width, as numpy itself does it; the outline tells what they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import partial

from ckpt_tools.core.dtypes import DType
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Node, Scalar
from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import _values
from ckpt_tools.formats._npy import MAGIC, SUFFIX
from ckpt_tools.formats._writing import (
    Feed,
    Output,
    PlannedFile,
    Request,
    Target,
    WritePlan,
    kind_of_special,
    refuse_collisions,
)
from ckpt_tools.formats._zip_writer import ALIGNMENT, Layout

#: With room for the padding.
_LONGEST_TEXT = 65_000


def _reason_lost(node: Node) -> str | None:
    if isinstance(node, Tensor):
        special = kind_of_special(node)
        if special is not None:
            return special
        dtype = node.info.dtype
        return None if dtype.bit_width and dtype.bit_width % 8 == 0 else f"of dtype {dtype}, which has no whole bytes"
    return _values.reason_lost(node)


def _holds(dtype: DType) -> bool:
    return dtype.numpy_spec is not None


def _remark(node: Node) -> str | None:
    if isinstance(node, Tensor) and not _holds(node.info.dtype):
        return f"{node.info.dtype} is stored as raw bytes, which numpy shows as void"
    return None


TARGET = Target("a numpy archive", _reason_lost, remark=_remark)


def plan(root: Node, request: Request) -> WritePlan:
    """The archive of a tree. WriteRefused when it is to be cut: numpy has no archives in parts."""
    if request.max_shard_nbytes is not None:
        raise WriteRefused("numpy has no archives in shards", where=str(request.path))
    flat = _values.flatten(root, (int, float, bool, str), _holds)
    small = [(name, *_array_of(value)) for name, value in flat.values]
    if flat.outline is not None:
        text = flat.outline.encode("ascii")
        small.append((_values.OUTLINE, f"|S{len(text)}", text))
    refuse_collisions([(name, name) for name, _ in flat.tensors] + [(name, name) for name, _, _ in small])
    heads = [(name, _header(_description(t.info.dtype), t.info.shape), t) for name, t in flat.tensors]
    members: list[tuple[str, int]] = [(name + SUFFIX, len(head) + t.nbytes) for name, head, t in heads]
    values = [(name, _header(code, ()) + data) for name, code, data in small]
    members += [(name + SUFFIX, len(data)) for name, data in values]
    layout = Layout(members)

    def write(output: Output, feed: Feed) -> None:
        def array(head: bytes, tensor: Tensor) -> Iterator[bytes]:
            yield head
            yield from feed(tensor)

        def value(data: bytes) -> Iterable[bytes]:
            return (data,)

        contents = [partial(array, head, tensor) for _, head, tensor in heads]
        layout.write(output, [*contents, *(partial(value, data) for _, data in values)])

    return WritePlan([PlannedFile(request.path, layout.nbytes, write)])


def _description(dtype: DType) -> object:
    """What a header calls an element type."""
    if isinstance(dtype.numpy_spec, str):
        return dtype.numpy_spec
    if dtype.numpy_spec is None:
        return f"|V{dtype.itemsize}"
    from numpy.lib.format import dtype_to_descr

    return dtype_to_descr(dtype.to_numpy())


def _header(descr: object, shape: tuple[int, ...]) -> bytes:
    """Magic, version, length and the literal, padded so that the elements begin at a multiple of the alignment."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    # version 1 reads its text as Latin-1 and counts it in 16 bits, version 3 has neither limit
    version, length = (1, "<H") if text.isascii() and len(text) < _LONGEST_TEXT else (3, "<I")
    fixed = len(MAGIC) + 2 + struct.calcsize(length)
    text += b" " * (-(fixed + len(text) + 1) % ALIGNMENT) + b"\n"
    return MAGIC + bytes([version, 0]) + struct.pack(length, len(text)) + text


def _array_of(value: Scalar) -> tuple[str, bytes]:
    """The code and the bytes of a value as an array of no dimensions."""
    if isinstance(value, bool):
        return "|b1", bytes([value])
    if isinstance(value, int):
        return "<i8", value.to_bytes(8, "little", signed=True)
    if isinstance(value, float):
        return "<f8", struct.pack("<d", value)
    if isinstance(value, str):
        return f"<U{max(len(value), 1)}", value.encode("utf-32-le") or bytes(4)
    raise TypeError(f"no array for a {type(value).__name__}")
