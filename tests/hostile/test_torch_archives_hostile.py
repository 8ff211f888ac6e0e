"""TorchScript archives, tar files and pickled modules that lie; none may do more than be refused in one sentence."""

from __future__ import annotations

import json
import pickle
import struct
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from ckpt_tools import open_checkpoint
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, TruncatedFile

FLOATS = b"ctorch\nFloatStorage\n"


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as target:
        for name, data in members.items():
            target.writestr(f"m/{name}", data)
    return path


# -- TorchScript -------------------------------------------------------------------------------------------------------


def module(attributes: bytes, name: str = "Net") -> bytes:
    return b"c__torch__\n" + name.encode() + b"\n)\x81}(" + attributes + b"ub"


def script(path: Path, data: bytes, **members: bytes) -> Path:
    fixed = {"data.pkl": b"\x80\x02" + data + b".", "constants.pkl": b"\x80\x02).", "version": b"3\n"}
    return archive(path, {**fixed, **members})


def test_a_call_in_a_torchscript_archive_is_reported_and_not_made(tmp_path: Path) -> None:
    call = b"cposix\nsystem\n" + text(f"touch {tmp_path}/marker") + b"\x85R"
    for where in ("data", "constants"):
        path = script(tmp_path / f"{where}.pt", module(text("x") + (call if where == "data" else b"N")))
        if where == "constants":
            script(path, module(b""), **{"constants.pkl": b"\x80\x02" + call + b"\x85."})
        with open_checkpoint(path) as checkpoint:
            assert "pickle-foreign-call" in [issue.code for issue in checkpoint.issues]
    assert not (tmp_path / "marker").exists()


def test_classes_of_the_archive_are_no_findings_and_their_values_are_shown(tmp_path: Path) -> None:
    color = b"c__torch__\nColor\nK\x02\x85R"
    path = script(tmp_path / "a.pt", module(text("kind") + color + text("below") + module(text("n") + b"K\x05", "Sub")))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.issues == []
        assert checkpoint.values["below.n"] == 5


@pytest.mark.parametrize("opens", [b"c__torch__\nNet\n)\x81}(", b"ctorch.nn\nM\n)\x81}("])
def test_modules_that_share_modules_do_not_explode(tmp_path: Path, opens: bytes) -> None:
    scripted = b"__torch__" in opens
    level = opens + (text("n") + b"K\x01" if scripted else text("_parameters") + b"}" + text("_modules") + b"}") + b"ub"
    # the innermost level needs a name of its own to multiply
    if not scripted:
        tensor = b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n))\x89tR"
        level = opens + text("_parameters") + b"}" + text("w") + tensor + b"s" + text("_modules") + b"}ub"
    for _ in range(60):
        twice = b"0" + opens
        if scripted:
            twice += text("a") + b"h\x01" + text("b") + b"h\x01"
        else:
            twice += (
                text("_parameters") + b"}" + text("_modules") + b"}(" + text("a") + b"h\x01" + text("b") + b"h\x01u"
            )
        level += b"q\x01" + twice + b"ub"
    if scripted:
        path = script(tmp_path / "bomb.pt", level)
    else:
        path = archive(tmp_path / "bomb.pt", {"data.pkl": b"\x80\x02" + level + b".", "version": b"3\n"})
    with pytest.raises(LimitExceeded, match="unfold"):
        open_checkpoint(path)


def first_generation(path: Path, model: Any, **members: bytes) -> Path:
    return archive(
        path, {"version": b"1\n", "model.json": json.dumps(model).encode(), "tensors/0": bytes(8), **members}
    )


def described(**changes: Any) -> dict[str, Any]:
    return {
        "dims": ["2"],
        "strides": ["1"],
        "offset": "0",
        "dataType": "FLOAT",
        "data": {"key": "tensors/0"},
        "device": "cpu",
        **changes,
    }


def test_model_json_names_parameters_of_submodules(tmp_path: Path) -> None:
    main = {
        "name": "net",
        "parameters": [{"name": "w", "tensorId": "0"}],
        "submodules": [{"name": "fc", "parameters": [{"name": "bias"}], "submodules": []}],
    }
    with open_checkpoint(
        first_generation(tmp_path / "a.pt", {"mainModule": main, "tensors": [described()]})
    ) as checkpoint:
        assert list(checkpoint.tensors) == ["w", "fc.bias"]
        assert checkpoint.tensors["w"].storage is checkpoint.tensors["fc.bias"].storage


@pytest.mark.parametrize(
    "model",
    [
        [],
        {},
        {"mainModule": 7, "tensors": []},
        {"mainModule": {"parameters": [{"name": "w", "tensorId": "1"}]}, "tensors": [described()]},
        {"mainModule": {"parameters": [{"name": "w", "tensorId": -1}]}, "tensors": [described()]},
        {"mainModule": {"parameters": [{"name": 3}]}, "tensors": [described()]},
        {"mainModule": {"parameters": 3}, "tensors": [described()]},
        {"mainModule": {"attributes": [{"name": "a", "id": 0}]}, "tensors": []},
        {"mainModule": {}, "tensors": [described(dims=["3"])]},
        {"mainModule": {}, "tensors": [described(dims=["-1"])]},
        {"mainModule": {}, "tensors": [described(dims=[None])]},
        {"mainModule": {}, "tensors": [described(dims="2")]},
        {"mainModule": {}, "tensors": [described(strides=["-1"])]},
        {"mainModule": {}, "tensors": [described(offset="1")]},
        {"mainModule": {}, "tensors": [described(dataType="STRING")]},
        {"mainModule": {}, "tensors": [described(data={"key": "../../etc/passwd"})]},
        {"mainModule": {}, "tensors": [described(data=None)]},
    ],
)
def test_model_json_that_lies_is_refused(tmp_path: Path, model: Any) -> None:
    with pytest.raises(CorruptFile):
        open_checkpoint(first_generation(tmp_path / "a.pt", model))


