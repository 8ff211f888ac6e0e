"""Optimizer state from one framework's form to another's, for the optimizers whose steps are the same in all three: Adam
(and AdamW, whose state is Adam's) and SGD with momentum.

torch has ``exp_avg``, ``exp_avg_sq`` and the number of steps for each parameter, by position; Paddle the moments by the
variable's name and, instead of steps, the powers of both betas one step ahead; Keras the moments in the order of its
trainable variables and one count of iterations. SGD's momentum is the same in torch and Paddle; Keras keeps it with the
learning rate in it and the other sign.

Settings have torch's names here: they stand in torch's files, and elsewhere mostly in code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ckpt_tools.mapping.recipes import Filling, Recipe
from ckpt_tools.mapping.transforms import Blocks, Permute, Reshape, Rows, Scale

ADAM, SGD = "adam", "sgd"
#: The slots of each optimizer, and what the frameworks call them; Keras' names are those of its lists of variables.
SLOTS: Mapping[str, tuple[str, ...]] = {ADAM: ("first", "second"), SGD: ("momentum",)}
TORCH_SLOTS = {"first": "exp_avg", "second": "exp_avg_sq", "momentum": "momentum_buffer"}
PADDLE_SLOTS = {"first": "moment1", "second": "moment2", "momentum": "velocity"}
KERAS_SLOTS = {
    ADAM: {"momentums": "first", "velocities": "second"},
    SGD: {"momentums": "momentum"},
}
#: What Keras calls optimizers of these kinds: their class in snake case, the first of each being what a file gets.
KERAS_NAMES = {"adam": ADAM, "adam_w": ADAM, "sgd": SGD}
#: What all three have unless they are told otherwise.
BETAS = (0.9, 0.999)
#: Settings that every framework has, with torch's defaults.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    ADAM: {"lr": 1e-3, "betas": BETAS, "eps": 1e-8, "weight_decay": 0},
    SGD: {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0},
}
#: Variants: with any other value the steps are others than the ones that are the same everywhere.
OFF: Mapping[str, Mapping[str, Any]] = {
    ADAM: {"amsgrad": False, "maximize": False},
    SGD: {"dampening": 0, "nesterov": False, "maximize": False},
}
#: Whether the weights decay apart from the gradient: AdamW.
DECOUPLED = "decoupled_weight_decay"
#: How torch computes, which changes no result.
_EXECUTION: Mapping[str, Mapping[str, Any]] = {
    ADAM: {"foreach": None, "capturable": False, "differentiable": False, "fused": None},
    SGD: {"foreach": None, "differentiable": False, "fused": None},
}
#: What torch.optim.lr_scheduler and torch.optim.swa_utils keep in groups for themselves.
SCHEDULES = frozenset({"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"})
#: Settings that a file of torch's own optimizers has in every release; ``maximize`` came with 1.11.
_ALWAYS = {ADAM: (*SETTINGS[ADAM], "amsgrad"), SGD: (*SETTINGS[SGD], "dampening", "nesterov")}
#: Below it, float32 loses digits and Paddle's powers stop getting smaller as they should.
_SMALLEST_NORMAL = 2.0**-126
#: After so many steps β2 = 0.999 is about there, and no bias is left to correct whatever the number is.
MOST_STEPS = 87_000
#: As far apart as two float32 numbers may lie that mean the same power.
_ROUNDING = 2.0**-22
#: Steps that only move elements; under any others moments are not what they would have become.
_MOVES = (Permute, Reshape, Blocks, Rows)


class NotSure(Exception):
    """Why optimizer state is left behind, as a part of a sentence."""


@dataclass(frozen=True)
class WeightState:
    """What is kept for one weight: the name of the tensor for each slot, and the steps made, 0 where none are counted."""

    slots: Mapping[str, str]
    steps: int = 0


@dataclass(frozen=True)
class Group:
    """Weights in the optimizer's order, some of which may have no state, and their settings as far as the source tells."""

    weights: Sequence[str]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class OptimizerState:
    """What a training goes on from. ``in_model_order`` when groups have the weights in the order of the model, whichever
    model it is; ``assumed`` are sentences on what the file does not tell."""

    kind: str
    weights: Mapping[str, WeightState]
    groups: Sequence[Group]
    in_model_order: bool = True
    assumed: Sequence[str] = ()


