"""Damage and attacks that no loader notices: what several readers understand differently, checksums that lie deep."""

from __future__ import annotations

import json
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundles import entry, masked_crc32c, write_bundle
from fixture_cases import FIXTURES, cases
from typer.testing import CliRunner

from ckpt_tools.cli.app import app
from ckpt_tools.ops.checks.codes import HINTS

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = FIXTURES / "torch-zip/state-dict/input/model.pt"


def verify(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["verify", "--json", *map(str, arguments)])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


def codes(document: dict[str, Any]) -> set[str]:
    return {issue["code"] for issue in document["issues"] if issue["severity"] != "note"}


def headers(data: bytes, member: bytes) -> tuple[int, int, int]:
    """Where a member's own header, its entry in the directory and the end record are."""
    central = data.rindex(b"PK\x01\x02", 0, data.rindex(member))
    return struct.unpack_from("<I", data, central + 42)[0], central, data.rindex(b"PK\x05\x06")


def changed(at: Callable[[int, int, int], int], value: bytes) -> bytes:
    """The model with some bytes of the headers of its first tensor replaced."""
    data = bytearray(MODEL.read_bytes())
    start = at(*headers(bytes(data), b"model/data/0"))
    data[start : start + len(value)] = value
    return bytes(data)


DISAGREEMENTS = {
    "name in the header": changed(lambda local, central, end: local + 30, b"X"),
    "method in the header": changed(lambda local, central, end: local + 8, b"\x08"),
    "packed size in the header": changed(lambda local, central, end: local + 18, b"\x03"),
    "size in the header": changed(lambda local, central, end: local + 22, b"\x03"),
    "checksum in the header": changed(lambda local, central, end: local + 14, b"\x03"),
    "encrypted by the header": changed(lambda local, central, end: local + 6, b"\x09"),
    "patched data": changed(lambda local, central, end: central + 8, b"\x28"),
    "masked headers": changed(lambda local, central, end: central + 9, b"\x28"),
    "fewer members counted": changed(lambda local, central, end: end + 8, b"\x01\x00\x01\x00"),
    "several disks": changed(lambda local, central, end: end + 4, b"\x01"),
}


@pytest.mark.parametrize("data", DISAGREEMENTS.values(), ids=DISAGREEMENTS)
def test_archives_whose_readers_disagree(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(data)
    code, document = verify(path)
    assert code == 1
    assert codes(document) == {"safety-readers-disagree"}


def with_members(path: Path, *extra: tuple[str, bytes]) -> Path:
    """A copy of the model that Python's own writer made, with more members."""
    with zipfile.ZipFile(MODEL) as source, zipfile.ZipFile(path, "w") as target:
        for info in source.infolist():
            target.writestr(info.filename, source.read(info))
        for name, data in extra:
            target.writestr(name, data)
    return path


def test_an_archive_that_another_writer_made_is_sound(tmp_path: Path) -> None:
    code, document = verify(with_members(tmp_path / "model.pt"))
    assert code == 0
    assert not document["issues"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("model/DATA.PKL", "safety-readers-disagree"),  # torch looks names up without regard to case
        ("other/data.txt", "integrity-stray-member"),
        ("../../etc/passwd", "integrity-stray-member"),
        ("model\\data.txt", "integrity-stray-member"),
    ],
)
def test_members_that_torch_takes_for_others_or_refuses(name: str, code: str, tmp_path: Path) -> None:
    exit_code, document = verify(with_members(tmp_path / "model.pt", (name, b"x")))
    assert exit_code == 1
    assert codes(document) == {code}


def test_what_torch_does_with_a_name_in_other_case(tmp_path: Path) -> None:
    import torch

    path = with_members(tmp_path / "model.pt", ("model/DATA.PKL", b"another"))
    assert torch._C.PyTorchFileReader(str(path)).get_record("data.pkl") == b"another"


def test_a_pickle_that_nothing_reads_is_told(tmp_path: Path) -> None:
    code, document = verify(with_members(tmp_path / "model.pt", ("model/more.pkl", b"cposix\nsystem\n.")))
    assert code == 0
    assert codes(document) == {"safety-unread-pickle"}


def test_a_name_with_a_zero_byte(tmp_path: Path) -> None:
    path = with_members(tmp_path / "model.pt", ("model/data.pkl#a", b"x"))
    path.write_bytes(path.read_bytes().replace(b"data.pkl#a", b"data.pkl\0a"))
    assert "safety-readers-disagree" in codes(verify(path)[1])


