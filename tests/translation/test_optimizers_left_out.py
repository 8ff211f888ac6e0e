"""Optimizer state of which something is not known, or not the same elsewhere, is left out, and a note says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import paddle
import pytest
import torch
from translation.converting import model_of, translate

from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.comparands import Comparand


class Torch(torch.nn.Module):
    """Two layers of one shape: nothing but names or order tells whose state is whose."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.out = torch.nn.Linear(3, 3)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.out(self.fc(batch))


class Paddle(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(3, 3)
        self.out = paddle.nn.Linear(3, 3)

    def forward(self, batch: paddle.Tensor) -> paddle.Tensor:
        return self.out(self.fc(batch))


def keras_net() -> keras.Sequential:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, name="fc"), keras.layers.Dense(3, name="out")])


Optimizers = Callable[[Torch], "torch.optim.Optimizer | dict[str, torch.optim.Optimizer]"]


def trained_torch(path: Path, make: Optimizers, change: Callable[[dict[str, Any]], None] = lambda state: None) -> Torch:
    """A run of two steps, saved with its optimizers."""
    torch.manual_seed(0)
    net = Torch()
    made = make(net)
    optimizers = made if isinstance(made, dict) else {"optimizer": made}
    for _ in range(2):
        net.zero_grad()
        (net(torch.randn(5, 3)) ** 2).mean().backward()
        for optimizer in optimizers.values():
            optimizer.step()
    states = {name: optimizer.state_dict() for name, optimizer in optimizers.items()}
    for state in states.values():
        change(state)
    torch.save({"model": net.state_dict(), **states}, path)
    return net


def converted(source: Path, target: Path, family: str, *likes: Comparand) -> tuple[list[str], list[str]]:
    """The notes on optimizers, and the names of what the target has of their state."""
    conversion = translate(source, target, family, likes, with_optimizer=True)
    notes = [note for note in conversion.notes if "optimizer" in note]
    with open_checkpoint(target) as checkpoint:
        names = [entry.name for entry in checkpoint.entries if "opt" in entry.name.split("/")[0]]
    return notes, names


def first_moment(path: Path, *key: str) -> np.ndarray:
    with open_checkpoint(path) as checkpoint:
        return np.asarray(checkpoint.tensors["/".join(key)].numpy())


def of_the_fc(net: Torch) -> list[torch.nn.Parameter]:
    return list(net.fc.parameters())


# ---- whose state it is


def test_state_of_two_optimizers_without_names_goes_to_nobody(tmp_path: Path) -> None:
    def both(net: Torch) -> dict[str, torch.optim.Optimizer]:
        return {"opt_a": torch.optim.Adam(net.fc.parameters()), "opt_b": torch.optim.Adam(net.out.parameters())}

    trained_torch(tmp_path / "run.pth", both)
    notes, names = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", model_of(Paddle()))
    said = "is left out: it has 2 parameters without names, and 4 weights could be them"
    assert [note for note in notes if said in note] == [
        f"the state of optimizer opt_a {said}",
        f"the state of optimizer opt_b {said}",
    ]
    assert names == []


def test_names_decide_and_not_the_order(tmp_path: Path) -> None:
    def head_first(net: Torch) -> torch.optim.Optimizer:
        return torch.optim.Adam(list(reversed(list(net.named_parameters()))))

    states: list[dict[str, Any]] = []
    trained_torch(tmp_path / "run.pth", head_first, states.append)
    with paddle.utils.unique_name.guard():
        like = model_of(Paddle())
    notes, _ = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", like)
    assert not any("taken for" in note for note in notes)
    moment = first_moment(tmp_path / "run.pdz", "optimizer", "linear_0.b_0_moment1_0")
    at = states[0]["param_groups"][0]["param_names"].index("fc.bias")
    np.testing.assert_array_equal(moment, states[0]["state"][at]["exp_avg"].numpy())


def test_the_order_of_named_parameters_stays_in_torch(tmp_path: Path) -> None:
    def head_first(net: Torch) -> torch.optim.Optimizer:
        return torch.optim.Adam(list(reversed(list(net.named_parameters()))))

    trained_torch(tmp_path / "run.pth", head_first)
    converted(tmp_path / "run.pth", tmp_path / "new.pth", "torch", model_of(Torch()))
    old, new = (torch.load(tmp_path / name)["optimizer"] for name in ("run.pth", "new.pth"))
    assert old["param_groups"] == new["param_groups"]
    for number, each in old["state"].items():
        torch.testing.assert_close(new["state"][number]["exp_avg"], each["exp_avg"], rtol=0, atol=0)


