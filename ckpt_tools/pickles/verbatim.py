"""Pickles read so that they can be written again: every name in the spelling it has, nothing given a meaning.

numpy 1 says ``numpy.core`` where numpy 2 says ``numpy._core``; Python 2 strings may be text or bytes. Both stay so.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ckpt_tools.core.extents import Extent
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.source import Source
from ckpt_tools.errors import LOW_LEVEL_ERRORS, CkptError, CorruptFile
from ckpt_tools.pickles import numpy_objects, python_objects
from ckpt_tools.pickles.machine import Machine
from ckpt_tools.pickles.nodes import Global, Object, StoredScalar, Undecoded

_SCALAR = "numpy.core.multiarray.scalar"
_FROM_BUFFER = "numpy.core.numeric._frombuffer"


class VerbatimMachine(Machine):
    """A machine for :class:`~ckpt_tools.pickles.emit.Emitter`; numpy scalars, which are millions, are compact.

    ``calls`` has no call of Python's own containers, byte strings and numbers, nor of numpy's scalars and buffers.
    """

    def __init__(self, source: Source | Extent | bytes, *, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(source, encoding=None, limits=limits)

    def name(self, module: str, name: str, offset: int) -> Global:
        known = super().name(module, name, offset)
        if known.make is None:
            if known.path == _SCALAR:
                known.make = partial(_scalar, known)
            elif known.path == _FROM_BUFFER or known.path in python_objects.CONSTRUCTORS:
                known.make = partial(_data, known)
        return known

    def load(self) -> Any:
        first = self.extent.read(0, 1) if self.extent.nbytes else b""
        root = super().load()
        if self.out_of_band:
            raise CorruptFile("arrays were pickled out of band: their bytes are not in this file")
        if first != b"\x80" and first in _BINARY_STARTS:
            self.protocol = 1
        return root


#: Protocol 1 has no mark of its own: it begins with an opcode that protocol 0 lacks.
_BINARY_STARTS = (b"}", b"]", b")", b"K", b"M", b"J", b"G", b"X")


def _data(function: Global, args: tuple[Any, ...]) -> Any:
    """A call that gives plain data, which is told from one that may not by what its meaning would be."""
    meaning = python_objects.CONSTRUCTORS.get(function.path)
    if meaning is not None and meaning(args) is NotImplemented:
        return NotImplemented
    return Object(function, args, function.offset, calls=True)


def _scalar(function: Global, args: tuple[Any, ...]) -> Any:
    return StoredScalar(function, args) if len(args) == 2 else NotImplemented


def meaning(node: Any) -> Any:
    """What a node of a :class:`VerbatimMachine` stands for where it is plain data: numbers, arrays, byte strings.

    Containers of Python, what has no meaning here, and what is damaged are given back as they are.
    """
    try:
        made = _meaning(node)
    except (CkptError, *LOW_LEVEL_ERRORS):
        return node
    return node if made is None or made is NotImplemented else made


def _meaning(node: Any) -> Any:
    if isinstance(node, StoredScalar):
        return numpy_objects.CONSTRUCTORS[_SCALAR](tuple(map(meaning, node.args)))
    if isinstance(node, Undecoded):
        return node.read().decode("latin-1")
    if not isinstance(node, Object) or node.pairs or node.elements:
        return node
    args = tuple(map(meaning, node.args))
    if node.path in numpy_objects.BUILT_NAMES and isinstance(node.state, tuple):
        complete = Object(node.callable, args, node.offset, calls=node.calls)
        complete.state = tuple(map(meaning, node.state))
        return numpy_objects.completed(complete)
    if node.path == _FROM_BUFFER:
        return numpy_objects.CONSTRUCTORS[_FROM_BUFFER](args)
    return python_objects.CONSTRUCTORS[node.path](args) if node.path in python_objects.CONSTRUCTORS else node