def test_members_that_overlap_and_bytes_between_them(tmp_path: Path) -> None:
    path = tmp_path / "overlap.pt"
    data = bytearray(with_members(path).read_bytes())
    first, _, _ = headers(bytes(data), b"model/data/1")
    _, central, _ = headers(bytes(data), b"model/data/3")
    struct.pack_into("<I", data, central + 42, first)  # both members at one place
    path.write_bytes(data)
    assert "integrity-overlap" in codes(verify(path)[1])

    path = tmp_path / "gap.pt"
    whole = with_members(path).read_bytes()
    start = struct.unpack_from("<I", whole, whole.rindex(b"PK\x05\x06") + 16)[0]
    data = bytearray(whole[:start] + bytes(99) + whole[start:])
    struct.pack_into("<I", data, data.rindex(b"PK\x05\x06") + 16, start + 99)
    path.write_bytes(data)
    code, document = verify(path)
    assert code == 0
    assert codes(document) == {"integrity-gap"}
    assert verify(path, "--fail-on", "warning")[0] == 1


@pytest.mark.parametrize(
    "case",
    [
        *(
            c
            for c in cases("npz", "joblib", "hdf5", "torch-tar", "torch-legacy", "tf-bundle")
            if "tensors" in c.expected
        ),
        *(c for c in cases("keras", "paddle-binary", "paddle-vars", "paddle-pickle") if "tensors" in c.expected),
    ],
    ids=lambda case: case.id,
)
def test_data_behind_the_end_is_told(case: Any, tmp_path: Path) -> None:
    shutil.copytree(case.input, tmp_path / "input")
    path = tmp_path / "input" / case.expected["path"]
    appended = path if path.is_file() else next(iter(sorted(path.parent.glob(path.name + ".data-*"))), None)
    if appended is None or appended.suffix == ".index" or codes(verify(path)[1]) & {"integrity-damaged"}:
        pytest.skip("no single file that could be appended to, or damaged as it is")
    with appended.open("ab") as file:
        file.write(b"what does not belong here")
    _, document = verify(path)
    assert codes(document) & {"integrity-trailing-bytes", "integrity-damaged", "integrity-unreadable"}


def test_chunks_of_torch_distributed_checkpoints(tmp_path: Path) -> None:
    for name in ("single-process", "two-ranks"):
        case = next(c for c in cases("torch-dcp") if c.name == name)
        folder = tmp_path / name
        shutil.copytree(case.path, folder)
        assert verify(folder)[0] == 0
        file = sorted(folder.glob("*.distcp"))[0]
        data = bytearray(file.read_bytes())
        local = data.rindex(b"PK\x03\x04", 0, data.index(b"/data/0FB"))
        names, extra = struct.unpack_from("<HH", data, local + 26)
        data[local + 30 + names + extra] ^= 1
        file.write_bytes(data)
        code, document = verify(folder)
        assert code == 1
        damage = [issue for issue in document["issues"] if issue["code"] == "integrity-checksum"]
        assert len(damage) == 1
        assert file.name in damage[0]["where"]


def test_files_of_a_set_that_name_their_members_alike(tmp_path: Path) -> None:
    case = next(c for c in cases() if c.id == "torch-zip/sharded-set")
    shutil.copytree(case.input, tmp_path / "input")
    index = tmp_path / "input" / case.expected["path"]
    files = sorted((tmp_path / "input").glob("*.bin"))
    for file in files:  # as torch.save names them when it writes into a buffer
        root = zipfile.ZipFile(file).namelist()[0].split("/")[0].encode()
        file.write_bytes(file.read_bytes().replace(root, b"archive".ljust(len(root), b"_")))
    assert verify(index)[0] == 0
    for file in files:
        whole = file.read_bytes()
        archive = zipfile.ZipFile(file)
        member = next(info for info in archive.infolist() if "/data/" in info.filename)
        names, extra = struct.unpack_from("<HH", whole, member.header_offset + 26)
        data = bytearray(whole)
        data[member.header_offset + 30 + names + extra] ^= 1
        file.write_bytes(data)
        code, document = verify(index)
        assert code == 1
        damage = [issue for issue in document["issues"] if issue["code"] == "integrity-checksum"]
        assert [file.name in issue["where"] for issue in damage] == [True]
        file.write_bytes(whole)