def test_without_names_the_order_is_said_to_be_assumed(tmp_path: Path) -> None:
    trained_torch(tmp_path / "run.pth", lambda net: torch.optim.Adam(net.parameters()))
    notes, names = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", model_of(Paddle()))
    assert len(names) == 16
    assert (
        "optimizer: it has no param_names: its states are taken for those of the model's parameters in their order"
        in notes
    )


def test_without_names_an_order_that_may_not_be_the_model_s_decides_nothing(tmp_path: Path) -> None:
    net = Torch()
    optimizer = torch.optim.Adam(net.parameters())
    (net(torch.randn(5, 3)) ** 2).mean().backward()
    optimizer.step()
    weights = dict(sorted(net.state_dict().items()))
    torch.save({"model": weights, "optimizer": optimizer.state_dict()}, tmp_path / "run.pth")
    notes, names = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", model_of(Paddle()))
    assert notes[0] == (
        "the optimizer's state is left out: it has no param_names, and weights of one shape are in an order that is not"
        " sure to be the model's"
    )
    assert names == []


def test_names_of_two_like_models_are_nobody_s(tmp_path: Path) -> None:
    net = Torch()
    optimizer = torch.optim.Adam(net.named_parameters())
    (net(torch.randn(5, 3)) ** 2).mean().backward()
    optimizer.step()
    weights = dict(net.state_dict())
    both = {f"{which}.{name}": value.clone() for which in ("a", "b") for name, value in weights.items()}
    torch.save({"model": both, "optimizer": optimizer.state_dict()}, tmp_path / "run.pth")
    like = model_of(torch.nn.ModuleDict({"a": Torch(), "b": Torch()}))
    notes, names = converted(tmp_path / "run.pth", tmp_path / "new.pth", "torch", like)
    assert notes[0] == (
        "the optimizer's state is left out: its param_names are of several dicts, model/a., model/b., of the file"
    )
    assert names == []


def test_a_checkpoint_without_an_optimizer_says_so(tmp_path: Path) -> None:
    torch.save({"model": Torch().state_dict()}, tmp_path / "run.pth")
    notes, _ = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", model_of(Paddle()))
    assert notes == ["there is no state of an optimizer"]


# ---- torch's variants

Params = Sequence[torch.nn.Parameter]
VARIANTS: dict[str, tuple[Callable[[Params], torch.optim.Optimizer], str]] = {
    "amsgrad": (lambda p: torch.optim.Adam(p, amsgrad=True), "max_exp_avg_sq"),
    "maximize": (lambda p: torch.optim.Adam(p, maximize=True), "maximize=True"),
    "nadam": (lambda p: torch.optim.NAdam(p), "mu_product"),
    "radam": (lambda p: torch.optim.RAdam(p), "no amsgrad, which torch's Adam has"),
    "adamax": (lambda p: torch.optim.Adamax(p), "exp_inf"),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, momentum=0.9), "square_avg"),
    "nesterov": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True), "nesterov=True"),
    "dampening": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5), "dampening=0.5"),
    "ascent": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, maximize=True), "maximize=True"),
    "plain": (lambda p: torch.optim.SGD(p, 0.1), "it has no state yet"),
}


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("family", ["paddle", "torch"])
def test_variants_of_torch_are_left_out(variant: str, family: str, tmp_path: Path) -> None:
    make, reason = VARIANTS[variant]
    trained_torch(tmp_path / "run.pth", lambda net: make(list(net.parameters())))
    like = model_of(Paddle() if family == "paddle" else Torch())
    target = tmp_path / ("new.pdz" if family == "paddle" else "new.pth")
    notes, names = converted(tmp_path / "run.pth", target, family, like)
    assert notes[0].startswith("the optimizer's state is left out: ")
    assert reason in notes[0]
    assert names == []


def with_setting(state: dict[str, Any]) -> None:
    state["param_groups"][0]["trust_coefficient"] = 0.001


def without_a_slot(state: dict[str, Any]) -> None:
    del state["state"][1]["exp_avg"]


def half_a_step(state: dict[str, Any]) -> None:
    state["state"][1]["step"] = torch.tensor(1.5)


def other_shape(state: dict[str, Any]) -> None:
    state["state"][1]["exp_avg"] = torch.zeros(4)


def other_numbers(state: dict[str, Any]) -> None:
    state["state"][7] = state["state"].pop(1)


def two_groups(state: dict[str, Any]) -> None:
    (group,) = state["param_groups"]
    state["param_groups"] = [{**group, "params": [0, 1]}, {**group, "params": [2, 3]}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_setting, "it has the setting trust_coefficient"),
        (without_a_slot, "its state 1 has no exp_avg"),
        (half_a_step, "its state 1 has no number of steps"),
        (other_shape, "optimizer/state/1/exp_avg is not of the shape of model/fc.bias"),
        (other_numbers, "its state 7 belongs to none of its parameters"),
        (two_groups, "it has several groups of parameters and no param_names"),
    ],
)
def test_state_that_is_not_as_torch_s_own_is_left_out(
    change: Callable[[dict[str, Any]], None], reason: str, tmp_path: Path
) -> None:
    trained_torch(tmp_path / "run.pth", lambda net: torch.optim.Adam(net.parameters()), change)
    notes, names = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", model_of(Paddle()))
    assert reason in notes[0]
    assert names == []


