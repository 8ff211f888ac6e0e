"""What ``verify`` is asked to expect: manifests of several checkpoints, policies, states of optimizers; and how it stops."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from fixture_cases import FIXTURES, cases
from typer.testing import CliRunner

from ckpt_tools.cli.app import app
from ckpt_tools.ops import verify as verifying

MODEL = FIXTURES / "torch-zip/state-dict/input/model.pt"
OTHER = FIXTURES / "torch-zip/shared-storage/input/model.pt"


def verify(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["verify", "--json", *map(str, arguments)])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


def manifest_of(target: Path, *paths: object) -> Path:
    target.write_text(CliRunner().invoke(app, ["ls", "--json", "--digest", *map(str, paths)]).stdout, encoding="utf-8")
    return target


def codes(document: dict[str, Any], prefix: str) -> set[str]:
    return {issue["code"] for issue in document["issues"] if issue["code"].startswith(prefix)}


# -- manifests ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, source in (("one/model.pt", MODEL), ("two/model.pt", OTHER), ("two/best.pt", MODEL)):
        (tmp_path / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_a_manifest_of_one_file_is_not_held_against_its_neighbours(runs: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path / "m.json", runs / "two" / "best.pt")
    code, document = verify(runs, "--manifest", manifest)
    assert code == 0
    assert not codes(document, "expect-")
    done = {c["path"]: c["status"] for c in document["checks"] if c["name"] == "expect-manifest"}
    assert done[str(runs / "two" / "best.pt")] == "passed"
    assert done[str(runs / "one" / "model.pt")] == "skipped"


def test_entries_find_their_files_after_a_move(runs: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path / "m.json", runs)
    moved = tmp_path / "elsewhere"
    runs.rename(moved)
    code, document = verify(moved, "--manifest", manifest)
    assert code == 0
    assert not codes(document, "expect-")
    assert {c["status"] for c in document["checks"] if c["name"] == "expect-manifest"} == {"passed"}
    shutil.copy(moved / "two" / "model.pt", moved / "one" / "model.pt")
    assert "expect-unexpected" in codes(verify(moved, "--manifest", manifest)[1], "expect-")
    (moved / "two" / "best.pt").unlink()
    assert "expect-missing-checkpoint" in codes(verify(moved, "--manifest", manifest)[1], "expect-")
    # a part of what the manifest lists is nothing missing
    assert not codes(verify(moved / "two" / "model.pt", "--manifest", manifest)[1], "expect-")


def test_a_manifest_of_other_files_is_no_pass(runs: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path / "m.json", runs)
    other = Path(shutil.copy(MODEL, tmp_path / "unheard-of.pt"))
    code, document = verify(other, "--manifest", manifest)
    assert code == 1
    assert codes(document, "expect-") == {"expect-no-entry"}


@pytest.mark.parametrize(
    "entry",
    [
        {"tensors": [3], "values": []},
        {"tensors": [{"key": ["a"], "name": "a", "dtype": "f", "shape": ["x"]}], "values": []},
        {"tensors": [], "values": [3]},
        {"tensors": [], "values": [{"key": [[1]]}]},
    ],
)
def test_manifests_that_are_broken(entry: dict[str, Any], tmp_path: Path) -> None:
    document = {"schema": "ckpt.ls/1", "checkpoints": [{"path": "p", "format": "npz", **entry}]}
    (tmp_path / "m.json").write_text(json.dumps(document), encoding="utf-8")
    result = CliRunner().invoke(app, ["verify", str(MODEL), "--manifest", str(tmp_path / "m.json")])
    assert result.exit_code == 4
    assert "manifest" in result.stderr


# -- policies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x = 1", "x"),
        ('fail-on = "note"', "'note'"),
        ('allow = "x"', "allow"),
        ("max-nbytes = -1", "-1"),
        ("max-nbytes = true", "max-nbytes"),
        ("finite = 1", "finite"),
        ("severity = 3", "severity"),
        ('[severity]\nvalue-constant = "off"', "values-constant"),
        ('[severity]\nvalues-constant = "none"', "off"),
    ],
)
def test_mistakes_in_a_policy_are_named(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["verify", str(MODEL), "--policy", str(tmp_path / "policy.toml")])
    assert result.exit_code == 2
    assert named in result.stderr


def test_a_policy_that_asks_for_resume_looks_for_leftovers_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(MODEL, folder)
    (folder / "step_3.pt.tmp").write_bytes(b"")
    (folder / "ckpt-7_temp").mkdir()
    (folder / "ckpt-7_temp" / "part-00000-of-00001.index").write_bytes(b"x")
    (folder / "low_temp").mkdir()  # a directory of somebody's own
    (tmp_path / "policy.toml").write_text("resume = true", encoding="utf-8")
    _, document = verify(folder, "--policy", tmp_path / "policy.toml")
    left = {Path(i["where"]).name for i in document["issues"] if i["code"] == "resume-unfinished-save"}
    assert left == {"step_3.pt.tmp", "ckpt-7_temp"}


# -- values ------------------------------------------------------------------------------------------------------------


def test_zeros_of_optimizers_and_masks_are_no_findings(tmp_path: Path) -> None:
    import torch

    net = torch.nn.Linear(3, 4)
    net.register_buffer("mask", torch.zeros(2, 2, dtype=torch.int64))
    state = torch.optim.Adam(net.parameters()).state_dict()
    state["state"] = {0: {"exp_avg": torch.zeros(4, 3)}}
    path = tmp_path / "model.pt"
    torch.save({"model": net.state_dict(), "optimizer": state, "step": 0}, path)
    assert not codes(verify(path, "--finite")[1], "values-")
    torch.nn.init.zeros_(net.weight)
    torch.save({"model": net.state_dict(), "optimizer": state, "step": 0}, path)
    assert codes(verify(path, "--finite")[1], "values-") == {"values-all-zero"}


def test_values_that_cannot_be_read_are_no_pass(tmp_path: Path) -> None:
    case = next(c for c in cases("tf-bundle") if c.name == "missing-shard")
    _, document = verify(case.path, "--finite")
    assert "values-not-measured" in codes(document, "values-")


# -- a directory -------------------------------------------------------------------------------------------------------


def test_what_is_only_named_like_a_checkpoint_is_told(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "good.pt")
    (tmp_path / "pointer.pth").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", encoding="utf-8"
    )
    (tmp_path / "empty.pdparams").write_bytes(b"")
    (tmp_path / "other.bin").write_bytes(bytes(range(1, 200)))
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.pt")
    code, document = verify(tmp_path)
    assert code == 1
    told = {Path(i["path"]).name: i["severity"] for i in document["issues"] if i["code"] == "integrity-unreadable"}
    assert told == {"pointer.pth": "error", "empty.pdparams": "error", "other.bin": "warning", "pipe.pt": "error"}


def test_the_newest_is_told_by_the_iteration_when_times_say_nothing(tmp_path: Path) -> None:
    for number in (90, 1000, 200):
        path = Path(shutil.copy(MODEL, tmp_path / f"step_{number}.pt"))
        os.utime(path, (1e9 - number, 1e9 - number))
    assert verify(tmp_path)[1]["newest_good"] == str(tmp_path / "step_1000.pt")


def test_nothing_that_could_be_read_is_unreadable_with_resume_too(tmp_path: Path) -> None:
    assert verify(tmp_path, "--resume")[0] == 4


def test_an_exception_in_one_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, or a bug: the other threads stop at their next piece of data."""
    begun, ended = threading.Event(), threading.Event()

    def fake(subject: verifying.Subject, request: verifying.Request, progress: Any) -> verifying.Verified:
        if subject.location.path.name == "first":
            begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        try:
            for _ in range(1000):
                progress(1)
                threading.Event().wait(0.01)
        finally:
            ended.set()
        return verifying.Verified(subject)

    monkeypatch.setattr(verifying, "verify", fake)
    monkeypatch.setattr(
        verifying,
        "subjects",
        lambda path, format: [
            verifying.Subject(verifying.Location(Path(path), str(path), False), verifying.CkptError("x"))
        ],
    )
    with pytest.raises(KeyboardInterrupt):
        verifying.run(["first", "second", "third"], verifying.Request(), jobs=2)
    assert ended.is_set()


