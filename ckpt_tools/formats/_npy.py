"""One array in the NPY format, in a file of its own or as a member of an archive; read without numpy.

Source: numpy's ``numpy.lib.format`` (NEP 1). ``\\x93NUMPY``, two bytes of version, the header's length (two bytes in
version 1, four in 2 and 3), a Python literal with ``descr``, ``fortran_order`` and ``shape``, then the elements. Arrays
of Python objects are a pickle instead, which is read symbolically.
"""

from __future__ import annotations

import math
from typing import Any

from ckpt_tools.core.checksum import Checksum
from ckpt_tools.core.extents import Extent, MemoryExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import MIB, Limits
from ckpt_tools.core.spool import SpooledExtent
from ckpt_tools.core.tensors import Storage, StridedTensor, TensorInfo
from ckpt_tools.core.tree import Dict, Node
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats import _literals, _torch_objects
from ckpt_tools.formats._torch_stream import NestedStreams
from ckpt_tools.formats._zip import Archive
from ckpt_tools.pickles import findings, numpy_objects
from ckpt_tools.pickles.machine import Machine
from ckpt_tools.pickles.nodes import Blob
from ckpt_tools.pickles.numpy_objects import ElementType, coded_type, record_type, sub_array_type

MAGIC = b"\x93NUMPY"
#: The end of the name of an archive's member that is an array.
SUFFIX = ".npy"
_VERSION_NBYTES = 2
_LENGTH_NBYTES = {1: 2, 2: 4, 3: 4}
#: A record type with tens of thousands of fields; numpy itself stops at 10,000 bytes unless told otherwise.
_LONGEST_HEADER = MIB
_ORDERS = "<>|="


def read(extent: Extent, where: str, limits: Limits, checksum: Checksum | None = None) -> tuple[Node, list[Issue]]:
    """The array that ``extent`` holds: a tensor, or for objects what their pickle says, with what is odd about it.

    ``checksum`` is that of the whole extent; it goes along to verify the elements with.
    """
    fixed = len(MAGIC) + _VERSION_NBYTES
    start = extent.read(0, fixed)
    if not start.startswith(MAGIC):
        raise CorruptFile(f"{where} does not begin as an array does: {start[:8].hex(' ')}")
    major = start[len(MAGIC)]
    if major not in _LENGTH_NBYTES:
        raise CorruptFile(f"{where} has version {major} of the format, known are 1 to 3")
    announced = extent.read(fixed, _LENGTH_NBYTES[major])
    length = int.from_bytes(announced, "little")
    if length > _LONGEST_HEADER:
        raise LimitExceeded(f"{where} has a header of {length} bytes, over {_LONGEST_HEADER}")
    text = extent.read(fixed + len(announced), length)
    data_start = fixed + len(announced) + length
    kind, fortran, shape = _described(text.decode("utf-8" if major == 3 else "latin-1"))
    if kind.of_objects:
        return _objects(extent.part(data_start, extent.nbytes - data_start), shape, where, limits)
    info = TensorInfo(kind.dtype, shape)
    left = extent.nbytes - data_start
    if info.nbytes > left:
        raise TruncatedFile(f"{where}: {kind.dtype} {list(shape)} needs {info.nbytes} bytes, {left} are there")
    issues = []
    if info.nbytes < left:
        checksum = None  # it covers what follows, too
        message = f"{left - info.nbytes} bytes follow the elements of the array"
        issues.append(Issue("integrity-trailing-bytes", Severity.WARNING, where, message))
    if checksum is not None:
        checksum = checksum._replace(start=checksum.update(start + announced + text))
    strides = numpy_objects.column_major_strides(shape) if fortran and len(shape) > 1 else None
    elements = extent.part(data_start, info.nbytes)
    if strides and elements.sequential:
        elements = SpooledExtent(elements)
    storage = Storage(elements, byteorder="big" if kind.big else "little", checksum=checksum)
    return StridedTensor(info, storage, 0, strides), issues


def _described(text: str) -> tuple[ElementType, bool, tuple[int, ...]]:
    """Element type, order and shape from a header's text."""
    header = _literals.parsed(text)
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        raise CorruptFile("an array's header without exactly descr, fortran_order and shape")
    if not isinstance(header["fortran_order"], bool):
        raise CorruptFile("an array's fortran_order that is neither True nor False")
    return element_type(header["descr"]), header["fortran_order"], numpy_objects.checked_shape(header["shape"])


def element_type(descr: Any) -> ElementType:
    """The element type that ``numpy.lib.format.descr_to_dtype`` makes of ``descr``: a code, an array, or fields."""
    if isinstance(descr, str):
        order, code = (descr[0], descr[1:]) if descr[:1] in _ORDERS and descr else ("|", descr)
        code, _, unit = code.partition("[")
        return coded_type(code, big=order == ">", unit=unit.removesuffix("]"))
    if isinstance(descr, tuple) and len(descr) == 2:
        return sub_array_type(element_type(descr[0]), numpy_objects.checked_shape(descr[1]))
    if not isinstance(descr, list):
        raise CorruptFile("an element type that is neither a code nor a list of fields")
    fields, offset = [], 0
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            raise CorruptFile("a field of a record without name and type")
        name = field[0][1] if isinstance(field[0], tuple) and len(field[0]) == 2 else field[0]  # (title, name)
        if not isinstance(name, str):
            raise CorruptFile("a field of a record whose name is no text")
        part = element_type(field[1] if len(field) == 2 else field[1:])
        if name or not isinstance(field[1], str) or "V" not in field[1]:  # nameless bytes fill a gap
            fields.append((name, part, offset))
        offset += part.dtype.itemsize
    return record_type(fields, offset)


def _objects(extent: Extent, shape: tuple[int, ...], where: str, limits: Limits) -> tuple[Node, list[Issue]]:
    if extent.nbytes > limits.pickle_nbytes:
        raise LimitExceeded(f"{where} is a pickle of {extent.nbytes} bytes, over {limits.pickle_nbytes}")
    if extent.sequential:  # pickles refer back and forth, so it is unpacked once
        extent = MemoryExtent(extent.read(0, extent.nbytes))
    streams = NestedStreams()
    machine = Machine(extent, constructors=streams.constructors, built=_torch_objects.built, limits=limits)
    node = machine.load()
    held = getattr(node, "elements", None)
    if held is None or len(held) != math.prod(shape):
        raise CorruptFile(f"{where} does not hold the {math.prod(shape)} objects that its header announces")
    # An array of no dimensions is how numpy saves a dict or a list: what it holds is what was saved.
    return (held[0] if shape == () else node), findings.foreign(machine, where) + streams.issues(where)


def read_archive(archive: Archive, limits: Limits, issues: list[Issue]) -> Dict:
    """The arrays of an archive by name, as ``numpy.load`` gives them: without ``.npy``, one part whatever slashes.

    Of packed members only the headers are unpacked. Members that are no arrays are byte strings. What is odd goes to
    ``issues``.
    """
    tree = Dict()
    for member in archive.order:
        name = member.removesuffix(SUFFIX)
        if name in tree:
            raise CorruptFile(f"two members of the archive stand for {name}")
        if name == member:
            tree[name] = Blob(archive.extent(member))
        else:
            tree[name], odd = read(archive.extent(member), member, limits, archive.checksum(member))
            issues += odd
    return tree
