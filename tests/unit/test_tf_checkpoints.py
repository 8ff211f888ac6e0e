"""Bundles and V1 checkpoints, and all the ways in which people name them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bundles import FLOAT, INT32, STRING, entry, field, masked_crc32c, slice_of, varint, write_bundle

from ckpt_tools import open_checkpoint
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import AbsentTensor, AssembledTensor
from ckpt_tools.errors import CorruptFile, MissingBytes, MissingInput, UnknownFormat, UnreadableInput, UsageError
from ckpt_tools.formats._ordered_code import Span, slice_key

SIX = bytes(range(24))
BIG = bytes.fromhex("080110011a020801")


def texts(elements: list[bytes], order: str = "little") -> tuple[bytes, int]:
    """A string tensor's bytes and its stored checksum, from the description in tensor_bundle.cc."""
    import crc32c

    lengths = b"".join(len(e).to_bytes(4, order) for e in elements)  # type: ignore[arg-type]
    stored = masked_crc32c(lengths).to_bytes(4, order)  # type: ignore[arg-type]
    raw = b"".join(varint(len(e)) for e in elements) + stored + b"".join(elements)
    crc = crc32c.crc32c(lengths + stored + b"".join(elements))
    return raw, ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_two_entries_at_one_place_share_their_storage(tmp_path: Path) -> None:
    one = entry(SIX, shape=(2, 3))
    with open_checkpoint(write_bundle(tmp_path, {b"a": one, b"b": one}, SIX)) as checkpoint:
        a, b = checkpoint.tensors.values()
        assert a.storage is b.storage
        assert a.storage is not None
        assert a.storage.checksum is not None
        assert a.storage.checksum.matches(a.chunks())


