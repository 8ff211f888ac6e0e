"""``ckpt convert``: what becomes of every leaf, decided before a byte is written; then one pass that writes.

The plan goes in steps, each a function from leaves to leaves: select (below a root, by globs, weights or averages
alone), rename, transform, ask the target what it cannot hold. What is decided there is what ``--dry-run`` shows, what is
refused and what is written.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ckpt_tools.core.casting import CastTensor, can_cast
from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.dtypes import DType
from ckpt_tools.core.keys import SHOWN_NAMES, Globs, Key, listed, names_of, plain_name, printable, renamed_key
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.rebuild import Blueprint, Leaf, containers
from ckpt_tools.core.tensors import AbsentTensor, CompositeTensor, NumpyArray, StridedTensor, StringTensor, Tensor
from ckpt_tools.core.tree import Dict, Node, Opaque, children, is_container
from ckpt_tools.errors import MissingBytes, UnsafePickle, WriteRefused
from ckpt_tools.formats import writers
from ckpt_tools.formats._modules import ModuleState
from ckpt_tools.formats._object_graph import GRAPH_KEY
from ckpt_tools.formats._safetensors_header import METADATA
from ckpt_tools.formats._values import flat_name
from ckpt_tools.formats._writing import Request, Target, WritePlan, refuse_collisions
from ckpt_tools.mapping.layouts import FAMILY_BY_FORMAT
from ckpt_tools.mapping.recipes import Recipe
from ckpt_tools.mapping.roles import assign_roles
from ckpt_tools.mapping.rule_files import RuleFile
from ckpt_tools.mapping.rules import Rule, plan_moves
from ckpt_tools.mapping.transforms import Transforms, describe
from ckpt_tools.ops.listing import root_key
from ckpt_tools.ops.transforming import DerivedTensor, bytes_of, made, transformed
from ckpt_tools.ops.translating import LayoutWishes, Obstacles, plan_translation, require_model_for
from ckpt_tools.ops.weight_names import NamedLeaf

#: Counters that belong to a module's own state, and are wanted where that is loaded again.
_MODULE_COUNTERS = ("num_batches_tracked",)
_FOREIGN_CALL = "pickle-foreign-call"
#: What only one format has a place for, by format: the first part of the key.
_OWN_PLACES = {"safetensors": METADATA, "tf-bundle": GRAPH_KEY}
#: Of that, what says nothing about the content: the framework whose tensors a safetensors file holds.
_BOOKKEEPING = {(METADATA, "format"), (GRAPH_KEY,)}


_FAMILY_TITLES = {"torch": "PyTorch", "paddle": "Paddle", "keras": "TensorFlow"}


@dataclass(frozen=True)
class Wishes:
    """What the user asked for. ``writer`` is a row's name; the rules are applied stage by stage."""

    writer: str
    root: str | None = None
    globs: Globs = field(default_factory=Globs)
    weights_only: bool = False
    averages: bool = False
    stages: Sequence[Sequence[Rule]] = ()
    recipes: Sequence[Recipe] = ()
    layout: LayoutWishes | None = None
    dtype: DType | None = None
    max_shard_nbytes: int | None = None
    allow_loss: bool = False


@dataclass(frozen=True)
class Move:
    """One tensor's way: its name in the source and in the target, what happens to it, and the result."""

    source: str
    target: str
    transforms: str
    tensor: Tensor
    sources: tuple[str, ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "from": (self.source or None) if len(self.sources) < 2 else list(self.sources),
            "to": self.target,
            "transform": self.transforms or None,
            "decided_by": self.why or None,
            "dtype": self.tensor.info.dtype.name,
            "shape": list(self.tensor.info.shape),
            "nbytes": self.tensor.nbytes,
        }


