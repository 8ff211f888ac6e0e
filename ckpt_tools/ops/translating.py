"""``--to-layout``: what is known of the kinds of a checkpoint's weights, of the target, and the plan that follows from both.

What is known comes, in this order, from the user (``--kind``), from models and specs of either side (``--like``), and from
the source's own format: Paddle's variable names, Keras' groups. What names and shapes tell is found by the plan itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.keys import Globs, Key, listed
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import CompositeTensor, StringTensor, Tensor
from ckpt_tools.errors import UsageError, WriteRefused
from ckpt_tools.mapping.kinds import (
    CONVOLUTIONS,
    KINDS,
    MAGNITUDES,
    WEIGHT_NORM_DIMS,
    LayerPart,
    family_of_names,
    segments,
)
from ckpt_tools.mapping.layouts import FAMILIES, FAMILY_BY_FORMAT
from ckpt_tools.mapping.object_paths import Variable, full_names_tell_layers, plain_names
from ckpt_tools.mapping.recipes import Recipe
from ckpt_tools.mapping.remarks import outside_the_file, weight_norm_axis
from ckpt_tools.mapping.roles import assign_roles
from ckpt_tools.mapping.rule_files import RuleFile
from ckpt_tools.mapping.rules import Rule, literal
from ckpt_tools.mapping.spellings import BATCH_COUNTER, Certainty, Stored
from ckpt_tools.mapping.translation import Ambiguity, Side, Translation, translate
from ckpt_tools.ops.comparands import Comparand
from ckpt_tools.ops.optimizer_order import trained_rows
from ckpt_tools.ops.optimizer_states import Origin, Weight
from ckpt_tools.ops.optimizing import CarriedState, Destination, carry
from ckpt_tools.ops.transforming import bytes_of
from ckpt_tools.ops.weight_names import (
    NamedLeaf,
    Rows,
    common_prefix,
    describe_weights,
    is_floating,
    is_told_by_variable,
    namings_of,
    rows_of,
    told_names,
    variables_of,
    without_common_prefix,
)

TITLES = {"torch": "PyTorch", "paddle": "Paddle", "keras": "Keras"}
#: Which of a model's names a writer needs, where it is not the one that people know.
_NAMES_BY_WRITER = {"hdf5": "group", "tf-bundle": "object"}
_KERAS_WEIGHTS = ".weights.h5"
#: The dict of weights beside an optimizer's state, where the source has no dict around them.
_MODEL = "model"
#: Before the position of a variable in a group of Keras' files, which does not say what it is.
_PLACE = "/vars/"


@dataclass(frozen=True)
class LayoutWishes:
    """What the user asked for. ``likes`` are models, specs or checkpoints of the target, or of the source for what they
    know of kinds; ``kinds`` pairs of a glob and a kind; ``source_family`` the framework that the names are of, where
    neither format nor names tell it.
    """

    family: str
    likes: Sequence[Comparand] = ()
    kinds: Sequence[tuple[str, str]] = ()
    source_family: str | None = None
    partial: bool = False
    with_optimizer: bool = False


@dataclass
class Obstacles:
    """Why a translation cannot be carried out."""

    ambiguous: list[Ambiguity] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    unfilled: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    #: what else could settle it
    hint: str = ""

    def __bool__(self) -> bool:
        return bool(self.ambiguous or self.unplaced or self.unfilled or self.conflicts)

    def refuse(self, where: str) -> None:
        """WriteRefused, in one sentence, with the options that settle the first of them; nothing when there are none."""
        if self.conflicts:
            raise WriteRefused(listed(self.conflicts, "; "), where=where)
        if self.ambiguous:
            groups = [
                f"{listed(each.globs)} ({' or '.join('/'.join(alike) for alike in each.choices)})"
                for each in self.ambiguous
            ]
            first = self.ambiguous[0]
            lines = [f"--kind '{first.globs[0]}={kind}'" for kind in first.kinds]
            # names that look alike may be of different layers: each is for the user to say
            others = ", and so for each of the others" if len(self.ambiguous) > 1 or len(first.globs) > 1 else ""
            raise WriteRefused(
                f"nothing tells {self.ambiguous[0].unknown} of {listed(groups)}",
                where=where,
                hint=f"say which it is, {' or '.join(lines)}{others}; or --like a model that knows",
            )
        both = [
            f"the target has no place for {listed(self.unplaced)}" if self.unplaced else "",
            f"the source has nothing for {listed(self.unfilled)}" if self.unfilled else "",
        ]
        if any(both):
            raise WriteRefused(
                ", and ".join(filter(None, both)),
                where=where,
                hint=f"{self.hint}--rename OLD=NEW fits names, --partial goes on without what has no counterpart",
            )


@dataclass
class Translated:
    """The plan as rules and recipes on names below the root, and what is to be said about it. ``dict_made`` is the name
    of a dict that the source does not have and the weights go into, beside what is carried of the optimizer."""

    file: RuleFile
    notes: list[str]
    obstacles: Obstacles
    carried: CarriedState | None = None
    dict_made: str = ""


def parse_kind(option: str) -> tuple[str, str]:
    """``--kind GLOB=KIND``. UsageError when it is something else."""
    glob, equals, kind = option.rpartition("=")
    if not equals or not glob or kind not in KINDS:
        raise UsageError(f"--kind takes GLOB=KIND with a kind of {', '.join(KINDS)}; got {option!r}")
    return glob, kind


def require_model_for(destination: str, wishes: LayoutWishes) -> None:
    """UsageError for a file of Keras' own that no model of Keras gives its names: Keras could not load it."""
    named = any(like.family == "keras" for like in wishes.likes)
    if wishes.family == "keras" and destination.lower().endswith(_KERAS_WEIGHTS) and not named:
        raise UsageError(
            "Keras finds the weights of a .weights.h5 by what its model is made of, which the source does not tell",
            where=destination,
            hint="--like package.module:model gives it, or a spec of it; another suffix (.h5) keeps the source's paths",
        )


