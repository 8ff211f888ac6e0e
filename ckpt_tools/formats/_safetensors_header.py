"""The header of a safetensors file, and the one judge of whether it is sound, for files that are read or written.

Source: the format's own page (huggingface/safetensors, README: "Format"). A file is an unsigned 64-bit little-endian
length, that many bytes of JSON, and the data. Stricter than the library: a name given twice is refused, since readers
disagree on which of the two counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from ckpt_tools.core.dtypes import BY_SAFETENSORS, DType
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.tensors import TensorInfo
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile

#: The length before the JSON.
LENGTH_NBYTES = 8
METADATA = "__metadata__"
#: Offsets and sizes are 64-bit in every reader.
_LARGEST = 2**64 - 1


class Entry(NamedTuple):
    """One tensor: its bytes are ``[begin, end)`` of the data."""

    name: str
    info: TensorInfo
    begin: int
    end: int


class Header(NamedTuple):
    """What the JSON says, in its order."""

    entries: tuple[Entry, ...]
    metadata: Mapping[str, str]


def parsed(text: bytes) -> Header:
    """The header from its JSON. CorruptFile when a part of it has not the form that the format asks for."""
    if not text.startswith(b"{"):
        raise CorruptFile(f"the header begins with {text[:1]!r}, not with an opening brace")
    try:
        members = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise CorruptFile(f"the header is not JSON: {error.msg} at character {error.pos}") from None
    metadata = members.pop(METADATA, None)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptFile(f"{METADATA} is not a mapping from text to text")
    return Header(tuple(_entry(name, value) for name, value in members.items()), metadata)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise CorruptFile(f"the header gives {name!r} twice; readers disagree on which one counts")
            seen.add(name)
    return members


def _no_constant(text: str) -> None:
    raise CorruptFile(f"the header holds {text}, which is not JSON")


def _entry(name: str, value: Any) -> Entry:
    if not isinstance(value, dict):
        raise CorruptFile(f"tensor {name!r} is described by something that is no mapping")
    kind, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    dtype = BY_SAFETENSORS.get(kind) if isinstance(kind, str) else None
    if dtype is None:
        raise CorruptFile(f"tensor {name!r} has dtype {kind!r:.40}, which the format does not know")
    if not _whole_numbers(shape):
        raise CorruptFile(f"the shape of tensor {name!r} is no list of whole numbers")
    if len(shape) > DEFAULT_LIMITS.rank:
        raise LimitExceeded(f"tensor {name!r} has {len(shape)} dimensions")
    if not _whole_numbers(offsets) or len(offsets) != 2:
        raise CorruptFile(f"the data_offsets of tensor {name!r} are not two whole numbers")
    return Entry(name, TensorInfo(dtype, tuple(shape)), offsets[0], offsets[1])


def _whole_numbers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= _LARGEST for n in value)


def span(name: str, dtype: DType, shape: Sequence[int]) -> int:
    """Bytes of a tensor. CorruptFile when they are not whole bytes or no 64-bit number can count them."""
    bits = math.prod(shape) * dtype.bit_width
    if bits % 8:
        raise CorruptFile(f"tensor {name!r}, {dtype} {list(shape)}, does not end on a whole byte")
    if bits // 8 > _LARGEST:
        raise CorruptFile(f"tensor {name!r} has a shape {list(shape)} too large to count")
    return bits // 8


def check(entries: Iterable[Entry], data_nbytes: int) -> None:
    """CorruptFile unless every tensor has the bytes its shape needs, and together they are all of the data: no hole,
    no overlap, nothing behind. TruncatedFile when the data end too early."""
    reached = 0
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        needed = span(entry.name, *entry.info)
        if entry.end - entry.begin != needed:
            raise CorruptFile(
                f"tensor {entry.name!r}, {entry.info.dtype} {list(entry.info.shape)}, needs {needed} bytes,"
                f" its data_offsets are {entry.begin} to {entry.end}"
            )
        if entry.begin != reached:
            kind = "a hole" if entry.begin > reached else "an overlap"
            raise CorruptFile(f"{kind} before tensor {entry.name!r}: it begins at byte {entry.begin}, not {reached}")
        reached = entry.end
    if reached > data_nbytes:
        raise TruncatedFile(f"the tensors need {reached} bytes of data, {data_nbytes} are there")
    if reached < data_nbytes:
        raise CorruptFile(f"{data_nbytes - reached} bytes follow the data of the last tensor")
