"""``ckpt convert --to-layout`` as people run it: the fixtures' right answers, what is refused and how it is settled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixture_cases import Case, cases
from typer.testing import CliRunner

from ckpt_tools.cli.app import app
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.listing import digest

SHARED = Path(__file__).resolve().parents[3] / "shared"

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """Square matrices in torch's form: two Linear, two Embedding."""
    state = {
        f"{name}{index}.weight": torch.arange(9.0).reshape(3, 3) + 10 * index
        for name in ("fc", "emb")
        for index in (1, 2)
    }
    torch.save(state, tmp_path / "squares.pth")
    return tmp_path / "squares.pth"


def contents(path: str | Path) -> dict[str, np.ndarray]:
    with open_checkpoint(path) as checkpoint:
        return {name: tensor.numpy() for name, tensor in checkpoint.tensors.items()}


def digests(path: str | Path) -> dict[str, tuple[str, list[int], str | None]]:
    with open_checkpoint(path) as checkpoint:
        return {
            name: (tensor.info.dtype.name, list(tensor.info.shape), digest(tensor))
            for name, tensor in checkpoint.tensors.items()
        }


def wanted(answer: dict[str, Any]) -> dict[str, tuple[str, list[int], str]]:
    return {"/".join(row["key"]): (row["dtype"], row["shape"], row["sha256"]) for row in answer["tensors"]}


@pytest.mark.parametrize("case", cases("conversions"), ids=lambda case: case.name)
def test_the_fixtures_are_converted_as_the_frameworks_say(case: Case, run: Run) -> None:
    source, target = case.input / case.expected["source"], case.input / case.expected["target"]
    result = run("convert", source, "forward.pth", "--to-layout", case.expected["forward"]["to_layout"])
    assert result.exit_code == 0, result.stderr
    assert digests("forward.pth") == wanted(case.expected["forward"])
    if "reverse" not in case.expected:
        return
    answer = case.expected["reverse"]
    result = run("convert", target, "back.pdparams", "--to-layout", answer["to_layout"], "--like", source, "--json")
    assert result.exit_code == 0, result.stderr
    assert digests("back.pdparams") == wanted(answer)
    assert json.loads(result.stdout)["dropped"] == answer["dropped"]


def test_what_nothing_decides_is_refused_and_settled_by_what_it_says(run: Run, squares: Path) -> None:
    refused = run("convert", squares, "out.pdparams", "--to-layout", "paddle")
    assert refused.exit_code == 5
    assert "nothing tells the kind of layer" in refused.stderr
    assert "--kind" in refused.stderr
    assert not Path("out.pdparams").exists()
    document = json.loads(run("convert", squares, "out.pdparams", "--to-layout", "paddle", "--json").stdout)
    groups = {tuple(each["names"]): each["kinds"] for each in document["ambiguous"]}
    assert groups == {
        ("fc1.weight", "fc2.weight"): ["linear", "embedding"],
        ("emb1.weight", "emb2.weight"): ["linear", "embedding"],
    }
    assert document["ambiguous"][0]["options"] == ["--kind 'fc*.weight=linear'", "--kind 'fc*.weight=embedding'"]
    kinds = ("--kind", "fc*.weight=linear", "--kind", "emb*.weight=embedding")
    assert run("convert", squares, "out.pdparams", "--to-layout", "paddle", *kinds).exit_code == 0
    before, after = contents(squares), contents("out.pdparams")
    np.testing.assert_array_equal(after["fc2.weight"], before["fc2.weight"].T)
    np.testing.assert_array_equal(after["emb2.weight"], before["emb2.weight"])


def test_a_dry_run_shows_what_is_ambiguous(run: Run, squares: Path) -> None:
    result = run("convert", squares, "out.pdparams", "--to-layout", "paddle", "--kind", "fc*=linear", "-n")
    assert result.exit_code == 0
    assert "ambiguous: emb*.weight (2 tensors) [3, 3]; one of --kind 'emb*.weight=linear'" in result.stderr
    assert result.stdout.splitlines()[0].split("\t") == [
        "fc1.weight",
        "fc1.weight",
        "permute(1, 0)",
        "float32",
        "[3, 3]",
        "36",
        "--kind 'fc*=linear'",
    ]


