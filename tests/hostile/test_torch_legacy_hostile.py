"""Legacy streams that lie: written opcode by opcode, none of them may do more than be refused in one sentence."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ckpt_tools import open_checkpoint
from ckpt_tools.errors import CkptError, CorruptFile, TruncatedFile

MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
VERSION = pickle.dumps(1001, 2)
SYS_INFO = pickle.dumps({"protocol_version": 1001, "little_endian": False, "type_sizes": {"int": 4}}, 2)


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def number(value: int) -> bytes:
    return b"J" + value.to_bytes(4, "little", signed=True)


def storage(key: str = "7", numel: int = 6, kind: str = "FloatStorage", view: bytes = b"N") -> bytes:
    cls = b"ctorch\n" + kind.encode() + b"\n"
    return b"(" + text("storage") + cls + text(key) + text("cpu") + number(numel) + view + b"tQ"


def tensor(base: bytes, offset: int = 0, size: int = 6) -> bytes:
    arguments = base + number(offset) + number(size) + b"\x85" + number(1) + b"\x85"
    return b"ctorch._utils\n_rebuild_tensor\n(" + arguments + b"tR"


def stream(thing: bytes, keys: object = ("7",), payload: bytes | None = None, sys_info: bytes = SYS_INFO) -> bytes:
    keys = list(keys) if isinstance(keys, tuple) else keys
    if payload is None:
        payload = (6).to_bytes(8, "little") + bytes(range(24))
    return MAGIC + VERSION + sys_info + b"\x80\x02" + thing + b"." + pickle.dumps(keys, 2) + payload


def opened(tmp_path: Path, data: bytes) -> list[tuple[list[int], bytes]]:
    path = tmp_path / "a.pt"
    path.write_bytes(data)
    with open_checkpoint(path) as checkpoint:
        return [(list(t.info.shape), t.tobytes()) for t in checkpoint.tensors.values()]


def test_the_honest_form_of_these_streams_reads(tmp_path: Path) -> None:
    assert opened(tmp_path, stream(tensor(storage()))) == [([6], bytes(range(24)))]


def test_offsets_count_from_the_start_of_a_view(tmp_path: Path) -> None:
    view = b"(" + text("8") + number(2) + number(3) + b"t"
    assert opened(tmp_path, stream(tensor(storage(view=view), offset=1, size=2))) == [([2], bytes(range(12, 20)))]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (stream(tensor(storage(view=b"(" + text("8") + number(4) + number(3) + b"t"))), "view of elements 4 to 7"),
        (stream(tensor(storage(view=b"K\x05"))), "view of a storage"),
        (stream(tensor(storage(numel=5), size=5)), "6 elements"),
        (stream(tensor(storage(), offset=1)), "needs 28 bytes of storage"),
        (stream(tensor(storage(numel=-1))), "no number of elements"),
        (stream(tensor(storage(numel=2**31 - 1))), "whole stream"),
        (stream(tensor(storage()), keys=()), "not among the stored"),
        (stream(tensor(storage()), keys=("7", "7")), "twice"),
        (stream(tensor(storage()), keys=("7", "9")), "nothing in the object refers to it"),
        (stream(tensor(storage()), keys=[1]), "list of storage keys"),
        (stream(tensor(storage()), keys={"7": 1}), "list of storage keys"),
        (stream(tensor(storage(kind="Evil"))), "unknown class"),
        (stream(tensor(storage()), payload=(2**62).to_bytes(8, "little") + bytes(24)), "elements"),
        (stream(tensor(storage()), payload=(-6).to_bytes(8, "little", signed=True) + bytes(24)), "-6 elements"),
        (stream(b"(" + text("module") + b"tQ"), "neither a storage nor a module"),
        (stream(text("storage") + b"Q"), "neither a storage nor a module"),
        (MAGIC + pickle.dumps(1002, 2) + SYS_INFO, "1002"),
        (MAGIC + pickle.dumps([[[]]], 2) + SYS_INFO, "something else"),
    ],
)
def test_a_lie_is_one_sentence(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(CorruptFile, match=words):
        opened(tmp_path, data)


def test_another_pickle_before_the_magic_number_makes_it_another_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(pickle.dumps(1, 2) + MAGIC + VERSION)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "pickle"


def test_a_cut_payload_names_its_storage(tmp_path: Path) -> None:
    with pytest.raises(TruncatedFile, match=r"storage 7 \(1 of 1\) needs 24 bytes"):
        opened(tmp_path, stream(tensor(storage()))[:-1])


def test_every_cut_is_refused(tmp_path: Path) -> None:
    whole = stream(tensor(storage()))
    for length in range(len(whole)):
        with pytest.raises(CkptError):
            opened(tmp_path, whole[:length])


@pytest.mark.parametrize("place", ["magic", "version", "sys_info", "object", "keys"])
def test_a_call_hidden_in_any_of_the_pickles_is_reported_and_not_made(tmp_path: Path, place: str) -> None:
    call = b"cposix\nsystem\n" + text(f"touch {tmp_path}/marker") + b"\x85R0"
    parts = {
        "magic": MAGIC,
        "version": VERSION,
        "sys_info": SYS_INFO,
        "object": b"\x80\x02" + tensor(storage()) + b".",
        "keys": pickle.dumps(["7"], 2),
    }
    parts[place] = parts[place][:2] + call + parts[place][2:]
    path = tmp_path / "a.pt"
    path.write_bytes(b"".join(parts.values()) + (6).to_bytes(8, "little") + bytes(24))
    with open_checkpoint(path) as checkpoint:
        assert [issue.code for issue in checkpoint.issues] == ["pickle-foreign-call"]
        assert "posix.system" in checkpoint.issues[0].message
        assert len(checkpoint.tensors) == 1
    assert not (tmp_path / "marker").exists()
