"""The state of optimizers as a checkpoint has it, by the weights that it belongs to.

Each dict that holds an optimizer is one of its own: a training may have several. State is paired with weights by names
wherever there are any, in Paddle's and TensorFlow's files, and torch's where the optimizer was given named parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.keys import Key, listed
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.rebuild import Blueprint
from ckpt_tools.core.tensors import AbsentTensor, Tensor
from ckpt_tools.core.tree import Dict, Node, NumpyScalar
from ckpt_tools.mapping.kinds import segments
from ckpt_tools.mapping.optimizers import (
    ADAM,
    BETAS,
    KERAS_NAMES,
    KERAS_SLOTS,
    PADDLE_SLOTS,
    SGD,
    SLOTS,
    TORCH_SLOTS,
    Group,
    NotSure,
    OptimizerState,
    WeightState,
    kind_of_slots,
    proven_settings,
    steps_behind_powers,
)
from ckpt_tools.mapping.roles import assign_roles
from ckpt_tools.mapping.spellings import BATCH_COUNTER
from ckpt_tools.ops.comparands import Comparand, Row
from ckpt_tools.ops.transforming import bytes_of

_GROUPS = "param_groups"
#: What a group of torch's lists, beside its settings.
_LISTS = ("params", "param_names")
#: The attribute of the state dict that torch.nn.Module.state_dict() makes.
_VERSIONS = "_metadata"
_ORDER_ASSUMED = "it has no param_names: its states are taken for those of the model's parameters in their order"
_MASTERS = "master_weights"
_PADDLE_POWERS = ("beta1_pow_acc", "beta2_pow_acc")
_PADDLE_RATE = ("LR_Scheduler", "last_lr")
#: The number counts the optimizers that a process made for one variable.
_PADDLE_SLOT = re.compile(r"_(?P<slot>[a-zA-Z][a-zA-Z0-9_]*?)_\d+")
_PADDLE_LOOKALIKES = {ADAM: "AdamW's or Lamb's", SGD: "the momentum of LARS"}
_STATISTICS = frozenset({"running_mean", "running_var", "_mean", "_variance", "moving_mean", "moving_variance"})
_KERAS_COUNT = re.compile(r"(?P<optimizer>[\w.-]+?)(?:_\d+)?/iteration")
_KERAS_VARIABLE = re.compile(r"(?:.*/)?optimizer/vars/(?P<number>\d+)")


@dataclass(frozen=True)
class Weight:
    """A weight of the source: whole key, name in the plan, name below the root."""

    key: Key
    current: str
    name: str
    tensor: Tensor


@dataclass(frozen=True)
class Origin:
    """Where optimizers are looked for. ``names`` has the name below the root of every leaf that is taken along, by its
    whole key; ``model`` is one of the source, where it was given."""

    checkpoint: Checkpoint
    weights: Sequence[Weight]
    names: Mapping[Key, str]
    model: Comparand | None


@dataclass(frozen=True)
class Found:
    """An optimizer of the source: the key of its dict, and its state or why that cannot be told."""

    container: Key
    state: OptimizerState | NotSure


def optimizers_of(origin: Origin, family: str) -> list[Found]:
    """Every optimizer that the checkpoint has state of."""
    return list({"torch": _torch_optimizers, "paddle": _paddle_optimizers, "keras": _keras_optimizers}[family](origin))


def is_statistics(row: Row) -> bool:
    """Whether a row of a model is what its layers count and no optimizer changes."""
    part = row.layer.part if row.layer is not None else ""
    return part in _STATISTICS or segments(row.name)[-1] in (*_STATISTICS, BATCH_COUNTER)


def _found(container: Key, read: Callable[[], OptimizerState]) -> Found:
    try:
        return Found(container, read())
    except NotSure as reason:
        return Found(container, reason)


def _parameters(origin: Origin) -> list[Weight]:
    """The weights that a model of the source has as its parameters, in its order; without a model, all in the file's
    order that are no running statistics. Of several names for one tensor the first."""
    first = {_identity(weight): weight for weight in reversed(origin.weights)}
    if origin.model is None or not origin.model.is_model:
        return [
            weight
            for weight in origin.weights
            if first[_identity(weight)] is weight and segments(weight.current)[-1] not in (*_STATISTICS, BATCH_COUNTER)
        ]
    by_name = {weight.current: weight for weight in origin.weights}
    found = []
    for row in origin.model.rows:
        if row.role is Role.WEIGHT and row.is_parameter and row.same_as is None and not is_statistics(row):
            weight = next((by_name[name] for name in (row.name, *row.other_names.values()) if name in by_name), None)
            weight = weight or _only([w for name, w in by_name.items() if name.endswith(f"/{row.name}")])
            if weight is None:
                raise NotSure(f"{row.name} of the model is not in the file")
            found.append(weight)
    return found


def _only(weights: Sequence[Weight]) -> Weight | None:
    return weights[0] if len(weights) == 1 else None


def _identity(weight: Weight) -> object:
    """Equal for the names of one tensor: the same bytes, or the same variable of the same dict."""
    alias = weight.tensor.alias
    return (weight.key[:-1], alias) if alias and weight.key else bytes_of(weight.tensor)


def _named_alike(origin: Origin) -> dict[str, list[str]]:
    """For each weight the names of the plan that its tensor has."""
    names: dict[object, list[str]] = {}
    for weight in origin.weights:
        names.setdefault(_identity(weight), []).append(weight.current)
    return {weight.current: names[_identity(weight)] for weight in origin.weights}


def _complete(
    origin: Origin,
    kind: str,
    states: Mapping[str, WeightState],
    groups: Sequence[Group],
    assumed: Sequence[str] = (),
    *,
    in_model_order: bool = True,
) -> OptimizerState:
    """The whole, with every other name of a weight beside the one that its state was found for."""
    alike = _named_alike(origin)
    everywhere = {name: state for weight, state in states.items() for name in alike[weight]}
    spread = [replace(g, weights=[name for weight in g.weights for name in alike[weight]]) for g in groups]
    return OptimizerState(kind, everywhere, spread, in_model_order, assumed)


def _slot(origin: Origin, key: Key, node: Node, weight: Weight) -> str:
    """The name of a slot's tensor. NotSure when it is not one for this weight."""
    if not isinstance(node, Tensor) or isinstance(node, AbsentTensor) or node.info.shape != weight.tensor.info.shape:
        raise NotSure(f"{'/'.join(map(str, key))} is not of the shape of {weight.name}")
    if key not in origin.names:
        raise NotSure(f"{'/'.join(map(str, key))} is not taken along")
    return origin.names[key]


