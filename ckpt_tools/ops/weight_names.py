"""What the weights of a checkpoint are called, and what names, formats and models tell of the layers they are in.

A weight may have several names: that of its file, the one that Keras or Paddle gave its variable, the path of attributes
that leads to it. Each way to call all of them is a naming; which of them fits the target is for the plan to find.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.keys import Key
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Node
from ckpt_tools.mapping.keras_groups import names_by_groups, spoken_names
from ckpt_tools.mapping.kinds import (
    LayerPart,
    from_paddle_variable,
    part_of_leaf,
    segments,
)
from ckpt_tools.mapping.numbering import series
from ckpt_tools.mapping.object_paths import Variable, count_by_position
from ckpt_tools.mapping.spellings import Certainty, Stored
from ckpt_tools.mapping.translation import Side
from ckpt_tools.ops.comparands import Comparand, Row

#: Element types that layers have no weights of begin so.
_WHOLE = ("int", "uint", "bool")
#: The model's names that no file has, of which the later tell more of an order.
_UNSTORED = _ATTRIBUTE, _POSITION = "attribute", "position"
#: What a model of the source has for its weights, by their names, and the model.
Rows = Mapping[str, tuple[Row, Comparand]]
#: What TensorFlow appends to the path of a variable.
_OBJECT_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass(frozen=True)
class NamedLeaf:
    """A leaf of the source: its whole key there, its name below the root, and the name that the user's renaming gives
    it with the key that this name stands for."""

    key: Key
    name: str
    current: str
    current_key: Key
    node: Node


def variables_of(source: Checkpoint, weights: Sequence[NamedLeaf]) -> dict[str, Variable]:
    """The weights that a graph of objects has, by their names; what a user has renamed is where its name says."""
    found = {}
    for leaf in weights:
        path = source.paths.get(leaf.key, ())
        if path and isinstance(leaf.node, Tensor):
            renamed = tuple(leaf.current.removesuffix(_OBJECT_ATTRIBUTE).split("/"))
            found[leaf.current] = Variable(path if leaf.current == leaf.name else renamed, leaf.node.alias or "")
    return found


def describe_weights(
    family: str,
    tensors: Sequence[tuple[str, Tensor]],
    objects: Mapping[str, str],
    aliases: Mapping[str | None, int],
) -> list[Stored]:
    """Tensors with what the format tells of them: Paddle's variable names, TensorFlow's full names, Keras' groups.
    ``aliases`` says how often each second name occurs in the file: only one that occurs once is a name. Where full names
    do not tell layers apart, there are names of ``objects`` in their stead."""
    if family != "keras":
        found = [_stored_tensor(name, tensor) for name, tensor in tensors]
        return _told_by_variables(found, tensors) if family == "paddle" else found
    spoken = spoken_names({name: (tensor.info.shape, tensor.alias) for name, tensor in tensors})
    found = []
    for name, tensor in tensors:
        said = spoken.get(name)
        if said is not None:
            certainty = Certainty.TOLD if said.known is not None else Certainty.NONE
            each = _stored_tensor(name, tensor)
            found.append(replace(each, spoken=said.name, known=said.known, certainty=certainty, why=said.why))
        else:
            alias = tensor.alias if tensor.alias and aliases[tensor.alias] == 1 and not objects else ""
            found.append(replace(_stored_tensor(name, tensor), spoken=objects.get(name, alias)))
    return found


def _stored_tensor(name: str, tensor: Tensor) -> Stored:
    return Stored(name, tensor.info.shape, is_floating=is_floating(tensor.info.dtype.name))


def is_floating(dtype: str) -> bool:
    """Whether layers have weights of elements of this name."""
    return not dtype.startswith(_WHOLE)


def _told_by_variables(stored: Sequence[Stored], tensors: Sequence[tuple[str, Tensor]]) -> list[Stored]:
    """What Paddle's variable names tell of layers. A user can give any (``ParamAttr``): where those of the parts of one
    layer, or a part and its variable's, do not go together, they tell nothing."""
    said = [from_paddle_variable(tensor.alias) if tensor.alias else None for _, tensor in tensors]
    parts = [part_of_leaf(segments(each.name)[-1]) for each in stored]
    kinds: dict[str, set[str]] = defaultdict(set)
    for each, part, layer in zip(stored, parts, said):
        if layer is not None:
            kinds[_owner(each.name, part)].add(layer.kind)
    found = []
    for each, part, layer, (_, tensor) in zip(stored, parts, said, tensors):
        if layer is not None and len(kinds[_owner(each.name, part)]) == 1 and _go_together(part, layer.part):
            known = LayerPart(layer.kind, part or layer.part)
            each = replace(each, known=known, certainty=Certainty.TOLD, why=f"Paddle's name {tensor.alias}")
        found.append(each)
    return found


