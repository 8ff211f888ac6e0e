"""CRC-32C: the short way and the library's agree, whole and continued."""

from __future__ import annotations

import crc32c as library
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.core import checksum


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_both_ways_are_one(first: bytes, second: bytes) -> None:
    whole = checksum.crc32c_by_table(second, checksum.crc32c_by_table(first))
    assert whole == library.crc32c(first + second) == checksum.crc32c(second, checksum.crc32c(first))


def test_known_answer() -> None:
    # RFC 3720, B.4: 32 bytes of zeros
    assert checksum.crc32c(bytes(32)) == 0x8A9136AA
    assert checksum.unmask(checksum.mask(0x8A9136AA)) == 0x8A9136AA
