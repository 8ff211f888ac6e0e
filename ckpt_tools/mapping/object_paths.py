"""What the attributes of a program's objects tell of its variables: ``model/encoder/norm/gamma``, the paths in the object
graph of ``tf.train.Checkpoint``.

Keras' own objects have private attributes on the way (keras/src/models/sequential.py, keras/src/layers): a Sequential
keeps its layers, in their order and after an input, in the operations of a Functional model; attention has its
projections as ``_query_dense``; a layer its kernel as ``_kernel``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ckpt_tools.mapping.keras_groups import PROJECTIONS

Path = tuple[str, ...]

#: Where a Sequential has the Functional model of its layers, and that the layers, of which the first is the input.
_SEQUENTIAL = ("_functional", "_operations")
_OPERATIONS = "_operations"
#: The layers of a Sequential or a Functional model in Keras 2, which do not tell which of both it is.
_KERAS_2_LAYER = re.compile(r"layer(?:_with_weights)?-(?P<number>\d+)")
#: A place in the order of a list or of a model's operations, as :func:`plain_names` spells both.
_POSITION = re.compile(r"\(?(?P<number>\d+)\)?")


class Variable(NamedTuple):
    """A variable by the names of attributes that lead to it, and its own full name, "" when it has none."""

    path: Path
    full_name: str


def plain_names(variables: Mapping[str, Variable], *, by_order: bool = True) -> dict[str, str]:
    """A name for each variable that is made of a user's attributes, of numbers for the layers of a Sequential, and of what
    Keras calls the parts of its own layers. Layers of a Functional model are ``(N)``: in which order they were meant is
    not known. Neither is it asked for without ``by_order``."""
    owners = {variable.path[:-1] for variable in variables.values()}
    return {
        name: "/".join((*_plain(variable.path[:-1], owners, by_order=by_order), _leaf(variable)))
        for name, variable in variables.items()
    }


def _plain(owner: Path, owners: set[Path], *, by_order: bool) -> Iterator[str]:
    at = 0
    while at < len(owner):
        name = owner[at]
        if owner[at : at + 2] == _SEQUENTIAL and len(owner) > at + 2 and owner[at + 2].isdecimal():
            yield str(int(owner[at + 2]) - 1) if by_order else f"({owner[at + 2]})"
            at += 3
        elif name == _OPERATIONS and len(owner) > at + 1:
            yield f"({owner[at + 1]})"
            at += 2
        elif (found := _KERAS_2_LAYER.fullmatch(name)) is not None:
            yield f"({found['number']})"
            at += 1
        else:
            projection = PROJECTIONS.get(name.removeprefix("_"), "") if name.startswith("_") else ""
            is_attention = all((*owner[:at], f"_{each}") in owners for each in PROJECTIONS)
            yield projection if projection and is_attention else name
            at += 1


def _leaf(variable: Variable) -> str:
    """An attribute of the name that the variable has, but for being private, is that name."""
    own, leaf = variable.full_name.rpartition("/")[2], variable.path[-1]
    return own if own and leaf == f"_{own}" else leaf


def full_names_tell_layers(variables: Iterable[Variable]) -> bool:
    """Whether full names keep apart what objects do and hold together what these do. Keras 3 names the variables of a
    layer that another layer calls after the outermost one: all layers of a model are one then."""
    by_object: dict[Path, set[str]] = defaultdict(set)
    by_name: dict[str, set[Path]] = defaultdict(set)
    for path, full_name in variables:
        if not full_name:
            return False
        owner = full_name.rpartition("/")[0]
        by_object[path[:-1]].add(owner)
        by_name[owner].add(path[:-1])
    alike = all(len(owners) == 1 for owners in by_object.values())
    return alike and all(len(owners) == 1 for owners in by_name.values())


def count_by_position(counted: Sequence[str]) -> bool:
    """Whether names of things that something else has counted differ in positions alone, and stand in their order."""
    found = [[_POSITION.fullmatch(part) for part in name.split("/")] for name in counted]
    shapes = {
        tuple("#" if position else part for part, position in zip(name.split("/"), positions))
        for name, positions in zip(counted, found)
    }
    numbers = [[int(position["number"]) for position in positions if position] for positions in found]
    return len(shapes) == 1 and len(set(counted)) == len(counted) and numbers == sorted(numbers)