@pytest.mark.parametrize("name", ["recurrent", "attention", "batch-norm"])
def test_a_written_map_gives_the_same_bytes(name: str, run: Run) -> None:
    (case,) = [case for case in cases("conversions") if case.name == name]
    source, target = case.input / "paddle.pdparams", case.input / "torch.pth"
    for one, other, options in (
        (source, "a.pth", ("--to-layout", "torch")),
        (target, "a.pdparams", ("--to-layout", "paddle", "--like", source)),
    ):
        assert run("convert", one, other, *options, "--write-map", f"{other}.toml").exit_code == 0
        again = f"again-{other}"
        result = run("convert", one, again, "--map", f"{other}.toml")
        assert result.exit_code == 0, result.stderr
        assert "no layout rule was applied" not in result.stderr
        assert Path(again).read_bytes() == Path(other).read_bytes()


def test_what_has_no_counterpart_is_an_error_unless_it_is_said(run: Run, tmp_path: Path) -> None:
    torch.save({"body.weight": torch.ones(2, 3, 1), "old.bias": torch.ones(5)}, "a.pth")
    spec = {
        "schema": "ckpt.spec/1",
        "framework": "paddle",
        "tensors": [
            {"name": "body.weight", "dtype": "float32", "shape": [2, 3, 1], "kind": "conv1d", "role": "weight"},
            {"name": "head.weight", "dtype": "float32", "shape": [3, 7], "kind": "linear", "role": "weight"},
        ],
    }
    Path("b.spec.json").write_text(json.dumps(spec))
    refused = run("convert", "a.pth", "b.pdparams", "--to-layout", "paddle", "--like", "b.spec.json")
    assert refused.exit_code == 5
    assert "no place for old.bias" in refused.stderr
    assert "nothing for head.weight" in refused.stderr
    partial = run("convert", "a.pth", "b.pdparams", "--to-layout", "paddle", "--like", "b.spec.json", "--partial")
    assert partial.exit_code == 0
    assert "stays as the target initialises it: head.weight" in partial.stderr
    assert list(contents("b.pdparams")) == ["body.weight"]


def test_kinds_that_contradict_each_other_are_refused(run: Run) -> None:
    (case,) = [case for case in cases("conversions") if case.name == "square-linear"]
    spec = {
        "schema": "ckpt.spec/1",
        "framework": "torch",
        "tensors": [
            {"name": "linear.weight", "dtype": "float32", "shape": [4, 4], "kind": "embedding", "role": "weight"}
        ],
    }
    Path("other.spec.json").write_text(json.dumps(spec))
    source = case.input / "paddle.pdparams"
    match = ("--match", "linear.weight", "--to-layout", "torch", "--like", "other.spec.json")
    refused = run("convert", source, "a.pth", *match)
    assert refused.exit_code == 5
    assert "linear.weight is a linear (Paddle's name linear_0.w_0), not the embedding" in refused.stderr
    asked = run("convert", source, "a.pth", *match, "--kind", "linear.weight=embedding")
    assert asked.exit_code == 0
    np.testing.assert_array_equal(contents("a.pth")["linear.weight"], contents(source)["linear.weight"])


def test_tied_weights_have_as_many_names_as_the_target(run: Run) -> None:
    table = torch.arange(12.0).reshape(4, 3)
    torch.save({"embed.weight": table, "out.weight": table}, "tied.pth")
    torch.save({"embed.weight": table}, "single.pth")

    def spec(*names: str) -> str:
        rows = [
            {"name": name, "dtype": "float32", "shape": [4, 3], "kind": "embedding", "role": "weight"} for name in names
        ]
        rows[-1].update({"same_as": names[0]} if len(names) > 1 else {})
        path = f"{len(names)}.spec.json"
        Path(path).write_text(json.dumps({"schema": "ckpt.spec/1", "framework": "paddle", "tensors": rows}))
        return path

    both, one = spec("embed.weight", "out.weight"), spec("embed.weight")
    assert run("convert", "single.pth", "both.pdparams", "--to-layout", "paddle", "--like", both).exit_code == 0
    assert list(contents("both.pdparams")) == ["embed.weight", "out.weight"]
    result = run("convert", "tied.pth", "one.pdparams", "--to-layout", "paddle", "--like", one)
    assert result.exit_code == 0
    assert "out.weight left out: it is the same tensor as embed.weight" in result.stderr