def test_big_endian_numbers_and_texts(tmp_path: Path) -> None:
    raw, crc = texts([b"one", b"", b"three"], "big")
    entries = {
        b"n": entry(b"\0\0\0\1\0\0\0\2", dtype=INT32, shape=(2,)),
        b"t": entry(raw, dtype=STRING, shape=(3,), offset=8, crc=crc),
    }
    with open_checkpoint(write_bundle(tmp_path, entries, b"\0\0\0\1\0\0\0\2" + raw, header=BIG)) as checkpoint:
        assert checkpoint.facts["byte order"] == "big"
        assert checkpoint.tensors["n"].tobytes() == b"\1\0\0\0\2\0\0\0"
        assert checkpoint.tensors["t"].elements() == [b"one", b"", b"three"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", range(17))
def test_texts_are_checked_when_they_are_read(tmp_path: Path, at: int) -> None:
    raw, crc = texts([b"some", b"thing"])
    damaged = bytearray(raw)
    assert len(raw) == 15
    if at < 15:
        damaged[at] ^= 4
    index = write_bundle(tmp_path, {b"t": entry(raw, dtype=STRING, shape=(2,), crc=crc ^ (at == 15))}, bytes(damaged))
    with open_checkpoint(index) as checkpoint:
        tensor = checkpoint.tensors["t"]
        if at == 16:
            assert tensor.tobytes() == b"".join(len(e).to_bytes(8, "little") + e for e in (b"some", b"thing"))
        else:
            with pytest.raises(CorruptFile):
                tensor.tobytes()


def test_an_unknown_element_type_is_listed(tmp_path: Path) -> None:
    index = write_bundle(tmp_path, {b"a": entry(SIX, dtype=77, shape=(6,)), b"b": entry(SIX, shape=(6,))}, SIX)
    with open_checkpoint(index) as checkpoint:
        assert checkpoint.tensors["a"].info.dtype.name == "tf-type-77"
        assert checkpoint.tensors["a"].nbytes == 24
        assert [(i.code, i.message) for i in checkpoint.issues] == [
            ("integrity-unknown-dtype", "element type 77 is none that is known: a")
        ]
        with pytest.raises(MissingBytes):
            checkpoint.tensors["a"].tobytes()
        assert checkpoint.tensors["b"].tobytes() == SIX


def test_a_missing_shard_is_one_issue_however_many_tensors_lie_in_it(tmp_path: Path) -> None:
    entries = {f"v{n}".encode(): entry(SIX, shape=(6,), shard=n % 2) for n in range(10)}
    index = write_bundle(tmp_path, entries, SIX, header=field(1, 2) + field(3, field(1, 1)))
    (tmp_path / "p.data-00000-of-00001").rename(tmp_path / "p.data-00000-of-00002")
    with open_checkpoint(index) as checkpoint:
        assert len(checkpoint.tensors) == 10
        (issue,) = checkpoint.issues
        assert issue.code == "integrity-missing-shard"
        assert issue.where == "p.data-00001-of-00002"
        assert issue.message.endswith("v1, v3, v5 and 2 more")


def test_hundreds_of_shards_are_not_held_open(tmp_path: Path) -> None:
    count = 300
    entries = {f"v{n:03d}".encode(): entry(SIX, shape=(6,), shard=n) for n in range(count)}
    index = write_bundle(tmp_path, entries, SIX, header=field(1, count) + field(3, field(1, 1)))
    for n in range(count):
        shutil.copy(tmp_path / "p.data-00000-of-00001", tmp_path / f"p.data-{n:05d}-of-{count:05d}")
    with open_checkpoint(index) as checkpoint:
        assert len(checkpoint.sources) < 10
        assert {tensor.tobytes() for tensor in checkpoint.tensors.values()} == {SIX}
        assert checkpoint.nbytes == index.stat().st_size + count * len(SIX)


def partitioned(*spans: tuple[int, int], dtype: int = FLOAT, raw: bytes = SIX, width: int = 4) -> dict[bytes, bytes]:
    """A variable ``v`` of shape [6], in slices of (start, length) that lie one after the other."""
    entries = {b"v": entry(b"", dtype=dtype, shape=(6,), crc=0, slices=[slice_of(span) for span in spans])}
    at = 0
    for start, length in spans:
        piece = raw[at : at + length * width]
        entries[slice_key("v", [Span(start, length)])] = entry(piece, dtype=dtype, shape=(length,), offset=at)
        at += len(piece)
    return entries


def test_slices_are_assembled(tmp_path: Path) -> None:
    with open_checkpoint(write_bundle(tmp_path, partitioned((4, 2), (0, 4)), SIX)) as checkpoint:
        assert list(checkpoint.tensors) == ["v"]
        tensor = checkpoint.tensors["v"]
        assert isinstance(tensor, AssembledTensor)
        assert tensor.note == "2 slices"
        assert tensor.tobytes() == SIX[8:] + SIX[:8]


def test_texts_in_slices(tmp_path: Path) -> None:
    first, first_crc = texts([b"a", b"bb"])
    second, second_crc = texts([b"ccc"])
    entries = {
        b"t": entry(b"", dtype=STRING, shape=(3,), crc=0, slices=[slice_of((2, 1)), slice_of((0, 2))]),
        slice_key("t", [Span(0, 2)]): entry(first, dtype=STRING, shape=(2,), crc=first_crc),
        slice_key("t", [Span(2, 1)]): entry(second, dtype=STRING, shape=(1,), offset=len(first), crc=second_crc),
    }
    with open_checkpoint(write_bundle(tmp_path, entries, first + second)) as checkpoint:
        assert checkpoint.tensors["t"].elements() == [b"a", b"bb", b"ccc"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spans", "words"),
    [(((0, 4),), "hold 4"), (((0, 4), (2, 2)), "overlap"), (((0, 4), (5, 2)), "slice of 2 at 5")],
)
def test_slices_that_do_not_fit(tmp_path: Path, spans: tuple[tuple[int, int], ...], words: str) -> None:
    with open_checkpoint(write_bundle(tmp_path, partitioned(*spans), SIX)) as checkpoint:
        assert isinstance(checkpoint.tensors["v"], AbsentTensor)
        assert any(i.code == "integrity-slices" and words in i.message for i in checkpoint.issues)


def test_slices_that_are_missing_or_nobodys(tmp_path: Path) -> None:
    entries = partitioned((0, 4), (4, 2))
    entries[slice_key("w", [Span(0, 2)])] = entries.pop(slice_key("v", [Span(4, 2)]))
    with open_checkpoint(write_bundle(tmp_path, entries, SIX)) as checkpoint:
        assert isinstance(checkpoint.tensors["v"], AbsentTensor)
        assert {i.code for i in checkpoint.issues} == {"integrity-slices", "integrity-stray-slice"}


def test_keys_are_shown_as_they_are_stored(tmp_path: Path) -> None:
    names = ["a/b", "a.b", "größe", "x y"]
    entries = {name.encode(): entry(SIX, shape=(6,)) for name in names} | {b"\xff\xfe": entry(SIX, shape=(6,))}
    with open_checkpoint(write_bundle(tmp_path, entries, SIX)) as checkpoint:
        keys = {e.key for e in checkpoint}
        assert keys == {(name,) for name in names} | {("\udcff\udcfe",)}


def test_a_damaged_graph_costs_names_only(tmp_path: Path) -> None:
    raw, crc = texts([b"\x0a\x7f"])
    entries = {
        b"_CHECKPOINTABLE_OBJECT_GRAPH": entry(raw, dtype=STRING, offset=24, crc=crc),
        b"v": entry(SIX, shape=(6,)),
    }
    with open_checkpoint(write_bundle(tmp_path, entries, SIX + raw)) as checkpoint:
        assert checkpoint.tensors["v"].tobytes() == SIX
        assert [i.code for i in checkpoint.issues] == ["integrity-object-graph"]


# --- the ways to name one ---


@pytest.fixture
def run(tmp_path: Path, fixtures: Path) -> Path:
    """A directory of three saves of a training."""
    shutil.copytree(fixtures / "workspaces" / "tensorflow" / "input", tmp_path, dirs_exist_ok=True)
    return tmp_path / "training_checkpoints"


def test_members_of_a_bundle(run: Path) -> None:
    for name in ("ckpt-3", "ckpt-3.index", "ckpt-3.data-00000-of-00001"):
        with open_checkpoint(run / name) as checkpoint:
            assert checkpoint.location.path == run / "ckpt-3.index"
            assert checkpoint.location.shown == str(run / name)


def test_the_state_file_means_its_latest(run: Path) -> None:
    with open_checkpoint(run / "checkpoint") as checkpoint:
        assert checkpoint.location.path == run / "ckpt-4.index"


def test_the_state_file_of_a_directory_that_moved(run: Path) -> None:
    for old in ("/gone/elsewhere/ckpt-2", r"C:\\runs\\my run\\ckpt-2"):
        (run / "checkpoint").write_text(f'model_checkpoint_path: "{old}"\n')
        with open_checkpoint(run / "checkpoint") as checkpoint:
            assert checkpoint.location.path == run / "ckpt-2.index"


@pytest.mark.parametrize("latest", ["ckpt-9", "/gone/ckpt-9", "", ".", "checkpoint", "\\000"])
def test_a_state_file_that_leads_nowhere(run: Path, latest: str) -> None:
    (run / "checkpoint").write_text(f'model_checkpoint_path: "{latest}"\n')
    with pytest.raises(UnreadableInput) as caught:
        open_checkpoint(run / "checkpoint")
    assert not isinstance(caught.value, UnknownFormat)


def test_a_directory_with_one_checkpoint_is_that(run: Path) -> None:
    with pytest.raises(UsageError, match=r"3 checkpoints.*ckpt-2, .*ckpt-3, .*ckpt-4$"):
        open_checkpoint(run)
    for file in [*run.glob("ckpt-2.*"), *run.glob("ckpt-4.*")]:
        file.unlink()
    with open_checkpoint(run) as checkpoint:
        assert checkpoint.location.path == run / "ckpt-3.index"
    (run / "checkpoint").unlink()
    with open_checkpoint(run) as checkpoint:
        assert checkpoint.location.path == run / "ckpt-3.index"


def test_files_of_a_saved_model(fixtures: Path) -> None:
    export = fixtures / "tf-bundle" / "saved-model" / "input" / "export"
    for path in (export, export / "saved_model.pb", export / "fingerprint.pb", export / "variables"):
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.location.path == export / "variables" / "variables.index"
            assert checkpoint.facts["tensorflow"] == "2.21.0"
            assert checkpoint.producer == "tensorflow 2.21.0, bundle version 1"


def test_a_saved_model_without_variables(fixtures: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures / "tf-bundle" / "saved-model" / "input" / "export" / "saved_model.pb", tmp_path)
    with pytest.raises(MissingInput, match="without variables"):
        open_checkpoint(tmp_path)


def test_data_without_an_index(run: Path) -> None:
    (run / "ckpt-3.index").unlink()
    with pytest.raises(MissingInput, match="is missing"):
        open_checkpoint(run / "ckpt-3.data-00000-of-00001")


@pytest.mark.parametrize("left", [0, 4, 20, 1000])
def test_a_truncated_index(run: Path, left: int) -> None:
    """Its name and its data files tell what it was, or its first bytes under any name."""
    index = run / "ckpt-3.index"
    index.write_bytes(index.read_bytes()[:left])
    with pytest.raises(CorruptFile, match="footer/magic missing"):
        open_checkpoint(run / "ckpt-3")
    if left > 10:
        with pytest.raises(CorruptFile, match="footer/magic missing"):
            open_checkpoint(shutil.copy(index, run / "other"))


def test_an_index_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "faiss.index").write_bytes(b"IxF2" + bytes(200))
    with pytest.raises(UnknownFormat):
        open_checkpoint(tmp_path / "faiss.index")