def plan_translation(
    source: Checkpoint, leaves: Sequence[NamedLeaf], wishes: LayoutWishes, writer: str, *, nests: bool
) -> Translated:
    """Plan the way to ``wishes.family`` for a writer that keeps dicts within dicts or does not. UsageError when the
    source's framework is not known, or a ``--kind`` fits nothing."""
    own = FAMILY_BY_FORMAT.get(source.format)
    roles = assign_roles([entry.key for entry in source.entries], family=own, known=source.purposes)
    weights, others = _weights(leaves, roles)
    family = _source_family(source, weights, wishes)
    targets = [like for like in wishes.likes if like.family == wishes.family]
    models = [like for like in wishes.likes if like.family == family and like not in targets]
    _check_likes(wishes, targets, models)
    variables = variables_of(source, weights)
    objects = plain_names(variables, by_order=not (targets and wishes.partial))
    is_renamed = any(leaf.current != leaf.name for leaf in weights)
    instead = objects if is_renamed or not full_names_tell_layers(variables.values()) else {}
    tensors = [(leaf.current, leaf.node) for leaf in weights if isinstance(leaf.node, Tensor)]
    described = describe_weights(family, tensors, instead, Counter(tensor.alias for tensor in source.tensors.values()))
    adrift = [leaf for leaf in weights if source.paths.get(leaf.key) == ()]
    by_optimizer = trained_rows(source, models) if adrift else {}
    rows = {
        **rows_of(models, described, variables),
        **{leaf.current: by_optimizer[leaf.key] for leaf in adrift if leaf.key in by_optimizer},
    }
    stored = _stored(source, family, weights, described, rows, wishes.kinds)
    if wishes.family == "keras":
        stored = without_common_prefix(stored)
    prefix = common_prefix(stored) if nests and wishes.family != "keras" else ""
    is_beside = wishes.with_optimizer and bool(targets) and nests and wishes.family != "keras"
    made = _MODEL if is_beside and not prefix else ""
    prefix = f"{made}/" if made else prefix
    target = _target(targets[0], writer, prefix, by_order=not wishes.partial) if targets else None
    told = told_names(rows, by_order=not wishes.partial)
    namings = namings_of(family, stored, objects, told)
    if target is None:  # each would be another name in the target
        namings = namings[:1]
    attempts = [
        translate(ours, wishes.family, theirs, partial=wishes.partial)
        for ours in namings
        for theirs in (target.sides if target is not None else [None])
    ]
    best = _best(attempts)
    tied = _settle_ties(best, weights, target.same_as if target is not None else {})
    aliases = target.aliases if target is not None else {}
    unknown = [leaf.current for leaf in adrift if leaf.current not in rows]
    if unknown and not wishes.partial:
        best.conflicts.append(
            f"the objects of the file tell of no layer that has {listed(unknown)}, only of an optimizer; another --like, with"
            " the model of the source, may tell"
        )
    obstacles = Obstacles(best.ambiguous, [], [], best.conflicts)
    if not wishes.partial:
        obstacles.unplaced, obstacles.unfilled = best.unplaced, best.unfilled
        if not models and any(_PLACE in name for name in best.unplaced):
            obstacles.hint = "another --like, with the model of the source, tells what its variables are; "
    carried: CarriedState | None = None
    said: list[str] = []
    if wishes.with_optimizer and not obstacles:
        model, like = next(iter(models), None), next(iter(targets), None)
        carried = _carried(source, family, leaves, weights, model, like, best.recipes, wishes.family, writer)
        said = carried.notes
        if carried.recipes:
            others = {name: what for name, what in others.items() if what != Role.OPTIMIZER.value}
    notes = [*said, *tied, *_notes(best, others, family, wishes)]
    keeps_values = "keras" not in (family, wishes.family)  # Keras' values are those of its formats
    kept = _values_kept(leaves, weights, roles) if keeps_values else set()
    file = _composed(best, leaves, weights, aliases, wishes.family, kept)
    return Translated(file, notes, obstacles, carried, made)


