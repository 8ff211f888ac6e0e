"""Compressed files and bundles: a sentence that says what is inside, and a command that gets it out."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from ckpt_tools.errors import UnknownFormat
from ckpt_tools.formats import open_checkpoint

HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(600)


def zipped(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, b"x" * 40)
    return stream.getvalue()


def tarred(*names, mode="w"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 700
            archive.addfile(member, io.BytesIO(bytes(700)))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "words", "hint"),
    [
        ("x.h5.gz", gzip.compress(HDF5), "gzip-compressed data; inside is an HDF5 file", "gunzip -k {}"),
        ("x.h5.bz2", bz2.compress(HDF5), "bzip2-compressed data; inside is an HDF5 file", "bunzip2 -k {}"),
        ("x.h5.xz", lzma.compress(HDF5), "xz-compressed data; inside is an HDF5 file", "unxz -k {}"),
        ("x.pth.gz", gzip.compress(zipped("x/data.pkl")), "inside is a zip archive", "gunzip -k {}"),
        ("x.gz", gzip.compress(b"\x20" + bytes(7) + b'{"a":1}'), "inside is a safetensors file", "gunzip -k {}"),
        ("x.gz", gzip.compress(b"hello"), "gzip-compressed data, not a checkpoint", "gunzip -k {}"),
        ("x.tar", tarred("notes.txt", "run/a.pth", "b.pth"), "a tar archive that holds run/a.pth and 1 more",
         "tar -xf {} run/a.pth"),
        ("x.tar", tarred("notes.txt"), "a tar archive that begins with notes.txt", None),
        ("x.tgz", tarred("a.pth", mode="w:gz"), "a gzip-compressed tar archive that begins with a.pth", "tar -xf {}"),
        ("x.zip", zipped("readme", "my model.pth"), "a zip archive that holds my model.pth", "unzip {} 'my model.pth'"),
        ("x.zip", zipped("readme"), "a zip archive that begins with readme", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # packed bytes hold the time
)  # fmt: skip
def test_what_is_inside(tmp_path, name, content, words, hint):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnknownFormat) as caught:
        open_checkpoint(path)
    assert words in caught.value.message
    assert caught.value.hint == (hint.format(path) if hint else None)


@pytest.mark.parametrize("size", [b"99999999999\0", b"\x80" + b"\xff" * 11, b"zzz", b"-1\0"])
def test_tar_headers_that_lead_nowhere(tmp_path, size):
    content = bytearray(tarred("a.pth"))
    content[124:136] = size.ljust(12, b"\0")
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match="a tar archive"):
        open_checkpoint(path)