def _plain(node: Node) -> Any:
    """A setting as a number or what else it is; a tensor of one element is a number."""
    if isinstance(node, Tensor) and not isinstance(node, AbsentTensor) and node.info.count == 1:
        return node.numpy().reshape(()).item()
    if isinstance(node, NumpyScalar):
        return node.value
    return tuple(map(_plain, node)) if isinstance(node, (list, tuple)) else node


def _number(node: Node) -> float | None:
    value = _plain(node)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# ---- torch


def _torch_optimizers(origin: Origin) -> Iterator[Found]:
    blueprint = Blueprint(origin.checkpoint.root, origin.checkpoint.limits)
    for container in dict.fromkeys(key[:at] for key in origin.names for at, part in enumerate(key) if part == _GROUPS):
        node = blueprint.container(container)
        if isinstance(node, dict) and isinstance(node.get("state"), dict):
            yield _found(container, partial(_from_torch, origin, container, node))


def _from_torch(origin: Origin, container: Key, node: Mapping[Any, Node]) -> OptimizerState:
    groups = node[_GROUPS]
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, dict) for group in groups):
        raise NotSure("its groups are none of torch's")
    states = {number: _present(each) for number, each in node["state"].items()}
    states = {number: each for number, each in states.items() if each}
    if not states:
        raise NotSure("it has no state yet")
    kind = kind_of_slots({name for each in states.values() for name in each} - {"step"}, TORCH_SLOTS)
    numbers = [_torch_numbers(group) for group in groups]
    owners = _torch_owners(origin, groups, numbers)
    known = {
        number: weight for group, weights in zip(numbers, owners.weights) for number, weight in zip(group, weights)
    }
    found = {}
    for number, each in states.items():
        if number not in known:
            raise NotSure(f"its state {number} belongs to none of its parameters")
        weight, slots = known[number], {}
        for slot in SLOTS[kind]:
            name = TORCH_SLOTS[slot]
            if name not in each:
                raise NotSure(f"its state {number} has no {name}")
            slots[slot] = _slot(origin, (*container, "state", number, name), each[name], weight)
        found[weight.current] = WeightState(slots, _torch_steps(each.get("step"), number) if kind == ADAM else 0)
    settings = [
        proven_settings(kind, {str(name): _plain(value) for name, value in group.items() if name not in _LISTS})
        for group in groups
    ]
    made = [Group([weight.current for weight in w], told) for w, told in zip(owners.weights, settings)]
    return _complete(origin, kind, found, made, owners.assumed, in_model_order=owners.in_model_order)