@dataclass(frozen=True)
class Loss:
    """Something that the target will not have, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass
class Conversion:
    """A plan: the tree that will be written, and everything that is to be said about it."""

    source: Checkpoint
    target: Path
    writer: str
    root: Node
    write_plan: WritePlan
    moves: list[Move]
    values: int
    dropped: list[str]
    losses: list[Loss]
    notes: list[str]
    mapping: RuleFile
    obstacles: Obstacles
    written: bool = False

    def to_json(self) -> dict[str, Any]:
        """The document of ``ckpt.convert/1``."""
        return {
            "schema": "ckpt.convert/1",
            "source": self.source.location.shown,
            "target": os.fspath(self.target),
            "format": self.writer,
            "written": self.written,
            "moves": [move.to_json() for move in self.moves],
            "dropped": self.dropped,
            "losses": [{"name": loss.name, "reason": loss.reason} for loss in self.losses],
            "ambiguous": [each.to_json() for each in self.obstacles.ambiguous],
            "notes": self.notes,
            "files": [{"path": os.fspath(f.path), "nbytes": f.nbytes} for f in self.write_plan.files],
            "unplaced": self.obstacles.unplaced,
            "unfilled": self.obstacles.unfilled,
            "conflicts": self.obstacles.conflicts,
        }


@dataclass(frozen=True)
class _Step:
    """A leaf on its way: its names in the source (whole) and below the root, and what was done to it so far."""

    leaf: Leaf
    name: str
    transforms: Transforms = ()
    recipe: Recipe | None = None
    sources: tuple[str, ...] = ()
    why: str = ""

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.leaf.node, Tensor)

    @property
    def described(self) -> str:
        """What happens to the values."""
        cast = f"cast({self.leaf.node.info.dtype})" if isinstance(self.leaf.node, CastTensor) else ""
        steps = describe(self.transforms) if self.recipe is None else self.recipe.described
        return " then ".join(filter(None, (steps, cast)))


def plan(source: Checkpoint, target: Path, wishes: Wishes) -> Conversion:
    """Decide everything. Reads structure only.

    UnsafePickle and MissingBytes for what cannot be read; WriteRefused for names that collide, a selection that leaves
    nothing and a target that is the source. Losses are in the result, for :func:`refuse_losses`.
    """
    row = writers.writer_named(wishes.writer)
    _refuse_foreign_calls(source, allow_loss=wishes.allow_loss)
    notes: list[str] = []
    dropped: list[str] = []
    origin = () if wishes.root is None else root_key(source, wishes.root)
    below = Blueprint(source.root, source.limits).container(origin)
    blueprint = Blueprint(below, source.limits)
    every = _steps(source, blueprint, origin)
    steps = _selected(source, every, origin, wishes, dropped, notes)
    stages, recipes = wishes.stages, wishes.recipes
    translation = None
    if wishes.layout is not None:
        require_model_for(str(target), wishes.layout)
        leaves = _named_leaves(steps, origin, stages)
        translation = plan_translation(source, leaves, wishes.layout, row.name, nests=row.target.nests)
        notes += translation.notes
        stages, recipes = [translation.file.rules], translation.file.recipes
    selected = steps
    own = _OWN_PLACES.get(source.format)
    beside = [step for step in steps if step.leaf.key[:1] == (own,)]  # has its place by its name
    steps = [step for step in steps if step.leaf.key[:1] != (own,)]
    steps = beside + _renamed(steps, stages, recipes, dropped, notes)
    if translation is not None and translation.dict_made:
        steps = [_inside(step, translation.dict_made) for step in steps]
    if translation is not None and translation.carried is not None:
        steps += _cooked_at(translation.carried.recipes, selected)
        dropped = _still_dropped(dropped, steps)
    steps = _lone_arrays_as_tensors(_transformed(steps, wishes.dtype))
    steps, losses = _kept(steps, row.target, blueprint, allow_loss=wishes.allow_loss)
    if translation is not None and translation.carried is not None:
        steps += [_Step(Leaf(key, key, node), "") for key, node in translation.carried.values]
    refusing = translation is not None and bool(translation.obstacles)
    nothing = not refusing and not any(map(_is_content, steps)) and any(map(_is_content, every))
    if nothing and (wishes.allow_loss or not losses):
        why = f": {listed([str(loss) for loss in losses], '; ')}" if losses else ""
        raise WriteRefused(f"no tensor is left to be written{why}", where=source.location.shown)
    _refuse_clashes(steps)
    as_it_is = len(steps) == len(every) and all(step.leaf is was.leaf for step, was in zip(steps, every))
    modules = [node for node in containers(below) if isinstance(node, ModuleState)]
    root = below if as_it_is and not modules else blueprint.assemble(step.leaf for step in steps)
    if source.format == "safetensors" and row.target.keeps_attributes:
        root = _metadata_as_attribute(root)
    notes += [
        f"the shell of the module {name} is dropped, its state stays" for name in _unique(m.type_name for m in modules)
    ]
    notes += _remarks(root, row.target)
    notes += _sharing_notes(steps, row.target)
    if wishes.layout is None and not any(step.transforms or step.recipe or step.why for step in steps):
        notes += _family_note(source.format, wishes.writer) + _variable_note(steps, source.format, wishes.writer)
    write_plan = row.plan(root, Request(target, wishes.max_shard_nbytes))
    moves = [
        Move(step.name, name, step.described, step.leaf.node, step.sources, step.why)
        for step, name in zip(steps, _target_names([step.leaf.key for step in steps], row.target))
        if step.is_tensor
    ]
    conversion = Conversion(
        source=source,
        target=target,
        writer=wishes.writer,
        root=root,
        write_plan=write_plan,
        moves=moves,
        values=len(steps) - len(moves),
        dropped=dropped,
        losses=losses,
        notes=[*notes, *write_plan.notes],
        mapping=translation.file if translation is not None else RuleFile(),
        obstacles=translation.obstacles if translation is not None else Obstacles(),
    )
    _refuse_source_as_target(conversion)
    return conversion


def _metadata_as_attribute(root: Node) -> Node:
    """The tree with the metadata of its safetensors file beside its keys: with one more, a state dict would not load."""
    if not isinstance(root, dict) or METADATA not in root:
        return root
    made = Dict(((key, node) for key, node in root.items() if key != METADATA), type_name="collections.OrderedDict")
    made.attributes = Dict({METADATA: root[METADATA]})
    return made


def _is_content(step: _Step) -> bool:
    return step.is_tensor and step.leaf.key[:1] not in {(name,) for name in _OWN_PLACES.values()}


def _target_names(keys: Sequence[Key], target: Target) -> list[str]:
    """What leaves are called in the target, for people."""
    return names_of(keys) if target.nests else [printable(flat_name(key)) for key in keys]


def _refuse_foreign_calls(source: Checkpoint, *, allow_loss: bool) -> None:
    calls = [issue for issue in source.issues if issue.code == _FOREIGN_CALL]
    if calls and not allow_loss:
        more = f" (and {len(calls) - 1} more of the kind)" if len(calls) > 1 else ""
        raise UnsafePickle(
            f"{calls[0].message}{more}",
            where=source.location.shown,
            hint="if you trust the rest of it, --allow-loss leaves such objects out",
        )


def _steps(source: Checkpoint, blueprint: Blueprint, origin: Key) -> list[_Step]:
    names = {entry.key: entry.name for entry in source.entries}
    return [_Step(leaf, names.get((*origin, *leaf.key), plain_name(leaf.key))) for leaf in blueprint.leaves()]


# -- select ----------------------------------------------------------------------------------------------------------


def _selected(
    source: Checkpoint, steps: list[_Step], origin: Key, wishes: Wishes, dropped: list[str], notes: list[str]
) -> list[_Step]:
    """The leaves that the user wants, and not what only the source's format needs."""
    kept, bookkeeping = [], []
    for step in steps:
        if wishes.writer != source.format and (*origin, *step.leaf.key) in _BOOKKEEPING:
            bookkeeping.append(step.name)
        elif wishes.globs(step.name):
            kept.append(step)
        else:
            dropped.append(step.name)
    if bookkeeping:
        dropped += bookkeeping
        notes.append(f"{listed(bookkeeping)}: only {source.format} has a place for it")
    if wishes.weights_only or wishes.averages:
        kept = _weights(source, kept, origin, wishes, dropped, notes)
    return kept


