"""HDF5 files that h5py writes, compared with what h5py reads from them."""

import hashlib
import subprocess
import sys

import ml_dtypes
import numpy
import pytest

from ckpt_tools.core.tensors import AbsentTensor, StridedTensor
from ckpt_tools.core.tree import Cycle, Opaque
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, MissingBytes, MissingExtra, TruncatedFile
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.listing import digest

h5py = pytest.importorskip("h5py")

ROWS = numpy.arange(60, dtype="f4").reshape(12, 5)
ARRAYS = {
    "plain": ROWS,
    "big": numpy.arange(4, dtype=">f8"),
    "flags": numpy.array([True, False]),
    "complex": numpy.array([1 + 2j], "c16"),
    "record": numpy.array([(1, 2.5)], [("a", "u1"), ("b", "<f8")]),
    "bytes": numpy.array([b"a", b"bcd"]),
    "opaque": numpy.array([b"ab"], "V2"),
    "scalar": numpy.float32(3),
    "empty": numpy.zeros((0, 3)),
}
PACKED = {
    "chunks": {"chunks": (5, 2)},
    "gzip": {"chunks": (4, 5), "compression": "gzip"},
    "lzf": {"compression": "lzf"},
    "shuffle": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "resizable": {"maxshape": (None, 5)},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.h5"


@pytest.fixture
def file(path):
    with h5py.File(path, "w") as file:
        yield file


@pytest.mark.parametrize(
    "options", [{}, {"libver": "latest"}, {"userblock_size": 1024}, {"track_order": True}], ids=str
)
def test_every_kind_of_dataset(path, options):
    with h5py.File(path, "w", **options) as file:
        for name, array in ARRAYS.items():
            file[f"group/{name}"] = array
        for name, how in PACKED.items():
            file.create_dataset(f"packed/{name}", data=ROWS, **how)
        file.create_dataset("unwritten", (2, 2), "i4", fillvalue=7)
        file["bfloat16"] = numpy.arange(3).astype(ml_dtypes.bfloat16).view("V2")
        file["bfloat16"].attrs["dtype"] = "bfloat16"
    with open_checkpoint(path) as checkpoint, h5py.File(path) as file:
        for name, tensor in checkpoint.tensors.items():
            values = file[name][()]
            little = values if values.dtype.names else values.astype(values.dtype.newbyteorder("<"))
            assert digest(tensor) == hashlib.sha256(little.tobytes()).hexdigest(), name
            assert tensor.info.shape == values.shape
            assert b"".join(tensor.chunks(16)) == little.tobytes()
        assert len(checkpoint.tensors) == len(ARRAYS) + len(PACKED) + 2
        assert checkpoint.tensors["bfloat16"].info.dtype.name == "bfloat16"
        assert checkpoint.tensors["group/flags"].info.dtype.name == "bool"
        assert isinstance(checkpoint.tensors["group/plain"], StridedTensor)
        assert not checkpoint.values


def test_datasets_are_not_read_to_be_listed(path, file):
    file["a"] = numpy.zeros(1_000_000)
    file.create_dataset("b", data=numpy.zeros(1_000_000), chunks=(1000,), compression="gzip")
    file.close()
    with open_checkpoint(path) as checkpoint:
        assert len(checkpoint.tensors) == 2
        assert checkpoint.sources[0].nbytes_read < 100_000


def test_texts_and_attributes(path, file):
    file["one"] = "héllo"
    file["many"] = ["a", "bcd", ""]
    file.attrs.update(
        {"version": "1", "old": numpy.bytes_(b"2"), "numbers": [1, 2], "rate": 0.5, "none": h5py.Empty("f")}
    )
    file.attrs["long"] = "x" * 20_000
    file["one"].attrs["unit"] = "m"
    file.close()
    with open_checkpoint(path) as checkpoint:
        values = checkpoint.values
        assert values["one"] == "héllo"
        assert values["one@unit"] == "m"
        assert values["@version"] == "1"
        assert values["@old"] == "2"
        assert [values[f"@numbers/{i}"].value for i in range(2)] == [1, 2]
        assert values["@rate"].value == 0.5
        assert values["@none"] is None
        assert values["@long"].read() == "x" * 20_000
        assert checkpoint.tensors["many"].elements() == [b"a", b"bcd", b""]


def test_an_attribute_never_hides_a_dataset(path, file):
    file["@a"] = [1]
    file["b"] = [2]
    file["b@c"] = [3]
    file.attrs["a"] = "x"
    file["b"].attrs["c"] = "y"
    file.close()
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint.tensors) == {"@a", "b", "b@c"}
        assert set(checkpoint.values.values()) == {"x", "y"}


def test_order(path, file):
    for name in ("w10", "w9", "b1"):
        file[f"natural/{name}"] = [1]
    created = file.create_group("created", track_order=True)
    for name in ("z", "a", "m"):
        created[name] = [1]
    file.close()
    with open_checkpoint(path) as checkpoint:
        assert [e.key[1] for e in checkpoint] == ["z", "a", "m", "b1", "w9", "w10"]


def test_order_of_the_root(path):
    with h5py.File(path, "w", track_order=True) as file:
        for name in ("z", "a", "m"):
            file[name] = [1]
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == ["z", "a", "m"]