def test_layout_of_data_files(tmp_path: Path) -> None:
    values = struct.pack("<8f", *range(8))

    def found(*places: tuple[int, int]) -> set[str]:
        entries = {
            f"t{n}".encode(): entry(values[start:end], shape=((end - start) // 4,), offset=start)
            for n, (start, end) in enumerate(places)
        }
        return codes(verify(write_bundle(tmp_path, entries, values))[1])

    assert found((0, 16), (16, 32)) == set()
    assert found((0, 32), (0, 32)) == set()  # two names of the same bytes
    assert found((0, 16), (8, 32)) == {"integrity-overlap"}
    assert found((0, 8), (16, 32)) == {"integrity-gap"}
    assert found((0, 8), (8, 16)) == {"integrity-trailing-bytes"}


def test_blocks_of_version_1_checkpoints(tmp_path: Path) -> None:
    case = next(c for c in cases() if c.id == "tf-v1/single-file")
    path = Path(shutil.copy(case.path, tmp_path))
    code, document = verify(path)
    assert code == 0
    assert "integrity-checksums" in {c["name"] for c in document["checks"] if c["status"] == "passed"}
    whole = path.read_bytes()
    for at in range(0, len(whole) - 48, 7):
        data = bytearray(whole)
        data[at] ^= 0x10
        path.write_bytes(data)
        assert verify(path)[0] != 0, at


def test_entries_that_share_bytes_and_tell_different_checksums(tmp_path: Path) -> None:
    values = struct.pack("<4f", 1, 2, 3, 4)
    right, wrong = (entry(values, shape=(4,), crc=masked_crc32c(data)) for data in (values, b"others"))
    path = write_bundle(tmp_path, {b"a": right, b"b": wrong}, values)
    code, document = verify(path)
    assert code == 1
    assert [i["where"].split()[0] for i in document["issues"] if i["code"] == "integrity-checksum"] == ["b"]


def test_equal_damage_in_two_files_is_told_twice_and_known_once(tmp_path: Path, monkeypatch: Any) -> None:
    case = next(c for c in cases() if c.id == "torch-zip/flipped-bit")
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        shutil.copy(MODEL, tmp_path / run / "model.pt")
    shutil.copy(case.path, tmp_path / "one" / "model.pt")
    monkeypatch.chdir(tmp_path)
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(verify(".")[1]), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "one")  # from elsewhere it is known as well
    assert verify("..", "--baseline", baseline)[0] == 0
    assert verify("model.pt", "--baseline", baseline)[0] == 0
    assert verify(tmp_path, "--baseline", baseline)[0] == 0
    shutil.copy(case.path, tmp_path / "two" / "model.pt")
    monkeypatch.chdir(tmp_path)
    code, document = verify(".", "--baseline", baseline)
    assert code == 1
    assert {issue["path"]: issue.get("known", False) for issue in document["issues"]} == {
        str(Path("one/model.pt")): True,
        str(Path("two/model.pt")): False,
    }


@pytest.mark.parametrize(
    "text", ["", "3", "[]", '{"schema": "ckpt.ls/1"}', '{"schema": "ckpt.verify/1", "issues": [{"code": 3}]}']
)
def test_a_baseline_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["verify", str(MODEL), "--baseline", str(tmp_path / "baseline.json")])
    assert result.exit_code == 2
    assert "baseline" in result.stderr


def test_every_code_is_known_and_every_finding_has_a_hint() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ckpt_tools").rglob("*.py"))
    used = set(re.findall(r'"((?:integrity|safety|values|expect|resume|paths)-[a-z0-9-]+)"', text))
    used |= {f"expect-{code}" for code in re.findall(r'_issue\("([a-z]+|no-entry)"', text)}
    checks = {"integrity-structure", "integrity-checksums", "safety-code", "safety-archive", "values-finite"}
    checks |= {"expect-manifest", "resume-optimizer", "resume-iteration", "resume-statistics", "resume-unfinished"}
    checks |= {"resume-path"}
    listed_only = {"integrity-over-limit", "integrity-damaged-bytes", "paths-latest"}  # of ls
    assert used - checks - listed_only <= set(HINTS)
    assert all(HINTS.values())
    assert {code.partition("-")[0] for code in HINTS} == {"integrity", "safety", "values", "expect", "resume", "paths"}
    for case in cases("hostile", "torch-zip", "tf-bundle")[::5]:
        assert all(issue["hint"] for issue in verify(case.path)[1]["issues"]), case.id


def test_the_documented_codes_are_all_codes() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z]+-[a-z0-9-]+)` \|", text, re.MULTILINE)) == set(HINTS)
