"""A checkpoint that was opened: its tree, what the file tells of its writer, and what the reader noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import NamedTuple

from ckpt_tools.core.checksum import Seal
from ckpt_tools.core.issues import Issue
from ckpt_tools.core.keys import Key, names_of
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.purposes import Purpose
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Node, walk
from ckpt_tools.errors import damage


class Entry(NamedTuple):
    """One leaf: its key, its name (unique in the checkpoint) and the node itself."""

    key: Key
    name: str
    node: Node

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.node, Tensor)


class Pickled(NamedTuple):
    """A pickle of the file: where it lies, its protocol, and the dotted names it refers to, in order of appearance."""

    where: str
    protocol: int
    names: tuple[str, ...]


@dataclass
class Checkpoint:
    """One checkpoint, structure only; its tensors read their bytes from ``sources`` when asked.

    ``format`` is the name of the row in the table of formats; ``nbytes`` counts the bytes of all files it consists of;
    ``facts`` are further things the file tells about itself, for people (``{"torch zip version": "3"}``).
    ``purposes`` says what tensors are for, where the format tells; a key that is not in it is of unknown purpose.
    ``paths`` are the names of attributes that lead to tensors in the program's objects, where the format has a graph of
    these: not by an optimizer, even where the key is, and none when only an optimizer has them.
    """

    format: str
    location: Location
    root: Node
    producer: str = ""
    nbytes: int = 0
    issues: list[Issue] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    sources: Sequence[Source] = ()
    #: every run of bytes that the file has a place for a checksum of; those of tensors' storages need not be among them
    seals: Callable[[], Iterable[Seal]] = tuple
    #: what is odd about the layout of its files and only a look at all of them tells; not done for a listing
    audit: Callable[[], Iterable[Issue]] = tuple
    #: of a set of files, each as the checkpoint that it is; their seals and pickles are not repeated here
    parts: Sequence[Checkpoint] = ()
    pickles: Sequence[Pickled] = ()
    limits: Limits = DEFAULT_LIMITS
    purposes: Mapping[Key, Purpose] = field(default_factory=dict)
    paths: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every leaf in the order of the file, named. LimitExceeded when the tree is far larger than what it holds."""
        with damage(self.location.shown):
            leaves = list(walk(self.root, self.limits))
            names = names_of([key for key, _ in leaves])
        return tuple(Entry(key, name, node) for (key, node), name in zip(leaves, names))

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor by its name, in the order of the file."""
        return MappingProxyType({e.name: e.node for e in self.entries if e.is_tensor})

    @cached_property
    def values(self) -> Mapping[str, Node]:
        """Every other leaf by its name, in the order of the file."""
        return MappingProxyType({e.name: e.node for e in self.entries if not e.is_tensor})

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def close(self) -> None:
        """Close the files; tensors cannot be read afterwards."""
        for source in self.sources:
            source.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
