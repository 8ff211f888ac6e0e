"""``joblib``: a pickle in which each array is a small object and then, outside the pickle's grammar, the array's bytes.

Source: joblib/numpy_pickle.py. After the BUILD of a ``NumpyArrayWrapper`` come, when it has
``numpy_array_alignment_bytes`` (joblib 1.2 and later), one byte p and p bytes of padding, then the elements in the
order that ``order`` says. Arrays of Python objects are a complete pickle in that place. Before joblib 0.10 arrays were
``.npy`` files beside the pickle, named by ``NDArrayWrapper``. The stream may be compressed as a whole: it is then
unpacked into a nameless temporary file, within limits.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import KIB, Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.core.spool import SpooledSource
from ckpt_tools.core.tensors import Storage, StridedTensor, TensorInfo
from ckpt_tools.core.tree import Opaque
from ckpt_tools.errors import CkptError, CorruptFile
from ckpt_tools.formats import _torch_objects
from ckpt_tools.formats._packed import Packing, allowed_nbytes, beginning, packing_of, unpacked
from ckpt_tools.formats._torch_stream import NestedStreams
from ckpt_tools.pickles import findings, numpy_objects
from ckpt_tools.pickles.machine import Machine
from ckpt_tools.pickles.nodes import Global, Object

#: The wrapper's name stands before the first array: so far into a file it is looked for.
_SEARCHED_NBYTES = 64 * KIB
_WRAPPERS = (b"NumpyArrayWrapper", b"NDArrayWrapper")
_SUFFIXES = (".joblib", ".jl")
#: joblib writes binary protocols only.
_PROTOCOLS = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_PLAIN_CLASSES = ("numpy.ndarray", "numpy.memmap")


def probe(location: Location) -> str | None:
    """Why this is a stream of joblib, or None. A pickle without arrays tells by its name only."""
    packing = packing_of(location.head)
    if packing is not None:
        with Source(location.path) as source:
            start = beginning(packing, source, 2)
        return f"a {packing.name}-compressed pickle" if start.startswith(_PROTOCOLS) else None
    if not location.head.startswith(_PROTOCOLS):
        return None
    if location.suffix in _SUFFIXES:
        return f"a pickle named {location.suffix}"
    with Source(location.path) as source:
        start = source.peek(0, _SEARCHED_NBYTES)
    if b"joblib" in start and any(name in start for name in _WRAPPERS):
        return "a pickle with joblib's array wrappers"
    return None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the stream; reads its opcodes and steps over the arrays."""
    source = Source(location.path)
    packing = packing_of(location.head)
    if packing is not None:
        source = _spooled(source, packing, limits)
    arrays, streams = _Arrays(location, limits), NestedStreams()
    machine = Machine(
        source,
        constructors=streams.constructors,
        built=arrays.built,
        limits=limits,
    )
    root = machine.load()
    told = [f"{packing.name}-compressed"] if packing is not None else []
    told.append(f"pickle protocol {machine.protocol}")
    release = root.attributes().get("_sklearn_version") if isinstance(root, Opaque) else None
    if isinstance(release, str):
        told.insert(0, f"scikit-learn {release}")
    return Checkpoint(
        "joblib",
        location,
        root,
        producer=", ".join(["joblib", *told]),
        nbytes=location.nbytes,
        issues=[
            *arrays.issues,
            *findings.foreign(machine, location.path.name),
            *streams.issues(location.path.name),
            *_trailing(source.nbytes - machine.position, location),
        ],
        facts={"pickle protocol": str(machine.protocol)},
        sources=[source],
        limits=limits,
    )


def _trailing(rest: int, location: Location) -> list[Issue]:
    if not rest:
        return []
    text = f"{rest} bytes follow the end of the pickle"
    return [Issue("integrity-trailing-bytes", Severity.WARNING, location.path.name, text)]


def _spooled(source: Source, packing: Packing, limits: Limits) -> Source:
    with source:
        pieces = unpacked(packing, FileExtent(source, 0, source.nbytes))
        return SpooledSource(pieces, source.path, allowed_nbytes(source.nbytes, limits))


class _Arrays:
    """What BUILD of joblib's wrappers means; ``issues`` are about arrays that are not here."""

    def __init__(self, location: Location, limits: Limits) -> None:
        self._location = location
        self._limits = limits
        self.issues: list[Issue] = []

    def built(self, machine: Machine, node: Object) -> Any:
        """The array that a wrapper stands for; what numpy's own names mean otherwise."""
        module, _, name = node.path.rpartition(".")
        if "joblib" in module.split(".") and isinstance(node.state, dict):
            if name == "NumpyArrayWrapper":
                return self._following(machine, node.state)
            if name == "NDArrayWrapper":
                return self._beside(node.state)
        return _torch_objects.built(machine, node)

    def _following(self, machine: Machine, state: dict[Any, Any]) -> Any:
        kind = numpy_objects.element_type(state["dtype"])
        shape = numpy_objects.checked_shape(state["shape"])
        if kind.of_objects:
            return _nested(machine)
        if state.get("numpy_array_alignment_bytes") is not None:
            machine.skip(machine.read_bytes(1, "a count of padding bytes")[0], "padding")
        info = TensorInfo(kind.dtype, shape)
        storage = Storage(
            machine.skip(info.nbytes, f"an array {kind.dtype} {list(shape)}"),
            byteorder="big" if kind.big else "little",
        )
        fortran = state.get("order") == "F" and len(shape) > 1
        strides = numpy_objects.column_major_strides(shape) if fortran else None
        cls = state.get("subclass")
        subclass = cls.path if isinstance(cls, Global) and cls.path not in _PLAIN_CLASSES else None
        return StridedTensor(info, storage, 0, strides, note=subclass)

    def _beside(self, state: dict[Any, Any]) -> Any:
        """The array in a file of its own. One that cannot be had stays an object, with an issue."""
        from ckpt_tools.formats import _npy  # needed by files of another decade

        name = state.get("filename")
        if not isinstance(name, str) or PurePath(name).name != name:
            raise CorruptFile("an array in a file whose name is not that of a file beside this one")
        try:
            source = Source(self._location.beside(name))
            array, odd = _npy.read(FileExtent(source, 0, source.nbytes), name, self._limits)
        except CkptError as error:
            message = f"the array in {name} cannot be read: {error.message}"
            self.issues.append(Issue("integrity-missing-bytes", Severity.ERROR, name, message))
            return None
        self.issues += odd
        return array


def _nested(machine: Machine) -> Any:
    """The complete pickle of an array of objects that stands at the machine's position."""
    inner = Machine(
        machine.extent, constructors=machine.constructors, built=_torch_objects.built, limits=machine.limits
    )
    inner.position = machine.position
    node = inner.load()
    machine.position = inner.position
    machine.globals.update(inner.globals)
    machine.calls += inner.calls
    machine.instances += inner.instances
    return node