def _weights(
    source: Checkpoint, steps: list[_Step], origin: Key, wishes: Wishes, dropped: list[str], notes: list[str]
) -> list[_Step]:
    """The weights, or their averages where there are such; the rest is counted by role in a note."""
    keys = {step.leaf.key: (*origin, *step.leaf.key) for step in steps}
    all_keys = [entry.key for entry in source.entries]
    roles = assign_roles(all_keys, family=FAMILY_BY_FORMAT.get(source.format), known=source.purposes)
    keeps_counters = FAMILY_BY_FORMAT.get(wishes.writer, "torch") == "torch"
    averages = _averages(source, roles) if wishes.averages else {}
    if wishes.averages and not averages:
        raise WriteRefused("it holds no moving averages", where=source.location.shown)
    nodes = {keys[step.leaf.key]: step for step in steps}
    kept: list[_Step] = []
    left_out: Counter[str] = Counter()
    own = _OWN_PLACES.get(source.format) if wishes.writer == source.format else None
    for step in steps:
        key = keys[step.leaf.key]
        if own is not None and key[:1] == (own,):
            kept.append(step)
            continue
        role = roles.get(key, Role.WEIGHT) if step.is_tensor else None
        if role is Role.COUNTER and keeps_counters and str(key[-1]).endswith(_MODULE_COUNTERS):
            role = Role.WEIGHT
        if role is Role.WEIGHT:
            average = nodes.get(averages.get(key, ()))
            kept.append(step if average is None else replace(average, leaf=replace(step.leaf, node=average.leaf.node)))
        else:
            left_out["value" if role is None else role.value] += 1
            dropped.append(step.name)
    if left_out:
        notes.append("left out: " + ", ".join(f"{count} × {what}" for what, count in left_out.items()))
    return kept


