"""Files that joblib writes, compared with what joblib reads from them."""

import bz2
import gzip
import hashlib
import lzma
import os
import zlib

import numpy
import pytest

from ckpt_tools.core.limits import Limits
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.errors import CkptError, LimitExceeded, TruncatedFile, UnknownFormat
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.listing import digest

joblib = pytest.importorskip("joblib")

ARRAYS = {
    "plain": numpy.arange(6.0).reshape(2, 3),
    "columns": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
    "big": numpy.arange(3, dtype=">i4"),
    "empty": numpy.zeros((0, 3)),
    "scalar": numpy.array(3.0),
    "record": numpy.zeros(2, [("a", "<f4"), ("b", "<i8")]),
}


def contents():
    twice = numpy.arange(3)
    return {**ARRAYS, "objects": numpy.array([1, "x", None], object), "list": [twice, 5], "again": twice}


def check(checkpoint):
    for name, array in ARRAYS.items():
        tensor = checkpoint.tensors[name]
        little = array.astype(array.dtype.newbyteorder("<"))
        assert tensor.info.shape == array.shape
        assert digest(tensor) == hashlib.sha256(little.tobytes()).hexdigest(), name
    assert checkpoint.values["objects/1"] == "x"
    assert checkpoint.tensors["list/0"].numpy().tolist() == [0, 1, 2]  # joblib writes an array each time it meets it
    assert checkpoint.values["list/1"] == 5
    assert not checkpoint.issues


@pytest.mark.parametrize("compress", [0, 3, ("zlib", 1), ("gzip", 3), ("bz2", 3), ("xz", 1), ("lzma", 1)], ids=str)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_every_compression(tmp_path, compress, protocol):
    path = tmp_path / "x.pkl"
    joblib.dump(contents(), path, compress=compress, protocol=protocol)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "joblib"
        check(checkpoint)


def test_arrays_are_stepped_over(tmp_path):
    joblib.dump({"a": numpy.zeros(1_000_000), "b": numpy.ones(3)}, tmp_path / "x.joblib")
    with open_checkpoint(tmp_path / "x.joblib") as checkpoint:
        assert list(checkpoint.tensors) == ["a", "b"]
        assert checkpoint.sources[0].nbytes_read < 100_000
        assert checkpoint.tensors["b"].numpy().tolist() == [1, 1, 1]


def test_streams_before_the_alignment(tmp_path, monkeypatch):
    from joblib import numpy_pickle

    monkeypatch.setattr(numpy_pickle, "NUMPY_ARRAY_ALIGNMENT_BYTES", None)
    joblib.dump(contents(), tmp_path / "x.joblib")
    with open_checkpoint(tmp_path / "x.joblib") as checkpoint:
        check(checkpoint)


def test_an_estimator(tmp_path):
    ensemble = pytest.importorskip("sklearn.ensemble")
    rows = numpy.random.default_rng(0).random((20, 3))
    forest = ensemble.RandomForestClassifier(2).fit(rows, rows[:, 0] > 0.5)
    joblib.dump(forest, tmp_path / "x.joblib")
    with open_checkpoint(tmp_path / "x.joblib") as checkpoint:
        assert checkpoint.producer.startswith("joblib, scikit-learn ")
        values = checkpoint.tensors["estimators_/1/tree_/values"]
        assert values.numpy().tolist() == forest.estimators_[1].tree_.value.tolist()
        assert "pickle-foreign-class" in {issue.code for issue in checkpoint.issues}


def test_arrays_in_files_of_their_own(tmp_path):
    """Before joblib 0.10; the pickle is written as that version did."""
    numpy.save(tmp_path / "x.pkl_01.npy", numpy.arange(4))

    def stream(name):
        text = name.encode()
        return (
            b"\x80\x02cjoblib.numpy_pickle\nNDArrayWrapper\n)\x81}(X\x08\0\0\0filename"
            + b"X" + len(text).to_bytes(4, "little") + text + b"X\x08\0\0\0subclasscnumpy\nndarray\nub."
        )  # fmt: skip

    (tmp_path / "x.pkl").write_bytes(stream("x.pkl_01.npy"))
    with open_checkpoint(tmp_path / "x.pkl") as checkpoint:
        assert checkpoint.entries[0].node.numpy().tolist() == [0, 1, 2, 3]
    (tmp_path / "gone.pkl").write_bytes(stream("gone.npy"))
    with open_checkpoint(tmp_path / "gone.pkl") as checkpoint:
        assert [issue.code for issue in checkpoint.issues] == ["integrity-missing-bytes"]
        assert not checkpoint.tensors
    (tmp_path / "out.pkl").write_bytes(stream("../x.pkl_01.npy"))
    with pytest.raises(CkptError, match="not that of a file beside this one"):
        open_checkpoint(tmp_path / "out.pkl")


def test_a_shape_beyond_the_file(tmp_path):
    joblib.dump(numpy.arange(5.0), tmp_path / "x.joblib")
    data = (tmp_path / "x.joblib").read_bytes()
    assert data.count(b"K\x05\x85") == 1
    (tmp_path / "x.joblib").write_bytes(data.replace(b"K\x05\x85", b"K\xff\x85"))
    with pytest.raises(TruncatedFile, match=r"an array float64 \[255\] of 2040 bytes"):
        open_checkpoint(tmp_path / "x.joblib")


PACK = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zlib": zlib.compress}


@pytest.mark.parametrize("packing", PACK)
def test_bombs_are_stopped(tmp_path, packing):
    path = tmp_path / "x.pkl"
    path.write_bytes(PACK[packing](b"\x80\x04B" + (4_000_000).to_bytes(4, "little") + bytes(4_000_000) + b"."))
    small = Limits(unpacked_at_least=100_000, unpacked_ratio=2)
    with pytest.raises(LimitExceeded, match="unpacks to more than 100000 bytes"):
        open_checkpoint(path, limits=small)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.entries[0].node.nbytes == 4_000_000


@pytest.mark.parametrize("packing", PACK)
def test_packed_streams_cut_short_or_damaged(tmp_path, packing):
    path = tmp_path / "x.pkl"
    whole = PACK[packing](b"\x80\x04\x8e" + (200_000).to_bytes(8, "little") + os.urandom(200_000) + b".")
    for length in (len(whole) - 1, len(whole) - 4, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises((TruncatedFile, UnknownFormat)):
            open_checkpoint(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    path.write_bytes(flipped)
    with pytest.raises(CkptError):
        open_checkpoint(path)


def test_streams_in_a_row_and_padding(tmp_path):
    path = tmp_path / "x.pkl.gz"
    path.write_bytes(gzip.compress(b"\x80\x04]") + gzip.compress(b"K\x01a.") + bytes(512))
    assert open_checkpoint(path).entries[0].node == 1


def test_every_tensor_is_one(tmp_path):
    joblib.dump(contents(), tmp_path / "x.joblib")
    with open_checkpoint(tmp_path / "x.joblib") as checkpoint:
        assert all(isinstance(e.node, Tensor) == e.is_tensor for e in checkpoint)
