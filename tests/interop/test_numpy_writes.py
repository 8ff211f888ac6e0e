"""Files that numpy writes, compared with what numpy reads from them."""

import hashlib

import ml_dtypes
import numpy
import pytest

from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.listing import digest

ARRAYS = {
    "f8": numpy.linspace(0, 1, 6).reshape(2, 3),
    "f2": numpy.arange(4, dtype="f2"),
    "big": numpy.arange(4, dtype=">u4"),
    "bool": numpy.array([True, False]),
    "complex": numpy.arange(3) * (1 + 2j),
    "scalar": numpy.array(7, "i8"),
    "empty": numpy.zeros((0, 5), "i2"),
    "columns": numpy.asfortranarray(numpy.arange(24).reshape(2, 3, 4)),
    "text": numpy.array(["a", "bcd"]),
    "bytes": numpy.array([b"a", b"bcd"]),
    "when": numpy.array(["2020-01-01", "2021-02-03"], "M8[25s]"),
    "while": numpy.array([1, 2], "m8[D]"),
    "record": numpy.array([(1, 2.5, (3, 4))], [("a", "u1"), ("b", "<f8"), ("c", "<i2", (2,))]),
    "aligned": numpy.zeros(3, numpy.dtype([("a", "u1"), ("b", "<f8")], align=True)),
    "titled": numpy.zeros(3, [(("title", "name"), "<i4")]),
    "layers/0/weight": numpy.ones(3, "f4"),
}


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_archives(tmp_path, save):
    save(tmp_path / "x.npz", **ARRAYS)
    with open_checkpoint(tmp_path / "x.npz") as checkpoint:
        assert [e.key for e in checkpoint] == [(name,) for name in ARRAYS]
        for name, array in ARRAYS.items():
            tensor = checkpoint.tensors[name]
            little = array if array.dtype.names else array.astype(array.dtype.newbyteorder("<"))
            assert tensor.info.shape == array.shape
            assert tensor.info.dtype.name == array.dtype.name
            assert digest(tensor) == hashlib.sha256(little.tobytes()).hexdigest(), name
            assert repr(tensor.numpy().tolist()) == repr(array.tolist())


@pytest.mark.filterwarnings("ignore:Custom dtypes are saved")
def test_bfloat16_keeps_its_bytes_and_loses_its_name(tmp_path):
    array = numpy.arange(3).astype(ml_dtypes.bfloat16)
    numpy.save(tmp_path / "x.npy", array)
    with open_checkpoint(tmp_path / "x.npy") as checkpoint:
        tensor = checkpoint.entries[0].node
        assert tensor.info.dtype.name == "void16"
        assert tensor.tobytes() == array.tobytes()


def test_objects_are_named_not_built(tmp_path):
    class Anything:
        pass

    Anything.__module__, Anything.__qualname__ = "tests_never_import", "Anything"
    numpy.savez(
        tmp_path / "x.npz",
        objects=numpy.array([1, "x", numpy.arange(3), None], object),
        settings=numpy.array({"lr": 0.5, "w": numpy.arange(2)}, object),
    )
    with open_checkpoint(tmp_path / "x.npz") as checkpoint:
        assert [e.key for e in checkpoint] == [
            ("objects",),
            *(("objects", index) for index in range(4)),
            ("settings", "lr"),
            ("settings", "w"),
        ]
        assert checkpoint.tensors["settings/w"].numpy().tolist() == [0, 1]