def _averages(source: Checkpoint, roles: dict[Key, Role]) -> dict[Key, Key]:
    """The key of the average for each weight that has one."""
    found: dict[Key, Key] = {}
    weights = [key for key, role in roles.items() if role is Role.WEIGHT]
    for key, role in roles.items():
        if role is not Role.AVERAGE:
            continue
        purpose = source.purposes.get(key)
        of = purpose.of if purpose is not None else None
        if of is None:
            # an average keeps its weight's name below a dict of its own, at whatever depth
            alike = [weight for weight in weights if weight[-1] == key[-1]]
            longest = max((_common_end(weight, key) for weight in alike), default=0)
            alike = [weight for weight in alike if _common_end(weight, key) == longest]
            of = alike[0] if len(alike) == 1 else None
        if of is None:
            raise WriteRefused(
                f"which weight {plain_name(key)} is the average of cannot be told", where=source.location.shown
            )
        found[of] = key
    return found


def _common_end(one: Key, other: Key) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length


# -- rename and transform --------------------------------------------------------------------------------------------


def _named_leaves(steps: list[_Step], origin: Key, stages: Sequence[Sequence[Rule]]) -> list[NamedLeaf]:
    """The leaves under their own names and under those that the user's rules give them; without what those drop."""
    names = names_of([step.leaf.key for step in steps])
    moves = plan_moves(names, *stages)
    moves.refuse_collisions(WriteRefused)
    by_name = dict(zip(names, steps))
    found = []
    for move in (*moves.moves, *moves.drops):
        leaf = by_name[move.source].leaf
        if move.transforms:
            raise WriteRefused(f"{move.source} cannot go through {describe(move.transforms)} and a layout as well")
        key = renamed_key(move.target, leaf.key) if move.target not in ("", move.source) else leaf.key
        found.append(NamedLeaf((*origin, *leaf.key), move.source, move.target, key, leaf.node))
    return found


