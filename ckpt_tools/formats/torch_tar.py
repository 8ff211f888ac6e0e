"""``torch-tar``: what ``torch.save`` wrote before 0.1.10: a tar with members ``storages``, ``tensors`` and ``pickle``.

Source: torch/serialization.py, ``_legacy_load.legacy_load``. ``storages``: a pickled count, for each a pickled (key,
location, class), the number of elements (i64) and the elements; then a pickled list of parts (key, root key, offset,
elements). ``tensors``: a pickled count, for each a pickled (key, storage key, class), the number of dimensions (i32,
and four bytes nobody reads), sizes, strides and the offset (i64 each, in elements). ``pickle``: the object; its
persistent ids are keys, or tuples that begin with a module's class. All numbers are little-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source, kept_open
from ckpt_tools.core.tensors import Storage, StridedTensor, TensorInfo
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats import _torch_objects
from ckpt_tools.pickles import findings
from ckpt_tools.pickles.machine import Machine
from ckpt_tools.pickles.nodes import Global

_NAMES = ("storages", "tensors", "pickle")
#: POSIX.1-1988 ustar: blocks of 512 bytes; name at 0, size at 124 in octal, kind at 156, magic at 257.
_BLOCK_NBYTES = 512
#: An archive is filled up with zeros to a multiple of 20 blocks.
_RECORD_NBYTES = 20 * _BLOCK_NBYTES
_MAGIC_AT, _MAGIC = 257, b"ustar"
#: torch wrote four members; writers that add extended headers at most double that.
_MOST_MEMBERS = 16


def probe(location: Location) -> str | None:
    """Why this is torch's tar format, or None."""
    if location.head[_MAGIC_AT:][: len(_MAGIC)] != _MAGIC:
        return None
    with Source(location.path) as source:
        found = dict(_members(source))
    # sys_info comes first; a cut file lacks some of the others
    return "a tar archive with members of torch's" if found.keys() & {*_NAMES, "sys_info"} else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the archive; reads the pickles and the descriptions of tensors."""
    with kept_open(location.path) as source:
        return _read(source, location, limits)


def _read(source: Source, location: Location, limits: Limits) -> Checkpoint:
    found = dict(_members(source))
    for name in _NAMES:
        if name not in found:
            raise CorruptFile(f"the tar archive has no member {name}")
        if found[name].offset + found[name].nbytes > source.nbytes:
            raise TruncatedFile(
                f"member {name} needs {found[name].nbytes} bytes at byte {found[name].offset},"
                f" the file has {source.nbytes}"
            )
    objects: dict[int, StridedTensor] = {}
    machines = [Machine(found["storages"], limits=limits), Machine(found["tensors"], limits=limits)]
    _storages(machines[0], objects)
    _tensors(machines[1], objects)
    machine = _torch_objects.machine(found["pickle"], persistent=lambda pid: _meaning(objects, pid))
    tree = machine.load()
    issues = list(_trailing(source))
    issues += [issue for name, one in zip(_NAMES, [*machines, machine]) for issue in findings.foreign(one, name)]
    return Checkpoint(
        "torch-tar",
        location,
        tree,
        producer=f"torch before 0.1.10, pickle protocol {machine.protocol}",
        nbytes=location.nbytes,
        issues=issues,
        facts={"pickle protocol": str(machine.protocol)},
        sources=[source],
        limits=limits,
    )


#: The size of a member, as POSIX ustar writes it.
_OCTAL = re.compile(rb"[\0 ]*([0-7]+)[\0 ]*")


def _members(source: Source) -> Iterator[tuple[str, FileExtent]]:
    """Names and bytes of the first members; a member may reach beyond the file."""
    position = 0
    for _ in range(_MOST_MEMBERS):
        header = source.peek(position, _BLOCK_NBYTES)
        if len(header) < _BLOCK_NBYTES or header[_MAGIC_AT:][: len(_MAGIC)] != _MAGIC:
            return
        digits = _OCTAL.fullmatch(header[124:136])
        if digits is None:
            return
        nbytes = int(digits[1], 8)
        position += _BLOCK_NBYTES
        if header[156:157] in (b"0", b"\0"):  # an ordinary file, as against extended headers
            name = header[:100].split(b"\0", 1)[0].decode("latin-1")
            yield name.removeprefix("./"), FileExtent(source, position, nbytes)
        position += -(-nbytes // _BLOCK_NBYTES) * _BLOCK_NBYTES


def _trailing(source: Source) -> Iterator[Issue]:
    """A finding when something follows the blocks of zeros that end a tar archive."""
    at = 0
    for _, extent in _members(source):
        at = extent.offset + extent.nbytes
    at += -at % _BLOCK_NBYTES
    rest = source.nbytes - at
    padding = rest <= _RECORD_NBYTES and rest % _BLOCK_NBYTES == 0 and not source.peek(at, rest).strip(b"\0")
    if rest > 0 and not padding:
        text = f"{rest} bytes follow the last member, and are not the zeros that end an archive"
        yield Issue("integrity-trailing-bytes", Severity.WARNING, source.path.name, text)


def _count(machine: Machine, what: str) -> int:
    count = machine.load()
    if type(count) is not int or not 0 <= count <= machine.extent.nbytes:
        raise CorruptFile(f"the number of {what} is not one")
    return count


def _described(machine: Machine, what: str) -> tuple[Any, ...]:
    described = machine.load()
    if not isinstance(described, tuple) or len(described) != 3 or type(described[0]) is not int:
        raise CorruptFile(f"a {what} is not described by its key and two more")
    return described


def _storages(machine: Machine, objects: dict[int, StridedTensor]) -> None:
    for _ in range(_count(machine, "storages")):
        key, device, cls = _described(machine, "storage")
        dtype = _torch_objects.storage_dtype(cls)
        numel = int.from_bytes(machine.read_bytes(8, "a number of elements"), "little", signed=True)
        extent = machine.skip(numel * dtype.itemsize, f"storage {key}")
        storage = Storage(extent, location=device if type(device) is str else "cpu")
        objects[key] = _torch_objects.StorageView(dtype, numel, storage)
    parts = machine.load()
    if not isinstance(parts, list) or any(
        not isinstance(part, tuple) or len(part) != 4 or any(type(n) is not int for n in part) for part in parts
    ):
        raise CorruptFile("the list of parts of storages is none")
    for key, root_key, offset, numel in parts:
        root = _known(objects, root_key)
        part = _torch_objects.StorageView(root.info.dtype, numel, root.storage, root.offset + offset)
        part.check_span()
        objects[key] = part


def _tensors(machine: Machine, objects: dict[int, StridedTensor]) -> None:
    for _ in range(_count(machine, "tensors")):
        key, storage_key, _ = _described(machine, "tensor")
        storage = _known(objects, storage_key)
        rank = int.from_bytes(machine.read_bytes(8, "a number of dimensions")[:4], "little", signed=True)
        if not 0 <= rank <= machine.limits.rank:
            raise LimitExceeded(f"tensor {key} has {rank} dimensions")
        numbers = struct.unpack(f"<{2 * rank + 1}q", machine.read_bytes(8 * (2 * rank + 1), "sizes and strides"))
        info = TensorInfo(storage.info.dtype, numbers[:rank])
        tensor = StridedTensor(info, storage.storage, storage.offset + numbers[-1], numbers[rank:-1])
        tensor.check_span()
        objects[key] = tensor


def _known(objects: dict[int, StridedTensor], key: Any) -> StridedTensor:
    if type(key) is not int or key not in objects:
        raise CorruptFile("a storage is referred to and not among the stored ones")
    return objects[key]


def _meaning(objects: dict[int, StridedTensor], persistent_id: Any) -> Any:
    """What a persistent id of the object stands for: a tensor, a storage, or the class of a module."""
    if isinstance(persistent_id, tuple) and persistent_id and isinstance(persistent_id[0], Global):
        return persistent_id[0]
    key = int(persistent_id) if isinstance(persistent_id, str) and persistent_id.isdecimal() else persistent_id
    return _known(objects, key)
