"""Sorted tables written as TensorFlow writes them: stored blocks, keys shortened against their neighbours.

Source: the LevelDB table format (github.com/google/leveldb/blob/main/doc/table_format.md) and
tensorflow/core/lib/io/table_builder.cc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ckpt_tools.core.checksum import crc32c, mask
from ckpt_tools.core.limits import KIB
from ckpt_tools.formats._protobuf_writer import varint
from ckpt_tools.formats._sorted_table import MAGIC

#: A key stands in full at every 16th entry; a data block is closed when it has this many bytes.
_RESTART_INTERVAL = 16
_BLOCK_NBYTES = 256 * KIB
_STORED = b"\0"
#: Both handles of the footer, padded.
_HANDLES_NBYTES = 40


class _Block:
    """Entries of one block, in the order of their keys."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._data = bytearray()
        self._restarts: list[int] = []
        self._entries = 0
        self.last = b""

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._entries % self._interval == 0:
            self._restarts.append(len(self._data))
        else:
            most = min(len(key), len(self.last))
            while shared < most and key[shared] == self.last[shared]:
                shared += 1
        self._data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self._entries += 1
        self.last = key

    @property
    def nbytes(self) -> int:
        return len(self._data) + 4 * (len(self._restarts) + 1)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def contents(self) -> bytes:
        restarts = self._restarts or [0]
        return bytes(self._data) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A whole table. Keys must ascend in bytewise order."""
    out = bytearray()

    def close(block: _Block) -> bytes:
        """Append a block and its trailer; the handle by which it is found."""
        contents = block.contents()
        handle = varint(len(out)) + varint(len(contents))
        out.extend(contents + _STORED + struct.pack("<I", mask(crc32c(contents + _STORED))))
        return handle

    index = _Block(1)
    block = _Block(_RESTART_INTERVAL)
    for key, value in entries:
        block.add(key, value)
        if block.nbytes >= _BLOCK_NBYTES:
            index.add(block.last, close(block))
            block = _Block(_RESTART_INTERVAL)
    if block:
        index.add(block.last, close(block))
    handles = close(_Block(1)) + close(index)
    out.extend(handles.ljust(_HANDLES_NBYTES, b"\0") + MAGIC)
    return bytes(out)