def _renamed(
    steps: list[_Step],
    stages: Sequence[Sequence[Rule]],
    recipes: Sequence[Recipe],
    dropped: list[str],
    notes: list[str],
) -> list[_Step]:
    """Leaves under the names that the rules give them, and those that recipes make, each after what it is made of.

    WriteRefused when names collide or expectations are broken.
    """
    if not any(stages) and not recipes:
        return steps
    names = names_of([step.leaf.key for step in steps])
    moves = plan_moves(names, *stages)
    moves.refuse_collisions(WriteRefused)
    infos = {
        name: (step.leaf.node.info.dtype.name, step.leaf.node.info.shape)
        for name, step in zip(names, steps)
        if isinstance(step.leaf.node, Tensor)
    }
    broken = moves.broken_expectations(infos)
    if broken:
        raise WriteRefused(f"the rules expect something else: {listed(broken, '; ')}")
    notes += [f"no name is matched by the rule {rule}" for rule in moves.unused]
    by_name = dict(zip(names, steps))
    dropped += [by_name[move.source].name for move in moves.drops]
    cooked, fillings = _cooked(recipes, by_name)
    consumed = {each.source for recipe in recipes for each in recipe.ingredients}
    renamed = []
    places = {name: place for place, name in enumerate(names)}
    for move in moves.moves:
        step = by_name[move.source]
        if move.rules or move.source not in consumed:
            if move.target != move.source:
                step = replace(step, leaf=replace(step.leaf, key=renamed_key(move.target, step.leaf.key)))
            why = next((rule.why for rule in reversed(move.rules) if rule.why), "")
            step = replace(step, transforms=tuple(move.transforms), why=why)
            renamed.append((places[move.source], step))
    renamed += [(places[source], step) for source, step in cooked]
    renamed.sort(key=lambda item: item[0])
    return [*(step for _, step in renamed), *fillings]


def _inside(step: _Step, name: str) -> _Step:
    """A leaf that its name puts into a dict, in it, also where it came from a format without dicts."""
    above, _, below = str(step.leaf.key[0]).partition("/") if len(step.leaf.key) == 1 else ("", "", "")
    return replace(step, leaf=replace(step.leaf, key=(name, below))) if above == name and below else step


def _cooked_at(recipes: Sequence[tuple[Key, Recipe]], steps: list[_Step]) -> list[_Step]:
    """What recipes make, at keys of its own."""
    by_name = dict(zip(names_of([step.leaf.key for step in steps]), steps))
    cooked, fillings = _cooked([recipe for _, recipe in recipes], by_name)
    by_recipe = {id(step.recipe): step for step in (*(step for _, step in cooked), *fillings)}
    return [
        replace(by_recipe[id(recipe)], leaf=Leaf(key, key, by_recipe[id(recipe)].leaf.node)) for key, recipe in recipes
    ]


def _still_dropped(dropped: list[str], steps: list[_Step]) -> list[str]:
    used = {name for step in steps for name in step.sources}
    return [name for name in dropped if name not in used]


def _cooked(recipes: Sequence[Recipe], by_name: Mapping[str, _Step]) -> tuple[list[tuple[str, _Step]], list[_Step]]:
    """What recipes make of tensors, with the name of the first of them, and what they make of nothing."""
    tensors = {name: step.leaf.node for name, step in by_name.items() if isinstance(step.leaf.node, Tensor)}
    nested = any(len(step.leaf.key) > 1 for step in by_name.values())
    found, fillings = [], []
    for recipe in recipes:
        if recipe.filling is not None:
            key: Key = tuple(recipe.target.split("/")) if nested else (recipe.target,)
            filling = made(recipe, tensors)
            filling.alias = recipe.alias or None
            fillings.append(_Step(Leaf(key, key, filling), "", recipe=recipe, why=recipe.why))
            continue
        sources = tuple(each.source for each in recipe.ingredients)
        missing = [name for name in sources if name not in tensors]
        if missing:
            raise WriteRefused(f"{recipe.target} is to be made of {listed(missing)}, which no tensor is called")
        for name in sources:
            if isinstance(tensors[name], (AbsentTensor, CompositeTensor, StringTensor)):
                raise WriteRefused(f"{name} is no dense tensor and cannot go into {recipe.target}")
        first = by_name[sources[0]]
        tensor = made(recipe, tensors)
        if tensor.alias != (recipe.alias or None):
            tensor = copy(tensor)
            tensor.alias = recipe.alias or None
        leaf = Leaf(renamed_key(recipe.target, first.leaf.key), first.leaf.origin, tensor)
        names = tuple(by_name[name].name for name in sources)
        found.append((sources[0], _Step(leaf, names[0], recipe=recipe, sources=names, why=recipe.why)))
    return found, fillings