def _settle_ties(found: Translation, weights: Sequence[NamedLeaf], same_as: Mapping[str, str]) -> list[str]:
    """Take from what has no counterpart the second names of tensors that have one: tied weights, of which one side has
    one name and the other two. Notes say which of the source's were left out."""
    made = {recipe.target: recipe for recipe in found.recipes}
    for name in list(found.unfilled):
        recipe = made.get(same_as.get(name, ""))
        if recipe is not None:
            found.recipes.append(replace(recipe, target=name, why=f"tied to {recipe.target}"))
            found.unfilled.remove(name)
    used = {each.source for recipe in found.recipes for each in recipe.ingredients}
    first = {_identity(leaf): leaf.current for leaf in weights if leaf.current in used}
    notes = []
    for leaf in weights:
        other = first.get(_identity(leaf))
        if leaf.current in found.unplaced and other is not None:
            found.unplaced.remove(leaf.current)
            notes.append(
                f"{leaf.current} left out: it is the same tensor as {other}, and the target has one name for it"
            )
    return notes


def _identity(leaf: NamedLeaf) -> object:
    return bytes_of(leaf.node) if isinstance(leaf.node, Tensor) else leaf.key


def _carried(
    source: Checkpoint,
    family: str,
    leaves: Sequence[NamedLeaf],
    weights: Sequence[NamedLeaf],
    model: Comparand | None,
    target: Comparand | None,
    recipes: Sequence[Recipe],
    to: str,
    writer: str,
) -> CarriedState:
    known = [Weight(leaf.key, leaf.current, leaf.name, leaf.node) for leaf in weights if isinstance(leaf.node, Tensor)]
    origin = Origin(source, known, {leaf.key: leaf.name for leaf in leaves}, model)
    keeps_names = "keras" not in (family, to)
    places = _Containers(leaves if keeps_names else [])
    return carry(origin, family, Destination(target, recipes, to, writer, places))


class _Containers(dict[Key, Key]):
    """Where the dict of an optimizer is in the target, by its key in the source."""

    def __init__(self, leaves: Sequence[NamedLeaf]) -> None:
        super().__init__()
        for leaf in leaves:
            for length in range(1, len(leaf.key)):
                below = len(leaf.key) - length
                self.setdefault(leaf.key[:length], leaf.current_key[:-below])

    def __missing__(self, container: Key) -> Key:
        return ("optimizer",)