def _owner(name: str, part: str) -> str:
    """The path of the layer that a tensor is a part of; its name where that is a user's own word."""
    return name.rpartition(".")[0] if part else name


def _go_together(part: str, told: str) -> bool:
    """Whether a name and a variable's name can mean the same part; names of recurrent parts go on with their level."""
    return not part or not told or part.startswith(told)


def is_told_by_variable(row: Row) -> bool:
    """Whether what a file's row says of its layer is more than names and shapes tell of any."""
    return from_paddle_variable(row.other_names.get("file", "")) is not None


def namings_of(
    family: str, stored: list[Stored], objects: Mapping[str, str], told: Sequence[Mapping[str, str]]
) -> list[Side]:
    """The tensors in each way they can be called: by the names that tell most; by the paths of Keras' groups or of
    ``objects``, which are attributes where a model is not made of Keras' own containers; by the names that a model has
    ``told`` for them. What tells most of the order of layers comes last: only what has the same names of layers as
    groups, or is in the order of their positions, counts in the same order."""
    groups = names_by_groups({each.name: (each.shape, each.spoken) for each in stored if each.spoken})
    namings = [stored, *(_renamed(stored, names) for names in ({**groups, **objects}, *told))]
    surest = namings[-1]
    outermost = series({segments(name)[0] for name in groups.values()})  # there is no list around a model
    are_attributes = bool(objects or told) or any(each.counted for each in outermost.values())
    return [
        Side(family, naming, by_count=_counts_alike(naming, surest, are_attributes=are_attributes))
        for at, naming in enumerate(namings)
        if naming not in namings[:at]
    ]


def _counts_alike(naming: Sequence[Stored], surest: Sequence[Stored], *, are_attributes: bool) -> bool:
    """Whether Keras' counts in names are the order of layers: nothing in the order of the file speaks against it, unless
    that is sorted by names, and surer names have the same counts or are in order. A user may have attributes that look as
    if they were counted."""
    found: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for each, sure in zip(naming, surest):
        path = segments(each.spoken or each.name)
        for at in range(len(path) - 1):
            names = found[tuple(path[:at])]
            known = sure.spoken or sure.name
            names[path[at]] = min(names.get(path[at], known), known)
    are_same = not are_attributes and [_layer(each) for each in naming] == [_layer(each) for each in surest]
    for names in found.values():
        for counted in (each for each in series(names).values() if each.counted):
            members = [*counted.members.values()]
            if [name for name in names if name in members] not in (members, sorted(members)):
                return False
            if not are_same and not count_by_position([names[member] for member in members]):
                return False
    return True


def _layer(stored: Stored) -> list[str]:
    """The name of the layer that has a tensor, without what is around that."""
    return segments(stored.spoken or stored.name)[-2:-1]


def _renamed(stored: Sequence[Stored], names: Mapping[str, str]) -> list[Stored]:
    return [replace(each, spoken=names.get(each.name, each.spoken)) for each in stored]


def rows_of(models: Sequence[Comparand], described: Sequence[Stored], variables: Mapping[str, Variable]) -> Rows:
    """What models of the source have for its weights, by the names of these."""
    known = {name: (row, model) for model in models for row in model.rows for name in _file_names(row)}
    found = {}
    for each in described:
        path = variables[each.name].path if each.name in variables else ()
        objects = ["/".join(way) + _OBJECT_ATTRIBUTE for way in (path, path[1:])]  # from a checkpoint on, or the model
        row = next((known[name] for name in (each.name, *objects, each.spoken) if name in known), None)
        if row is not None:
            found[each.name] = row
    return found


def told_names(rows: Rows, *, by_order: bool) -> list[dict[str, str]]:
    """What models of Keras tell of attributes, and of positions in its containers, for each name that a file has."""
    models = {name: row for name, (row, model) in rows.items() if model.family == "keras" and model.is_model}
    attributes = {name: row.other_names.get(_ATTRIBUTE, row.name) for name, row in models.items()}
    positions = {name: row.other_names.get(_POSITION, attributes[name]) for name, row in models.items()}
    return [names for names in (attributes, positions if by_order else {}) if names]


def _file_names(row: Row) -> list[str]:
    """The names that a file may have for a model's tensor."""
    return [row.name, *(name for naming, name in row.other_names.items() if naming not in _UNSTORED)]


def common_prefix(stored: Sequence[Stored]) -> str:
    """The dict that all weights lie in."""
    prefixes = {each.prefix for each in stored}
    return prefixes.pop() if len(prefixes) == 1 else ""


def without_common_prefix(stored: list[Stored]) -> list[Stored]:
    """Keras' files have no dict around a model."""
    prefix = common_prefix(stored)
    return [replace(each, spoken=(each.spoken or each.name)[len(prefix) :], prefix="") for each in stored]