def _present(state: Node) -> dict[str, Node]:
    if not isinstance(state, dict):
        raise NotSure("its state is none of torch's")
    return {str(name): value for name, value in state.items() if value is not None}


def _torch_numbers(group: Mapping[Any, Node]) -> list[int]:
    numbers = group.get("params")
    if not isinstance(numbers, (list, tuple)) or not all(type(number) is int for number in numbers):
        raise NotSure("its parameters have no numbers")
    return list(numbers)


def _torch_steps(node: Node, number: int) -> int:
    steps = _number(node)
    if steps is None or steps < 0 or steps != round(steps):
        raise NotSure(f"its state {number} has no number of steps")
    return round(steps)


@dataclass(frozen=True)
class _Owners:
    """The weights of each group of parameters, and how that is known."""

    weights: Sequence[Sequence[Weight]]
    in_model_order: bool = True
    assumed: Sequence[str] = ()


def _torch_owners(origin: Origin, groups: Sequence[Mapping[Any, Node]], numbers: Sequence[Sequence[int]]) -> _Owners:
    """Whose state the numbers of the groups are. By ``param_names``, which torch keeps since 2.6 where an optimizer was
    given ``named_parameters()``; else by the order of the model, as torch's documentation says it is made. That is told by
    a model, or by a state dict as a module gives it; any other may have been sorted."""
    names = [group.get("param_names") for group in groups]
    total = sum(map(len, numbers))
    if any(names):
        if not all(_are_names(each, len(own)) for each, own in zip(names, numbers)):
            raise NotSure("its param_names are not those of its parameters")
        weights = iter(_with_names(origin.weights, [str(name) for each in names for name in each or ()]))
        found = [[next(weights) for _ in own] for own in numbers]
        places = {weight.current: at for at, weight in enumerate(origin.weights)}
        order = [places[weight.current] for weight in found[0]]
        return _Owners(found, in_model_order=len(found) == 1 and order == sorted(order))
    if len(groups) > 1:
        raise NotSure("it has several groups of parameters and no param_names")
    ordered = _parameters(origin)
    if len(ordered) != total:
        raise NotSure(f"it has {total} parameters without names, and {len(ordered)} weights could be them")
    shapes = {weight.tensor.info.shape for weight in ordered}
    if len(shapes) < total and not _in_model_order(origin, ordered):
        raise NotSure(
            "it has no param_names, and weights of one shape are in an order that is not sure to be the model's"
        )
    return _Owners([ordered], assumed=[_ORDER_ASSUMED])


def _in_model_order(origin: Origin, weights: Sequence[Weight]) -> bool:
    """Whether the order is that of a model, or of its state dict, which modules mark with the versions of their classes."""
    if origin.model is not None and origin.model.is_model:
        return True
    blueprint = Blueprint(origin.checkpoint.root, origin.checkpoint.limits)
    holders = [blueprint.container(key) for key in {weight.key[:-1] for weight in weights}]
    return all(isinstance(each, Dict) and _VERSIONS in (each.attributes or ()) for each in holders)


def _are_names(names: Node, count: int) -> bool:
    return isinstance(names, (list, tuple)) and len(names) == count and all(isinstance(name, str) for name in names)


def _with_names(weights: Sequence[Weight], names: Sequence[str]) -> list[Weight]:
    """The weights of these names below the one prefix under which all of them are. NotSure when there is no such, or
    more than one."""
    ends: dict[str, dict[str, Weight]] = {}
    for weight in weights:
        for at in (0, *(mark.end() for mark in re.finditer(r"[/.]", weight.name))):
            ends.setdefault(weight.name[at:], {})[weight.name[:at]] = weight
    prefixes = set(ends.get(names[0], {})) if names else set()
    for name in names:
        prefixes &= set(ends.get(name, {}))
    if len(prefixes) != 1 or len(set(names)) != len(names):
        several = f"of several dicts, {listed(sorted(prefixes))}," if prefixes else "in no dict"
        raise NotSure(f"its param_names are {several} of the file")
    prefix = prefixes.pop()
    return [ends[name][prefix] for name in names]