def test_parameters_that_an_optimizer_does_not_have_are_said(tmp_path: Path) -> None:
    trained_torch(tmp_path / "run.pth", lambda net: torch.optim.Adam(net.out.named_parameters("out")))
    with paddle.utils.unique_name.guard():
        like = model_of(Paddle())
    notes, names = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", like)
    assert "optimizer: no state for fc.weight, fc.bias, where it begins anew" in notes
    assert {name.split("/")[1].split(".")[0] for name in names} == {"linear_1"}


# ---- towards Keras


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda net: torch.optim.Adam(net.parameters(), weight_decay=0.1), "weight_decay=0.1 goes into the gradient"),
        (lambda net: torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=0.1), "goes into the gradient"),
        (lambda net: torch.optim.Adam(net.out.named_parameters("out")), "Keras has one for every trainable variable"),
        (
            lambda net: torch.optim.Adam(
                [
                    {"params": list(net.fc.named_parameters("fc"))},
                    {"params": list(net.out.named_parameters("out")), "lr": 1},
                ]
            ),
            "Keras has no groups",
        ),
        (
            lambda net: {name: torch.optim.Adam(getattr(net, name).named_parameters(name)) for name in ("fc", "out")},
            "a Keras model has one optimizer",
        ),
    ],
)
def test_what_keras_has_no_optimizer_for(make: Optimizers, reason: str, tmp_path: Path) -> None:
    trained_torch(tmp_path / "run.pth", make)
    notes, names = converted(tmp_path / "run.pth", tmp_path / "new.weights.h5", "keras", model_of(keras_net()))
    assert reason in notes[0]
    assert names == []


def test_files_that_no_keras_optimizer_is_loaded_from_get_no_state(tmp_path: Path) -> None:
    trained_torch(tmp_path / "run.pth", lambda net: torch.optim.Adam(net.parameters()))
    notes, names = converted(tmp_path / "run.pth", tmp_path / "new.index", "keras", model_of(keras_net()))
    assert "finds its state in .weights.h5" in notes[0]
    assert names == []


# ---- Paddle's


def trained_paddle(path: Path, optimizer: Callable[[Any], Any]) -> Comparand:
    net = Paddle()
    with paddle.utils.unique_name.guard():
        made = optimizer(net.parameters())
    for _ in range(2):
        (net(paddle.randn([5, 3])) ** 2).mean().backward()
        made.step()
        made.clear_grad()
    paddle.save({"main_params": net.state_dict(), "main_optimizer": made.state_dict()}, str(path))
    return model_of(net)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (lambda p: paddle.optimizer.Adam(0.1, parameters=p, amsgrad=True), "moment2_max"),
        (lambda p: paddle.optimizer.Adam(0.1, 0.8, 0.99, parameters=p), "are not those of 0.9 and 0.999"),
        (lambda p: paddle.optimizer.Adamax(0.1, parameters=p), "inf_norm"),
        (lambda p: paddle.optimizer.NAdam(0.1, parameters=p), "mu_product"),
        (lambda p: paddle.optimizer.RAdam(0.1, parameters=p), "rho"),
        (lambda p: paddle.optimizer.RMSProp(0.1, parameters=p), "mean_square"),
    ],
)
def test_variants_of_paddle_are_left_out(optimizer: Callable[[Any], Any], reason: str, tmp_path: Path) -> None:
    trained_paddle(tmp_path / "run.pdz", optimizer)
    notes, names = converted(tmp_path / "run.pdz", tmp_path / "new.pth", "torch", model_of(Torch()))
    assert reason in notes[0]
    assert [name for name in names if "optim" in name] == []


def test_what_paddle_does_not_tell_is_said(tmp_path: Path) -> None:
    trained_paddle(tmp_path / "run.pdz", lambda p: paddle.optimizer.Momentum(0.1, 0.8, p, use_nesterov=True))
    notes, _ = converted(tmp_path / "run.pdz", tmp_path / "new.pth", "torch", model_of(Torch()))
    assert any(re.search("not in the source and .*: learning rate, momentum, weight decay, nesterov", n) for n in notes)
    assert "optimizer: Paddle does not say whose it is: the momentum of LARS looks the same" in notes
    assert torch.load(tmp_path / "new.pth")["main_optimizer"]["param_groups"][0]["param_names"][0] == "fc.weight"


