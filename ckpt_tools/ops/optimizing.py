"""``--with-optimizer``: the state of the optimizer as the source has it, and its way into the target.

Only what is sure is carried over: state of Adam or SGD that belongs to weights beyond doubt, each of which is moved and
not changed by the translation, into a model whose parameters are known in their order. Everything else is a reason, in
one sentence, to leave the state behind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.keys import Key
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import AbsentTensor, Tensor
from ckpt_tools.core.tree import Node, NumpyScalar
from ckpt_tools.mapping.kinds import segments
from ckpt_tools.mapping.optimizers import (
    ADAM,
    KERAS_SLOTS,
    PADDLE_SLOTS,
    SGD,
    SLOTS,
    TORCH_SLOTS,
    OptimizerState,
    Parameter,
    in_family,
    steps_behind_powers,
    torch_groups,
)
from ckpt_tools.mapping.recipes import Recipe
from ckpt_tools.mapping.spellings import BATCH_COUNTER
from ckpt_tools.ops.comparands import Comparand, Row

_ACCUMULATOR = re.compile(
    r"(?P<variable>.+)_(?P<slot>moment1|moment2|velocity|beta1_pow_acc|beta2_pow_acc)_\d+", re.DOTALL
)
_STATISTICS = frozenset({"running_mean", "running_var", "_mean", "_variance", "moving_mean", "moving_variance"})
_KERAS_VARIABLE = re.compile(r"(?:.*/)?optimizer/vars/(?P<number>\d+)")
_RATES = ("learning_rate", "_learning_rate")
_ITERATIONS = ("_iterations", "iter", "iteration", "iterations")


class NotSure(Exception):
    """Why optimizer state is left behind, as a part of a sentence."""


@dataclass(frozen=True)
class Weight:
    """A weight of the source: whole key, name in the plan, name below the root."""

    key: Key
    current: str
    name: str
    tensor: Tensor


@dataclass
class CarriedState:
    """The target's state below ``container``: recipes by key, and values that are no tensors."""

    recipes: list[tuple[Key, Recipe]]
    values: list[tuple[Key, Node]]
    note: str


def carry(
    source: Checkpoint,
    family: str,
    weights: Sequence[Weight],
    names: Mapping[Key, str],
    model: Comparand | None,
    target: Comparand | None,
    recipes: Sequence[Recipe],
    to: str,
    container: Key,
) -> CarriedState:
    """The optimizer's state for the target. ``names`` has the names below the root by whole key; ``model`` is one of the
    source where it was given, ``target`` the one of the target; ``recipes`` make its weights. Raises NotSure."""
    if target is None or not target.is_model:
        raise NotSure("the order and names of the target's parameters are known by a model or spec of it, --like")
    readers = {"torch": _from_torch, "paddle": _from_paddle, "keras": _from_keras}
    state = readers[family](source, weights, names, model)
    parameters = _parameters(target, recipes, to)
    if any(
        slot not in state.slots.get(each.source, {})
        for parameter in parameters
        for each in parameter.recipe.ingredients
        for slot in SLOTS[state.kind]
    ):
        raise NotSure("some parameters of the target have no state in the source")
    placed = in_family(to, state, parameters, family)
    if placed is None:
        raise NotSure("some weights are not only moved but computed anew, and their state would not be")
    base = () if to == "keras" else container
    made = [((*(base or ("optimizer",)), *_parts(recipe.target, to)), recipe) for recipe in placed]
    values: list[tuple[Key, Node]] = []
    if to == "torch":
        values.append(((*container, "param_groups"), torch_groups(state, len(parameters))))
    return CarriedState(made, values, _note(state, family))


def _note(state: OptimizerState, family: str) -> str:
    """What is carried, and what an optimizer is made with that no file of the source's has."""
    told = "after an unknown number of steps" if state.kind == SGD else f"after {state.steps} steps"
    missing = ["the learning rate"] if state.learning_rate is None else []
    missing += ["the momentum"] if state.kind == SGD else ([] if family == "torch" else ["betas"])
    missing += ["epsilon"] if state.kind == ADAM else []
    return (
        f"optimizer: {state.kind} {told}; {', '.join(missing)} and weight decay are set in code and stand at their"
        " defaults here: set them after loading"
    )


def _parts(name: str, family: str) -> Key:
    if family == "paddle":
        return (name,)
    return tuple(int(part) if part.isdecimal() and family == "torch" else part for part in name.split("/"))


