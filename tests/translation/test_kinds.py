"""Which kinds a tensor can be of, for a target of which nothing else is known: decided where all give the same, else asked."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import paddle
import pytest
import torch
from translation.converting import model_of, translate
from typer.testing import CliRunner, Result

from ckpt_tools.cli.app import app
from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.mapping.candidates import Neighbourhood
from ckpt_tools.mapping.spellings import Stored
from ckpt_tools.mapping.translation import Side, Translation
from ckpt_tools.mapping.translation import translate as plan

Shapes = dict[str, tuple[int, ...]]


def planned(source: str, target: str, shapes: Shapes, *, is_floating: bool = True) -> Translation:
    return plan(Side(source, [Stored(name, shape, is_floating=is_floating) for name, shape in shapes.items()]), target)


def choices(found: Translation) -> dict[str, list[list[str]]]:
    return {name: [list(alike) for alike in each.choices] for each in found.ambiguous for name in each.names}


@pytest.mark.parametrize(
    ("target", "shapes", "asked"),
    [
        ("paddle", {"a.weight": (4,), "a.bias": (4,)}, [["layer_norm", "group_norm", "batch_norm"], ["instance_norm"]]),
        ("paddle", {"a.weight": (1,)}, [["layer_norm", "rms_norm", "parameter"], ["prelu"]]),
        ("keras", {"a.weight": (4,)}, [["layer_norm"], ["rms_norm"], ["prelu"], ["parameter"]]),
        ("keras", {"a.weight": (3, 4, 4)}, [["conv1d", "conv_transpose1d"], ["parameter"]]),
        ("keras", {"a.weight": (3, 1, 4)}, [["conv1d", "conv_transpose1d"], ["depthwise_conv1d"], ["parameter"]]),
        ("keras", {"a.weight": (3, 4, 4), "a.bias": (3, 4)}, [["conv1d"], ["parameter"]]),
        ("paddle", {"a.weight": (1, 4, 1, 1), "a.bias": (1, 4, 1, 1)}, [["layer_norm"], ["parameter"]]),
        ("paddle", {"a.weight": (4, 4), "a.bias": (4, 4)}, [["layer_norm"], ["parameter"]]),
        ("keras", {"a.weight": (4, 4), "a.bias": (4, 4)}, [["layer_norm"], ["parameter"]]),
        ("keras", {"a.weight": (4, 1, 3, 3)}, [["conv2d", "conv_transpose2d"], ["depthwise_conv2d"]]),
        ("keras", {"a.weight": (4, 1, 3, 3), "a.bias": (4,)}, [["conv2d", "conv_transpose2d"], ["depthwise_conv2d"]]),
        ("paddle", {"a.weight": (4, 4), "a.bias": (4,)}, [["linear"], ["embedding", "parameter"]]),
        ("paddle", {"a.weight": (5, 16)}, [["linear"], ["embedding", "parameter"]]),
        ("paddle", {"a.weight": (16, 5), "a.bias": (5,)}, [["linear"], ["embedding", "parameter"]]),
        ("keras", {"a.weight": (4, 4)}, [["linear"], ["embedding"], ["parameter"]]),
        ("keras", {"a.weight_ih": (12, 5)}, [["lstm_cell"], ["gru_cell"], ["rnn_cell"]]),
        ("paddle", {"a.mask": (4, 4)}, [["parameter"], ["linear"]]),
    ],
)
def test_what_torch_weights_can_be_is_asked(target: str, shapes: Shapes, asked: list[list[str]]) -> None:
    found = planned("torch", target, shapes)
    assert choices(found) == {next(iter(shapes)): asked}
    assert not found.conflicts and not found.unplaced


@pytest.mark.parametrize(
    ("target", "shapes", "made"),
    [
        ("paddle", {"a.weight": (5, 16), "a.bias": (5,)}, {"a.weight": "permute(1, 0)", "a.bias": ""}),
        ("paddle", {"a.weight": (3, 4, 4)}, {"a.weight": ""}),
        ("paddle", {"a.weight": (4, 1, 3, 3), "a.bias": (4,)}, {"a.weight": "", "a.bias": ""}),
        ("paddle", {"a.weight": (4, 3, 3, 3)}, {"a.weight": ""}),
        ("keras", {"a.weight": (4, 3, 3, 3)}, {"a/kernel": "permute(2, 3, 1, 0)"}),
        ("keras", {"a.weight": (4, 3, 3), "a.bias": (4,)}, {"a/kernel": "permute(2, 1, 0)", "a/bias": ""}),
        ("keras", {"a.weight": (1, 1, 3, 3)}, {"a/kernel": "permute(2, 3, 1, 0)"}),
        ("keras", {"a.weight": (4, 1, 3, 3), "a.bias": (1,)}, {"a/kernel": "permute(2, 3, 1, 0)", "a/bias": ""}),
        ("keras", {"a.weight": (4,), "a.bias": (4,)}, {"a/gamma": "", "a/beta": ""}),
        ("paddle", {"a.weight": (4,), "a.bias": (3,)}, {"a.weight": "", "a.bias": ""}),
        ("keras", {"s": (), "weight": (5, 3), "bias": (5,)}, {"s": "", "kernel": "permute(1, 0)", "bias": ""}),
        ("paddle", {"a.weight": (4,), "a.running_mean": (4,)}, {"a.weight": "", "a._mean": ""}),
    ],
)
def test_what_every_possible_kind_makes_is_made(target: str, shapes: Shapes, made: dict[str, str]) -> None:
    found = planned("torch", target, shapes)
    assert not found.ambiguous and not found.conflicts
    assert {recipe.target: recipe.described for recipe in found.recipes} == made


@pytest.mark.parametrize(
    ("source", "target", "shapes", "asked"),
    [
        ("paddle", "torch", {"a.scale": (4,), "a.bias": (4,)}, [["instance_norm"], ["parameter"]]),
        ("paddle", "keras", {"a.weight": (4, 3)}, [["linear"], ["embedding"], ["parameter"]]),
        ("keras", "paddle", {"a/gamma": (4,), "a/beta": (4,)}, [["layer_norm", "group_norm"], ["instance_norm"]]),
        ("keras", "torch", {"a/gamma": (4,)}, [["layer_norm", "group_norm"], ["parameter"]]),
        (
            "keras",
            "torch",
            {"a/vars/0": (12, 12)},
            [["linear"], ["embedding"], ["parameter"], ["lstm", "rnn"], ["gru"]],
        ),
        ("keras", "paddle", {"a/vars/0": (12, 12)}, [["linear", "embedding"], ["parameter"], ["lstm", "rnn"], ["gru"]]),
        (
            "keras",
            "torch",
            {"a/vars/0": (3, 3, 4, 2)},
            [["conv2d", "conv_transpose2d"], ["depthwise_conv2d"], ["parameter"]],
        ),
    ],
)
def test_what_other_weights_can_be_is_asked(source: str, target: str, shapes: Shapes, asked: list[list[str]]) -> None:
    found = planned(source, target, shapes)
    assert choices(found) == {next(iter(shapes)): asked}


def test_a_bilinear_of_paddle_tells_by_its_bias() -> None:
    found = planned("paddle", "torch", {"a.weight": (3, 4, 4), "a.bias": (1, 3)})
    assert not found.ambiguous
    assert [recipe.described for recipe in found.recipes] == ["", "reshape(-1)"]


def test_whole_numbers_are_no_weights() -> None:
    found = planned("torch", "paddle", {"mask": (4, 4), "table.index": (3, 4, 4)}, is_floating=False)
    assert not found.ambiguous
    assert [recipe.described for recipe in found.recipes] == ["", ""]
    assert planned("torch", "paddle", {"fc.weight": (4, 4)}, is_floating=False).ambiguous


# ---- as people run it


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


class TorchLayers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inorm, self.act = torch.nn.InstanceNorm2d(3, affine=True), torch.nn.PReLU(3)
        self.norm, self.bil, self.bn = torch.nn.LayerNorm(3), torch.nn.Bilinear(4, 4, 4), torch.nn.BatchNorm1d(3)


class PaddleLayers(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inorm, self.act = paddle.nn.InstanceNorm2D(3), paddle.nn.PReLU(3)
        self.norm, self.bil, self.bn = paddle.nn.LayerNorm(3), paddle.nn.Bilinear(4, 4, 4), paddle.nn.BatchNorm1D(3)


def test_asked_kinds_have_their_own_words_and_shapes(here: Path) -> None:
    torch.save(TorchLayers().state_dict(), "a.pth")
    refused = run("convert", "a.pth", "a.pdparams", "--to-layout", "paddle")
    assert refused.exit_code == 5
    assert not Path("a.pdparams").exists()
    kinds = ["inorm.weight=instance_norm", "act.weight=prelu", "norm.weight=layer_norm", "bil.weight=bilinear"]
    options = [word for kind in kinds for word in ("--kind", kind)]
    done = run("convert", "a.pth", "a.pdparams", "--to-layout", "paddle", *options)
    assert done.exit_code == 0, done.stderr
    made = {name: list(tensor.shape) for name, tensor in paddle.load("a.pdparams").items()}
    assert made == {name: tensor.shape for name, tensor in PaddleLayers().state_dict().items()}
    paddle.save(PaddleLayers().state_dict(), "b.pdparams")  # its own names of variables tell all of it
    assert run("convert", "b.pdparams", "b.pth", "--to-layout", "torch").exit_code == 0
    TorchLayers().load_state_dict(torch.load("b.pth"), strict=True)


def test_what_looks_like_a_bilinear_is_said(here: Path) -> None:
    torch.save({"bil.weight": torch.ones(3, 4, 4), "bil.bias": torch.ones(3)}, "a.pth")
    done = run("convert", "a.pth", "a.pdparams", "--to-layout", "paddle")
    assert done.exit_code == 0
    assert "bil.weight: taken for conv1d by 3 axes and a bias" in " ".join(done.stderr.split())
    assert "--kind 'bil.weight=bilinear'" in " ".join(done.stderr.split())


def test_own_parameters_keep_their_names(here: Path) -> None:
    torch.save({"a.weight": torch.ones(4), "b.weight": torch.ones(2, 3, 3)}, "a.pth")
    done = run("convert", "a.pth", "a.npz", "--to-layout", "keras", "--kind", "*=parameter")
    assert done.exit_code == 0, done.stderr
    with np.load("a.npz") as arrays:
        assert {name: arrays[name].shape for name in arrays.files if not name.startswith("ckpt")} == {
            "a/weight": (4,),
            "b/weight": (2, 3, 3),
        }


def test_a_depthwise_kernel_needs_the_model(here: Path) -> None:
    torch.save({"a.weight": torch.ones(4, 1, 3, 3)}, "a.pth")
    refused = run("convert", "a.pth", "a.npz", "--to-layout", "keras", "--kind", "a.weight=depthwise_conv2d")
    assert refused.exit_code == 5
    assert "--like its model" in " ".join(refused.stderr.split())
    assert run("convert", "a.pth", "a.npz", "--to-layout", "keras", "--kind", "a.weight=conv2d").exit_code == 0


@pytest.mark.parametrize(("inputs", "may_be_depthwise"), [(1, False), (2, True)])
@pytest.mark.parametrize(("leaf", "numbered"), [("kernel", 0), ("0", 1)])
def test_a_depthwise_kernel_of_one_input_is_a_plain_one(
    inputs: int, may_be_depthwise: bool, leaf: str, numbered: int
) -> None:
    shape = (3, 3, inputs, 8)
    near = Neighbourhood("keras", weight=shape, word="kernel", numbered=numbered)
    assert ("depthwise_conv2d" in near.kinds(leaf, "weight" if leaf == "kernel" else "", shape)) is may_be_depthwise


def test_a_convolution_by_its_class_may_be_depthwise(here: Path) -> None:
    net = paddle.nn.Sequential(paddle.nn.Conv2D(4, 4, 3, groups=4))
    paddle.save(net.state_dict(), "a.pdparams")
    assert run("convert", "a.pdparams", "a.pth", "--to-layout", "torch").exit_code == 0
    with pytest.raises(WriteRefused, match="depthwise_conv2d"):
        translate(here / "a.pdparams", here / "a.npz", "keras", [model_of(net)])


def test_options_say_what_else_they_are_right_for(here: Path) -> None:
    torch.save({"a.weight": torch.ones(4, 4)}, "a.pth")
    refused = run("convert", "a.pth", "a.pdparams", "--to-layout", "paddle", "--dry-run")
    assert "--kind 'a.weight=embedding' (the same for parameter)" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["fc*=linear", "*.weight=embedding"], "contradict each other on fc.weight"),
        (["fc.weight=linear", "nothing=linear"], "'nothing=linear' fits no tensor"),
        (["fc.weight=weight_norm_dim0"], "has no magnitudes of weight norm"),
    ],
)
def test_lines_that_do_nothing_are_refused(kinds: list[str], said: str, here: Path) -> None:
    torch.save({"fc.weight": torch.ones(4, 4)}, "a.pth")
    options = [word for kind in kinds for word in ("--kind", kind)]
    refused = run("convert", "a.pth", "a.pdparams", "--to-layout", "paddle", *options)
    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.split())


def test_the_first_line_that_fits_counts(here: Path) -> None:
    torch.save({"emb.weight": torch.ones(4, 4), "fc.weight": torch.ones(2, 3)}, "a.pth")
    kinds = ("--kind", "emb.weight=embedding", "--kind", "*.weight=linear")
    assert run("convert", "a.pth", "a.pdparams", "--to-layout", "paddle", *kinds).exit_code == 0
    assert paddle.load("a.pdparams")["fc.weight"].shape == [3, 2]


def test_numbered_variables_are_called_what_the_first_is_said_to_be(here: Path) -> None:
    with h5py.File("a.weights.h5", "w") as file:
        for name, shape in {"fc/vars/0": (4, 4), "fc/vars/1": (4,), "emb/vars/0": (4, 4)}.items():
            file[name] = np.ones(shape, "f4")
    refused = run("convert", "a.weights.h5", "a.pth", "--to-layout", "torch")
    assert refused.exit_code == 5
    assert "--kind 'emb/vars/0=embedding'" in " ".join(refused.stderr.split())
    kinds = ("--kind", "fc/*/0=linear", "--kind", "emb/*/0=embedding")
    done = run("convert", "a.weights.h5", "a.pth", "--to-layout", "torch", *kinds)
    assert done.exit_code == 0, done.stderr
    assert sorted(torch.load("a.pth")) == ["emb.weight", "fc.bias", "fc.weight"]


def test_a_number_in_a_normalisation_that_leaves_some_out_tells_nothing(here: Path) -> None:
    with h5py.File("a.weights.h5", "w") as file:
        for index in range(3):
            file[f"layers/batch_normalization/vars/{index}"] = np.ones(4, "f4")
    refused = run("convert", "a.weights.h5", "a.pth", "--to-layout", "torch")
    assert refused.exit_code == 5
    assert "does not tell which part of a batch_norm" in " ".join(refused.stderr.split())


# ---- Paddle's names of variables


def test_variables_of_one_layer_that_contradict_each_other_tell_nothing(here: Path) -> None:
    own = paddle.nn.Linear(
        4,
        4,
        weight_attr=paddle.ParamAttr(name="embedding_70007.w_0"),
        bias_attr=paddle.ParamAttr(name="linear_70017.b_0"),
    )
    net = paddle.nn.Sequential(own, paddle.nn.Linear(4, 4))
    paddle.save(net.state_dict(), "a.pdparams")
    refused = run("convert", "a.pdparams", "a.pth", "--to-layout", "torch")
    assert refused.exit_code == 5
    assert "0.weight (linear or embedding/parameter)" in " ".join(refused.stderr.split())
    assert run("convert", "a.pdparams", "a.pth", "--to-layout", "torch", "--kind", "0.weight=linear").exit_code == 0
    made = torch.load("a.pth")
    np.testing.assert_array_equal(made["0.weight"].numpy(), own.weight.numpy().T)
    np.testing.assert_array_equal(made["1.weight"].numpy(), net[1].weight.numpy().T)


def test_a_variable_named_after_another_part_tells_nothing(here: Path) -> None:
    net = paddle.nn.Sequential(paddle.nn.Linear(4, 4, weight_attr=paddle.ParamAttr(name="linear_70009.b_0")))
    paddle.save(net.state_dict(), "a.pdparams")
    assert run("convert", "a.pdparams", "a.pth", "--to-layout", "torch").exit_code == 5


# ---- the axis of weight norm


def normed(dim: int) -> paddle.nn.Layer:
    return paddle.nn.Sequential(paddle.nn.utils.weight_norm(paddle.nn.Linear(4, 4), dim=dim))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_square_weight_norm_of_paddle_is_asked_for_its_axis(dim: int, here: Path) -> None:
    net = normed(dim)
    for tensor in net.state_dict().values():
        tensor.set_value(paddle.rand(tensor.shape) + 0.5)
    paddle.save(net.state_dict(), "a.pdparams")
    refused = run("convert", "a.pdparams", "a.pth", "--to-layout", "torch", "--kind", "0.*=linear")
    assert refused.exit_code == 5
    assert "the axis of weight norm of 0.weight_g" in " ".join(refused.stderr.split())
    kinds = ("--kind", "0.*=linear", "--kind", f"0.weight_g=weight_norm_dim{dim}")
    done = run("convert", "a.pdparams", "a.pth", "--to-layout", "torch", *kinds)
    if dim == 0:
        assert done.exit_code == 5
        assert "remove_weight_norm" in done.stderr
        return
    assert done.exit_code == 0, done.stderr
    other = torch.nn.Sequential(torch.nn.utils.weight_norm(torch.nn.Linear(4, 4)))
    other.load_state_dict(torch.load("a.pth"), strict=True)
    batch = np.random.default_rng(1).standard_normal((3, 4)).astype("f4")
    np.testing.assert_allclose(other(torch.from_numpy(batch)).detach(), net(paddle.to_tensor(batch)), rtol=1e-5)


def test_a_model_of_paddle_tells_the_axis(here: Path) -> None:
    lopsided = paddle.nn.Sequential(paddle.nn.utils.weight_norm(paddle.nn.Linear(4, 5)))
    paddle.save(lopsided.state_dict(), "lopsided.pdparams")
    with pytest.raises(WriteRefused, match="remove_weight_norm"):
        translate(here / "lopsided.pdparams", here / "a.pth", "torch")
    for dim, refused in ((1, False), (0, True)):
        net = normed(dim)
        paddle.save(net.state_dict(), f"{dim}.pdparams")
        if refused:
            with pytest.raises(WriteRefused, match="remove_weight_norm"):
                translate(here / f"{dim}.pdparams", here / f"{dim}.pth", "torch", [model_of(net)])
        else:
            translate(here / f"{dim}.pdparams", here / f"{dim}.pth", "torch", [model_of(net)])
    with pytest.raises(WriteRefused, match="of the target"):
        translate(here / "1.pth", here / "b.pdparams", "paddle", [model_of(normed(0))])
    translate(here / "1.pth", here / "b.pdparams", "paddle", [model_of(normed(1))])
    with open_checkpoint("b.pdparams") as back, open_checkpoint("1.pdparams") as first:
        for name, tensor in first.tensors.items():
            np.testing.assert_array_equal(back.tensors[name].numpy(), tensor.numpy())


# ---- what Keras can load


def test_weights_of_keras_need_a_model(here: Path) -> None:
    torch.save({"a.weight": torch.ones(5, 3), "a.bias": torch.ones(5)}, "a.pth")
    refused = run("convert", "a.pth", "a.weights.h5", "--to-layout", "keras")
    assert refused.exit_code == 2
    assert "--like" in refused.stderr
    assert not Path("a.weights.h5").exists()
    assert run("convert", "a.pth", "a.h5", "--to-layout", "keras").exit_code == 0