def test_the_order_of_findings_does_not_depend_on_jobs(tmp_path: Path) -> None:
    for n in range(12):
        source = "flipped-bit" if n % 3 else "state-dict"
        case = next(c for c in cases("torch-zip") if c.name == source)
        shutil.copy(case.path, tmp_path / f"m{n}.pt")
    assert verify(tmp_path, "-j", "1") == verify(tmp_path, "-j", "4")


# -- resume ------------------------------------------------------------------------------------------------------------


def resume(path: Path) -> set[str]:
    return codes(verify(path, "--resume")[1], "resume-")


def stepped(net: Any, kind: str, **options: Any) -> dict[str, Any]:
    import torch

    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1, **options)
    for _ in range(2):
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step(lambda: torch.tensor(1.0, requires_grad=True)) if kind == "LBFGS" else optimizer.step()
    state: dict[str, Any] = optimizer.state_dict()
    return state


KINDS = ["SGD", "Adam", "Adagrad", "Adadelta", "Adamax", "NAdam", "RMSprop", "Rprop", "ASGD", "LBFGS", "Adafactor"]


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_all_kinds_of_optimizers_are_sound(kind: str, tmp_path: Path) -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Conv1d(4, 5, 1))
    path = tmp_path / "step_10.pt"
    torch.save({"model": net.state_dict(), "optimizer": stepped(net, kind), "step": 10}, path)
    assert resume(path) == set()