def _transformed(steps: list[_Step], dtype: DType | None) -> list[_Step]:
    """Leaves with the steps of the rules and the element type applied; tensors that were tied stay tied."""
    done: list[_Step] = []
    casts: dict[object, CastTensor] = {}
    for step in steps:
        node = step.leaf.node
        if not isinstance(node, Tensor) or isinstance(node, (AbsentTensor, CompositeTensor, StringTensor)):
            if step.transforms and isinstance(node, Tensor):
                raise WriteRefused(f"{step.name} is no dense tensor and cannot go through {describe(step.transforms)}")
            done.append(replace(step, transforms=()) if step.transforms else step)
            continue
        new = transformed(node, step.transforms)
        if dtype is not None and can_cast(new.info.dtype) and new.info.dtype is not dtype:
            new = casts.setdefault(bytes_of(new), CastTensor(new, dtype))
        done.append(step if new is node else replace(step, leaf=replace(step.leaf, node=new)))
    return done


# -- what the target cannot hold -------------------------------------------------------------------------------------


def _kept(
    steps: list[_Step], target: Target, blueprint: Blueprint, *, allow_loss: bool
) -> tuple[list[_Step], list[Loss]]:
    """The leaves that the target can hold, under keys that it can hold, and the others as losses.

    An object that is lost leaves its attributes behind, as a mapping; what it was called with is lost with it.
    """
    kept: list[_Step] = []
    losses: list[Loss] = []
    whole: Key | None = None  # the object whose parts go wherever it goes
    shell: str = ""
    for step in steps:
        node, key = step.leaf.node, step.leaf.origin
        if whole is not None and key[: len(whole)] == whole:
            if shell and step.is_tensor:
                losses.append(Loss(step.name, f"held by {shell}"))
            continue
        whole = None
        reason = next(filter(None, (_reason_key_lost(part, target) for part in blueprint.stored_keys(step.leaf))), None)
        if reason is not None:
            losses.append(Loss(step.name, f"below a key that is {reason}"))
            continue
        if isinstance(node, AbsentTensor) and not node.by_design:
            if not allow_loss:
                raise MissingBytes(f"{step.name} has no bytes: {node.reason}", hint="--allow-loss goes on without it")
            losses.append(Loss(step.name, f"it has no bytes: {node.reason}"))
            continue
        reason = target.reason_lost(node)
        if isinstance(node, Opaque):
            if reason is None:
                whole, shell = key, ""
                kept.append(step)
            elif node.attributes():
                losses.append(Loss(step.name, f"{reason}, whose attributes stay as a mapping"))
            else:
                whole, shell = key, reason
                losses.append(Loss(step.name, reason))
        elif reason is None:
            kept.append(step)
        else:
            losses.append(Loss(step.name, reason))
    return kept, losses


def _reason_key_lost(key: Node, target: Target) -> str | None:
    """Why the target cannot hold a mapping's key; None when it can."""
    pending = [key]
    while pending:
        part = pending.pop()
        if type(part) is tuple:
            pending += part
        elif type(part) is not str:
            reason = "a tensor" if isinstance(part, Tensor) else target.reason_lost(part)
            if reason is not None:
                return reason
    return None


def refuse_losses(conversion: Conversion, target: Target) -> None:
    """WriteRefused when the plan loses something."""
    if conversion.losses:
        raise WriteRefused(
            f"{target.title} cannot hold {listed([str(loss) for loss in conversion.losses], '; ')}",
            where=conversion.source.location.shown,
            hint="--allow-loss leaves these out; --match, --exclude, --root and --weights-only select",
        )


def _refuse_clashes(steps: list[_Step]) -> None:
    """WriteRefused when two leaves got one key, or one a key below another's."""
    refuse_collisions((plain_name(step.leaf.key), step.name) for step in steps if step.leaf.key != step.leaf.origin)
    leaves = {step.leaf.key: step for step in steps}
    if len(leaves) < len(steps):
        refuse_collisions((plain_name(step.leaf.key), step.name) for step in steps)
    if all(step.leaf.key == step.leaf.origin for step in steps):
        return
    for step in steps:
        for length in range(len(step.leaf.key)):
            above = leaves.get(step.leaf.key[:length])
            if above is not None and not isinstance(above.leaf.node, Opaque):
                raise WriteRefused(f"{step.name} would lie below {above.name}, which is no container")