# ---- Paddle


def _paddle_optimizers(origin: Origin) -> Iterator[Found]:
    weights = {weight.key for weight in origin.weights}
    roles = assign_roles([entry.key for entry in origin.checkpoint.entries], family="paddle")
    containers: dict[Key, list[Entry]] = {}
    for entry in origin.checkpoint.entries:
        if not entry.is_tensor or entry.key in weights or entry.key not in origin.names:
            continue
        masters = entry.key.index(_MASTERS) if _MASTERS in entry.key else None
        if masters is not None or roles.get(entry.key) is Role.OPTIMIZER:
            containers.setdefault(entry.key[: -1 if masters is None else masters], []).append(entry)
    for container, entries in containers.items():
        yield _found(container, partial(_from_paddle, origin, container, entries, alone=len(containers) == 1))


def _from_paddle(origin: Origin, container: Key, entries: Sequence[Entry], *, alone: bool) -> OptimizerState:
    if any(_MASTERS in entry.key for entry in entries):
        raise NotSure("it has master weights")
    variables = _by_variable(origin.weights)
    slots: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        variable, slot = _accumulator(str(entry.key[-1]), variables)
        if slot in slots.setdefault(variable, {}):
            raise NotSure(f"it has {slot} of {variable} twice")
        slots[variable][slot] = entry
    kind = kind_of_slots({slot for each in slots.values() for slot in each} - {*_PADDLE_POWERS}, PADDLE_SLOTS)
    found = {}
    for variable, each in slots.items():
        weight = variables[variable]
        missing = [PADDLE_SLOTS[slot] for slot in SLOTS[kind] if PADDLE_SLOTS[slot] not in each]
        if missing:
            raise NotSure(f"{missing[0]} of {variable} is missing")
        named = {slot: each[PADDLE_SLOTS[slot]] for slot in SLOTS[kind]}
        kept = {slot: _slot(origin, entry.key, entry.node, weight) for slot, entry in named.items()}
        found[weight.current] = WeightState(kept, _paddle_steps(each, variable) if kind == ADAM else 0)
    rate = next((_number(e.node) for e in origin.checkpoint.entries if e.key == (*container, *_PADDLE_RATE)), None)
    settings: dict[str, Any] = {} if rate is None else {"lr": rate}
    weights = [weight.current for weight in origin.weights if alone or weight.current in found]
    assumed = [f"Paddle does not say whose it is: {_PADDLE_LOOKALIKES[kind]} looks the same"]
    if kind == ADAM:
        settings["betas"] = BETAS
    return _complete(origin, kind, found, [Group(weights, settings)], assumed)


def _by_variable(weights: Sequence[Weight]) -> dict[str, Weight]:
    """The weights by Paddle's names for them. NotSure when one name is that of several."""
    found: dict[str, Weight] = {}
    for weight in weights:
        known = found.setdefault(weight.tensor.alias, weight) if weight.tensor.alias else weight
        if _identity(known) != _identity(weight):
            raise NotSure(f"{weight.tensor.alias} is the name of both {known.name} and {weight.name}")
    return found


def _accumulator(name: str, variables: Mapping[str, Weight]) -> tuple[str, str]:
    """The variable and the slot of an accumulator."""
    for mark in re.finditer("_", name):
        found = _PADDLE_SLOT.fullmatch(name, mark.start())
        if found is not None and name[: mark.start()] in variables:
            return name[: mark.start()], found["slot"]
    raise NotSure(f"{name} belongs to no weight of the file")


def _paddle_steps(slots: Mapping[str, Entry], variable: str) -> int:
    powers = [_number(slots[name].node) if name in slots else None for name in _PADDLE_POWERS]
    if powers[0] is None or powers[1] is None:
        raise NotSure(f"the powers of its betas for {variable} are missing")
    steps = steps_behind_powers(powers[0], powers[1])
    if steps is None:
        raise NotSure(f"the powers of its betas for {variable} are not those of {BETAS[0]} and {BETAS[1]}")
    return steps