def _parameters(target: Comparand, recipes: Sequence[Recipe], family: str) -> list[Parameter]:
    """What the target's optimizer keeps state for, in its order: weights without running statistics, each once."""
    made = {recipe.target: recipe for recipe in recipes}
    found = []
    for row in target.rows:
        if row.role is not Role.WEIGHT or row.same_as is not None or _is_statistics(row):
            continue
        name = next((name for name in (row.name, *row.other_names.values()) if name in made), None)
        name = name or next((name for name in made if name.endswith(f"/{row.name}")), None)
        variable = row.other_names.get("variable", "")
        if name is None or (family == "paddle" and not variable):
            raise NotSure(f"{row.name} of the target is not made")
        found.append(Parameter(name, variable, made[name]))
    return found


def _is_statistics(row: Row) -> bool:
    part = row.layer.part if row.layer is not None else ""
    return part in _STATISTICS or segments(row.name)[-1] in (*_STATISTICS, BATCH_COUNTER)


def _number(node: Node) -> float | None:
    if isinstance(node, Tensor) and not isinstance(node, AbsentTensor) and node.info.count == 1:
        return float(node.numpy().reshape(()))
    if isinstance(node, NumpyScalar):
        node = node.value
    return float(node) if isinstance(node, (int, float)) and not isinstance(node, bool) else None


def _complete(slots: Mapping[str, Mapping[str, str]]) -> str:
    """The optimizer that has these slots for every weight."""
    for kind, wanted in SLOTS.items():
        if slots and all(set(found) == set(wanted) for found in slots.values()):
            return kind
    raise NotSure("its state is neither Adam's nor that of SGD with momentum")


def _common(values: Sequence[int | None]) -> int:
    found = set(values)
    if len(found) != 1 or None in found:
        raise NotSure("its parameters are not all after the same number of steps, as far as can be told")
    return int(found.pop() or 0)


# ---- Paddle


def _from_paddle(
    source: Checkpoint, weights: Sequence[Weight], names: Mapping[Key, str], model: Comparand | None
) -> OptimizerState:
    by_variable = {weight.tensor.alias: weight for weight in weights if weight.tensor.alias}
    slots: dict[str, dict[str, str]] = {}
    powers: dict[str, dict[str, float | None]] = {}
    called = {name: slot for slot, name in PADDLE_SLOTS.items()}
    rate = None
    for entry in source.entries:
        last = str(entry.key[-1])
        found = _ACCUMULATOR.fullmatch(last) if entry.is_tensor else None
        if "master_weights" in entry.key:
            raise NotSure("it has master weights")
        if last == "last_lr" and "LR_Scheduler" in entry.key:
            rate = _number(entry.node)
        if found is None or entry.key not in names:
            continue
        weight = by_variable.get(found["variable"])
        if weight is None:
            raise NotSure(f"{last} belongs to no weight of the file")
        if found["slot"] in called:
            slots.setdefault(weight.current, {})[called[found["slot"]]] = names[entry.key]
        else:
            powers.setdefault(weight.current, {})[found["slot"]] = _number(entry.node)
    # a recurrent weight has two names and one variable
    for weight in weights:
        owner = by_variable.get(weight.tensor.alias or "")
        if owner is not None and owner.current in slots:
            slots.setdefault(weight.current, slots[owner.current])
    kind = _complete(slots)
    if kind == SGD:
        return OptimizerState(kind, slots, 0, rate)
    steps = [
        steps_behind_powers(each.get("beta1_pow_acc") or 0.0, each.get("beta2_pow_acc") or 0.0)
        for each in powers.values()
    ]
    return OptimizerState(kind, slots, _common(steps), rate)


# ---- torch


