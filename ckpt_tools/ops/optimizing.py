"""``--with-optimizer``: the state of the source's optimizers, and its way into the target.

Only what is sure is carried over: state of Adam or SGD that belongs to weights beyond doubt, each of which is moved and
not changed by the translation, into a model whose parameters are known in their order. Everything else is a reason, in
one sentence, to leave the state behind; whatever the user has to know or to set is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpt_tools.core.keys import Key, listed
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tree import Node
from ckpt_tools.mapping.optimizers import (
    ADAM,
    DECOUPLED,
    MOST_STEPS,
    SETTINGS,
    NotSure,
    OptimizerState,
    Parameter,
    Placed,
    placed,
)
from ckpt_tools.mapping.recipes import Recipe
from ckpt_tools.ops.comparands import Comparand
from ckpt_tools.ops.optimizer_states import Origin, is_statistics, optimizers_of

#: The file that a Keras model loads its optimizer's variables from.
_KERAS_WRITER = "hdf5"
_WORDS = {
    "lr": "learning rate",
    "betas": "betas",
    "eps": "epsilon",
    "momentum": "momentum",
    "weight_decay": "weight decay",
}
#: Settings that the target's files have a place for; torch's have one for all.
_IN_THE_FILE = {"torch": frozenset(_WORDS), "paddle": frozenset[str](), "keras": frozenset({"lr"})}


@dataclass(frozen=True)
class Destination:
    """The target: the ``model`` given for it, the ``recipes`` that make its weights, its framework, the writer of its
    file, and the dict that its state goes to by the dict in the source."""

    model: Comparand | None
    recipes: Sequence[Recipe]
    family: str
    writer: str
    containers: Mapping[Key, Key]


@dataclass
class CarriedState:
    """The target's state: recipes by key, values that are no tensors, and what is to be said."""

    recipes: list[tuple[Key, Recipe]] = field(default_factory=list)
    values: list[tuple[Key, Node]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def carry(origin: Origin, family: str, destination: Destination) -> CarriedState:
    """The state of every optimizer of the source for the target, and a note on each that is left out."""
    carried = CarriedState()
    optimizers = optimizers_of(origin, family)
    if not optimizers:
        carried.notes.append("there is no state of an optimizer")
    for each in optimizers:
        title = "optimizer" if len(optimizers) == 1 else f"optimizer {'/'.join(map(str, each.container))}"
        try:
            if isinstance(each.state, NotSure):
                raise each.state
            if destination.family == "keras" and len(optimizers) > 1:
                raise NotSure("a Keras model has one optimizer, and here are several")
            parameters = _parameters(destination)
            made = placed(destination.family, each.state, parameters, family)
        except NotSure as reason:
            whose = "the optimizer's state" if len(optimizers) == 1 else f"the state of {title}"
            carried.notes.append(f"{whose} is left out: {reason}")
            continue
        container = destination.containers[each.container]
        carried.recipes += [((*container, *_parts(r.target, destination.family)), r) for r in made.recipes]
        if destination.family == "torch":
            carried.values.append(((*container, "param_groups"), made.groups))
        carried.notes += [f"{title}: {note}" for note in _notes(each.state, made, family, destination.family)]
    return carried


def _parts(name: str, family: str) -> Key:
    if family == "paddle":
        return (name,)
    return tuple(int(part) if part.isdecimal() and family == "torch" else part for part in name.split("/"))


def _parameters(target: Destination) -> list[Parameter]:
    """What an optimizer of all of the target is given, in the order of its model: each parameter once."""
    if target.model is None or not target.model.is_model:
        raise NotSure(
            "the order and names of the target's parameters are known by a model or a spec of it, --like, not by a checkpoint"
        )
    if target.family == "keras" and target.writer != _KERAS_WRITER:
        raise NotSure("an optimizer of Keras finds its state in .weights.h5, and this is another file")
    made = {recipe.target: recipe for recipe in target.recipes}
    found = []
    for row in target.model.rows:
        if row.role is not Role.WEIGHT or row.same_as is not None or not row.is_parameter or is_statistics(row):
            continue
        name = next((name for name in (row.name, *row.other_names.values()) if name in made), None)
        name = name or next((name for name in made if name.endswith(f"/{row.name}")), None)
        variable = row.other_names.get("variable", "")
        if name is None or (target.family == "paddle" and not variable):
            raise NotSure(f"{row.name} of the target is not made")
        found.append(Parameter(row.name, variable, made[name]))
    return found


# ---- what is said


def _notes(state: OptimizerState, made: Placed, source: str, target: str) -> list[str]:
    """How far the training is, which parameters begin anew, what was assumed, and what is set in code."""
    notes = [f"{state.kind} {_progress(state)}"]
    if made.without:
        notes.append(f"no state for {listed(made.without)}, where it begins anew")
    notes += state.assumed
    if target == "torch" and source != "torch":
        notes.append("made for one of all the model's parameters in their order, as param_names say")
    notes += _notes_on_settings(state, source, target)
    return notes


def _progress(state: OptimizerState) -> str:
    if state.kind != ADAM:
        return "after an unknown number of steps"
    steps = sorted({each.steps for each in state.weights.values()})
    last = f"{steps[-1]} step{'' if steps[-1] == 1 else 's'}" + (" or more" if steps[-1] == MOST_STEPS else "")
    return f"after {last}" if len(steps) == 1 else f"after {steps[0]} to {last}"


def _notes_on_settings(state: OptimizerState, source: str, target: str) -> list[str]:
    every = [group.settings for group in state.groups]
    told = [name for name in SETTINGS[state.kind] if all(name in settings for settings in every)]
    untold = [name for name in SETTINGS[state.kind] if name not in told]
    if source == "paddle" and "betas" in told:  # the powers agree with the usual ones, which is not the same
        untold.append("betas")
    notes = []
    outside = [name for name in told if name not in _IN_THE_FILE[target] and name not in untold]
    if outside:
        said = [
            f"{_WORDS[name]} {' and '.join(dict.fromkeys(_shown(name, each) for each in every))}" for name in outside
        ]
        notes.append(f"set in code, as they were: {', '.join(said)}")
    words = [_WORDS[name] for name in untold] + (["nesterov"] if state.kind != ADAM and source != "torch" else [])
    if words:
        where = "stand at their defaults in this file: set them after loading" if target == "torch" else "set in code"
        notes.append(f"not in the source and {where}: {', '.join(words)}")
    return notes


def _shown(name: str, settings: Mapping[str, Any]) -> str:
    value = settings[name]
    if name != "weight_decay" or not value:
        return str(value)
    decoupled = settings.get(DECOUPLED, False if "momentum" in settings else None)
    how = {True: "apart from the gradient (AdamW)", False: "in the gradient", None: "Adam's or AdamW's"}[decoupled]
    return f"{value}, {how}"