def test_two_models_with_the_same_variables_share_no_state(tmp_path: Path) -> None:
    nets = []
    for _ in range(2):
        with paddle.utils.unique_name.guard():
            nets.append(Paddle())
    made = paddle.optimizer.Adam(0.1, parameters=nets[0].parameters())
    (nets[0](paddle.randn([5, 3])) ** 2).mean().backward()
    made.step()
    states = {"a": nets[0].state_dict(), "b": nets[1].state_dict(), "optimizer": made.state_dict()}
    paddle.save(states, str(tmp_path / "run.pdz"))
    like = model_of(torch.nn.ModuleDict({"a": Torch(), "b": Torch()}))
    notes, _ = converted(tmp_path / "run.pdz", tmp_path / "new.pth", "torch", like)
    assert "linear_0.w_0 is the name of both a/fc.weight and b/fc.weight" in notes[0]


# ---- Keras'


def trained_keras(path: Path, optimizer: keras.optimizers.Optimizer) -> Comparand:
    net = keras_net()
    net.compile(optimizer, "mse")
    net.fit(np.ones((4, 3)), np.zeros((4, 3)), verbose=0)
    net.save_weights(path)
    return model_of(net)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (keras.optimizers.Adam(amsgrad=True), "it has 14 variables, not two and 2 for each of the 4"),
        (keras.optimizers.Adam(use_ema=True), "it has 14 variables, not two and 2 for each of the 4"),
        (keras.optimizers.SGD(0.1, 0.9, use_ema=True), "it has 10 variables, not two and 1 for each of the 4"),
        (keras.optimizers.SGD(0.1), "it has 2 variables, not two and 1 for each of the 4"),
        (keras.optimizers.Adamax(), "it is called adamax, which is neither Adam nor SGD"),
        (keras.optimizers.RMSprop(), "it is called rm_sprop"),
        (keras.optimizers.Lion(), "it is called lion"),
        (keras.optimizers.Adam(name="mine"), "it is called mine"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_variants_of_keras_are_left_out(optimizer: Any, reason: str, tmp_path: Path) -> None:
    source = trained_keras(tmp_path / "run.weights.h5", optimizer)
    notes, names = converted(tmp_path / "run.weights.h5", tmp_path / "new.pth", "torch", source, model_of(Torch()))
    assert reason in notes[0]
    assert names == []


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (lambda: keras.optimizers.RMSprop(momentum=0.9), "it is called rm_sprop"),
        (lambda: keras.optimizers.Adam(amsgrad=True), "it keeps velocity_hats"),
        (lambda: keras.optimizers.SGD(0.1, use_ema=True), "it keeps model_variables_moving_average"),
        (lambda: keras.optimizers.Adam(gradient_accumulation_steps=2), "it keeps accumulated_gradients"),
    ],
)
def test_variants_of_keras_in_tensorflow_s_checkpoints_are_left_out(
    optimizer: Callable[[], Any], reason: str, tmp_path: Path
) -> None:
    import tensorflow as tf

    net = keras_net()
    net.compile(optimizer(), "mse")
    net.fit(np.ones((4, 3)), np.zeros((4, 3)), verbose=0)
    tf.train.Checkpoint(model=net, optimizer=net.optimizer).write(str(tmp_path / "ckpt"))
    notes, names = converted(tmp_path / "ckpt", tmp_path / "new.pth", "torch", model_of(Torch()))
    assert reason in notes[0]
    assert names == []


def test_a_momentum_that_could_be_an_average_is_said(tmp_path: Path) -> None:
    source = trained_keras(tmp_path / "run.weights.h5", keras.optimizers.SGD(0.1, 0.9, nesterov=True))
    notes, _ = converted(tmp_path / "run.weights.h5", tmp_path / "new.pth", "torch", source, model_of(Torch()))
    assert any("an average (use_ema) or an accumulated gradient" in note for note in notes)
    assert any(note.endswith("momentum, weight decay, nesterov") for note in notes)


# ---- what is no parameter


def test_a_model_of_the_source_tells_its_buffers(tmp_path: Path) -> None:
    def buffered(net: Torch) -> torch.optim.Optimizer:
        net.register_buffer("scale", torch.ones(3))
        return torch.optim.Adam(net.parameters())

    net = trained_torch(tmp_path / "run.pth", buffered)
    target = Paddle()
    target.register_buffer("scale", paddle.ones([3]))
    notes, names = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", model_of(target))
    assert "it has 4 parameters without names, and 5 weights could be them" in notes[0]
    notes, names = converted(tmp_path / "run.pth", tmp_path / "run.pdz", "paddle", model_of(target), model_of(net))
    assert "optimizer: adam after 2 steps" in notes
    assert len(names) == 16