def test_tables_of_leveldb_itself(tmp_path: Path) -> None:
    index = write_bundle(tmp_path, {b"key\x01\0\0\0\0\0\0\0": b"value"}, b"", header=None)
    (tmp_path / "p.data-00000-of-00001").unlink()
    with pytest.raises(UnknownFormat):
        open_checkpoint(index.rename(tmp_path / "000005.ldb"))


# --- V1 ---


@pytest.fixture
def sharded(tmp_path: Path, fixtures: Path) -> Path:
    shutil.copytree(fixtures / "tf-v1" / "sharded" / "input", tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["model.ckpt", "model.ckpt-?????-of-00002", "model.ckpt-00000-of-00002", "model.ckpt-00001-of-00002"]
)
def test_members_of_a_sharded_v1_checkpoint(sharded: Path, name: str) -> None:
    with open_checkpoint(sharded / name) as checkpoint:
        assert checkpoint.format == "tf-v1"
        assert sorted(checkpoint.tensors) == ["first", "second", "table"]
        assert checkpoint.issues == []


def test_a_v1_checkpoint_by_its_graph_and_by_its_state_file(fixtures: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures / "tf-v1" / "with-meta-graph" / "input", tmp_path, dirs_exist_ok=True)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/gone/model.ckpt-7"\n')
    for name in ("model.ckpt-7", "model.ckpt-7.meta", "checkpoint", "."):
        with open_checkpoint(tmp_path / name) as checkpoint:
            assert checkpoint.location.path == tmp_path / "model.ckpt-7"
            assert checkpoint.producer == "tensorflow 2.21.0, V1 checkpoint, version 1"