def test_formats_of_nobody_tell_by_names_or_are_told(run: Run) -> None:
    np.savez("plain.npz", **{"fc.weight": np.ones((2, 3), "f4")})
    refused = run("convert", "plain.npz", "a.pth", "--to-layout", "torch", "--kind", "fc.weight=linear")
    assert refused.exit_code == 2
    assert "--from-layout" in refused.stderr
    told = ("--from-layout", "paddle", "--to-layout", "torch", "--kind", "fc.weight=linear")
    assert run("convert", "plain.npz", "a.pth", *told).exit_code == 0
    assert contents("a.pth")["fc.weight"].shape == (3, 2)
    np.savez("norm.npz", **{f"bn.{name}": np.ones(2, "f4") for name in ("weight", "bias", "_mean", "_variance")})
    assert run("convert", "norm.npz", "b.pth", "--to-layout", "torch").exit_code == 0
    assert "bn.running_mean" in contents("b.pth")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to-layout", "jax"], "torch, paddle, keras"),
        (["--like", "x.json"], "belong to --to-layout"),
        (["--kind", "a=linear"], "belong to --to-layout"),
        (["--to-layout", "paddle", "--kind", "a=dense"], "--kind takes GLOB=KIND"),
        (["--to-layout", "paddle", "--kind", "nothing*=linear"], "fits no tensor"),
        (["--to-layout", "paddle", "--kind", "fc*=conv2d"], "has 2 axes and is no conv2d"),
        (["--to-layout", "paddle", "--partial"], "--partial is about what --like has"),
        (["--to-layout", "paddle", "--with-optimizer", "--weights-only"], "--with-optimizer goes with neither"),
        (["--to-layout", "paddle", "--with-optimizer", "--write-map", "m.toml"], "--with-optimizer goes with neither"),
        (["--to-layout", "paddle", "--with-optimizer", "--dtype", "float16"], "--with-optimizer goes with neither"),
        (["--write-map", "m.toml"], "--write-map saves what --to-layout decides"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str, run: Run, squares: Path) -> None:
    result = run("convert", squares, "out.pdparams", *arguments)
    assert result.exit_code == 2, result.stderr
    assert said in " ".join(result.stderr.split())
    assert not Path("out.pdparams").exists()


def test_optimizer_state_that_is_not_sure_is_left_with_a_note(run: Run) -> None:
    net = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adagrad(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "run.pth")
    options = ("--to-layout", "paddle", "--kind", "*weight=linear", "--with-optimizer")
    result = run("convert", "run.pth", "run.pdz", *options)
    assert result.exit_code == 0
    assert "the optimizer's state is left out" in result.stderr
    with open_checkpoint("run.pdz") as checkpoint:
        assert [entry.name for entry in checkpoint.entries] == ["model/weight", "model/bias", "epoch"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not at hand")
@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("convert-square-linear/paddle.pdparams", "convert-square-linear/torch_expected.pth"),
        ("convert-bn-paddle-torch/paddle.pdparams", "convert-bn-paddle-torch/torch_expected.pth"),
        ("convert-keras-lstm-conv-bn/tf.ckpt", "convert-keras-lstm-conv-bn/torch_expected.pth"),
    ],
)
def test_shared_cases(source: str, right: str, run: Run) -> None:
    assert run("convert", SHARED / "cases" / source, "out.pth", "--to-layout", "torch").exit_code == 0
    found, answer = contents("out.pth"), contents(SHARED / "cases" / right)
    assert set(answer) <= set(found)
    assert {name.rpartition(".")[2] for name in set(found) - set(answer)} <= {"num_batches_tracked"}
    for name, array in answer.items():
        np.testing.assert_array_equal(found[name], array)
