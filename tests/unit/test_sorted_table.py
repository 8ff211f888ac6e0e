"""Sorted tables in every legal form, and values that are found without being read."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles import HEADER, table_of, varint, with_blocks

from ckpt_tools.core.source import Source
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats._sorted_table import Table

PAIRS = [(b"", HEADER), *((f"layer_{n:03d}".encode(), bytes((n,)) * n) for n in range(150))]


def written(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return Source(path)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("entries_per_block", [1, 7, 1000])
def test_entries(tmp_path: Path, entries_per_block: int, compressed: bool) -> None:
    data = table_of(PAIRS, entries_per_block=entries_per_block, compressed=compressed)
    with written(tmp_path / "t", data) as source:
        table = Table(source)
        assert list(table.entries()) == PAIRS
        assert [(key, value.read(0, value.nbytes)) for key, value in table.values()] == PAIRS
        assert table.header() == HEADER


def test_keys_that_repeat_the_one_before(tmp_path: Path) -> None:
    block = (
        b"\x00\x05\x01" + b"alpha1"  # whole
        + b"\x05\x02\x01" + b"/b2"  # alpha/b
        + b"\x07\x01\x00" + b"c"  # alpha/bc, without a value
        + b"\x01\x03\x02" + b"pex34"  # apex
    )  # fmt: skip
    data = with_blocks((b"b", block + bytes(4) + b"\x01\0\0\0"))
    with written(tmp_path / "t", data) as source:
        table = Table(source)
        expected = [(b"alpha", b"1"), (b"alpha/b", b"2"), (b"alpha/bc", b""), (b"apex", b"34")]
        assert list(table.entries()) == expected
        assert [(key, value.read(0, value.nbytes)) for key, value in table.values()] == expected
        assert table.header() is None


def test_long_keys_are_read_whole(tmp_path: Path) -> None:
    pairs = [(b"k" * n, b"v" * n) for n in (1, 600, 5000)]
    with written(tmp_path / "t", table_of(pairs, entries_per_block=9, compressed=False)) as source:
        assert [(key, value.read(0, value.nbytes)) for key, value in Table(source).values()] == pairs


def test_values_are_found_without_being_read(tmp_path: Path) -> None:
    pairs = [(b"", HEADER), (b"a", bytes(3 << 20)), (b"b", b"xyz")]
    with written(tmp_path / "t", table_of(pairs, entries_per_block=9, compressed=False)) as source:
        table = Table(source)
        found = dict(table.values())
        assert table.header() == HEADER
        assert source.nbytes_read < 10_000
        assert found[b"b"].read(0, 3) == b"xyz"
        assert found[b"a"].nbytes == 3 << 20


def test_a_damaged_block_hands_out_no_value(tmp_path: Path) -> None:
    data = bytearray(table_of(PAIRS, entries_per_block=1000, compressed=False))
    data[data.index(bytes((99,)) * 99)] ^= 1
    with written(tmp_path / "t", bytes(data)) as source:
        table = Table(source)
        with pytest.raises(CorruptFile, match=r"CRC-32C"):
            list(table.entries())
        value = dict(table.values())[b"layer_005"]
        with pytest.raises(CorruptFile, match=r"CRC-32C"):
            value.read(0, 5)


@pytest.mark.parametrize("cut", [1, 9, 48, 60])
def test_a_cut_table(tmp_path: Path, cut: int) -> None:
    data = table_of(PAIRS, entries_per_block=1000, compressed=False)
    with written(tmp_path / "t", data[:-cut]) as source, pytest.raises(TruncatedFile, match="footer/magic missing"):
        Table(source)


RESTART = bytes(4) + b"\x01\0\0\0"


@pytest.mark.parametrize(
    ("contents", "kind"),
    [
        (b"\x03\x01\x00a" + RESTART, CorruptFile),  # repeats three bytes of nothing
        (b"\x00\x01\x7fa" + RESTART, TruncatedFile),  # a value beyond the block
        (b"\x00\xff\xff\xff\x7f\x00a" + RESTART, TruncatedFile),
        (b"\x00\x01\x00b" + b"\x00\x01\x00a" + RESTART, CorruptFile),  # out of order
        (b"\x00\x01\x00a" + b"\x00\x01\x00a" + RESTART, CorruptFile),  # twice
        (b"\x00\x01\x00a" + b"\xff\xff\xff\xff", CorruptFile),  # restart points
        (b"\x01", CorruptFile),
        (b"\x00\x80\x80\x10\x00" + b"k" * (1 << 18) + RESTART, LimitExceeded),  # a key of 256 KiB
    ],
)
def test_blocks_that_lie(tmp_path: Path, contents: bytes, kind: type[CkptError]) -> None:
    with written(tmp_path / "t", with_blocks((b"z", contents))) as source:
        table = Table(source)
        with pytest.raises(kind):
            list(table.entries())
        with pytest.raises(kind):
            list(table.values())


def test_keys_that_unfold_to_more_than_the_table_is_worth(tmp_path: Path) -> None:
    """Each key repeats all of the one before it and adds a byte: 50,000 entries of four bytes, 1.25 GB of keys."""
    contents = b"".join(varint(n) + b"\x01\x00k" for n in range(50_000)) + RESTART
    table = with_blocks((b"z", contents))
    with written(tmp_path / "t", table) as source, pytest.raises(LimitExceeded, match="unfold"):
        for _ in Table(source).entries():
            pass
