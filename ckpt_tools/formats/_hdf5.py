"""An HDF5 file as a tree, through h5py: datasets as lazy tensors, groups as mappings, attributes as values.

The library only ever reads through our own bounded reads of one run of bytes (a file, or a member of an archive): it
opens no file itself, so nothing outside is reached. External links, external storage and virtual datasets are named
and not followed; soft links are looked up among what hard links reach. Contiguous datasets are located once and then
read without the library; the others are read box by box when they are asked for.

What Keras writes into attributes is used where it says more than the groups do (keras/src/legacy/saving/
legacy_h5_format.py, keras/src/saving/saving_lib.py): ``layer_names`` and ``weight_names`` give the order of weights and
their second names, ``dtype`` names the element type of two-byte opaque data, ``name`` of a ``vars`` group the layer.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import Extent, MemoryExtent
from ckpt_tools.core.keys import natural_order
from ckpt_tools.core.limits import CHUNK_NBYTES, DEFAULT_LIMITS, KIB, MIB, Limits
from ckpt_tools.core.strides import blocks
from ckpt_tools.core.tensors import (
    AbsentTensor,
    Storage,
    StridedTensor,
    StringTensor,
    Tensor,
    TensorInfo,
)
from ckpt_tools.core.tree import Dict, Node, Opaque
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats._npy import element_type
from ckpt_tools.pickles.nodes import LongText
from ckpt_tools.pickles.numpy_objects import ElementType, scalar, sub_array_type

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: Where the signature may stand (HDF5 File Format Specification, III.A): at 0, 512, 1024, … Later ones are unheard of.
SIGNATURE_OFFSETS = (0, 512, 1024, 2048, 4096)

#: How a global heap begins: signature, version, reserved bytes. Its header and those of its objects, where lengths
#: have 8 bytes as in every file met.
_HEAP = b"GCOL\x01\0\0\0"
_HEAP_HEADER = 16
_HEAP_OBJECT = 16
#: Heaps are made 4 KiB large, and larger only for a single long text.
_LARGEST_HEAP = 64 * MIB

#: As much of a superblock of version 0 or 1 as is looked at
_OLD_SUPERBLOCK = 36

#: Attributes hold names and settings; longer ones are named, not read.
_LONGEST_ATTRIBUTE = 16 * MIB
_LISTED_ELEMENTS = 65_536
_LONG_TEXT = 4 * KIB
#: Keras splits lists of names that are longer than HDF5's limit for attributes: layer_names0, layer_names1, …
NAME_LISTS = re.compile(r"(?:layer_names|weight_names)\d*")
#: H5T_INTEGER, H5T_FLOAT, H5T_STRING and H5T_ENUM: attributes of other classes are named, not read. On damaged files
#: the library crashes over those, the process with it.
_PLAIN_CLASSES = frozenset((0, 1, 3, 8))
#: Filters that are part of HDF5 (1 to 6) and h5py (LZF). For others HDF5 would load a plugin that the file names.
_KNOWN_FILTERS = frozenset((1, 2, 3, 4, 5, 6, 32000))
#: Chunks kept unpacked while a dataset is read row by row.
_CHUNK_CACHE = 64 * MIB


@dataclass
class Contents:
    """What an HDF5 file holds.

    ``keras`` has ``keras_version`` and ``backend`` as far as Keras wrote them; ``layer_names`` are names of layers by
    the path of their group; ``has_variables`` says whether groups are laid out as Keras 3 does.
    """

    root: Dict
    keras: dict[str, str] = field(default_factory=dict)
    layer_names: dict[tuple[str, ...], str] = field(default_factory=dict)
    has_variables: bool = False


class _ExtentFile(io.RawIOBase):
    """A run of bytes as the file object that h5py reads from. A short read is an error, never stale memory.

    Global heaps (texts of any length lie there) are checked before the library sees them: it walks from object to
    object for ever when a damaged one has no size, and nothing can interrupt it.
    """

    def __init__(self, extent: Extent) -> None:
        self._extent = extent
        self._at = 0
        self._checked: set[int] = set()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._extent.nbytes}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        # a signature may straddle two reads
        before = min(self._at, len(_HEAP) - 1)
        data = self._extent.read(self._at - before, before + len(buffer))
        found = data.find(_HEAP)
        while found >= 0:
            self._check_heap(self._at - before + found)
            found = data.find(_HEAP, found + 1)
        buffer[:] = data[before:]
        self._at += len(buffer)
        return len(buffer)

    def _check_heap(self, start: int) -> None:
        """CorruptFile when the objects of the global heap at ``start`` do not lead to its end (Format III.E)."""
        if start in self._checked or start + _HEAP_HEADER > self._extent.nbytes:
            return
        self._checked.add(start)
        nbytes = int.from_bytes(self._extent.read(start + 8, 8), "little")
        if nbytes > min(self._extent.nbytes - start, _LARGEST_HEAP):
            raise CorruptFile(f"a heap of {nbytes} bytes at byte {start}")
        heap = self._extent.read(start, nbytes)
        at = _HEAP_HEADER
        while at + _HEAP_OBJECT <= nbytes:
            index, size = int.from_bytes(heap[at : at + 2], "little"), int.from_bytes(heap[at + 8 : at + 16], "little")
            step = _HEAP_OBJECT + -(-size // 8) * 8 if index else size  # object 0 is the free space that is left
            if step < _HEAP_OBJECT or at + step > nbytes:
                raise CorruptFile(f"the heap at byte {start} is damaged at byte {start + at}")
            at += step


_TRUNCATED = re.compile(r"truncated file: eof = (\d+), sblock->base_addr = \d+, stored_eof = (\d+)")


@contextmanager
def _bridged(what: str) -> Iterator[None]:
    """h5py raises OSError, RuntimeError, KeyError or ValueError as the depth of the damage has it, TypeError where
    numpy has no such type. Only its own calls belong in here."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        text = str(error.args[0] if error.args else error).splitlines()[0] if error.args else type(error).__name__
        cut = _TRUNCATED.search(text)
        if cut:
            raise TruncatedFile(f"truncated HDF5 file: {cut[2]} bytes are announced, {cut[1]} are there") from None
        raise CorruptFile(f"{what} cannot be read: {text}") from None


