"""Optimizer state from one framework's form to another's, for the optimizers whose steps are the same in all three: Adam
(and AdamW, whose state is Adam's) and SGD with momentum.

torch has ``exp_avg``, ``exp_avg_sq`` and the number of steps for each parameter, by position; Paddle the moments by the
variable's name and, instead of steps, the powers of both betas one step ahead; Keras the moments in the order of its
trainable variables and one count of iterations. SGD's momentum is the same in torch and Paddle; Keras keeps it with the
learning rate in it and the other sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_tools.mapping.recipes import Filling, Recipe
from ckpt_tools.mapping.transforms import Blocks, Permute, Reshape, Rows, Scale

ADAM, SGD = "adam", "sgd"
#: The slots of each optimizer, and what the frameworks call them. Keras names them by what they are in its checkpoints.
SLOTS: Mapping[str, tuple[str, ...]] = {ADAM: ("first", "second"), SGD: ("momentum",)}
TORCH_SLOTS = {"first": "exp_avg", "second": "exp_avg_sq", "momentum": "momentum_buffer"}
PADDLE_SLOTS = {"first": "moment1", "second": "moment2", "momentum": "velocity"}
KERAS_SLOTS = {"momentums": "first", "velocities": "second", "m": "first", "v": "second", "momentum": "momentum"}
#: What all three have unless they are told otherwise.
BETAS = (0.9, 0.999)
#: torch's and Keras' learning rates where none is given.
DEFAULT_RATES = {ADAM: 1e-3, SGD: 1e-2}
#: As far from a whole number of steps the logarithm of a float32 power may lie.
_WHOLE = 0.05
#: Below this, a float32 power of the first beta says nothing any more.
_UNDERFLOWN = 1e-30
#: Steps that only move elements; under any others moments are not what they would have become.
_MOVES = (Permute, Reshape, Blocks, Rows)


@dataclass(frozen=True)
class OptimizerState:
    """What a training goes on from. ``slots`` has, by weight, the name of the tensor for each slot; ``steps`` were made;
    ``learning_rate`` is None where the file has none."""

    kind: str
    slots: Mapping[str, Mapping[str, str]]
    steps: int
    learning_rate: float | None = None
    betas: tuple[float, float] = BETAS


@dataclass(frozen=True)
class Parameter:
    """A parameter of the target in the optimizer's order: its name, what it is called there, and how it is made."""

    name: str
    variable: str
    recipe: Recipe


def steps_behind_powers(power1: float, power2: float, betas: tuple[float, float] = BETAS) -> int | None:
    """The number of steps after which Paddle has these powers; None when they are not those of these betas."""
    if not 0 < power2 < 1:
        return None
    exact = math.log(power2) / math.log(betas[1]) - 1
    steps = round(exact)
    if steps < 0 or abs(exact - steps) > max(_WHOLE, steps * 1e-4):
        return None
    expected = betas[0] ** (steps + 1)
    if max(power1, expected) > _UNDERFLOWN and not math.isclose(power1, expected, rel_tol=1e-3):
        return None
    return steps


def slot_recipe(weight: Recipe, slots: Mapping[str, Mapping[str, str]], slot: str, target: str) -> Recipe | None:
    """How a slot of a target's weight is made from the source's slots; None when it does not follow from them."""
    moves = all(isinstance(step, _MOVES) for each in weight.ingredients for step in each.steps)
    moves = moves and all(isinstance(step, _MOVES) for step in weight.steps)
    if not weight.ingredients or not moves or weight.join not in ("", "concat"):
        return None
    if any(slot not in slots.get(each.source, {}) for each in weight.ingredients):
        return None
    ingredients = tuple(replace(each, source=slots[each.source][slot]) for each in weight.ingredients)
    return Recipe(target, ingredients, weight.join, weight.steps, why=f"as {weight.target}")


def in_family(family: str, state: OptimizerState, parameters: Sequence[Parameter], source: str) -> list[Recipe] | None:
    """The target's optimizer state as recipes named by ``/`` below its container; None when it does not follow."""
    factor = _momentum_factor(state, source, family)
    if factor is None:
        return None
    found: list[Recipe] = []
    for position, parameter in enumerate(parameters):
        for index, slot in enumerate(SLOTS[state.kind]):
            names = {
                "torch": f"state/{position}/{TORCH_SLOTS[slot]}",
                "paddle": f"{parameter.variable}_{PADDLE_SLOTS[slot]}_0",
                "keras": f"vars/{2 + position * len(SLOTS[state.kind]) + index}",
            }
            recipe = slot_recipe(parameter.recipe, state.slots, slot, names[family])
            if recipe is None:
                return None
            found.append(replace(recipe, steps=(*recipe.steps, Scale(factor))) if factor != 1 else recipe)
        found += _steps_of(family, state, position, parameter)
    if family == "keras":
        rate = _rate(state)
        iterations = Recipe("vars/0", filling=Filling("int64", (), state.steps), why="the number of steps")
        found[:0] = [iterations, Recipe("vars/1", filling=Filling("float32", (), rate), why="the learning rate")]
    return found


def _rate(state: OptimizerState) -> float:
    return DEFAULT_RATES[state.kind] if state.learning_rate is None else state.learning_rate


def _steps_of(family: str, state: OptimizerState, position: int, parameter: Parameter) -> list[Recipe]:
    """How far a parameter's training is, as the family keeps it beside the moments."""
    if state.kind != ADAM or family == "keras":
        return []
    if family == "torch":
        return [
            Recipe(f"state/{position}/step", filling=Filling("float32", (), state.steps), why="the number of steps")
        ]
    return [
        Recipe(
            f"{parameter.variable}_beta{number}_pow_acc_0",
            filling=Filling("float32", (1,), beta ** (state.steps + 1)),
            why="the number of steps",
        )
        for number, beta in enumerate(state.betas, 1)
    ]


def _momentum_factor(state: OptimizerState, source: str, target: str) -> float | None:
    """What SGD's momentum is multiplied by; None when the learning rate that is in it is not known."""
    if state.kind != SGD or (source == "keras") == (target == "keras"):
        return 1.0
    if not state.learning_rate:
        return None
    return -state.learning_rate if target == "keras" else -1 / state.learning_rate


def torch_groups(state: OptimizerState, count: int) -> list[dict[str, object]]:
    """The ``param_groups`` of a torch optimizer: what the source tells, and torch's defaults."""
    common: dict[str, object] = {"maximize": False, "foreach": None, "differentiable": False, "fused": None}
    rate = {"lr": _rate(state)}
    if state.kind == SGD:
        own: dict[str, object] = {"momentum": 0.9, "dampening": 0, "weight_decay": 0, "nesterov": False}
    else:
        own = {"betas": state.betas, "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "capturable": False}
        common["decoupled_weight_decay"] = False
    return [{**rate, **own, **common, "params": list(range(count))}]
