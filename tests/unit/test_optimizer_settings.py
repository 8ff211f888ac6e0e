"""Powers of betas and the steps behind them; settings of torch's groups."""

from __future__ import annotations

import numpy as np
import pytest

from ckpt_tools.mapping.optimizers import (
    ADAM,
    MOST_STEPS,
    SGD,
    NotSure,
    kind_of_slots,
    power_after,
    proven_settings,
    steps_behind_powers,
)

OWN = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False}


def product(beta: float, steps: int) -> float:
    power = np.float32(beta)
    for _ in range(steps):
        power *= np.float32(beta)
    return float(power)


@pytest.mark.parametrize("steps", [0, 1, 4, 60, 500, 999, 1200, 5000])
def test_powers_as_paddle_multiplies_them_tell_the_steps(steps: int) -> None:
    powers = product(0.9, steps), product(0.999, steps)
    assert steps_behind_powers(*powers) == steps
    assert power_after(0.999, steps) == powers[1]


@pytest.mark.parametrize("steps", [0, 60, 5000, 40_000])
def test_powers_that_were_rounded_once_tell_the_steps(steps: int) -> None:
    powers = (float(np.float32(beta ** (steps + 1))) for beta in (0.9, 0.999))
    assert steps_behind_powers(*powers) == steps


@pytest.mark.parametrize(
    ("beta1", "beta2", "steps"),
    [(0.8, 0.999, 3), (0.9, 0.99, 3), (0.5, 0.98, 200), (0.9, 0.98, 1000), (0.9, 0.95, 300), (0.0, 0.999, 3)],
)
def test_powers_of_other_betas_tell_nothing(beta1: float, beta2: float, steps: int) -> None:
    assert steps_behind_powers(product(beta1, steps), product(beta2, steps)) is None


@pytest.mark.parametrize("powers", [(1.0, 1.0), (0.9, -0.5), (-1.0, 0.0), (float("nan"), 0.999), (0.9, float("nan"))])
def test_numbers_that_are_no_powers_tell_nothing(powers: tuple[float, float]) -> None:
    assert steps_behind_powers(*powers) is None


def test_powers_that_have_become_nothing_stand_for_very_many_steps() -> None:
    assert steps_behind_powers(0.0, 0.0) == MOST_STEPS
    assert power_after(0.9999, 3 * MOST_STEPS) == pytest.approx(0.9999 ** (3 * MOST_STEPS + 1))


def test_slots_tell_the_optimizer() -> None:
    names = {"first": "m", "second": "v", "momentum": "b"}
    assert kind_of_slots({"m", "v"}, names) == ADAM
    assert kind_of_slots({"b"}, names) == SGD
    for found in ({"m"}, {"m", "v", "vhat"}, set[str]()):
        with pytest.raises(NotSure, match="neither Adam's"):
            kind_of_slots(found, names)


def test_settings_that_change_no_step_are_passed_over() -> None:
    told = proven_settings(ADAM, {**OWN, "foreach": True, "capturable": True, "initial_lr": 0.2})
    assert told == {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "initial_lr": 0.2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"amsgrad": True}, "amsgrad=True"),
        ({"trust_coefficient": 0.1}, "the setting trust_coefficient"),
        ({"lr": "fast"}, "lr is no number"),
        ({"betas": (0.9,)}, "betas are no two numbers"),
    ],
)
def test_settings_that_are_not_proven(change: dict[str, object], reason: str) -> None:
    with pytest.raises(NotSure, match=reason):
        proven_settings(ADAM, {**OWN, **change})
    with pytest.raises(NotSure, match="no amsgrad"):
        proven_settings(ADAM, {name: value for name, value in OWN.items() if name != "amsgrad"})