class DatasetTensor(Tensor):
    """A dataset that is packed, cut into chunks or converted: read through the library, a box at a time."""

    __slots__ = ("_dataset", "_stored_nbytes")

    def __init__(self, info: TensorInfo, dataset: h5py.Dataset, stored_nbytes: int, *, alias: str | None) -> None:
        self.info = info
        self.storage = None
        self._dataset = dataset
        self._stored_nbytes = stored_nbytes
        self.alias = alias
        self.note = None

    def require_bounded(self) -> None:
        allowed = max(self._stored_nbytes * DEFAULT_LIMITS.expansion, DEFAULT_LIMITS.expansion_at_least)
        if self.nbytes > allowed:
            raise LimitExceeded(f"a dataset of {self._stored_nbytes} stored bytes claims {self.nbytes} bytes of values")

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        self.require_bounded()
        if not self.nbytes:
            return
        little = self._dataset.dtype.newbyteorder("<")
        for starts, box in blocks(self.info.shape, max(limit // self.info.dtype.itemsize, 1)):
            with _bridged(f"dataset {self._dataset.name}"):
                values = self._dataset[tuple(slice(start, start + n) for start, n in zip(starts, box))]
            yield values.astype(little, copy=False).tobytes()


def contents(extent: Extent, limits: Limits) -> Contents:
    """The tree of the HDF5 file that ``extent`` holds. Reads structure and attributes, no dataset."""
    import h5py

    _check_superblock(extent)
    with _bridged("the HDF5 file"):
        file = h5py.File(_ExtentFile(extent), "r", rdcc_nbytes=_CHUNK_CACHE)
    return _Reading(extent, limits).contents(file)


def _check_superblock(extent: Extent) -> None:
    """CorruptFile when a superblock of version 0 or 1 (Format II.A) holds addresses or sizes that crash the library.

    Later versions carry a checksum, which the library verifies.
    """
    for start in SIGNATURE_OFFSETS:
        if start + _OLD_SUPERBLOCK > extent.nbytes:
            return
        block = extent.read(start, _OLD_SUPERBLOCK)
        if not block.startswith(SIGNATURE):
            continue
        version, offset_nbytes = block[8], block[13]
        if version <= 1 and offset_nbytes == 8:
            at = 24 if version == 0 else 28
            base = int.from_bytes(block[at : at + 8], "little")
            leaf_k, internal_k = int.from_bytes(block[16:18], "little"), int.from_bytes(block[18:20], "little")
            if base != start:
                raise CorruptFile(f"the superblock at byte {start} says that the file begins at byte {base}")
            if not leaf_k or not internal_k:
                raise CorruptFile("the superblock gives nodes of groups no room")
        return


#: For each version of the superblock: where it has the end of the file, and where the size of such addresses.
_END_AT = {0: (40, 13), 1: (44, 13), 2: (28, 9), 3: (28, 9)}
_SUPERBLOCK = 52
_ADDRESS = 8


def announced_nbytes(extent: Extent) -> int | None:
    """How long the file is by its superblock (Format II.A); None when that does not stand at its very beginning."""
    block = extent.read(0, min(_SUPERBLOCK, extent.nbytes))
    if not block.startswith(SIGNATURE) or len(block) < _SUPERBLOCK or block[8] not in _END_AT:
        return None
    at, size_at = _END_AT[block[8]]
    return int.from_bytes(block[at : at + _ADDRESS], "little") if block[size_at] == _ADDRESS else None


#: A weight's path below the group at hand, and the name that Keras knows it by (None: a layer).
_Wanted = tuple[tuple[str, ...], "str | None"]


class _Reading:
    """One pass over the groups of a file."""

    def __init__(self, extent: Extent, limits: Limits) -> None:
        self._extent = extent
        self._limits = limits
        self._met: dict[int, Node] = {}
        self._links: list[tuple[Dict, str, tuple[str, ...]]] = []
        self._count = 0

    def contents(self, file: h5py.File) -> Contents:
        found = Contents(Dict())
        with _bridged("the root group"):
            top = file["/"]  # the file itself does not tell whether its root group keeps an order
        self._met[_address(top)] = found.root
        pending: list[tuple[h5py.Group, Dict, tuple[str, ...], list[_Wanted]]] = [(top, found.root, (), [])]
        while pending:
            group, node, path, wanted = pending.pop()
            if len(path) > self._limits.depth:
                raise LimitExceeded(f"groups nest deeper than {self._limits.depth}")
            attributes = self._attributes(group)
            for key in ("keras_version", "backend"):
                if isinstance(attributes.get(key), str):
                    found.keras.setdefault(key, attributes[key])
            wanted += _named_weights(attributes)
            if path[-1:] == ("vars",):
                name = attributes.pop("name", None)
                if isinstance(name, str):
                    found.layer_names[path[:-1]] = name
                found.has_variables = True
            below: dict[str, list[_Wanted]] = {}
            for rest, weight in wanted:
                if rest:
                    below.setdefault(rest[0], []).append((rest[1:], weight))
            names = _in_order(group, list(below))
            taken = frozenset(names)
            _give_attributes(node, "", attributes, taken)
            self._count += len(names)
            if self._count > self._limits.members:
                raise LimitExceeded(f"over {self._limits.members} groups and datasets")
            for name in names:
                child = self._child(group, name, taken, node, (*path, name), below.get(name, []))
                if child is not None:
                    pending.append((child, node[name], (*path, name), below.get(name, [])))
        self._follow_links(found.root)
        _prune(found.root)
        return found

    def _child(
        self,
        group: h5py.Group,
        name: str,
        taken: Collection[str],
        node: Dict,
        path: tuple[str, ...],
        below: list[_Wanted],
    ) -> h5py.Group | None:
        """Put one member of a group, which has members called ``taken``, into ``node``.

        Returns the member itself when it is a group not met before.
        """
        import h5py

        where = "/".join(path)
        kind, target = _link(group, name, where)
        if kind == h5py.h5l.TYPE_SOFT:
            node[name] = Opaque("HDF5 link to nothing in this file")
            base = () if target.startswith("/") else path[:-1]
            self._links.append((node, name, (*base, *(part for part in target.split("/") if part not in ("", ".")))))
            return None
        if kind != h5py.h5l.TYPE_HARD:
            node[name] = Opaque("HDF5 link into another file")
            return None
        with _bridged(where):
            child = group[encoded(name)]
            address = _address(child)
        if address in self._met:
            node[name] = self._met[address]
            return None
        if isinstance(child, h5py.Group):
            node[name] = self._met[address] = Dict()
            return child
        if not isinstance(child, h5py.Dataset):
            node[name] = Opaque("HDF5 named type")
            return None
        alias = next((weight for rest, weight in below if not rest and weight), None)
        attributes = self._attributes(child)
        node[name] = self._met[address] = self._dataset(child, where, attributes, alias)
        _give_attributes(node, name, attributes, taken)
        return None

    def _follow_links(self, root: Dict) -> None:
        """Let soft links stand for what hard links and other soft links reach. Those that lead nowhere stay named."""
        waiting = self._links
        while waiting:
            left = [link for link in waiting if not _follow(root, link)]
            if len(left) == len(waiting):
                return
            waiting = left

    def _dataset(self, dataset: h5py.Dataset, where: str, attributes: dict[str, Node], alias: str | None) -> Node:
        """A dataset as a node. An attribute that was used for it is taken out of ``attributes``."""
        import h5py

        with _bridged(where):
            shape = dataset.shape
            try:
                dtype = dataset.dtype
                as_stored = dtype.hasobject or _is_stored_as(dataset, dtype)
            except TypeError as error:  # "No NumPy equivalent for TypeBitfieldID exists"
                return Opaque(f"HDF5 dataset that h5py cannot read ({error})")
        if shape is None:
            return Opaque("HDF5 dataset without elements")
        if h5py.check_string_dtype(dtype) is not None and dtype.hasobject:
            return _texts(dataset, shape, where, alias)
        if dtype.hasobject:
            return Opaque(f"HDF5 dataset of references or of parts that differ in length, shape {list(shape)}")
        kind = _kind_of(dtype)
        if dtype.str[1:] == "V2" and attributes.get("dtype") == "bfloat16":
            kind = ElementType(BY_NAME["bfloat16"])
            del attributes["dtype"]
        info = TensorInfo(kind.dtype, tuple(shape))
        with _bridged(where):
            if dataset.external or dataset.is_virtual:
                return AbsentTensor(info, "its bytes are in other files, which are not followed", alias=alias)
            plist = dataset.id.get_create_plist()
            filters = [plist.get_filter(index) for index in range(plist.get_nfilters())]
            offset = dataset.id.get_offset()
            stored_nbytes = dataset.id.get_storage_size()
        for number, _, _, name in filters:
            if number not in _KNOWN_FILTERS:
                label = name.decode("utf-8", "replace") or "unnamed"
                return AbsentTensor(info, f"it is packed with HDF5 filter {number} ({label}), a plugin", alias=alias)
        if not info.nbytes:
            return StridedTensor(info, Storage(MemoryExtent(b"")), alias=alias)
        whole = info.nbytes <= stored_nbytes  # nothing is stored of a dataset that was never written
        if offset is not None and whole and as_stored and not filters and dataset.chunks is None:
            storage = Storage(self._extent.part(offset, info.nbytes), byteorder="big" if kind.big else "little")
            return StridedTensor(info, storage, alias=alias)
        return DatasetTensor(info, dataset, stored_nbytes, alias=alias)

    def _attributes(self, holder: Any) -> dict[str, Node]:
        import h5py

        found: dict[str, Node] = {}
        with _bridged(f"the attributes of {holder.name}"):
            for name in map(_decoded, holder.attrs):
                stored = encoded(name)
                attribute = h5py.h5a.open(holder.id, stored)
                kind = attribute.get_type()
                nbytes = kind.get_size() * math.prod(attribute.shape or ())
                if nbytes > _LONGEST_ATTRIBUTE:
                    found[name] = Opaque(f"HDF5 attribute of {nbytes} bytes")
                elif kind.get_class() in _PLAIN_CLASSES:
                    found[name] = _value(holder.attrs[stored])
                else:
                    found[name] = Opaque("HDF5 attribute of references, of records or of lists that differ in length")
        return found


def encoded(name: str) -> bytes:
    """A name as HDF5 keeps it: any bytes. Those that are no UTF-8 are surrogates in ours."""
    return name.encode("utf-8", "surrogateescape")


def _decoded(name: str | bytes) -> str:
    """The inverse of :func:`encoded`. h5py gives texts where it can."""
    return name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")


def _link(group: h5py.Group, name: str, where: str) -> tuple[int, str]:
    """The kind of a link, and where a soft one leads.

    ``Group.get(getlink=True)`` asks the same, but goes through the whole group for every name.
    """
    import h5py

    stored = encoded(name)
    with _bridged(where):
        kind: int = group.id.links.get_info(stored).type
        target = group.id.links.get_val(stored) if kind == h5py.h5l.TYPE_SOFT else b""
    return kind, _decoded(target)


def _address(node: Any) -> int:
    import h5py

    with _bridged("an object header"):
        address: int = h5py.h5o.get_info(node.id).addr
    return address


def _kind_of(dtype: Any) -> ElementType:
    """Our element type for a numpy dtype."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return sub_array_type(_kind_of(base), shape)
    return element_type(dtype.descr if dtype.names else dtype.str)


def _is_stored_as(dataset: h5py.Dataset, dtype: Any) -> bool:
    """Whether the bytes in the file are those of the numpy dtype: odd floats and integers are converted on reading."""
    import h5py

    if dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:  # opaque bytes, whatever their tag
        return True
    return bool(h5py.h5t.py_create(dtype, logical=True).equal(dataset.id.get_type()))


def _value(value: Any) -> Node:
    """An attribute's value as a node."""
    import h5py
    import numpy

    if isinstance(value, bytes):  # texts of fixed length
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, str):
        return (
            LongText(MemoryExtent(value.encode("utf-8", "surrogateescape"))) if len(value) > _LONG_TEXT else str(value)
        )
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, numpy.ndarray) and value.size > _LISTED_ELEMENTS and not value.dtype.hasobject:
        return Opaque(f"HDF5 attribute {value.dtype.name} {list(value.shape)}")
    if isinstance(value, numpy.ndarray):
        return [_value(element) for element in value.reshape(-1)]
    if isinstance(value, numpy.generic) and not value.dtype.hasobject:
        kind = _kind_of(value.dtype)
        return scalar(kind, value.tobytes())
    return Opaque(f"HDF5 attribute of type {type(value).__name__}")