def test_a_v1_checkpoint_with_a_missing_file(sharded: Path) -> None:
    (sharded / "model.ckpt-00001-of-00002").unlink()
    with open_checkpoint(sharded / "model.ckpt") as checkpoint:
        assert sorted(checkpoint.tensors) == ["first", "table"]
        assert isinstance(checkpoint.tensors["table"], AbsentTensor)
        assert {i.code for i in checkpoint.issues} == {"integrity-missing-shard", "integrity-slices"}


def test_v1_values_of_a_damaged_block(fixtures: Path, tmp_path: Path) -> None:
    data = bytearray((fixtures / "tf-v1" / "single-file" / "input" / "model.ckpt").read_bytes())
    with open_checkpoint(fixtures / "tf-v1" / "single-file" / "input" / "model.ckpt") as checkpoint:
        kernel = checkpoint.tensors["dense/kernel"].tobytes()
    data[data.index(kernel)] ^= 1
    (tmp_path / "model.ckpt").write_bytes(data)
    with pytest.raises(CorruptFile, match="CRC-32C"), open_checkpoint(tmp_path / "model.ckpt") as checkpoint:
        checkpoint.tensors["dense/kernel"].tobytes()


def test_roles_are_told_in_both_formats(fixtures: Path) -> None:
    with open_checkpoint(fixtures / "tf-bundle" / "slots-and-averages" / "input" / "model.ckpt-1") as checkpoint:
        roles = [purpose.role for purpose in checkpoint.purposes.values()]
        assert roles.count(Role.WEIGHT) == 2
        assert roles.count(Role.AVERAGE) == 2
        assert roles.count(Role.COUNTER) == 1
        assert len(checkpoint.purposes) == len(checkpoint.tensors) == 11
        assert checkpoint.tensors["global_step"].note == "counter"
    with open_checkpoint(fixtures / "tf-bundle" / "object-based" / "input" / "ckpt-1") as checkpoint:
        weights = [key for (key,), purpose in checkpoint.purposes.items() if purpose.role is Role.WEIGHT]
        assert sum("/_trainable_variables/" in str(key) for key in weights) == 5
        assert not [key for key in weights if "/_variables/" in str(key)]
        assert checkpoint.tensors["_CHECKPOINTABLE_OBJECT_GRAPH"].note == "bookkeeping"
