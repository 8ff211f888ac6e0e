"""NPY headers made by hand, members of NPZ archives, and what ``ls`` reads of them."""

import io
import struct
import subprocess
import sys
import zipfile

import numpy
import pytest

from ckpt_tools.core.checksum import Checksum
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats import open_checkpoint


def npy(text, data=b"", version=1):
    header = text.encode("utf-8" if version == 3 else "latin-1")
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def described(descr, shape=(2,), fortran=False):
    return repr({"descr": descr, "fortran_order": fortran, "shape": shape})


def opened(tmp_path, content, name="x.npy"):
    path = tmp_path / name
    path.write_bytes(content)
    return open_checkpoint(path)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions(tmp_path, version):
    with opened(tmp_path, npy(described("<i2"), b"\1\0\2\0", version)) as checkpoint:
        (entry,) = checkpoint.entries
        assert entry.key == ()
        assert entry.node.info.shape == (2,)
        assert entry.node.tobytes() == b"\1\0\2\0"
        assert checkpoint.producer == f"numpy, format version {version}.0"


def test_big_endian_and_column_major(tmp_path):
    array = numpy.arange(6, dtype=">i4").reshape(2, 3, order="F")
    stream = io.BytesIO()
    numpy.save(stream, array)
    with opened(tmp_path, stream.getvalue()) as checkpoint:
        assert checkpoint.entries[0].node.tobytes() == array.astype("<i4").tobytes(order="C")


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (npy(described("<f4"), bytes(7)), TruncatedFile, "needs 8 bytes, 7 are there"),
        (npy(described("<f4"))[:30], TruncatedFile, "needs"),
        (npy(described("<f4"), version=4), CorruptFile, "version 4"),
        (npy(described("<f3"), bytes(8)), CorruptFile, "code 'f3'"),
        (npy(described("<q"), bytes(8)), CorruptFile, "code 'q'"),
        (npy(described(""), bytes(8)), CorruptFile, "code"),
        (npy(described(3), bytes(8)), CorruptFile, "neither a code nor"),
        (npy(described([("a",)]), bytes(8)), CorruptFile, "without name and type"),
        (npy(described([(1, "<f4")]), bytes(8)), CorruptFile, "name is no text"),
        (npy(described("<f4", (-1,)), bytes(8)), CorruptFile, "no Python literal"),
        (npy(described("<f4", (True,)), bytes(8)), CorruptFile, "shape"),
        (npy(described("<f4", "ab"), bytes(8)), CorruptFile, "shape"),
        (npy(described("<f4", (2**62, 2**62)), bytes(8)), TruncatedFile, "needs"),
        (npy(described("|V" + "9" * 30), bytes(8)), CorruptFile, "code"),
        (npy(repr({"descr": "<f4", "shape": (2,)}), bytes(8)), CorruptFile, "exactly"),
        (npy("{'descr': '<f4', 'fortran_order': 1, 'shape': (2,)}", bytes(8)), CorruptFile, "neither True nor False"),
        (npy(described("|O"), b"not a pickle"), CkptError, "."),
        (npy(described("|O"), b"\x80\x02K\x01."), CorruptFile, "does not hold the 2 objects"),
        (npy(described("<f4", (1,) * 65), bytes(4)), LimitExceeded, "65 dimensions"),
        (b"\x93NUMPY\2\0" + struct.pack("<I", 2**31) + b"{", LimitExceeded, "header of 2147483648"),
    ],
)
def test_damaged_arrays_are_refused(tmp_path, content, error, words):
    with pytest.raises(error, match=words):
        opened(tmp_path, content)


def test_bytes_behind_the_elements_are_told(tmp_path):
    checkpoint = opened(tmp_path, npy(described("|u1"), b"abc"))
    assert [issue.code for issue in checkpoint.issues] == ["integrity-trailing-bytes"]


def test_members_that_are_no_arrays_are_values(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a/b.npy", npy(described("|u1"), b"ab"))
        archive.writestr("notes.txt", "hello")
    with open_checkpoint(tmp_path / "x.npz") as checkpoint:
        assert [e.key for e in checkpoint] == [("a/b",), ("notes.txt",)]
        assert checkpoint.values["notes.txt"].read() == b"hello"


def test_two_members_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", npy(described("|u1"), b"ab"))
        archive.writestr("a", "hello")
    with pytest.raises(CorruptFile, match="stand for a"):
        open_checkpoint(tmp_path / "x.npz")


def test_an_archive_of_nothing(tmp_path):
    numpy.savez(tmp_path / "x.npz")
    assert not open_checkpoint(tmp_path / "x.npz").tensors


def test_packed_members_are_not_unpacked_to_be_listed(tmp_path):
    numpy.savez_compressed(tmp_path / "x.npz", a=numpy.random.default_rng(0).normal(size=500_000))
    with open_checkpoint(tmp_path / "x.npz") as checkpoint:
        assert checkpoint.tensors["a"].info.shape == (500_000,)
        assert checkpoint.sources[0].nbytes_read < 200_000


def test_packed_and_column_major(tmp_path):
    array = numpy.asfortranarray(numpy.arange(3_000_000, dtype="i4").reshape(1500, 2000))
    numpy.savez_compressed(tmp_path / "x.npz", a=array)
    with open_checkpoint(tmp_path / "x.npz") as checkpoint:
        assert checkpoint.tensors["a"].tobytes() == array.tobytes(order="C")


def test_the_checksum_of_a_member_verifies_its_elements(tmp_path):
    numpy.savez(tmp_path / "x.npz", a=numpy.arange(5.0))
    with open_checkpoint(tmp_path / "x.npz") as checkpoint:
        storage = checkpoint.tensors["a"].storage
        assert isinstance(storage.checksum, Checksum)
        assert storage.checksum.matches(storage.extent.chunks(0, storage.nbytes, 16))
        assert not storage.checksum.matches([b"other"])


def test_listing_needs_no_numpy(tmp_path):
    numpy.savez(tmp_path / "x.npz", a=numpy.arange(5.0), o=numpy.array([1, "x"], object))
    numpy.save(tmp_path / "x.npy", numpy.zeros(2, [("a", "<f4"), ("b", "<i2", (2, 2))]))
    code = (
        "import sys\n"
        "for name in ('numpy', 'h5py', 'torch', 'safetensors', 'joblib'): sys.modules[name] = None\n"
        "from ckpt_tools.formats import open_checkpoint\n"
        "for path in sys.argv[1:]: print(len(open_checkpoint(path).entries))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "x.npz", tmp_path / "x.npy"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["4", "1"]