def _texts(dataset: h5py.Dataset, shape: tuple[int, ...], where: str, alias: str | None) -> Node:
    """Texts of any length: one as a value, more as a tensor."""
    if shape == ():
        with _bridged(where):
            value = dataset[()]
        return _value(_decoded(value) if isinstance(value, bytes) else value)

    def read() -> list[bytes]:
        with _bridged(where):
            return [bytes(element) for element in dataset[()].reshape(-1)]

    return StringTensor(tuple(shape), BY_NAME["string"], read, alias=alias)


def _named_weights(attributes: dict[str, Node]) -> list[_Wanted]:
    """The paths that ``layer_names`` and ``weight_names`` give, in their order."""
    found: list[_Wanted] = []
    for attribute in ("layer_names", "weight_names"):
        lists = [attributes[attribute]] if attribute in attributes else []
        while not lists or attribute not in attributes:
            part = attributes.get(f"{attribute}{len(lists)}")
            if part is None:
                break
            lists.append(part)
        for names in lists:
            for name in names if isinstance(names, list) else ():
                if isinstance(name, str):
                    found.append((tuple(name.split("/")), name if attribute == "weight_names" else None))
    return found


def _in_order(group: h5py.Group, first: Sequence[str]) -> list[str]:
    """The names in a group: ``first`` in their order, then as they were created if the file knows, else naturally."""
    with _bridged(group.name or "a group"):
        names = [_decoded(name) for name in group]
        if not group.id.get_create_plist().get_link_creation_order():
            names.sort(key=natural_order)
    rank = {name: index for index, name in enumerate(first)}
    return sorted(names, key=lambda name: rank.get(name, len(rank)))