def _from_torch(
    source: Checkpoint, weights: Sequence[Weight], names: Mapping[Key, str], model: Comparand | None
) -> OptimizerState:
    state: dict[int, dict[str, tuple[Key, Node]]] = {}
    groups: dict[str, Node] = {}
    listed: list[int] = []
    for entry in source.entries:
        if entry.key not in names:
            continue
        for at, part in enumerate(entry.key):
            rest = entry.key[at + 1 :]
            if part == "state" and len(rest) == 2 and isinstance(rest[0], int):
                state.setdefault(rest[0], {})[str(rest[1])] = entry.key, entry.node
            elif part == "param_groups" and len(rest) >= 2:
                if rest[0] != 0:
                    raise NotSure("it has several groups of parameters")
                if rest[1] == "params" and len(rest) == 3:
                    listed.append(int(_number(entry.node) or 0))
                else:
                    groups["/".join(map(str, rest[1:]))] = entry.node
    ordered = [weight for weight in weights if segments(weight.current)[-1] not in (*_STATISTICS, BATCH_COUNTER)]
    if not state or len(ordered) != len(listed):
        raise NotSure(f"it has {len(listed)} parameters, and the file {len(ordered)} weights that could be them")
    slots: dict[str, dict[str, str]] = {}
    steps: list[int | None] = []
    for weight, index in zip(ordered, listed):
        for slot, name in TORCH_SLOTS.items():
            key, node = state.get(index, {}).get(name, (None, None))
            if key is None:
                continue
            if not isinstance(node, Tensor) or node.info.shape != weight.tensor.info.shape:
                raise NotSure(f"state {index} is not of the shape of {weight.name}")
            slots.setdefault(weight.current, {})[slot] = names[key]
        if "step" in state.get(index, {}):
            step = _number(state[index]["step"][1])
            steps.append(None if step is None else round(step))
    kind = _complete(slots)
    betas = (_number(groups.get("betas/0")), _number(groups.get("betas/1")))
    if kind == ADAM and None in betas:
        raise NotSure("its betas are not in the file")
    beta1, beta2 = (each if each is not None else 0.0 for each in betas)
    rate = _number(groups.get("lr"))
    return OptimizerState(kind, slots, _common(steps) if kind == ADAM else 0, rate, (beta1, beta2))


# ---- Keras


def _from_keras(
    source: Checkpoint, weights: Sequence[Weight], names: Mapping[Key, str], model: Comparand | None
) -> OptimizerState:
    by_key = {weight.key: weight for weight in weights}
    slots: dict[str, dict[str, str]] = {}
    for key, purpose in source.purposes.items():
        if purpose.of in by_key and purpose.slot in KERAS_SLOTS and key in names:
            slots.setdefault(by_key[purpose.of].current, {})[KERAS_SLOTS[purpose.slot]] = names[key]
    numbers = {
        segments(entry.name)[-1]: _number(entry.node)
        for entry in source.entries
        if "optimizer" in segments(entry.name) and segments(entry.name)[-1] in (*_RATES, *_ITERATIONS)
    }
    if not slots:
        slots, numbers = _keras_vars(source, weights, names, model)
    steps = next((numbers[name] for name in _ITERATIONS if numbers.get(name) is not None), None)
    rate = next((numbers[name] for name in _RATES if numbers.get(name) is not None), None)
    if steps is None:
        raise NotSure("the number of its steps is not in the file")
    return OptimizerState(_complete(slots), slots, round(steps), rate)


def _keras_vars(
    source: Checkpoint, weights: Sequence[Weight], names: Mapping[Key, str], model: Comparand | None
) -> tuple[dict[str, dict[str, str]], dict[str, float | None]]:
    """``optimizer/vars/N``: iteration, learning rate, then the slots of one trainable variable after the other."""
    variables: dict[int, tuple[Key, Node]] = {}
    for entry in source.entries:
        found = _KERAS_VARIABLE.fullmatch(entry.name)
        if found is not None and entry.key in names:
            variables[int(found["number"])] = entry.key, entry.node
    if model is None:
        raise NotSure("the order of its variables is known by a model of the source, a second --like")
    by_name = {weight.current: weight for weight in weights}
    trained = []
    for row in model.rows:
        if row.role is Role.WEIGHT and row.same_as is None and not _is_statistics(row):
            weight = next((by_name[n] for n in (row.name, *row.other_names.values()) if n in by_name), None)
            if weight is None:
                raise NotSure(f"{row.name} of the model is not in the file")
            trained.append(weight)
    each = (len(variables) - 2) // len(trained) if trained else 0
    kind = {2: ADAM, 1: SGD}.get(each)
    if kind is None or len(variables) != 2 + each * len(trained):
        raise NotSure("its state is neither Adam's nor that of SGD with momentum")
    slots: dict[str, dict[str, str]] = {}
    for position, weight in enumerate(trained):
        for index, slot in enumerate(SLOTS[kind]):
            key, node = variables[2 + position * each + index]
            if not isinstance(node, Tensor) or node.info.shape != weight.tensor.info.shape:
                raise NotSure(f"its variable {2 + position * each + index} is not of the shape of {weight.name}")
            slots.setdefault(weight.current, {})[slot] = names[key]
    return slots, {"iteration": _number(variables[0][1]), "learning_rate": _number(variables[1][1])}