@dataclass(frozen=True)
class Parameter:
    """A parameter of the target in the optimizer's order: its own name, what it is called there, and how it is made."""

    name: str
    variable: str
    recipe: Recipe


@dataclass(frozen=True)
class Placed:
    """The target's state: recipes named by ``/`` below its container, torch's ``param_groups``, and the names of the
    parameters that have no state."""

    recipes: list[Recipe]
    groups: list[dict[str, Any]]
    without: list[str]


# ---- what is proven


def kind_of_slots(found: set[str], names: Mapping[str, str]) -> str:
    """The optimizer whose slots, under the framework's ``names``, are these and no others. NotSure when there is none."""
    for kind, slots in SLOTS.items():
        if found == {names[slot] for slot in slots}:
            return kind
    said = ", ".join(sorted(found)) or "nothing"
    raise NotSure(f"for each weight it has {said}, which is neither Adam's state nor that of SGD with momentum")


def proven_settings(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a group of torch's, what a step depends on. NotSure when something is missing that torch's own optimizers have,
    unknown, or not as it has to be."""
    missing = [name for name in _ALWAYS[kind] if name not in settings]
    if missing:
        raise NotSure(f"its settings have no {missing[0]}, which torch's {kind_title(kind)} has")
    known = {*SETTINGS[kind], *SCHEDULES, *_EXECUTION[kind], *([DECOUPLED] if kind == ADAM else [])}
    for name, value in settings.items():
        if name in OFF[kind]:
            if value != OFF[kind][name]:
                raise NotSure(f"it is set to {name}={value}, for which nothing is proven")
        elif name not in known:
            raise NotSure(f"it has the setting {name}, which is neither Adam's nor SGD's")
        elif name == "betas" and not (isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value))):
            raise NotSure("its betas are no two numbers")
        elif name in SETTINGS[kind] and name != "betas" and not _is_number(value):
            raise NotSure(f"its {name} is no number")
    return {name: value for name, value in settings.items() if name in known and name not in _EXECUTION[kind]}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def kind_title(kind: str) -> str:
    """The optimizer as people call it."""
    return {ADAM: "Adam", SGD: "SGD"}[kind]


def steps_behind_powers(power1: float, power2: float, betas: tuple[float, float] = BETAS) -> int | None:
    """The number of steps after which Paddle has these powers; None when they are not those of these betas.

    :data:`MOST_STEPS` stands for that many or more: then both powers say nothing any more.
    """
    if max(power1, power2) < _SMALLEST_NORMAL:
        return MOST_STEPS if min(power1, power2) >= 0 else None
    if not 0 < power2 < 1:
        return None
    for steps in _candidates(power2, betas[1]):
        if _is_power(power2, betas[1], steps) and _is_power(power1, betas[0], steps):
            return steps
    return None


def _candidates(power: float, beta: float) -> Iterator[int]:
    """Numbers of steps that may be behind a power: as a product of float32 numbers, and rounded once."""
    import numpy

    at = int(numpy.searchsorted(-_powers(beta), -power))
    yield from range(max(at - 1, 0), min(at + 2, MOST_STEPS))
    exact = round(math.log(power) / math.log(beta)) - 1
    if 0 <= exact < MOST_STEPS:
        yield exact


def _is_power(power: float, beta: float, steps: int) -> bool:
    product, exact = power_after(beta, steps), beta ** (steps + 1)
    if max(power, product, exact) < _SMALLEST_NORMAL:
        return True
    return any(math.isclose(power, each, rel_tol=_ROUNDING) for each in (product, exact))


@lru_cache(maxsize=8)
def _powers(beta: float) -> Any:
    """The powers of a beta as Paddle gets them: one float32 product for each step."""
    import numpy

    with numpy.errstate(under="ignore"):
        return numpy.multiply.accumulate(numpy.full(MOST_STEPS + 1, beta, "float32"))


def power_after(beta: float, steps: int) -> float:
    """What Paddle has for a beta after a number of steps."""
    return float(_powers(beta)[steps]) if steps <= MOST_STEPS else beta ** (steps + 1)


# ---- the target's


def placed(family: str, state: OptimizerState, parameters: Sequence[Parameter], source: str) -> Placed:
    """The state of the target's optimizer for its ``parameters``, which are in the order of its model. NotSure when it
    does not follow from the source's."""
    grouped = _grouped(state, parameters)
    listed = [parameter for group in grouped for parameter in group]
    states = {parameter.name: _state_of(parameter, state) for parameter in listed}
    factors = [_momentum_factor(state.kind, group.settings, source, family) for group in state.groups]
    if family == "keras":
        listed = [parameter for parameter in parameters if parameter in listed]
        _check_for_keras(state, parameters, states)
    found: list[Recipe] = []
    factor_of = {parameter.name: factor for group, factor in zip(grouped, factors) for parameter in group}
    for position, parameter in enumerate(listed):
        steps = states[parameter.name]
        if steps is None:
            continue
        for index, slot in enumerate(SLOTS[state.kind]):
            target = {
                "torch": f"state/{position}/{TORCH_SLOTS[slot]}",
                "paddle": f"{parameter.variable}_{PADDLE_SLOTS[slot]}_0",
                "keras": f"vars/{2 + position * len(SLOTS[state.kind]) + index}",
            }[family]
            found.append(_slot_recipe(parameter.recipe, state, slot, target, factor_of[parameter.name]))
        if state.kind == ADAM and family != "keras":
            found += _steps_made(family, position, parameter, steps, state)
    if not found:
        raise NotSure("no parameter of the target has state in the source")
    if family == "keras":
        found[:0] = _keras_numbers(state, next(each for each in states.values() if each is not None))
    without = [parameter.name for parameter in parameters if states.get(parameter.name) is None]
    return Placed(found, _torch_groups(state, grouped) if family == "torch" else [], without)


def _grouped(state: OptimizerState, parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    """The target's parameters as the optimizer has them. NotSure for one that it has in part, or not from the source."""
    places = {weight: (at, nth) for at, group in enumerate(state.groups) for nth, weight in enumerate(group.weights)}
    found: list[list[tuple[int, Parameter]]] = [[] for _ in state.groups]
    for parameter in parameters:
        made_of = [each.source for each in parameter.recipe.ingredients]
        if not made_of:
            raise NotSure(f"{parameter.name} is made anew")
        known = [places[source] for source in made_of if source in places]
        if known and (len(known) < len(made_of) or len({at for at, _ in known}) > 1):
            raise NotSure(f"the optimizer treats the parts of {parameter.name} in different ways")
        if known:
            found[known[0][0]].append((known[0][1], parameter))
    if not state.in_model_order:
        found = [sorted(group, key=lambda placed: placed[0]) for group in found]
    return [[parameter for _, parameter in group] for group in found]


def _state_of(parameter: Parameter, state: OptimizerState) -> int | None:
    """After how many steps a parameter's state is; None when it has none. NotSure when it does not follow."""
    recipe = parameter.recipe
    found = [state.weights.get(each.source) for each in recipe.ingredients]
    if not any(found):
        return None
    steps = {each.steps if each is not None else None for each in found}
    if len(steps) > 1:
        raise NotSure(f"the parts of {parameter.name} are not after the same number of steps")
    moves = all(isinstance(step, _MOVES) for each in recipe.ingredients for step in each.steps)
    if not moves or not all(isinstance(step, _MOVES) for step in recipe.steps) or recipe.join not in ("", "concat"):
        raise NotSure(f"{parameter.name} is not only moved but computed anew, and its state would not be")
    return steps.pop()


def _slot_recipe(weight: Recipe, state: OptimizerState, slot: str, target: str, factor: float) -> Recipe:
    ingredients = tuple(replace(each, source=state.weights[each.source].slots[slot]) for each in weight.ingredients)
    steps = weight.steps if factor == 1 else (*weight.steps, Scale(factor))
    return Recipe(target, ingredients, weight.join, steps, why=f"as {weight.target}")


def _steps_made(
    family: str, position: int, parameter: Parameter, steps: int, state: OptimizerState
) -> Iterator[Recipe]:
    """How far a parameter's training is, as torch and Paddle keep it beside Adam's moments."""
    why = "the number of steps"
    if family == "torch":
        yield Recipe(f"state/{position}/step", filling=Filling("float32", (), steps), why=why)
        return
    betas = {group.settings.get("betas", BETAS) for group in state.groups}
    if len(betas) > 1:
        raise NotSure("its groups have different betas")
    for number, beta in enumerate(betas.pop(), 1):
        filling = Filling("float32", (1,), power_after(beta, steps))
        yield Recipe(f"{parameter.variable}_beta{number}_pow_acc_0", filling=filling, why=why)


def _keras_numbers(state: OptimizerState, steps: int) -> Iterator[Recipe]:
    name = next(name for name, kind in KERAS_NAMES.items() if kind == state.kind)
    rate = state.groups[0].settings.get("lr", SETTINGS[state.kind]["lr"])
    iteration = f"{name}/iteration"
    yield Recipe("vars/0", filling=Filling("int64", (), steps), why="the number of steps", alias=iteration)
    yield Recipe("vars/1", filling=Filling("float32", (), rate), why="the learning rate")


def _check_for_keras(state: OptimizerState, parameters: Sequence[Parameter], states: Mapping[str, int | None]) -> None:
    """NotSure when Keras has no optimizer in which all of this goes on."""
    without = [parameter.name for parameter in parameters if states.get(parameter.name) is None]
    if without:
        raise NotSure(f"{without[0]} has no state in the source, and Keras has one for every trainable variable")
    if len(set(states.values())) > 1:
        raise NotSure("not all weights are after the same number of steps, and Keras has one number for all")
    own = [{name: group.settings.get(name) for name in (*SETTINGS[state.kind], DECOUPLED)} for group in state.groups]
    if any(settings != own[0] for settings in own):
        raise NotSure("its groups have different settings, and Keras has no groups")
    decay = own[0].get("weight_decay")
    if decay and own[0].get(DECOUPLED) is not True:
        raise NotSure(f"weight_decay={decay} goes into the gradient, as far as is known, and in Keras it does not")


def _momentum_factor(kind: str, settings: Mapping[str, Any], source: str, target: str) -> float:
    """What SGD's momentum is multiplied by."""
    if kind != SGD or (source == "keras") == (target == "keras"):
        return 1.0
    rate = settings.get("lr")
    if not rate:
        raise NotSure("Keras' momentum has the learning rate in it, which is not in the file")
    return -float(rate) if target == "keras" else -1 / float(rate)


def _torch_groups(state: OptimizerState, grouped: Sequence[Sequence[Parameter]]) -> list[dict[str, Any]]:
    """The ``param_groups`` of a torch optimizer: what the source tells, and torch's defaults."""
    kind = state.kind
    defaults = {**SETTINGS[kind], **OFF[kind], **_EXECUTION[kind], **({DECOUPLED: False} if kind == ADAM else {})}
    found, first = [], 0
    for group, parameters in zip(state.groups, grouped):
        names = [parameter.name for parameter in parameters]
        numbers = list(range(first, first + len(names)))
        found.append({**defaults, **group.settings, "params": numbers, "param_names": names})
        first += len(names)
    return found