# -- unpacked archives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["../../secret", "/etc/passwd", ".", "..", "0/../0", "nested/0"])
def test_a_storage_key_cannot_lead_out_of_an_unpacked_archive(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(8))
    root = tmp_path / "outer" / "model"
    (root / "data").mkdir(parents=True)
    (root / "version").write_bytes(b"3\n")
    storage = b"(" + text("storage") + FLOATS + text(key) + text("cpu") + b"K\x02tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor\n(" + storage + b"K\x00K\x02\x85K\x01\x85tR"
    (root / "data.pkl").write_bytes(b"\x80\x02" + tensor + b".")
    with pytest.raises(CorruptFile, match="no member"):
        open_checkpoint(root)


# -- tar ---------------------------------------------------------------------------------------------------------------

STORAGES = pickle.dumps(1, 2) + b"\x80\x02(K\x0a" + text("cpu") + FLOATS + b"t." + struct.pack("<q2f", 2, 0, 1)
NO_PARTS = pickle.dumps([], 2)
TENSORS = pickle.dumps(1, 2) + b"\x80\x02(K\x01K\x0actorch\nFloatTensor\nt." + struct.pack("<i4x3q", 1, 2, 1, 0)
OBJECT = b"\x80\x02K\x01Q."


def tar_file(
    path: Path, storages: bytes = STORAGES + NO_PARTS, tensors: bytes = TENSORS, thing: bytes = OBJECT
) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as target:
        for name, data in (("sys_info", b""), ("pickle", thing), ("tensors", tensors), ("storages", storages)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            target.addfile(entry, BytesIO(data))
    return path


def test_the_honest_form_of_these_tar_files_reads(tmp_path: Path) -> None:
    with open_checkpoint(tar_file(tmp_path / "a.tar")) as checkpoint:
        assert [t.tobytes() for t in checkpoint.tensors.values()] == [struct.pack("<2f", 0, 1)]


@pytest.mark.parametrize(
    "parts",
    [
        {"storages": STORAGES},
        {"storages": STORAGES[:-1] + NO_PARTS},
        {"storages": pickle.dumps(2**40, 2)},
        {"storages": pickle.dumps(-1, 2) + NO_PARTS},
        {"storages": STORAGES.replace(struct.pack("<q", 2), struct.pack("<q", 2**61)) + NO_PARTS},
        {"storages": STORAGES.replace(struct.pack("<q", 2), struct.pack("<q", -2)) + NO_PARTS},
        {"storages": STORAGES.replace(b"FloatStorage", b"EvilsStorage") + NO_PARTS},
        {"storages": STORAGES + pickle.dumps([(11, 10, 1, 2)], 2)},
        {"storages": STORAGES + pickle.dumps([(11, 10, -1, 2)], 2)},
        {"storages": STORAGES + pickle.dumps([(11, 12, 0, 2)], 2)},
        {"storages": STORAGES + pickle.dumps([7], 2)},
        {"storages": STORAGES + pickle.dumps({}, 2)},
        {"tensors": TENSORS.replace(b"K\x0a", b"K\x0b")},
        {"tensors": TENSORS[:-1]},
        {"tensors": TENSORS[:-32] + struct.pack("<i4x", 2**30)},
        {"tensors": TENSORS[:-32] + struct.pack("<i4x3q", 1, 3, 1, 0)},
        {"tensors": TENSORS[:-32] + struct.pack("<i4x3q", 1, -2, 1, 0)},
        {"tensors": TENSORS[:-32] + struct.pack("<i4x3q", -1, 2, 1, 0)},
        {"thing": b"\x80\x02K\x02Q."},
        {"thing": b"\x80\x02]Q."},
        {"thing": b"\x80\x02NQ."},
        {"thing": b""},
    ],
)
def test_a_tar_file_that_lies_is_refused(tmp_path: Path, parts: dict[str, bytes]) -> None:
    with pytest.raises(CkptError) as caught:
        open_checkpoint(tar_file(tmp_path / "a.tar", **parts))
    assert caught.value.exit_code == 4


def test_a_cut_tar_file_says_what_is_missing(tmp_path: Path) -> None:
    whole = tar_file(tmp_path / "whole.tar").read_bytes()
    end = whole.index(NO_PARTS, 512) + len(NO_PARTS)
    for length in (700, 1600, end - 1):
        path = tmp_path / "cut.tar"
        path.write_bytes(whole[:length])
        with pytest.raises((TruncatedFile, CorruptFile), match="member"):
            open_checkpoint(path)
