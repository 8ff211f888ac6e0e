"""What ``verify`` says of single checkpoints: damage found and named, no false alarms, no code passed over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixture_cases import FIXTURES, Case, cases, readable
from typer.testing import CliRunner

from ckpt_tools import open_checkpoint
from ckpt_tools.cli.app import app
from ckpt_tools.core.extents import FileExtent


def verify(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["verify", "--json", *map(str, arguments)])
    assert result.stdout, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "ckpt.verify/1"
    assert result.exit_code == {"sound": 0, "unsound": 1, "unreadable": 4}[document["verdict"]]
    return result.exit_code, document


def codes(document: dict[str, Any], severity: str = "error") -> set[str]:
    return {issue["code"] for issue in document["issues"] if issue["severity"] == severity}


SOUND = [c for c in readable() if not c.expected.get("digest_exit") and c.group not in ("hostile", "stats")]
DAMAGED = {"torch-zip/flipped-bit", "tf-bundle/flipped-bit", "tf-bundle/mixed-saves"}


@pytest.mark.parametrize("case", [c for c in SOUND if c.id not in DAMAGED], ids=lambda case: case.id)
def test_no_false_alarm(case: Case) -> None:
    _, document = verify(case.path)
    assert not {code for code in codes(document) if code.startswith("integrity-")}, document["issues"]


@pytest.mark.parametrize(
    "case", [c for c in cases("hostile", "not-checkpoints") if "verify" in c.expected], ids=lambda case: case.id
)
def test_verdict_on_attacks(case: Case) -> None:
    code, document = verify(case.path)
    wanted = case.expected["verify"]
    assert code in (wanted if isinstance(wanted, list) else [wanted]), document
    for issue in document["issues"]:
        assert issue["code"].partition("-")[0] in {"integrity", "safety", "values", "expect", "resume", "paths"}


def tensor_spans(path: Path) -> list[tuple[str, Path, int, int]]:
    """Name, file, offset and length of every run of bytes of a tensor that lies in a file as it is."""
    spans = []
    with open_checkpoint(path) as checkpoint:
        for name, tensor in checkpoint.tensors.items():
            for part in tensor.constituents():
                extent = part.storage.extent if part.storage is not None else None
                if isinstance(extent, FileExtent) and extent.nbytes:
                    extent.read(0, 1)  # finds out where it begins
                    spans.append((name, extent.source.path, extent.offset, extent.nbytes))
    return spans


@pytest.mark.parametrize(
    "source",
    [
        "torch-zip/iteration-model-sampler",
        "torch-zip/state-dict",
        "tf-bundle/slots-and-averages",
        "tf-bundle/partitioned",
    ],
)
def test_every_flipped_bit_of_a_tensor_is_found(source: str, tmp_path: Path) -> None:
    case = next(c for c in cases() if c.id == source)
    shutil.copytree(case.input, tmp_path / "input")
    path = tmp_path / "input" / case.expected["path"]
    spans = tensor_spans(path)
    assert spans
    for name, file, offset, nbytes in spans:
        whole = file.read_bytes()
        for at in range(offset, offset + nbytes):
            data = bytearray(whole)
            data[at] ^= 1 << (at % 8)
            file.write_bytes(data)
            code, document = verify(path)
            assert code == 1
            damage = [i for i in document["issues"] if i["code"] == "integrity-checksum"]
            assert len(damage) == 1
            assert name in damage[0]["message"] + damage[0]["where"]
        file.write_bytes(whole)
    assert verify(path)[0] == 0


@pytest.mark.parametrize("source", ["safetensors", "paddle-pickle", "npz", "torch-legacy", "paddle-combined"])
def test_a_manifest_finds_a_flipped_bit_in_any_format(source: str, tmp_path: Path) -> None:
    for case in [c for c in SOUND if c.group == source and c.path.is_file() and len(c.files) == 1][:3]:
        path = Path(shutil.copy(case.path, tmp_path))
        manifest = tmp_path / "manifest.json"
        manifest.write_text(CliRunner().invoke(app, ["ls", "--json", "--digest", str(path)]).stdout, encoding="utf-8")
        assert verify(path, "--manifest", manifest)[0] in (0, 1)
        assert not codes(verify(path, "--manifest", manifest)[1]) & {"expect-digest", "expect-missing"}
        spans = [span for span in tensor_spans(path) if span[1] == path]
        for _, file, offset, nbytes in spans[:4]:
            data = bytearray(file.read_bytes())
            data[offset + nbytes // 2] ^= 4
            file.write_bytes(data)
            code, document = verify(path, "--manifest", manifest)
            assert code == 1
            assert codes(document) & {"expect-digest", "integrity-checksum"}
            data[offset + nbytes // 2] ^= 4
            file.write_bytes(data)


def test_a_manifest_tells_what_is_missing_and_what_is_new(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    model = FIXTURES / "torch-zip/state-dict/input/model.pt"
    listed = json.loads(CliRunner().invoke(app, ["ls", "--json", str(model)]).stdout)
    tensors = listed["checkpoints"][0]["tensors"]
    gone = dict(tensors[0], key=["gone"], name="gone")
    renamed = [dict(tensors[1], shape=[99]), dict(tensors[2], dtype="int8"), gone]
    listed["checkpoints"][0]["tensors"] = [*renamed, *tensors[3:]]
    manifest.write_text(json.dumps(listed), encoding="utf-8")
    code, document = verify(model, "--manifest", manifest)
    assert code == 1
    assert codes(document) == {"expect-missing", "expect-unexpected", "expect-shape", "expect-dtype"}
    assert "expect-no-digests" in codes(document, "note")


def test_checksums_that_were_not_recorded_are_not_damage() -> None:
    case = next(c for c in cases() if c.id == "torch-zip/checksums-not-recorded")
    code, document = verify(case.path)
    assert code == 0
    assert {"name": "integrity-checksums", "status": "skipped"}.items() <= next(
        check for check in document["checks"] if check["name"] == "integrity-checksums"
    ).items()
    assert "integrity-no-checksums" in codes(document, "note")


def test_a_policy_allows_classes_and_asks_for_keys(tmp_path: Path) -> None:
    case = next(c for c in cases() if c.id == "torch-zip/vanished-module")
    code, document = verify(case.path)
    assert code == 1
    assert codes(document) == {"safety-class"}
    policy = tmp_path / "policy.toml"
    policy.write_text('allow = ["*"]\nrequired = ["*"]\n', encoding="utf-8")
    assert verify(case.path, "--policy", policy)[0] == 0
    policy.write_text('allow = ["*"]\nrequired = ["no such key"]\nmax-nbytes = 10\n', encoding="utf-8")
    code, document = verify(case.path, "--policy", policy)
    assert code == 1
    assert codes(document) == {"expect-required", "expect-size"}


def test_values_that_no_training_writes_on_purpose(tmp_path: Path) -> None:
    import numpy

    path = tmp_path / "values.npz"
    numpy.savez(
        path,
        good=numpy.linspace(-1, 1, 12).reshape(3, 4),
        nan=numpy.array([1, numpy.nan, numpy.inf]),
        zero=numpy.zeros((2, 2), "f4"),
        same=numpy.full((2, 2), 7, "f4"),
        tiny=numpy.array([[1e-40, 1]], "f4"),
    )
    code, document = verify(path, "--finite")
    assert code == 1
    found = {(issue["code"], issue["where"]) for issue in document["issues"] if issue["code"].startswith("values-")}
    assert found == {
        ("values-not-finite", "nan"),
        ("values-all-zero", "zero"),
        ("values-constant", "same"),
        ("values-denormal", "tiny"),
    }
    assert verify(path)[0] == 0


def test_a_baseline_lets_only_what_is_new_fail(tmp_path: Path) -> None:
    case = next(c for c in cases() if c.id == "torch-zip/flipped-bit")
    copy = Path(shutil.copy(case.path, tmp_path / "model.pt"))
    baseline = tmp_path / "baseline.json"
    baseline.write_text(CliRunner().invoke(app, ["verify", "--json", str(copy)]).stdout, encoding="utf-8")
    assert verify(copy)[0] == 1
    code, document = verify(copy, "--baseline", baseline)
    assert code == 0
    assert any(issue.get("known") for issue in document["issues"])
    assert verify(copy, "--baseline", baseline, "--finite")[0] == 0


def test_a_file_that_is_no_checkpoint_is_unreadable_and_does_not_hide_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.pth"
    page.write_text("<!DOCTYPE html><html></html>", encoding="utf-8")
    assert verify(page)[0] == 4
    case = next(c for c in cases() if c.id == "torch-zip/state-dict")
    assert verify(page, case.path)[0] == 1
