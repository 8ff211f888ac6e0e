"""Zip archives as torch writes them: the very bytes of ``torch.save``, and the fields of archives beyond 4 GiB."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from ckpt_tools.formats._zip_writer import ALIGNMENT, Layout


class Collected:
    """An output in memory."""

    temporary = Path()

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data


def written(members: dict[str, bytes]) -> bytes:
    layout = Layout((name, len(data)) for name, data in members.items())
    output = Collected()
    layout.write(output, [lambda data=data: [data] if data else [] for data in members.values()])
    assert len(output.data) == layout.nbytes
    return bytes(output.data)


def test_zipfile_reads_it_and_members_are_aligned() -> None:
    members = {"a/x": b"1234567", "a/empty": b"", "a/ü": bytes(100)}
    data = written(members)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == members
    for content in (b"1234567",):
        assert data.index(content) % ALIGNMENT == 0


def test_the_bytes_are_those_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.arange(5.0), "e": torch.empty(0), "i": torch.arange(3)}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    assert written(members) == (tmp_path / "x.pt").read_bytes()


def test_members_beyond_4_gib() -> None:
    large = 5 << 30
    layout = Layout([("a/data", large), ("a/behind", 3), ("a/none", 0)])
    first, behind, none = layout.members
    assert len(first.descriptor(1)) == 24
    assert behind.header_offset == first.packed_nbytes > large
    assert (behind.header_offset + len(behind.header)) % ALIGNMENT == 0
    assert len(behind.descriptor(1)) == 24
    assert none.descriptor(0) == b""
    # zipfile parses the directory alone; what it finds there are the true sizes and offsets
    sparse = _Sparse(layout.directory_offset, b"".join(m.entry(7) for m in layout.members))
    sparse.tail += layout._end(len(sparse.tail))
    with zipfile.ZipFile(sparse) as archive:  # type: ignore[arg-type]
        infos = archive.infolist()
    assert [info.file_size for info in infos] == [large, 3, 0]
    assert [info.header_offset for info in infos] == [0, behind.header_offset, none.header_offset]
    assert layout.nbytes == sparse.nbytes


class _Sparse(io.RawIOBase):
    """A file of zeros with bytes at its end."""

    def __init__(self, hole: int, tail: bytes) -> None:
        self.hole, self.tail, self.at = hole, tail, 0

    @property
    def nbytes(self) -> int:
        return self.hole + len(self.tail)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.nbytes)[whence]
        if self.at < 0:
            raise OSError
        return self.at

    def read(self, length: int = -1) -> bytes:
        start = self.at - self.hole
        assert start >= 0, "the hole is not read"
        data = self.tail[start:] if length < 0 else self.tail[start : start + length]
        self.at += len(data)
        return data