# ---- Keras


def _keras_optimizers(origin: Origin) -> Iterator[Found]:
    own = {key for key, purpose in origin.checkpoint.purposes.items() if purpose.role is Role.OPTIMIZER}
    if any(key in own or _is_keras_optimizer(key) for key in origin.names):
        yield _found(("optimizer",), partial(_from_keras, origin))


def _is_keras_optimizer(key: Key) -> bool:
    return "optimizer_weights" in key or "optimizer/vars" in "/".join(map(str, key))


def _from_keras(origin: Origin) -> OptimizerState:
    weights = {weight.key for weight in origin.weights}
    tensors = {e.key: e.node for e in origin.checkpoint.entries if e.is_tensor and e.key in origin.names}
    called = {tensor.alias: tensor for key, tensor in tensors.items() if tensor.alias and key not in weights}
    counts = {name: found for name in called if (found := _KERAS_COUNT.fullmatch(name)) is not None}
    if len(counts) != 1:
        raise NotSure("it is not one alone" if counts else "the file does not say which optimizer it is")
    (count, said), *_ = counts.items()
    kind = KERAS_NAMES.get(said["optimizer"])
    if kind is None:
        raise NotSure(f"it is called {said['optimizer']}, which is neither Adam nor SGD")
    steps = _number(called[count])
    rate = called.get(count.replace("/iteration", "/learning_rate"))
    assumed: list[str] = []
    slots = _keras_slots(origin, kind)
    if not slots:
        slots, rate = _keras_variables(origin, tensors, kind)
        if kind == SGD:
            assumed.append("an average (use_ema) or an accumulated gradient instead of a momentum would look the same")
    learning_rate = None if rate is None else _number(rate)
    settings = {} if learning_rate is None else {"lr": learning_rate}
    if steps is None:
        raise NotSure("the number of its steps is not in the file")
    states = {weight: WeightState(each, round(steps)) for weight, each in slots.items()}
    if any(set(each) != set(SLOTS[kind]) for each in slots.values()):
        raise NotSure(f"not every weight has all of the state of {said['optimizer']}")
    every = [weight.current for weight in origin.weights]
    return _complete(origin, kind, states, [Group(every, settings)], assumed)


def _keras_slots(origin: Origin, kind: str) -> dict[str, dict[str, str]]:
    """By weight the slots that TensorFlow's object graph tells."""
    by_key = {weight.key: weight for weight in origin.weights}
    nodes = {entry.key: entry.node for entry in origin.checkpoint.entries}
    found: dict[str, dict[str, str]] = {}
    for key, purpose in origin.checkpoint.purposes.items():
        weight = by_key.get(purpose.of) if purpose.of is not None else None
        if weight is None or purpose.slot is None:
            continue
        if purpose.slot not in KERAS_SLOTS[kind]:
            raise NotSure(f"it keeps {purpose.slot}, for which nothing is proven")
        found.setdefault(weight.current, {})[KERAS_SLOTS[kind][purpose.slot]] = _slot(origin, key, nodes[key], weight)
    return found


def _keras_variables(
    origin: Origin, tensors: Mapping[Key, Tensor], kind: str
) -> tuple[dict[str, dict[str, str]], Tensor]:
    """``optimizer/vars/N``: iteration, learning rate, then the slots of one trainable variable after the other. The slots
    by weight, and the learning rate."""
    variables: dict[int, tuple[Key, Tensor]] = {}
    for key, tensor in tensors.items():
        found = _KERAS_VARIABLE.fullmatch("/".join(map(str, key)))
        if found is not None:
            variables[int(found["number"])] = key, tensor
    if origin.model is None:
        raise NotSure("the order of its variables is known by a model of the source, a second --like")
    trained = _parameters(origin)
    each = len(SLOTS[kind])
    if set(variables) != set(range(2 + each * len(trained))):
        wanted = f"{each} for each of the {len(trained)} trainable variables of the model"
        raise NotSure(f"it has {len(variables)} variables, not two and {wanted}")
    slots: dict[str, dict[str, str]] = {}
    for position, weight in enumerate(trained):
        for index, slot in enumerate(SLOTS[kind]):
            key, tensor = variables[2 + position * each + index]
            slots.setdefault(weight.current, {})[slot] = _slot(origin, key, tensor, weight)
    return slots, variables[1][1]
