"""``verify --model``: against a spec, so that no framework is needed, and against the model itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ckpt_tools.cli.app import app

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.fc = torch.nn.Linear(width, 2)
        self.bn = torch.nn.BatchNorm1d(2)
"""


def verify(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["verify", "--json", *map(str, arguments)])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


def codes(document: dict[str, Any]) -> set[str]:
    return {issue["code"] for issue in document["issues"] if issue["code"].startswith("expect-")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import torch

    (tmp_path / "verified_net.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import verified_net

    torch.save(verified_net.Net().state_dict(), "good.pth")
    torch.save({"iteration": 1, "model": verified_net.Net().state_dict()}, "nested.pth")
    torch.save(verified_net.Net(5).state_dict(), "wide.pth")
    torch.save({k: v for k, v in verified_net.Net().state_dict().items() if k != "fc.bias"}, "short.pth")
    return tmp_path


def test_a_model_and_its_spec_give_one_answer(folder: Path) -> None:
    assert CliRunner().invoke(app, ["spec", "verified_net:Net", "-o", "net.spec.json"]).exit_code == 0
    for model in ("verified_net:Net", "net.spec.json"):
        assert verify("good.pth", "--model", model)[0] == 0
        code, document = verify("wide.pth", "--model", model)
        assert (code, codes(document)) == (1, {"expect-shape"})
        code, document = verify("short.pth", "--model", model)
        assert (code, codes(document)) == (1, {"expect-missing"})
        code, document = verify("nested.pth", "--model", model)
        assert code == 1
        assert "expect-names" in codes(document)
        assert verify("nested.pth", "--model", model, "--root", "model")[0] == 0
    assert verify("wide.pth", "--model", "verified_net:Net", "--kwargs", '{"width": 5}')[0] == 0


def test_options_about_a_model_need_one(folder: Path) -> None:
    result = CliRunner().invoke(app, ["verify", "good.pth", "--root", "model"])
    assert result.exit_code == 2
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