def test_links(tmp_path, path, file):
    file["a/b"] = [1, 2]
    file["hard"] = file["a/b"]
    file["soft"] = h5py.SoftLink("/a/b")
    file["a/relative"] = h5py.SoftLink("b")
    file["chain"] = h5py.SoftLink("/soft")
    file["to-group"] = h5py.SoftLink("/a")
    file["loop"] = h5py.SoftLink("/loop")
    file["ping"] = h5py.SoftLink("/pong")
    file["pong"] = h5py.SoftLink("/ping")
    file["nowhere"] = h5py.SoftLink("/nothing/here")
    file["a/up"] = file["/"]
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = [42]
    file["outside"] = h5py.ExternalLink("other.h5", "/secret")
    file["through"] = h5py.SoftLink("/outside")
    file.close()
    with open_checkpoint(path) as checkpoint:
        for name in ("hard", "soft", "a/relative", "chain", "to-group/b"):
            assert checkpoint.tensors[name] is checkpoint.tensors["a/b"], name
        for name in ("loop", "ping", "pong", "nowhere", "outside"):
            assert isinstance(checkpoint.values[name], Opaque), name
        assert isinstance(checkpoint.values["a/up"], Cycle)
        assert all(tensor.numpy().tolist() == [1, 2] for tensor in checkpoint.tensors.values())


def test_what_lies_outside_is_named_and_not_read(tmp_path, path, file):
    (tmp_path / "raw").write_bytes(bytes(16))
    file.create_dataset("external", (2,), "f8", external=[(str(tmp_path / "raw"), 0, 16)])
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = [1.0, 2.0]
    layout = h5py.VirtualLayout((2,), "f8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (2,))
    file.create_virtual_dataset("virtual", layout)
    file.close()
    with open_checkpoint(path) as checkpoint:
        for tensor in checkpoint.tensors.values():
            assert isinstance(tensor, AbsentTensor)
            with pytest.raises(MissingBytes, match="other files"):
                tensor.tobytes()
        assert len(checkpoint.tensors) == 2


def test_what_has_no_bytes_of_its_own_is_named(path, file):
    file["references"] = numpy.array([file.ref], h5py.ref_dtype)
    file["region"] = file.create_dataset("d", data=[1, 2, 3]).regionref[1:]
    lists = file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
    lists[0] = [1, 2]
    file["null"] = h5py.Empty("f4")
    file["type"] = numpy.dtype("f4")
    file.attrs["reference"] = file.ref
    file.close()
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint.tensors) == {"d"}
        assert set(checkpoint.values) == {"references", "region", "lists", "null", "type", "@reference"}
        assert all(isinstance(value, Opaque) for value in checkpoint.values.values())


def test_claims_beyond_what_is_stored(path, file):
    file.create_dataset("x", (2**40,), "f8", chunks=(1000,))
    file.close()
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors["x"].info.shape == (2**40,)
        with pytest.raises(LimitExceeded, match="stored bytes"):
            next(checkpoint.tensors["x"].chunks())


def test_files_cut_short(path, file):
    file["x"] = numpy.arange(1000.0)
    file.close()
    whole = path.read_bytes()
    for length in (100, 2000, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises((TruncatedFile, CorruptFile), match="HDF5"):
            open_checkpoint(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(
        TruncatedFile, match=f"truncated HDF5 file: {len(whole)} bytes are announced, {len(whole) - 1} are"
    ):
        open_checkpoint(path)


def test_a_heap_that_leads_nowhere_is_refused(path, file):
    """On such heaps the library walks in circles, and nothing can interrupt it."""
    file.attrs["text"] = "x" * 10
    file.close()
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    assert data[heap + 16 : heap + 18] == b"\1\0"
    data[heap + 16 : heap + 32] = bytes(16)
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match="the heap at byte"):
        open_checkpoint(path)


def test_damaged_chunks_are_told(path, file):
    file.create_dataset("x", data=ROWS, compression="gzip", chunks=ROWS.shape)
    offset = file["x"].id.get_chunk_info(0).byte_offset
    file.close()
    data = bytearray(path.read_bytes())
    data[offset : offset + 8] = b"\xff" * 8
    path.write_bytes(data)
    with open_checkpoint(path) as checkpoint, pytest.raises(CkptError, match="dataset /x cannot be read"):
        checkpoint.tensors["x"].tobytes()


def test_foreign_filters_load_no_plugin(path, file):
    file.create_dataset("x", data=ROWS, compression="gzip", chunks=ROWS.shape)
    file.close()
    data = path.read_bytes()
    place = data.index(b"deflate") - 8  # id, length of name, flags, number of values, name
    assert data[place : place + 2] == b"\1\0"
    path.write_bytes(data[:place] + (32001).to_bytes(2, "little") + data[place + 2 :])
    with open_checkpoint(path) as checkpoint, pytest.raises(MissingBytes, match="filter 32001"):
        checkpoint.tensors["x"].tobytes()


def test_without_h5py(path, file):
    file["x"] = [1]
    file.close()
    code = (
        "import sys; sys.modules['h5py'] = None\n"
        "from ckpt_tools.formats import open_checkpoint\n"
        "from ckpt_tools.errors import MissingExtra\n"
        "try: open_checkpoint(sys.argv[1])\n"
        "except MissingExtra as error: print(error.message, error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert MissingExtra.exit_code == 4
    assert "h5py, which is not installed pip install 'ckpt-tools[hdf5]'" in done.stdout