def _best(attempts: Sequence[Translation]) -> Translation:
    """The attempt with the fewest obstacles; of several, one that follows no count against attributes, and whose pairs
    have most of their names in common. Where another that names speak for as much does not make the same, or counts are
    all that there is, names decide nothing, which is a conflict."""

    def rank(found: Translation) -> tuple[int, bool, int]:
        return _obstacle_count(found), not found.is_sure, -found.agreement

    best = min(attempts, key=rank)
    if _obstacle_count(best):
        return best
    made = _made(best)
    for rival in attempts:
        differ = [name for name, made_of in _made(rival).items() if made_of != made.get(name)]
        if differ and not _obstacle_count(rival) and rival.agreement >= best.agreement:
            best.conflicts.append(f"names of layers and attributes do not agree on what becomes {listed(differ)}")
            break
    if not best.is_sure and not best.conflicts:
        best.conflicts.append(
            f"{listed(best.notes)}: this is how Keras counts layers, and attributes say nothing of it"
        )
    return best


def _made(found: Translation) -> dict[str, Recipe]:
    return {recipe.target: replace(recipe, why="") for recipe in found.recipes}


def _obstacle_count(found: Translation) -> int:
    return len(found.unplaced) + len(found.unfilled) + len(found.conflicts) + sum(len(a.names) for a in found.ambiguous)


# ---- the source


def _weights(leaves: Sequence[NamedLeaf], roles: Mapping[Key, Role]) -> tuple[list[NamedLeaf], dict[str, str]]:
    """The dense weights and the counters that belong to modules; of the other tensors what they are, by name."""
    weights, others = [], {}
    for leaf in leaves:
        if not isinstance(leaf.node, Tensor):
            continue
        role = roles.get(leaf.key, Role.WEIGHT)
        counts = role is Role.COUNTER and segments(leaf.name)[-1] == BATCH_COUNTER
        if role is not Role.WEIGHT and not counts:
            others[leaf.name] = role.value
        elif not isinstance(leaf.node, (StringTensor, CompositeTensor)):
            weights.append(leaf)
    return weights, others


def _source_family(source: Checkpoint, weights: Sequence[NamedLeaf], wishes: LayoutWishes) -> str:
    """Whose names and layouts the source has. Its format says it, unless its names say something else."""
    if wishes.source_family is not None:
        return wishes.source_family
    by_names = family_of_names([leaf.current for leaf in weights]) if weights else None
    by_format = FAMILY_BY_FORMAT.get(source.format)
    if by_format is not None and by_names in (None, by_format):
        return by_format
    if by_format is None and by_names is not None:
        return by_names
    what = (
        f"a {source.format} file does not tell"
        if by_format is None
        else f"its names are {by_names}'s in a {by_format} file"
    )
    raise UsageError(
        f"whose layouts it has is not known: {what}",
        where=source.location.shown,
        hint=f"--from-layout {'|'.join(FAMILIES)} says it",
    )


def _stored(
    source: Checkpoint,
    family: str,
    weights: Sequence[NamedLeaf],
    described: Sequence[Stored],
    rows: Rows,
    kinds: Sequence[tuple[str, str]],
) -> list[Stored]:
    """The weights with what is known of them; ``described`` has what their format tells."""
    asked = [(Globs([glob]), glob, kind) for glob, kind in kinds]
    used: set[tuple[str, str]] = set()
    found: list[Stored] = []
    settled: list[tuple[str, tuple[str, str], tuple[str, str]]] = []  # a tensor, the line it follows, one it does not
    for leaf, stored in zip(weights, described):
        prefix = "/".join(map(str, leaf.current_key[:-1])) if family != "keras" else ""
        stored = replace(stored, prefix=f"{prefix}/" if prefix else "")
        row, model = rows.get(stored.name, (None, None))
        if row is not None and row.layer is not None and model is not None:
            if model.is_model or is_told_by_variable(row):
                stored = replace(stored, known=row.layer, certainty=Certainty.TOLD, why=model.label)
        lines = [
            (glob, kind)
            for globs, glob, kind in asked
            if globs(leaf.current) or (stored.spoken and globs(stored.spoken))
        ]
        if lines:
            glob, kind = next((line for line in lines if line[1] in WEIGHT_NORM_DIMS), lines[0])
            used.update(line for line in lines if line[1] == kind)
            settled += [(stored.name, (glob, kind), line) for line in lines if line[1] != kind]
            part = stored.known.part if stored.known is not None else ""
            _refuse_kind(kind, stored)
            stored = replace(
                stored, known=LayerPart(kind, part), certainty=Certainty.ASKED, why=f"--kind '{glob}={kind}'"
            )
        found.append(stored)
    for _, glob, kind in asked:
        if (glob, kind) in used:
            continue
        rival = next(((name, first) for name, first, line in settled if line == (glob, kind)), None)
        if rival is not None:
            name, (other, before) = rival
            raise UsageError(
                f"--kind '{other}={before}' and --kind '{glob}={kind}' contradict each other on {name}",
                hint="of several lines the first that fits counts, and this one is left without any tensor",
                where=source.location.shown,
            )
        raise UsageError(f"--kind '{glob}={kind}' fits no tensor", where=source.location.shown)
    return found


