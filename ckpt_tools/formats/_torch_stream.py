"""The stream that ``torch.save`` wrote before 1.6: five pickles, then raw storages.

A magic number, the protocol version 1001, facts about the writer's machine, the object, and the keys of the storages;
then for each key the number of elements (i64) and the elements, unaligned and little-endian whatever the writer's
machine was (torch/serialization.py, ``_legacy_save`` and ``_legacy_load``). Where a storage lies is therefore known only
after the object has been read: storages are promised first and placed afterwards. Refused: another version, storages
that are described and not stored, sizes that contradict the object.

A file may be one such stream. A pickle that torch did not write itself (``pickle.dump`` of tensors) has one for each
storage, as bytes handed to ``torch.storage._load_from_bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ckpt_tools.core.dtypes import DType
from ckpt_tools.core.extents import Extent, MemoryExtent
from ckpt_tools.core.issues import Issue
from ckpt_tools.core.keys import printable
from ckpt_tools.core.tensors import Storage
from ckpt_tools.errors import CkptError, CorruptFile, TruncatedFile, damage
from ckpt_tools.formats import _torch_objects
from ckpt_tools.pickles import findings
from ckpt_tools.pickles.machine import Constructor, Machine
from ckpt_tools.pickles.nodes import Blob, Global, TextBlob

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL_VERSION = 1001
#: The magic number as LONG1 (protocols 2 and later) and as LONG (0 and 1) write it.
_MAGICS = (b"\x8a\x0a" + MAGIC_NUMBER.to_bytes(10, "little") + b".", b"L%dL\n." % MAGIC_NUMBER)
_COUNT_NBYTES = 8


class Stream(NamedTuple):
    """A stream that was read: the object, the protocol of its pickle, the machine, and where the last storage ends."""

    tree: Any
    protocol: int
    machine: Machine
    end: int


def begins_like(head: bytes) -> bool:
    """Whether these bytes begin a stream: their first pickle is the magic number, whatever else it may do."""
    if not any(magic in head for magic in _MAGICS):
        return False
    try:
        with damage():
            return Machine(head).load() == MAGIC_NUMBER  # type: ignore[no-any-return]
    except CkptError:
        return False


def read(extent: Extent) -> Stream:
    """The structure of a stream; reads the pickles and the element count before each storage."""
    storages = Storages(extent)
    machine = _torch_objects.machine(extent, persistent=storages)
    if machine.load() != MAGIC_NUMBER:
        raise CorruptFile("the first pickle is not the magic number of torch's legacy format")
    version = machine.load()
    if version != _PROTOCOL_VERSION:
        found = version if type(version) is int and version < 1 << 32 else "something else"
        raise CorruptFile(f"the version of torch's legacy format is {found}, known is {_PROTOCOL_VERSION}")
    machine.load()  # sizes and byte order of the writer's machine: nothing depends on them, code may still hide there
    tree = machine.load()
    protocol = machine.protocol
    return Stream(tree, protocol, machine, storages.place(_keys(machine), machine.position))


def _keys(machine: Machine) -> list[str]:
    keys = machine.load()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CorruptFile("the fifth pickle is not the list of storage keys")
    if len(set(keys)) != len(keys):
        raise CorruptFile("the list of storage keys names one storage twice")
    return keys


class Storages:
    """The meaning of persistent ids, and where the storages they promise turn out to lie.

    ``('storage', class, key, location, numel, view)``: ``view`` is None or ``(key, offset, size)``, a part of the
    storage in elements. ``('module', class, source file, source)`` stands for the class of a module.
    """

    def __init__(self, stream: Extent) -> None:
        self._stream = stream
        self._promised: dict[str, tuple[Storage, DType]] = {}

    def __call__(self, persistent_id: Any) -> Any:
        kind = persistent_id[0] if isinstance(persistent_id, tuple) and persistent_id else None
        if kind == "module" and len(persistent_id) > 1 and isinstance(persistent_id[1], Global):
            return persistent_id[1]
        if kind != "storage" or len(persistent_id) < 5:
            raise CorruptFile("a persistent id that is neither a storage nor a module")
        _, cls, key, device, numel = persistent_id[:5]
        view = persistent_id[5] if len(persistent_id) > 5 else None
        dtype = _torch_objects.storage_dtype(cls)
        if type(key) is not str or type(numel) is not int or numel < 0:
            raise CorruptFile("a storage whose key is no text or whose size is no number of elements")
        nbytes = numel * dtype.itemsize
        if nbytes > self._stream.nbytes:
            raise TruncatedFile(f"storage {key} needs {nbytes} bytes, the whole stream has {self._stream.nbytes}")
        if key not in self._promised:
            self._promised[key] = (
                Storage(self._stream.part(0, nbytes), location=device if type(device) is str else "cpu"),
                dtype,
            )
        storage, _ = self._promised[key]
        if storage.nbytes != nbytes:
            raise CorruptFile(f"storage {key} has {storage.nbytes} bytes in one place and {nbytes} in another")
        start, count = _part(view, numel)
        return _torch_objects.StorageView(dtype, count, storage, start)

    def place(self, keys: list[str], position: int) -> int:
        """Find the storages of ``keys`` from ``position`` on and return where the last one ends."""
        for index, key in enumerate(keys):
            if key not in self._promised:
                raise CorruptFile(f"storage {printable(key)} is stored and nothing in the object refers to it")
            storage, dtype = self._promised[key]
            which = f"storage {printable(key)} ({index + 1} of {len(keys)})"
            left = self._stream.nbytes - position - _COUNT_NBYTES
            if left < storage.nbytes:
                raise TruncatedFile(
                    f"{which} needs {storage.nbytes} bytes at byte {position + _COUNT_NBYTES}, {max(left, 0)} are left",
                    hint="copy or download it again; if a training wrote it, that save was interrupted",
                )
            numel = int.from_bytes(self._stream.read(position, _COUNT_NBYTES), "little", signed=True)
            if numel * dtype.itemsize != storage.nbytes:
                raise CorruptFile(f"{which} has {numel} elements of {dtype}, the object expects {storage.nbytes} bytes")
            position += _COUNT_NBYTES
            storage.extent = self._stream.part(position, storage.nbytes)
            position += storage.nbytes
        unplaced = self._promised.keys() - set(keys)
        if unplaced:
            raise CorruptFile(f"storage {printable(min(unplaced))} is referred to and not among the stored ones")
        return position


def _part(view: Any, numel: int) -> tuple[int, int]:
    """The first element and the number of elements that a view of a storage of ``numel`` elements looks at."""
    if view is None:
        return 0, numel
    if not isinstance(view, tuple) or len(view) != 3 or type(view[1]) is not int or type(view[2]) is not int:
        raise CorruptFile("a view of a storage that is not (key, offset, size)")
    _, start, count = view
    if start < 0 or count < 0 or start + count > numel:
        raise CorruptFile(f"a view of elements {start} to {start + count} of a storage of {numel}")
    return start, count


class NestedStreams:
    """The streams inside one pickle that torch did not write: constructors for its machine, and what they have read."""

    def __init__(self) -> None:
        self._machines: list[Machine] = []

    @property
    def constructors(self) -> Mapping[str, Constructor]:
        """Torch's, numpy's and Python's names, and the one that a stream is handed to."""
        return {**_torch_objects.CONSTRUCTORS, "torch.storage._load_from_bytes": self._storage}

    def issues(self, where: str) -> list[Issue]:
        """What the pickles in the streams would import and call."""
        return [
            issue for machine in self._machines for issue in findings.foreign(machine, f"{where} (a storage in it)")
        ]

    def _storage(self, args: Any) -> Any:
        held = args[0] if args else None
        if isinstance(held, (Blob, TextBlob)):
            extent = held.extent if isinstance(held, Blob) else held.counted()
        elif isinstance(held, bytes):
            extent = MemoryExtent(held)
        else:
            return NotImplemented
        if not begins_like(extent.read(0, min(extent.nbytes, 64))):
            return NotImplemented
        stream = read(extent)
        self._machines.append(stream.machine)
        return stream.tree