def _lone_arrays_as_tensors(steps: list[_Step]) -> list[_Step]:
    """Arrays of numpy are told apart from tensors only where there are both."""
    tensors = [step.leaf.node for step in steps if step.is_tensor]
    if not tensors or not all(isinstance(tensor, NumpyArray) for tensor in tensors):
        return steps
    made: dict[int, StridedTensor] = {}
    return [replace(s, leaf=replace(s.leaf, node=_as_tensor(s.leaf.node, made))) if s.is_tensor else s for s in steps]


def _as_tensor(array: NumpyArray, made: dict[int, StridedTensor]) -> StridedTensor:
    if id(array) not in made:
        made[id(array)] = StridedTensor(array.info, array.storage, array.offset, array.strides, note=array.note)
    return made[id(array)]


# -- notes -----------------------------------------------------------------------------------------------------------


def _remarks(root: Node, target: Target) -> list[str]:
    """What the target makes of containers and leaves, each kind once with the number of times."""
    found: Counter[str] = Counter()
    for node in containers(root):
        for item in (node, *(child for _, child in children(node) if not is_container(child))):
            remark = target.remark(item)
            if remark is not None:
                found[remark] += 1
    return [f"{remark} ({count}×)" if count > 1 else remark for remark, count in found.items()]


def _sharing_notes(steps: list[_Step], target: Target) -> list[str]:
    names: dict[object, list[str]] = defaultdict(list)
    compacted = 0
    for step in steps:
        tensor = step.leaf.node
        while isinstance(tensor, (CastTensor, DerivedTensor)):
            tensor = tensor.base
        if isinstance(tensor, StridedTensor) and tensor.info.nbytes and step.recipe is None:
            names[bytes_of(tensor)].append(step.name)
            compacted += tensor.nbytes < tensor.storage.nbytes
    notes = []
    tied = [found for found in names.values() if len(found) > 1]
    if tied and not target.keeps_sharing:
        shown = "; ".join(" = ".join(found) for found in tied[:SHOWN_NAMES])
        notes.append(
            f"sharing not preserved, equal copies are written: {shown}" + (" …" if len(tied) > SHOWN_NAMES else "")
        )
    if compacted:
        many = f"{compacted} tensors are views of larger storages"
        what = "1 tensor is a view of a larger storage" if compacted == 1 else many
        notes.append(f"{what}: only what tensors look at is written")
    return notes


def _family_note(source: str, target: str) -> list[str]:
    one, other = (_FAMILY_TITLES.get(FAMILY_BY_FORMAT.get(name, "")) for name in (source, target))
    if one is None or other is None or one == other:
        return []
    return [f"from {one} to {other}: names and layouts are copied as they are, no layout rule was applied"]


def _variable_note(steps: Sequence[_Step], source: str, target: str) -> list[str]:
    """What Paddle calls its variables says what layers they are of: worth a word where it stays behind."""
    if (FAMILY_BY_FORMAT.get(source), FAMILY_BY_FORMAT.get(target)) != ("paddle", "torch"):
        return []
    keys = ((step.leaf.key, step.leaf.node) for step in steps if isinstance(step.leaf.node, Tensor))
    names = [node.alias for key, node in keys if node.alias and node.alias not in key[-1:]]
    return [f"PyTorch has no place for the names of Paddle's variables: {listed(names)}"] if names else []


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _refuse_source_as_target(conversion: Conversion) -> None:
    """WriteRefused when a file that would be written, or removed, is one of those that are read."""
    written = [*(file.path for file in conversion.write_plan.files), *conversion.write_plan.obsolete]
    read = [conversion.source.location.path, *(source.path for source in conversion.source.sources)]
    for path in written:
        if any(_is_same(path, source) for source in read):
            raise WriteRefused("source and target are the same file", where=os.fspath(path))


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them does not exist, or has a name that nothing can have
        return False