def _refuse_kind(kind: str, stored: Stored) -> None:
    """UsageError for a kind whose weights cannot have that many axes."""
    rank = len(stored.shape)
    if kind in WEIGHT_NORM_DIMS and segments(stored.name)[-1] not in MAGNITUDES:
        raise UsageError(f"{stored.name} has no magnitudes of weight norm", hint="a narrower glob leaves it out")
    if rank > 1 and (
        (kind in CONVOLUTIONS and int(kind[-2]) + 2 != rank) or (kind in ("linear", "embedding") and rank != 2)
    ):
        raise UsageError(f"{stored.name} has {rank} axes and is no {kind}", hint="a narrower glob leaves it out")


# ---- the target


def _check_likes(wishes: LayoutWishes, targets: Sequence[Comparand], models: Sequence[Comparand]) -> None:
    for like in wishes.likes:
        if like not in targets and like not in models:
            whose = f"has {like.family}'s names" if like.family else "does not tell which framework's names it has"
            raise UsageError(f"--like {like.label} {whose}, {wishes.family}'s are needed")
    if len(targets) > 1:
        raise UsageError(f"{len(targets)} targets are given by --like, one is needed")


@dataclass(frozen=True)
class _Target:
    """The target's weights under the names they will have in the file, in each way they can be understood; by these
    names the second ones that the file has, and the first names of tensors that have several."""

    sides: Sequence[Side]
    aliases: Mapping[str, str]
    same_as: Mapping[str, str]


def _target(like: Comparand, writer: str, prefix: str, *, by_order: bool) -> _Target:
    rows = [row for row in like.rows if row.role is Role.WEIGHT or segments(row.name)[-1] == BATCH_COUNTER]
    family = like.family or ""
    tensors = [(row.name, row.tensor) for row in rows if row.tensor is not None]
    counts = Counter(tensor.alias for _, tensor in tensors)
    variables = {row.name: Variable(row.path, (row.tensor and row.tensor.alias) or "") for row in rows if row.path}
    objects = plain_names(variables, by_order=by_order)
    instead = {} if full_names_tell_layers(variables.values()) else objects
    stored = {each.name: each for each in describe_weights(family, tensors, instead, counts)}
    nests = family != "keras" and not any("/" in row.name for row in rows)
    naming = _NAMES_BY_WRITER.get(writer, "") if family == "keras" and like.is_model else ""
    found, aliases = [], {}
    for row in rows:
        each = stored.get(row.name) or Stored(row.name, row.shape, is_floating=is_floating(row.dtype))
        if row.layer is not None and like.is_model:
            each = replace(each, known=row.layer, certainty=Certainty.TOLD, why=like.label)
        alias = row.other_names.get("variable") or row.other_names.get("file")
        if family == "keras":
            each = replace(each, name=row.other_names.get(naming, row.name), spoken=each.spoken or row.name)
            alias = alias or row.name
        elif nests:
            each = replace(each, name=prefix + row.name, prefix=prefix)
        if alias and alias != each.name and family != "torch":
            aliases[each.name] = alias
        found.append(each)
    names = {row.name: each.name for row, each in zip(rows, found)}
    same_as = {names[row.name]: names[row.same_as] for row in rows if row.same_as in names}
    told = told_names({names[row.name]: (row, like) for row in rows}, by_order=by_order)
    objects = {names[name]: plain for name, plain in objects.items()}
    return _Target(namings_of(family, found, objects, told), aliases, same_as)


# ---- the plan


