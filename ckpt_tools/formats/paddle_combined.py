"""``paddle-combined``: all parameters of a program in one file: ``.pdiparams``, ``__variables__``, ``__params__``.

Records as in :mod:`._paddle_stream`, one after the other, in sorted order of variable names and without them. Names come
from the program beside the file (``.pdmodel``, ``.json``, ``__model__``), structured names, as aliases, from its
``.info``. Without a program the tensors are numbered. A program stands for the parameters beside it.
"""

from __future__ import annotations

from pathlib import Path

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location, at
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import StridedTensor
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CkptError, CorruptFile, MissingInput, damage
from ckpt_tools.formats._paddle_program import Program, is_program, program_of
from ckpt_tools.formats._paddle_stream import (
    COMBINED_NAMES,
    COMBINED_SUFFIX,
    Stream,
    is_combined,
    stream_of,
)
from ckpt_tools.pickles import python_objects
from ckpt_tools.pickles.machine import Machine


def probe(location: Location) -> str | None:
    """Why these are combined parameters, or None. A program counts when there are none of its parameters elsewhere."""
    if location.is_directory:
        return None
    stream = stream_of(location)
    if stream is not None:
        return f"{len(stream.tensors)} Paddle tensors, one after the other" if is_combined(stream) else None
    if is_program(location.head):
        return "a Paddle program"
    return None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The headers of all tensors, and the variables of the program."""
    stream_path = _stream_beside(location)
    stream = stream_of(location if stream_path == location.path else at(stream_path))
    if stream is None:
        raise CorruptFile("no Paddle tensor begins at byte 0", where=str(stream_path))
    if stream.damage is not None:
        raise stream.damage
    issues: list[Issue] = []
    program = _program(stream_path, issues)
    named = _named(stream, program, issues) if program is not None else None
    nbytes = stream.source.nbytes + (program.nbytes if program else 0)
    info_path = stream_path.with_name(_info_name(stream_path.name))
    if named is not None and info_path.is_file():
        nbytes += _add_structured_names(named, info_path, issues)
    return Checkpoint(
        "paddle-combined",
        location,
        named if named is not None else list(stream.tensors),
        producer=program.producer if program else "paddle tensor stream",
        nbytes=nbytes,
        issues=issues,
        facts={"program": program.path.name} if program else {},
        sources=[stream.source],
        limits=limits,
    )


def _info_name(name: str) -> str:
    """``inference.pdiparams.info``, and as Paddle 1.8 had it, ``__variables__`` and ``__variables.info__``."""
    return f"{name[:-2]}.info__" if name.endswith("__") else f"{name}.info"


def _stream_beside(location: Location) -> Path:
    """The parameters themselves: the file that was named, or those that belong to the program that was named."""
    path = location.path
    if not is_program(location.head):
        return path
    for name in (path.stem + COMBINED_SUFFIX, *COMBINED_NAMES):
        beside = location.beside(name)
        if beside.is_file():
            return beside
    raise MissingInput(
        f"a Paddle program, which holds no parameters; {path.stem}{COMBINED_SUFFIX} is not beside it",
        where=location.shown,
    )


def _program(stream_path: Path, issues: list[Issue]) -> Program | None:
    """The program beside a stream; None, and a note, when there is none that can be read."""
    names = (f"{stream_path.stem}.pdmodel", f"{stream_path.stem}.json", "__model__", "model")
    for path in (stream_path.with_name(name) for name in names):
        if path == stream_path or not path.is_file():
            continue
        with Source(path) as source:
            if not is_program(source.peek(0, 256)):
                continue
        try:
            return program_of(path)
        except CkptError as error:
            issues.append(Issue("integrity-program-damaged", Severity.ERROR, str(path), error.message))
    wanted = f"{stream_path.stem}.pdmodel or {stream_path.stem}.json"
    if stream_path.name in COMBINED_NAMES:
        wanted = "__model__"
    issues.append(
        Issue(
            "integrity-no-names",
            Severity.NOTE,
            str(stream_path),
            f"the file holds no names: they need {wanted} beside it; tensors are numbered in the order of the file",
        )
    )
    return None


def _named(stream: Stream, program: Program, issues: list[Issue]) -> Dict | None:
    """The tensors by the names of the program; None, and an issue, when the program is that of another file."""
    tensors, parameters = stream.tensors, program.parameters
    problem = None
    if len(parameters) != len(tensors):
        problem = f"the program has {len(parameters)} parameters, the file {len(tensors)} tensors"
    for (name, shape), tensor in zip(parameters.items(), tensors):
        if problem is None and shape is not None and shape != tensor.info.shape:
            problem = f"{name} has shape {list(shape)} in the program, {list(tensor.info.shape)} in the file"
    if problem is None:
        return Dict(zip(parameters, tensors))
    issues.append(
        Issue(
            "integrity-program-mismatch",
            Severity.ERROR,
            str(program.path),
            f"{problem}: they do not belong together; tensors are numbered in the order of the file",
        )
    )
    return None


def _add_structured_names(named: Dict, path: Path, issues: list[Issue]) -> int:
    """Give tensors the structured names of the ``.info`` pickle as aliases; its size in bytes."""
    with Source(path) as source:
        try:
            with damage(str(path)):
                table = Machine(source, constructors=python_objects.CONSTRUCTORS).load()
        except CkptError as error:
            issues.append(Issue("integrity-structured-names", Severity.WARNING, str(path), error.message))
            return source.nbytes
        for name, tensor in named.items():
            entry = table.get(name) if isinstance(table, Dict) else None
            alias = entry.get("structured_name") if isinstance(entry, Dict) else None
            if isinstance(alias, str) and isinstance(tensor, StridedTensor):
                tensor.alias = alias
        return source.nbytes
