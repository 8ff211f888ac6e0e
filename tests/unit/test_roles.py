"""What tensors are to a run, by the keys their writers give them."""

from __future__ import annotations

import pytest

from ckpt_tools.core.purposes import Purpose, Role
from ckpt_tools.mapping.roles import assign_roles


@pytest.mark.parametrize(
    ("keys", "family", "optimizer"),
    [
        (
            [("optimizer", "state", 0, "exp_avg"), ("optimizer", "param_groups", 0, "lr"), ("model", "w")],
            "torch",
            [0, 1],
        ),
        ([("state", "w"), ("model", "w")], "torch", []),
        ([("linear_0.w_0_moment1_0",), ("fc.weight",)], "paddle", [0]),
        ([("main_optimizer", "linear_0.w_0_beta1_pow_acc_0"), ("main_params", "w")], None, [0]),
        ([("my_momentum_0",), ("w",)], "torch", []),
        ([("master_weights", "linear_0.w_0"), ("w",)], "paddle", [0]),
        ([("optimizer_weights", "adam", "iteration"), ("model_weights", "d", "kernel")], "keras", [0]),
        ([("optimizer", "vars", "0"), ("layers", "dense", "vars", "0")], "keras", [0]),
    ],
)
def test_optimizer_state_is_known_by_its_structure(keys: list, family: str | None, optimizer: list[int]) -> None:
    roles = assign_roles(keys, family=family)
    assert [n for n, key in enumerate(keys) if roles[key] is Role.OPTIMIZER] == optimizer


def test_counters_and_random_states() -> None:
    roles = assign_roles([("bn.num_batches_tracked",), ("global_step",), ("rng_state",), ("bn.weight",)])
    assert list(roles.values()) == [Role.COUNTER, Role.COUNTER, Role.OTHER, Role.WEIGHT]


def test_averages_need_names_that_they_are_averages_of() -> None:
    roles = assign_roles([("model", "a"), ("model", "b"), ("ema", "a"), ("net", "ema", "conv")])
    assert list(roles.values()) == [Role.WEIGHT, Role.WEIGHT, Role.AVERAGE, Role.WEIGHT]


def test_what_the_format_says_comes_first() -> None:
    key = ("optimizer", "state", 0)
    roles = assign_roles([key, ("optimizer", "param_groups", 0)], known={key: Purpose(Role.WEIGHT)})
    assert roles[key] is Role.WEIGHT