def _composed(
    found: Translation,
    leaves: Sequence[NamedLeaf],
    weights: Sequence[NamedLeaf],
    aliases: Mapping[str, str],
    family: str,
    kept: Set[Key],
) -> RuleFile:
    """The plan on the source's own names: rules where one tensor becomes one, recipes for the others. Everything that
    is not taken along is dropped by a rule of its own; ``kept`` are the values that are taken along as they are."""
    originals = {leaf.current: leaf.name for leaf in weights}
    called = {leaf.name for leaf in weights if isinstance(leaf.node, Tensor) and leaf.node.alias}
    uses = Counter(each.source for recipe in found.recipes for each in recipe.ingredients)
    rules: dict[str, Rule] = {}
    recipes: list[Recipe] = []
    for recipe in found.recipes:
        ingredients = tuple(replace(each, source=originals[each.source]) for each in recipe.ingredients)
        alias = aliases.get(recipe.target, "")
        if recipe.is_rule and uses[recipe.ingredients[0].source] == 1 and not alias:
            (only,) = ingredients
            if family == "torch" or only.source not in called:  # else its second name would go along
                steps = (*only.steps, *recipe.steps)
                rules[only.source] = Rule(literal(only.source), literal(recipe.target), steps, why=recipe.why)
                continue
        recipes.append(replace(recipe, ingredients=ingredients, alias=alias))
    consumed = {each.source for recipe in recipes for each in recipe.ingredients}
    for leaf in leaves:
        if leaf.name in rules or leaf.name in consumed:
            continue
        if leaf.key not in kept:
            rules[leaf.name] = Rule(literal(leaf.name), None)
        elif leaf.current != leaf.name:
            rules[leaf.name] = Rule(literal(leaf.name), literal(leaf.current))
    return RuleFile(tuple(rules.values()), tuple(recipes))


def _values_kept(leaves: Sequence[NamedLeaf], weights: Sequence[NamedLeaf], roles: Mapping[Key, Role]) -> set[Key]:
    """The values that belong to no optimizer and to nothing else that is left out: of the dicts around them, the nearest
    that has tensors in it has weights."""
    homes = {leaf.key[:length] for leaf in weights for length in range(len(leaf.key))}
    tensors = {leaf.key[:length] for leaf in leaves if isinstance(leaf.node, Tensor) for length in range(len(leaf.key))}
    kept = set()
    for leaf in leaves:
        if not isinstance(leaf.node, Tensor) and roles.get(leaf.key) is not Role.OPTIMIZER:
            above = (leaf.key[:length] for length in reversed(range(len(leaf.key))))
            nearest = next((key for key in above if key in tensors), ())
            if nearest in homes or not nearest:
                kept.add(leaf.key)
    return kept


def _notes(found: Translation, others: Mapping[str, str], family: str, wishes: LayoutWishes) -> list[str]:
    notes = list(found.notes)
    if others:
        counts = Counter(others.values())
        notes.append("left out: " + ", ".join(f"{count} × {what}" for what, count in counts.items()))
    if found.left:
        notes.append(f"{listed(found.left)} dropped: only {TITLES[family]} counts batches")
    filled = [recipe.target for recipe in found.recipes if recipe.filling is not None]
    if filled:
        notes.append(f"{listed(filled)} created as 0")
    if wishes.family == "keras" and not any(like.family == "keras" for like in wishes.likes):
        notes.append(
            "named by the source's paths with Keras' words; Keras itself loads by the names of a model, --like"
        )
    if found.assumed:
        notes.append(
            f"{listed(found.assumed)}: taken for conv1d by 3 axes and a bias; torch's Bilinear has the same, --kind"
            f" '{found.assumed[0]}=bilinear' says so"
        )
    if wishes.partial and found.unplaced:
        notes.append(f"left out, the target has no place for it: {listed(found.unplaced)}")
    if wishes.partial and found.unfilled:
        notes.append(f"not written, stays as the target initialises it: {listed(found.unfilled)}")
    if (
        any(part in name for name in (r.target for r in found.recipes) for part in ("weight_g",))
        and "linear" in found.kinds
    ):
        notes.append(weight_norm_axis(wishes.family))
    return [*notes, *outside_the_file(found.kinds, family, wishes.family)]
