"""What all writers share: the plan that is made before a byte is written, and the refusals that belong to no format.

A writer is a module ``formats/<name>_writer.py`` with

    TARGET                  what its format can hold, a :class:`Target`
    plan(root, request)     a :class:`WritePlan`; every leaf of ``root`` is one that ``TARGET`` has nothing against

A plan knows every file, its size and its tensors; writing it is one pass over the tensors with one chunk in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ckpt_tools.core.tensors import AbsentTensor, CompositeTensor, StringTensor, Tensor
from ckpt_tools.core.tree import Node
from ckpt_tools.errors import WriteRefused

#: Names that one message lists before it only counts them.
_SHOWN_NAMES = 8


class Output(Protocol):
    """Where the bytes of a file go, in order. :class:`ckpt_tools.core.sink.Sink` is one."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes, which are not changed afterwards."""


#: How a writer gets the bytes of a tensor: the caller looks over what passes (checksums, digests, progress).
Feed = Callable[[Tensor], Iterator[bytes]]


@dataclass(frozen=True)
class Target:
    """What a format can hold.

    ``reason_lost`` says why a leaf cannot be held (it ends the sentence "NAME is lost: …"), None when it can.
    ``remark`` says what a leaf becomes where that is worth a note, None otherwise. ``keeps_attributes`` says that
    mappings may have attributes beside their keys, which whoever loads a state dict passes over.
    """

    title: str
    reason_lost: Callable[[Node], str | None]
    keeps_sharing: bool = False
    nests: bool = False
    keeps_attributes: bool = False
    remark: Callable[[Node], str | None] = lambda node: None


@dataclass(frozen=True)
class Request:
    """Where and how to write. ``max_shard_nbytes`` is None for one file; ``options`` are those of one format alone."""

    path: Path
    max_shard_nbytes: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedFile:
    """One file of a plan: its place, how many bytes it will have, and what writes them."""

    path: Path
    nbytes: int
    write: Callable[[Output, Feed], None]


@dataclass
class WritePlan:
    """What will be written: the files, the last of them the one through which the others are found.

    ``obsolete`` are files of an older checkpoint of that name that must go with it, ``orphans`` parts of one that is no
    more. ``remade`` names tensors of the tree that the writer makes anew, because they describe the others.
    """

    files: Sequence[PlannedFile]
    notes: list[str] = field(default_factory=list)
    obsolete: Sequence[Path] = ()
    orphans: Sequence[Path] = ()
    remade: Collection[str] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.nbytes for file in self.files)


def kind_of_special(tensor: Tensor) -> str | None:
    """The words for a tensor that is no dense array of numbers; None for one that is."""
    if isinstance(tensor, StringTensor):
        return f"a {tensor.info.dtype} tensor"
    if isinstance(tensor, CompositeTensor):
        return f"a {tensor.scheme} tensor"
    if isinstance(tensor, AbsentTensor):
        return "a meta tensor"
    return None


def refuse_collisions(names: Iterable[tuple[str, str]]) -> None:
    """WriteRefused when leaves would get one name. ``names``: the name in the target and the name in the source."""
    sources: dict[str, list[str]] = defaultdict(list)
    for target, source in names:
        sources[target].append(source)
    clashes = [f"{' and '.join(found)} would both be {target}" for target, found in sources.items() if len(found) > 1]
    if clashes:
        shown = "; ".join(clashes[:_SHOWN_NAMES])
        more = len(clashes) - _SHOWN_NAMES
        raise WriteRefused(
            f"names collide in the target: {shown}" + (f"; and {more} more" if more > 0 else ""),
            hint="--rename OLD=NEW gives one of them another name",
        )


def shards(tensors: Sequence[tuple[str, Tensor]], most: int | None) -> list[list[tuple[str, Tensor]]]:
    """Tensors in order, cut into runs of at most ``most`` bytes; one that is larger has a run of its own."""
    runs: list[list[tuple[str, Tensor]]] = [[]]
    filled = 0
    for name, tensor in tensors:
        nbytes = tensor.nbytes
        if most is not None and runs[-1] and filled + nbytes > most:
            runs.append([])
            filled = 0
        runs[-1].append((name, tensor))
        filled += nbytes
    return runs
