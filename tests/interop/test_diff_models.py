"""Files of each framework against live models and their twins in the other frameworks, and specs of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ckpt_tools.cli.app import app

TWINS = Path(__file__).parent.parent / "twins"
RUNNER = CliRunner()
MODELS = ["ResNet", "Crnn", "Encoder"]


@pytest.fixture(scope="module", autouse=True)
def twins() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(TWINS)
        patch.syspath_prepend(str(TWINS))
        yield
        for name in ("torch_twins", "paddle_twins", "keras_twins"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, twins: None) -> Path:
    """Weights of every model as each framework writes them, and training checkpoints of torch and Paddle."""
    import keras_twins
    import paddle
    import paddle_twins
    import torch
    import torch_twins

    directory = tmp_path_factory.mktemp("models")
    for name in MODELS:
        torch.save(getattr(torch_twins, name)().state_dict(), directory / f"{name}.pth")
        paddle.save(getattr(paddle_twins, name)().state_dict(), str(directory / f"{name}.pdparams"))
        model = getattr(keras_twins, name.lower())()
        model.save_weights(directory / f"{name}.weights.h5")
    net = torch_twins.ResNet()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    torch.save(
        {"iteration": 7, "model": net.state_dict(), "optimizer": optimizer.state_dict()}, directory / "train.pth"
    )
    torch.save(torch.nn.DataParallel(torch_twins.Wrapped()).state_dict(), directory / "wrapped.pth")
    encoder = paddle_twins.Encoder()
    adam = paddle.optimizer.Adam(parameters=encoder.parameters())
    sum((parameter**2).sum() for parameter in encoder.parameters()).backward()
    adam.step()
    snapshot = {"epoch": 1, "iteration": 60, "main_params": encoder.state_dict(), "main_optimizer": adam.state_dict()}
    paddle.save(snapshot, str(directory / "snapshot_iter_60.pdz"))
    return directory


def run(*arguments: object) -> tuple[int, str, str]:
    result = RUNNER.invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def difference(*arguments: object) -> dict[str, Any]:
    code, out, err = run("diff", *arguments, "--json")
    assert code in (0, 1), err
    found: dict[str, Any] = json.loads(out)
    assert found["equal"] is (code == 0)
    return found


def kinds(found: dict[str, Any]) -> set[str]:
    return {reason["kind"] for reason in found["reasons"]}


def is_explained(found: dict[str, Any]) -> bool:
    return not (found["only_a"] or found["only_b"] or found["ambiguous"] or found["dtype"] or found["value"])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("suffix", "module"), [(".pth", "torch_twins"), (".pdparams", "paddle_twins"), (".weights.h5", "keras_twins")]
)
def test_a_file_fits_the_model_it_came_from(files: Path, name: str, suffix: str, module: str) -> None:
    attribute = name.lower() if module == "keras_twins" else name
    found = difference(files / f"{name}{suffix}", f"{module}:{attribute}")
    assert found["equal"], found


@pytest.mark.parametrize("name", MODELS)
def test_torch_and_paddle_twins_differ_in_spelling_and_linear_weights(files: Path, name: str) -> None:
    for a, b in (
        (files / f"{name}.pdparams", files / f"{name}.pth"),
        (files / f"{name}.pth", f"paddle_twins:{name}"),
        (files / f"{name}.pdparams", f"torch_twins:{name}"),
    ):
        found = difference(a, b)
        assert is_explained(found), found
        assert not found["shape"]
        assert kinds(found) == {"layout"} | (set() if name == "Encoder" else {"batch-norm"})
        assert "embed" not in " ".join(reason["text"] for reason in found["reasons"])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("suffix", [".pth", ".pdparams"])
def test_keras_twins_differ_in_names_and_layouts(files: Path, name: str, suffix: str) -> None:
    found = difference(files / f"{name}{suffix}", f"keras_twins:{name.lower()}")
    assert is_explained(found), found
    assert {row["note"] for row in found["shape"]} <= {"Keras keeps both biases of a GRU in one tensor"}
    assert kinds(found) <= {"spelling", "batch-norm", "recurrent", "separator", "layout", "recurrent-bias"}


def test_a_training_checkpoint_against_a_model(files: Path) -> None:
    found = difference(files / "train.pth", "torch_twins:ResNet")
    assert kinds(found) == {"root"}
    assert is_explained(found)
    assert difference(files / "train.pth", "torch_twins:ResNet", "--root", "model")["equal"]
    found = difference(files / "snapshot_iter_60.pdz", "paddle_twins:Encoder")
    assert [reason["option"] for reason in found["reasons"]] == ["--root main_params"]


def test_nested_wrappers_and_a_head_of_another_size(files: Path) -> None:
    found = difference(files / "wrapped.pth", "torch_twins:factory", "--kwargs", '{"classes_num": 12}')
    assert [reason["option"] for reason in found["reasons"]] == ["--strip-prefix module.net."]
    assert [(row["name_b"], row["a"], row["b"]) for row in found["shape"]] == [
        ("fc.weight", [10, 8], [12, 8]),
        ("fc.bias", [10], [12]),
    ]


def test_what_a_constructor_prints_stays_off_the_answer(files: Path) -> None:
    code, out, _ = run("diff", files / "ResNet.pth", "torch_twins:factory", "--json")
    assert code == 0
    assert json.loads(out)["equal"]


@pytest.mark.parametrize("given", ["instance", "factory", "ResNet"])
def test_an_instance_a_factory_and_a_class(files: Path, given: str) -> None:
    assert difference(files / "ResNet.pth", f"torch_twins:{given}")["equal"]


def test_a_model_that_the_meta_device_cannot_build_is_built_anyway() -> None:
    code, out, _ = run("spec", "torch_twins:NotOnMeta", "--json")
    assert code == 0
    assert json.loads(out)["tensors"][0] == {
        "name": "fc.weight",
        "dtype": "float32",
        "shape": [3, 2],
        "kind": "linear",
        "role": "weight",
    }


def test_weights_are_not_allocated_where_that_can_be_avoided() -> None:
    code, out, _ = run("spec", "torch_twins:ResNet", "--kwargs", '{"channels": 60000, "classes_num": 3}', "--json")
    assert code == 0  # as float32 these would be 900 GB
    assert max(row["shape"][0] for row in json.loads(out)["tensors"] if row["shape"]) == 60000


def test_a_mapping_of_names_to_shapes(files: Path) -> None:
    found = difference(files / "ResNet.pth", "torch_twins:shapes", "--match", "fc.*")
    assert [row["name"] for row in found["shape"]] == ["fc.weight", "fc.bias"]
    assert not found["dtype"]


def test_shared_parameters_are_marked() -> None:
    _, out, _ = run("spec", "torch_twins:Tied", "--json")
    assert [row.get("same_as") for row in json.loads(out)["tensors"]] == [None, "embed.weight"]


@pytest.mark.parametrize("module", ["torch_twins", "paddle_twins", "keras_twins"])
def test_a_spec_stands_for_its_model(files: Path, tmp_path: Path, module: str) -> None:
    attribute = "encoder" if module == "keras_twins" else "Encoder"
    spec = tmp_path / "net.spec.json"
    code, _, err = run("spec", f"{module}:{attribute}", "-o", spec)
    assert (code, "described in" in err) == (0, True)
    live = difference(files / "Encoder.pth", f"{module}:{attribute}")
    saved = difference(files / "Encoder.pth", spec)
    assert saved["reasons"] == live["reasons"]
    assert run("spec", f"{module}:{attribute}", "-o", spec)[0] == 5
    assert run("spec", f"{module}:{attribute}", "-o", spec, "--overwrite")[0] == 0


def test_kinds_and_roles_of_each_framework() -> None:
    wanted = {"linear_q": "linear", "embed": "embedding", "norm": "layer_norm", "conv": "conv1d"}
    for reference in ("torch_twins:Encoder", "paddle_twins:Encoder", "keras_twins:encoder"):
        _, out, _ = run("spec", reference, "--json")
        rows = json.loads(out)["tensors"]
        found = {row["name"].replace("/", ".").split(".")[0]: row["kind"] for row in rows}
        assert {layer: found[layer] for layer in wanted} == wanted
        assert found["lstm"] in ("lstm", "lstm_cell")
        assert {row["role"] for row in rows if row["kind"] == "embedding"} == {"weight"}


@pytest.mark.parametrize(
    ("reference", "code", "said"),
    [
        ("torch_twins:Broken", 4, "missing 1 required positional argument"),
        ("torch_twins:nothing", 4, "has no 'nothing'; it has Block"),
        ("no_such_module:Net", 4, "no module 'no_such_module'"),
        ("torch_twins:number", 4, "builtins.int"),
        ("keras_twins:Unbuilt", 4, "not built"),
        ("torch_twins", 4, "no such file"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_sentence(files: Path, reference: str, code: int, said: str) -> None:
    got, out, err = run("diff", files / "ResNet.pth", reference)
    assert (got, out) == (code, "")
    assert said in err
    assert len([line for line in err.splitlines() if not line.startswith("hint:")]) == 1


def test_the_models_own_error_is_told(files: Path) -> None:
    code, _, err = run("diff", files / "ResNet.pth", "torch_twins:Broken", "--kwargs", '{"size": 3}')
    assert code == 4
    assert err == "ckpt: torch_twins:Broken: calling it fails: ValueError: size 3 is odd\n"


@pytest.mark.parametrize(
    ("suffix", "text"),
    [(".json", '{"classes_num": 12}'), (".toml", "classes_num = 12"), (".yaml", "classes_num: 12\n")],
)
def test_arguments_from_a_file(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"conf{suffix}"
    path.write_text(text)
    _, out, _ = run("spec", "torch_twins:ResNet", "--kwargs-file", path, "--json")
    assert json.loads(out)["tensors"][-1]["shape"] == [12]


@pytest.mark.parametrize("kwargs", ["{", "[1]", '{"a": 1'])
def test_arguments_that_are_none(kwargs: str) -> None:
    code, _, err = run("spec", "torch_twins:ResNet", "--kwargs", kwargs)
    assert code == 2
    assert err.startswith("ckpt: --kwargs: ")


def test_arguments_for_nobody(files: Path) -> None:
    assert run("diff", files / "ResNet.pth", files / "ResNet.pth", "--kwargs", "{}")[0] == 2
    assert run("diff", files / "ResNet.pth", "torch_twins:instance", "--kwargs", '{"a": 1}')[0] == 2