def _follow(root: Dict, link: tuple[Dict, str, tuple[str, ...]]) -> bool:
    """Put what a soft link leads to in its place; False when that is nothing, or a link that was not followed yet."""
    holder, name, target = link
    node: Node = root
    for part in target:
        if not isinstance(node, Dict) or part not in node:
            return False
        node = node[part]
    if node is holder[name] or (isinstance(node, Opaque) and node.type_name == holder[name].type_name):
        return False
    holder[name] = node
    return True


def _give_attributes(node: Dict, name: str, attributes: dict[str, Node], taken: Collection[str]) -> None:
    """List the attributes of a group (``@units``) or of a dataset in it (``kernel@units``) among its members."""
    for attribute, value in attributes.items():
        key = f"{name}@{attribute}"
        while key in taken or key in node:
            key += "@"
        if not NAME_LISTS.fullmatch(attribute):
            node[key] = value


def _prune(root: Dict) -> None:
    """Take out groups that hold nothing: Keras writes one for each layer without weights."""
    order: list[Dict] = [root]
    seen = {id(root)}
    for node in order:
        for child in node.values():
            if isinstance(child, Dict) and id(child) not in seen:
                seen.add(id(child))
                order.append(child)
    for node in reversed(order):
        for name in [name for name, child in node.items() if isinstance(child, Dict) and not child]:
            del node[name]
