"""``paddle-vars``: a directory with one file for each variable, as ``save_persistables`` and its kin wrote in Paddle 1.x.

A file holds one record (see :mod:`._paddle_stream`) and is named like its variable; folders inside are parts of names.
``__model__``, when it is there, is the program, and tells which files are missing. One such file alone is read as well.
Other files are left out and told of.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location, at
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, UnreadableInput
from ckpt_tools.formats._paddle_program import Program, is_program, program_of
from ckpt_tools.formats._paddle_stream import (
    COMBINED_NAMES,
    COMBINED_SUFFIX,
    Stream,
    is_combined,
    is_variable_name,
    stream_of,
)

_PROGRAM_NAME = "__model__"
#: Files of a directory that are looked at before it counts as something else.
_LOOKED_AT = 64
#: Files of one save: a model has a few thousand variables.
_MOST_FILES = 200_000
#: Strays that are named; of more of them the number is told.
_NAMED_STRAYS = 5


class _Variable(NamedTuple):
    name: str
    stream: Stream


def probe(location: Location) -> str | None:
    """Why these are variables, or None."""
    if location.is_directory:
        return "a directory of Paddle variables" if _holds_variables(location.path) else None
    stream = stream_of(location)
    if stream is not None:
        return "a Paddle variable" if not is_combined(stream) and is_variable_name(location.path.name) else None
    if is_program(location.head) and _holds_variables(location.path.parent):
        return "the program of a directory of Paddle variables"
    return None


def _holds_variables(directory: Path) -> bool:
    """Whether most of the first few files are variables, and none is a program's parameters all in one."""
    variables = others = 0
    for entry in sorted(os.scandir(directory), key=lambda e: e.name)[:_MOST_FILES]:
        if not Path(entry.path).is_file() or entry.name.startswith(".") or entry.name == _PROGRAM_NAME:
            continue
        if entry.name in COMBINED_NAMES or entry.name.endswith(COMBINED_SUFFIX):
            return False
        if is_variable_name(entry.name) and _seems_variable(Path(entry.path)):
            variables += 1
        else:
            others += 1
        if variables + others >= _LOOKED_AT:
            break
    return variables > others


def _seems_variable(path: Path) -> bool:
    try:
        return _variable(path) is not None
    except UnreadableInput:  # not for us to tell while it is open whose directory this is
        return False


def _variable(path: Path) -> Stream | None:
    """The record of a file that holds one, whole or cut off."""
    stream = stream_of(at(path))
    return stream if stream is not None and not is_combined(stream) else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The header of every variable, and the variables of the program."""
    stream = stream_of(location)
    if stream is not None:
        tensor, issues = stream.only()
        root = Dict({location.path.name: tensor})
        return _checkpoint(location, limits, root, [_Variable(location.path.name, stream)], issues)
    directory = location.path if location.is_directory else location.path.parent
    issues = []
    found, strays = _files(directory)
    if not found:
        raise CorruptFile("no Paddle variable in this directory", where=location.shown)
    root = Dict()
    for variable in found:
        root[variable.name], odd = variable.stream.only()
        issues += odd
    if strays:
        issues.append(_left_out(directory, strays))
    program = _program(directory, issues)
    if program is not None:
        issues += _missing(program, root)
    return _checkpoint(location, limits, root, found, issues, program)


def _files(directory: Path) -> tuple[list[_Variable], list[str]]:
    """The variables below a directory by name, and the names of files that are none."""
    variables: list[_Variable] = []
    strays: list[str] = []
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for file_name in sorted(names):
            path = Path(folder, file_name)
            name = path.relative_to(directory).as_posix()
            stream = _variable(path) if path.is_file() and name != _PROGRAM_NAME else None
            if stream is not None:
                variables.append(_Variable(name, stream))
            elif name != _PROGRAM_NAME:
                strays.append(name)
            if len(variables) + len(strays) > _MOST_FILES:
                raise LimitExceeded(f"a directory of over {_MOST_FILES} files", where=str(directory))
    return variables, strays


def _left_out(directory: Path, strays: list[str]) -> Issue:
    named = ", ".join(printable(name) for name in strays[:_NAMED_STRAYS])
    more = f" and {len(strays) - _NAMED_STRAYS} more" if len(strays) > _NAMED_STRAYS else ""
    verb = "is no variable and was" if len(strays) == 1 else "are no variables and were"
    return Issue(
        "integrity-stray-file",
        Severity.WARNING,
        str(directory),
        f"{named}{more} {verb} left out; paddle.load stops at such files",
    )


def _program(directory: Path, issues: list[Issue]) -> Program | None:
    path = directory / _PROGRAM_NAME
    if not path.is_file():
        return None
    try:
        return program_of(path)
    except CkptError as error:
        issues.append(Issue("integrity-program-damaged", Severity.ERROR, str(path), error.message))
        return None


def _missing(program: Program, root: Dict) -> list[Issue]:
    return [
        Issue(
            "integrity-missing-variable",
            Severity.ERROR,
            str(program.path),
            f"the program has a parameter {printable(name)}, for which there is no file",
        )
        for name in program.parameters
        if name not in root
    ]


def _checkpoint(
    location: Location,
    limits: Limits,
    root: Dict,
    variables: list[_Variable],
    issues: list[Issue],
    program: Program | None = None,
) -> Checkpoint:
    sources = [variable.stream.source for variable in variables]
    return Checkpoint(
        "paddle-vars",
        location,
        root,
        producer=program.producer if program else "paddle tensor stream",
        nbytes=sum(source.nbytes for source in sources) + (program.nbytes if program else 0),
        issues=issues,
        sources=sources,
        limits=limits,
    )