def test_an_optimizer_in_a_file_beside_its_weights(tmp_path: Path) -> None:
    import torch

    net, other = torch.nn.Linear(3, 4), torch.nn.Linear(9, 1)
    torch.save(net.state_dict(), tmp_path / "pytorch_model.bin")
    assert resume(tmp_path / "pytorch_model.bin") == {"resume-no-optimizer"}
    torch.save(stepped(net, "Adam"), tmp_path / "optimizer.pt")
    assert resume(tmp_path / "pytorch_model.bin") == set()
    assert resume(tmp_path / "optimizer.pt") == set()
    torch.save(stepped(other, "Adam"), tmp_path / "optimizer.pt")
    assert resume(tmp_path / "pytorch_model.bin") == {"resume-optimizer-mismatch"}
    assert resume(tmp_path / "optimizer.pt") == set()


def test_paddles_optimizer_beside_its_parameters(tmp_path: Path) -> None:
    import paddle

    net, other = paddle.nn.Linear(3, 2), paddle.nn.Linear(4, 5)

    def state(layer: Any) -> dict[str, Any]:
        optimizer = paddle.optimizer.Adam(parameters=layer.parameters())
        layer(paddle.ones([1, layer.weight.shape[0]])).sum().backward()
        optimizer.step()
        found: dict[str, Any] = optimizer.state_dict()
        return found

    paddle.save(net.state_dict(), str(tmp_path / "3.pdparams"))
    assert resume(tmp_path / "3.pdparams") == {"resume-no-optimizer"}
    paddle.save(state(net), str(tmp_path / "3.pdopt"))
    assert resume(tmp_path) == set()
    paddle.save(state(other), str(tmp_path / "3.pdopt"))
    assert resume(tmp_path / "3.pdparams") == {"resume-optimizer-mismatch"}


def test_epochs_inside_and_steps_in_the_name_are_two_things(tmp_path: Path) -> None:
    import torch

    net = torch.nn.Linear(3, 4)
    path = tmp_path / "step_900.pt"
    torch.save({"model": net.state_dict(), "optimizer": stepped(net, "Adam"), "epoch": 3}, path)
    assert resume(path) == set()
    lightning = tmp_path / "epoch=1-step=20.ckpt"
    torch.save(
        {"state_dict": net.state_dict(), "optimizer_states": [stepped(net, "Adam")], "global_step": 21}, lightning
    )
    assert resume(lightning) == {"resume-iteration-mismatch"}


def test_an_adam_without_moments_or_steps_was_lost(tmp_path: Path) -> None:
    import torch

    net = torch.nn.Linear(3, 4)
    fresh = torch.optim.Adam(net.parameters()).state_dict()
    path = tmp_path / "model.pt"
    torch.save({"model": net.state_dict(), "optimizer": fresh, "step": 0}, path)
    assert resume(path) == set()
    torch.save({"model": net.state_dict(), "optimizer": fresh, "step": 9}, path)
    assert resume(path) == {"resume-optimizer-lost"}
    state = stepped(net, "Adam")
    for one in state["state"].values():
        one["step"].zero_()
    torch.save({"model": net.state_dict(), "optimizer": state, "step": 9}, path)
    assert resume(path) == {"resume-optimizer-lost"}


def test_hints_quote_what_a_shell_would_take_apart(tmp_path: Path) -> None:
    folder = tmp_path / "my runs" / "max_note_shift=0" / "batch size=4"
    folder.mkdir(parents=True)
    shutil.copy(MODEL, folder / "10_iterations.pth")
    _, document = verify(folder / "10_iterations.pth", "--resume")
    hint = next(i["hint"] for i in document["issues"] if i["code"] == "resume-path-level")
    assert os.system(hint) == 0
    assert (tmp_path / "my runs" / "batch size=4" / "10_iterations.pth").is_file()
