"""Binary tensors, programs and distributed metadata that lie about what they hold."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from ckpt_tools import open_checkpoint
from ckpt_tools.errors import CkptError, MissingInput, TruncatedFile, UnknownFormat


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def desc(*shape: int, dtype: int = 5) -> bytes:
    return b"\x08" + varint(dtype) + b"".join(b"\x10" + varint(extent) for extent in shape)


def record(description: bytes, data: bytes = b"", *, levels: tuple[bytes, ...] = ()) -> bytes:
    offsets = b"".join(struct.pack("<Q", len(level)) + level for level in levels)
    head = struct.pack("<IQ", 0, len(levels)) + offsets
    return head + struct.pack("<Ii", 0, len(description)) + description + data


def floats(count: int, start: int = 0) -> bytes:
    return struct.pack(f"<{count}f", *range(start, start + count))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_sequence_offsets_and_packed_dimensions_are_read(tmp_path: Path) -> None:
    packed = b"\x08\x05\x12\x02\x02\x03"
    data = record(packed, floats(6), levels=(struct.pack("<3Q", 0, 1, 2), struct.pack("<3Q", 0, 2, 4)))
    with open_checkpoint(write(tmp_path / "x.bin", data)) as checkpoint:
        [tensor] = checkpoint.tensors.values()
        assert tensor.info.shape == (2, 3)
        assert tensor.tobytes() == floats(6)
        assert tensor.note == "sequence offsets (LoD) of 2 levels"


@pytest.mark.parametrize(
    "data",
    [
        bytes(4096),
        bytes(4),
        bytes(24) + b"\x08\x05",
        record(b"\x08"),
        record(b"\x10\x02\x08\x05", floats(2)[:0]) + b"\xff" * 4,
        record(desc(2, dtype=99), floats(2)),
        record(desc(2, dtype=7), floats(2)),
        record(desc(-1), floats(2)),
        record(desc(*[1] * 65), floats(1)),
        record(desc(2) + b"\x18\x01", floats(2)),
        record(desc(2) + b"\x1a\x00", floats(2)),
        record(b"\x0a\x01\x05", floats(1)),
        struct.pack("<IQ", 0, 1 << 40) + record(desc(2), floats(2)),
        struct.pack("<IQQ", 0, 1, (1 << 63)) + record(desc(2), floats(2)),
        struct.pack("<IQQ", 0, 1, 7) + bytes(7) + record(desc(2), floats(2))[12:],
        struct.pack("<IQIi", 0, 0, 0, -5) + desc(2) + floats(2),
        struct.pack("<IQIi", 0, 0, 0, 1 << 30) + desc(2) + floats(2),
        struct.pack("<IQIi", 0, 0, 1, 4) + desc(2) + floats(2),
        struct.pack("<IQIi", 1, 0, 0, 4) + desc(2) + floats(2),
    ],
    ids=range(19),
)
@pytest.mark.parametrize("name", ["x.bin", "fc_0.w_0", "x.pdiparams"])
def test_no_record_no_format(data: bytes, name: str, tmp_path: Path) -> None:
    with pytest.raises((UnknownFormat, TruncatedFile)):
        open_checkpoint(write(tmp_path / name, data))


@pytest.mark.parametrize("name", ["x.bin", "fc_0.w_0", "x.pdiparams", "__variables__"])
@pytest.mark.parametrize("shape", [(3,), (1 << 62,), (1 << 32, 1 << 32), (1 << 62,) * 60])
def test_records_that_want_more_than_there_is(shape: tuple[int, ...], name: str, tmp_path: Path) -> None:
    with pytest.raises(TruncatedFile, match=r"the 1st tensor needs \d+ bytes, 8 are left"):
        open_checkpoint(write(tmp_path / name, record(desc(*shape), floats(2))))


def test_no_elements_in_a_huge_shape(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path / "x.bin", record(desc(1 << 62, 0, 1 << 62)))) as checkpoint:
        [tensor] = checkpoint.tensors.values()
        assert tensor.tobytes() == b""


def test_what_follows_a_lone_tensor_is_told(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path / "x.bin", record(desc(2), floats(2)) + b"tail")) as checkpoint:
        [issue] = checkpoint.issues
        assert issue.message == "4 bytes follow the tensor, which ends at byte 32"


def test_garbage_between_records_is_damage(tmp_path: Path) -> None:
    one = record(desc(2), floats(2))
    with pytest.raises(CkptError, match="no tensor begins at byte 64"):
        open_checkpoint(write(tmp_path / "x.pdiparams", one + one + b"\x01" * 40))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IQ3qq", 0, 3, 0, 4, 7, -1) + record(desc(3, 2), floats(6))[12:],
        struct.pack("<IQ3qq", 0, 3, 0, 4, 7, 20) + record(desc(2, 2), floats(4))[12:],
        struct.pack("<IQ3qq", 0, 3, 0, 4, 7, 20) + record(desc(3, 2), floats(5))[12:],
        struct.pack("<IQ3qq", 0, 1 << 60, 0, 4, 7, 20) + record(desc(3, 2), floats(6))[12:],
    ],
    ids=range(4),
)
def test_selected_rows_that_do_not_add_up(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        open_checkpoint(write(tmp_path / "x.bin", data))


# -- programs ------------------------------------------------------------------------------------------------------------


def message(*fields: tuple[int, bytes | int]) -> bytes:
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value)
        else:
            encoded += varint(number << 3 | 2) + varint(len(value)) + value
    return encoded


def variable(name: bytes, *shape: int, kind: int = 7, persistable: int = 1) -> bytes:
    tensor = message((1, desc(*shape)), (2, 0))
    return message((1, name), (2, message((1, kind), (3, tensor))), (3, persistable))


def program(*variables: bytes) -> bytes:
    block = message((1, 0), (2, -1), *((3, one) for one in variables), (4, message((3, b"matmul"))))
    return message((1, block), (4, message((1, 3000000))))


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return write(tmp_path / "m.pdiparams", record(desc(2), floats(2)) + record(desc(3), floats(3, start=2)))


def test_names_come_in_sorted_order(stream: Path) -> None:
    variables = [
        variable(b"w_b", 3),
        variable(b"feed", kind=9),
        variable(b"w_10", 2),
        variable(b"tmp", 5, persistable=0),
    ]
    stream.with_suffix(".pdmodel").write_bytes(program(*variables))
    with open_checkpoint(stream) as checkpoint:
        assert {name: t.info.shape for name, t in checkpoint.tensors.items()} == {"w_10": (2,), "w_b": (3,)}
        assert checkpoint.producer == "paddle program, version 3000000"
        assert checkpoint.issues == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ([variable(b"a", 2)], "the program has 1 parameters, the file 2 tensors"),
        ([variable(b"a", 2), variable(b"b", 4)], "b has shape [4] in the program, [3] in the file"),
        ([variable(b"a", 2), variable(b"a", 3)], "the program has 1 parameters, the file 2 tensors"),
    ],
)
def test_a_program_of_another_file(variables: list[bytes], words: str, stream: Path) -> None:
    stream.with_suffix(".pdmodel").write_bytes(program(*variables))
    with open_checkpoint(stream) as checkpoint:
        assert list(checkpoint.tensors) == ["0", "1"]
        assert [issue.code for issue in checkpoint.issues] == ["integrity-program-mismatch"]
        assert words in checkpoint.issues[0].message


def test_every_byte_of_a_program(stream: Path) -> None:
    whole = program(variable(b"a", 2), variable(b"b", 3))
    path = stream.with_suffix(".pdmodel")
    for at in range(len(whole)):
        for changed in (
            whole[:at],
            whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :],
            whole[:at] + b"\xff" * 12,
        ):
            path.write_bytes(changed)
            with open_checkpoint(stream) as checkpoint:
                assert len(checkpoint.tensors) == 2
            try:
                open_checkpoint(path).close()
            except CkptError:
                pass


@pytest.mark.parametrize(
    "document",
    [
        {"program": 1},
        {"program": {"regions": [{"blocks": [{"ops": [{"#": "p"}]}]}]}},
        {"program": {"regions": [{"blocks": [{"ops": [{"#": "p", "A": [0, 1, 1, 7]}]}]}]}},
        {"program": {"regions": {"blocks": 1}}},
        {"program": [[[[]]]]},
    ],
    ids=range(5),
)
def test_pir_programs_without_names(document: dict[str, object], stream: Path) -> None:
    text = json.dumps({"base_code": {"magic": "pir", "version": 4}, **document}, separators=(",", ":"))
    stream.with_suffix(".json").write_text(text)
    with open_checkpoint(stream) as checkpoint:
        assert list(checkpoint.tensors) == ["0", "1"]
        assert [issue.severity.value for issue in checkpoint.issues][:1] == ["error"]


@pytest.mark.parametrize(
    "text", ['{"base_code":{"magic":"pir"', '{"base_code":{"magic":"pir"},"program":' + "[" * 100_000]
)
def test_broken_pir_programs(text: str, stream: Path) -> None:
    stream.with_suffix(".json").write_text(text)
    with open_checkpoint(stream) as checkpoint:
        assert {issue.code for issue in checkpoint.issues} == {"integrity-program-damaged", "integrity-no-names"}


def test_a_program_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pdmodel", program(variable(b"a", 2)))
    with pytest.raises(MissingInput, match=r"m\.pdiparams is not beside it"):
        open_checkpoint(path)


def test_a_table_of_structured_names_that_runs_code(stream: Path) -> None:
    stream.with_suffix(".pdmodel").write_bytes(program(variable(b"a", 2), variable(b"b", 3)))
    stream.with_name("m.pdiparams.info").write_bytes(
        b"\x80\x02}(X\x01\x00\x00\x00a}X\x0f\x00\x00\x00structured_nameX\x03\x00\x00\x00fc1s"
        b"X\x01\x00\x00\x00bcposix\nsystem\nX\x04\x00\x00\x00true\x85Ru."
    )
    with open_checkpoint(stream) as checkpoint:
        assert [tensor.alias for tensor in checkpoint.tensors.values()] == ["fc1", None]


def test_missing_variables_are_told(tmp_path: Path) -> None:
    write(tmp_path / "__model__", program(variable(b"a", 2), variable(b"b", 3)))
    write(tmp_path / "a", record(desc(2), floats(2)))
    for named in (tmp_path, tmp_path / "__model__"):
        with open_checkpoint(named) as checkpoint:
            assert checkpoint.format == "paddle-vars"
            assert list(checkpoint.tensors) == ["a"]
            assert [issue.code for issue in checkpoint.issues] == ["integrity-missing-variable"]


# -- distributed metadata ------------------------------------------------------------------------------------------------

_MODULE = b"cpaddle.distributed.flex_checkpoint.dcp.metadata\n"


def instance(name: str, **fields: object) -> bytes:
    """An instance as a pickler writes it; values are plain, or bytes that are a program already."""
    encoded = b"".join(
        plain(key) + (value if isinstance(value, bytes) else plain(value)) for key, value in fields.items()
    )
    return _MODULE + name.encode() + b"\n)\x81}(" + encoded + b"ub"


def plain(value: object) -> bytes:
    return pickle.dumps(value, 2)[2:-1].replace(b"q\x00", b"").replace(b"q\x01", b"").replace(b"q\x02", b"")


def metadata(parts: bytes, files: bytes) -> bytes:
    body = instance("Metadata", state_dict_metadata=b"}(" + parts + b"u", storage_metadata=b"}(" + files + b"u")
    return b"\x80\x02" + body + b"."


def part(start: object, shape: object, whole: object, dtype: object = "float32", run: object = None) -> bytes:
    fields = {"global_offset": start, "local_shape": shape, "global_shape": whole, "dtype": dtype}
    return instance("LocalTensorMetadata", **fields, is_flattened=run is not None, flattened_range=run)


def index(start: object, run: object = None) -> bytes:
    flattened = run is not None
    return instance(
        "LocalTensorIndex", tensor_key="w", global_offset=start, is_flattened=flattened, flattened_range=run
    )


def shard(directory: Path, **arrays: np.ndarray) -> None:
    write(directory / "0_0.distcp", pickle.dumps({**arrays, "StructuredToParameterName@@": {}}, 4))


def listed(directory: Path) -> tuple[list[str], list[str], bool]:
    """Names, codes of issues, and whether every tensor has bytes."""
    with open_checkpoint(directory) as checkpoint:
        whole = True
        for tensor in checkpoint.tensors.values():
            try:
                tensor.tobytes()
            except CkptError:
                whole = False
        return list(checkpoint.tensors), [issue.code for issue in checkpoint.issues], whole


def test_honest_metadata(tmp_path: Path) -> None:
    shard(tmp_path, w=np.zeros(4, "f4"))
    boxes = plain("w") + b"](" + part((0,), (4,), (4,)) + b"e"
    write(tmp_path / "0.metadata", metadata(boxes, index((0,)) + plain("0_0.distcp")))
    assert listed(tmp_path) == (["w"], [], True)


@pytest.mark.parametrize(
    ("boxes", "files"),
    [
        (part((0,), (4,), (8,)), index((0,)) + plain("0_0.distcp")),
        (part((0,), (4,), (4,)), index((0,)) + plain("9_0.distcp")),
        (part((0,), (4,), (4,)), index((0,)) + plain("../0_0.distcp")),
        (part((0,), (4,), (4,)), index((0,)) + plain("/etc/passwd")),
        (part((0,), (4,), (4,)), index((1,)) + plain("0_0.distcp")),
        (
            part((0,), (4,), (4,)) + part((2,), (4,), (8,)),
            index((0,)) + plain("0_0.distcp") + index((2,)) + plain("0_0.distcp"),
        ),
        (part((0,), (1 << 62,), (1 << 62,)), index((0,)) + plain("0_0.distcp")),
        (part((0,), (8,), (8,), run=(0, 4)), index((0,), (0, 4)) + plain("0_0.distcp")),
        (part((0,), (4,), (4,), dtype="float64"), index((0,)) + plain("0_0.distcp")),
        (part((0, 0), (2, 2), (2, 2)), index((0, 0)) + plain("0_0.distcp")),
    ],
    ids=range(10),
)
def test_parts_that_cannot_be_had(boxes: bytes, files: bytes, tmp_path: Path) -> None:
    shard(tmp_path, w=np.zeros(4, "f4"))
    write(tmp_path / "0.metadata", metadata(plain("w") + b"](" + boxes + b"e", files))
    names, codes, whole = listed(tmp_path)
    assert names == ["w"]
    if whole:  # four elements in a row are a 2×2 box as well
        assert codes == []
    else:
        assert "integrity-missing-part" in codes


@pytest.mark.parametrize(
    "body",
    [
        metadata(plain("w") + plain([]), b""),
        metadata(plain("w") + plain(3), b""),
        metadata(plain("w") + plain([3]), b""),
        metadata(plain("w") + b"](" + part((0,), (4,), (4,), dtype="float9") + b"e", b""),
        metadata(plain("w") + b"](" + part((-1,), (4,), (4,)) + b"e", b""),
        metadata(plain("w") + b"](" + part("text", (4,), (4,)) + b"e", b""),
        metadata(plain("w") + b"](" + part((0,), (4,), (4,), run=(3, 1)) + b"e", b""),
        metadata(plain("w") + b"](" + part((0,), (4,), (4,)) + part((0, 0), (4, 1), (4, 1)) + b"e", b""),
        metadata(b"", plain("x") + plain("0_0.distcp")),
        b"\x80\x02}.",
        b"\x80\x02",
        b"no pickle",
    ],
    ids=range(12),
)
def test_metadata_that_are_none(body: bytes, tmp_path: Path) -> None:
    shard(tmp_path, w=np.zeros(4, "f4"))
    write(tmp_path / "0.metadata", body)
    with pytest.raises(CkptError):
        open_checkpoint(tmp_path)


def test_the_newest_save_counts(tmp_path: Path) -> None:
    boxes = plain("w") + b"](" + part((0,), (4,), (4,)) + b"e"
    for save in (0, 2, 10):
        array = np.full(4, save, "f4")
        write(tmp_path / f"0_{save}.distcp", pickle.dumps({"w": array}, 4))
        write(tmp_path / f"{save}.metadata", metadata(boxes, index((0,)) + plain(f"0_{save}.distcp")))
    for named, value in ((".", 10), ("2.metadata", 2), ("0_0.distcp", 0)):
        with open_checkpoint(tmp_path / named) as checkpoint:
            assert checkpoint.tensors["w"].tobytes() == np.full(4, value, "f4").tobytes()
            assert [issue.code for issue in checkpoint.issues] == ["integrity-several-saves"]
