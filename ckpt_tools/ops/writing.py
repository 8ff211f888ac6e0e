"""Carries a planned conversion out: streams every tensor once, checks what passes, reads the result back, puts it in place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ckpt_tools.core.ahead import ahead
from ckpt_tools.core.casting import CastTensor
from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.keys import quoted_name
from ckpt_tools.core.limits import CHUNK_NBYTES
from ckpt_tools.core.location import locate
from ckpt_tools.core.sink import Sink, SinkSet, destination, staged
from ckpt_tools.core.tensors import AbsentTensor, Storage, StridedTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Node, NumpyScalar, Opaque, is_container, walk
from ckpt_tools.errors import CorruptFile, LimitExceeded, UnreadableInput, WriteRefused, damage
from ckpt_tools.formats import detect, format_named, open_location
from ckpt_tools.formats._values import UNFIT_OUTLINE, flat_name, read_value
from ckpt_tools.ops.convert import Conversion
from ckpt_tools.pickles.nodes import Global

#: Tensors with more bytes are worth a thread that reads them.
_LARGE_NBYTES = 4 * CHUNK_NBYTES
#: A sentence that names a tensor of a name of any length ends here.
_LONGEST_REASON = 500
_OVERWRITE = "--overwrite replaces it"

Progress = Callable[[int], None]


def write(conversion: Conversion, *, overwrite: bool, check: bool, progress: Progress | None = None) -> None:
    """Write the files of a plan, all of them or none.

    UnreadableInput, naming the tensor, when the source is damaged or changes meanwhile; WriteRefused when the target
    exists, there is no room, or what is read back differs. ``progress`` is told the bytes that were written, and with
    ``check`` those that were read back.
    """
    require_place(conversion, overwrite=overwrite)
    feed = _Feed(conversion, with_digests=check)
    *parts, index = conversion.write_plan.files
    total = conversion.write_plan.nbytes
    if not parts:
        with Sink(index.path, overwrite=overwrite, nbytes=total, progress=progress) as sink:
            index.write(sink, feed)
            if check:
                sink.finish()
                with staged([sink]) as directory:
                    _compare(conversion, directory / sink.target.name, feed, progress)
    else:
        with SinkSet(index.path, overwrite=overwrite, nbytes=total, progress=progress) as sinks:
            for part in parts:
                part.write(sinks.part(part.path), feed)
            index.write(sinks.index, feed)
            if check:
                sinks.finish()
                with staged(sinks.sinks) as directory:
                    _compare(conversion, directory / sinks.index.target.name, feed, progress)
    for path in (*conversion.write_plan.obsolete, *(_orphans(conversion) if overwrite else ())):
        path.unlink(missing_ok=True)
    conversion.notes += _overflow_notes(conversion)
    conversion.written = True


def require_place(conversion: Conversion, *, overwrite: bool) -> None:
    """WriteRefused when something stands where the files of a plan are to go."""
    for file in conversion.write_plan.files:
        destination(file.path, overwrite=overwrite)
    for path in () if overwrite else conversion.write_plan.obsolete:
        raise WriteRefused("belongs to a checkpoint of that name", where=os.fspath(path), hint=_OVERWRITE)


def _orphans(conversion: Conversion) -> list[Path]:
    """What is left of a checkpoint of that name, and is not what this one is made from."""
    read = [source.path for source in conversion.source.sources if source.path.exists()]
    return [path for path in conversion.write_plan.orphans if path.exists() and not any(map(path.samefile, read))]


def _overflow_notes(conversion: Conversion) -> list[str]:
    found = []
    for move in conversion.moves:
        if isinstance(move.tensor, CastTensor) and move.tensor.overflows:
            count = move.tensor.overflows
            what = f"1 value of {move.source} is" if count == 1 else f"{count} values of {move.source} are"
            found.append(f"{what} beyond the range of {move.tensor.info.dtype}")
    return found


class _Feed:
    """Hands out the bytes of tensors, and looks at them as they pass: the source's checksums, digests of the values."""

    def __init__(self, conversion: Conversion, *, with_digests: bool) -> None:
        self.digests: dict[int, str] = {}
        self._where = conversion.source.location.shown
        self._with_digests = with_digests
        self._checked: set[Storage] = set()
        self._names: dict[int, str] = {}
        self._storage_names: dict[Storage, str] = {}
        for move in conversion.moves:
            self._names[id(move.tensor)] = move.source
            for view in _views(move.tensor):
                self._storage_names.setdefault(view.storage, move.source)
        for move in conversion.moves:
            with self._named(move.tensor):
                _require_bounded(move.tensor)

    def __call__(self, tensor: Tensor) -> Iterator[bytes]:
        with self._named(tensor):
            chunks = self._verified(tensor)
            if not self._with_digests or id(tensor) not in self._names:
                yield from chunks
                return
            digest = hashlib.sha256()
            for chunk in chunks:
                digest.update(chunk)
                yield chunk
            self.digests[id(tensor)] = digest.hexdigest()

    @contextmanager
    def _named(self, tensor: Tensor) -> Iterator[None]:
        """Put the tensor's name into what goes wrong with it."""
        name = self._names.get(id(tensor)) or next(
            (self._storage_names[v.storage] for v in _views(tensor) if v.storage in self._storage_names), "a tensor"
        )
        try:
            with damage(self._where):
                yield
        except UnreadableInput as error:
            error.message = f"{name}: {error.message}"
            raise

    def _verified(self, tensor: Tensor) -> Iterator[bytes]:
        """The bytes; CorruptFile when those of the file do not have the checksum that it carries for them."""
        if isinstance(tensor, StridedTensor) and _is_all_of_storage(tensor):
            yield from self._verified_on_the_way(tensor)
            return
        for view in _views(tensor):
            storage = view.storage
            if storage.checksum is not None and storage not in self._checked:
                if not storage.checksum.matches(storage.extent.chunks(0, storage.nbytes, CHUNK_NBYTES)):
                    raise _mismatch(storage)
                self._checked.add(storage)
        yield from _chunks(tensor)

    def _verified_on_the_way(self, tensor: StridedTensor) -> Iterator[bytes]:
        storage, checksum = tensor.storage, tensor.storage.checksum
        if checksum is None or storage in self._checked:
            yield from _chunks(tensor)
            return
        value = checksum.start
        for chunk in _chunks(tensor):
            value = checksum.update(chunk, value)
            yield chunk
        if value != checksum.value:
            raise _mismatch(storage)
        self._checked.add(storage)


def _chunks(tensor: Tensor) -> Iterator[bytes]:
    """The bytes of a tensor, those of a large one read and put in order while earlier ones are looked over and written."""
    return ahead(tensor.chunks()) if tensor.nbytes > _LARGE_NBYTES else tensor.chunks()


def _require_bounded(tensor: Tensor) -> None:
    """LimitExceeded for a tensor that would fill the disk with values of next to no bytes."""
    try:
        for part in tensor.constituents():
            part.require_bounded()
    except LimitExceeded as error:
        error.hint = "--exclude NAME leaves it out"
        raise


def _is_all_of_storage(tensor: StridedTensor) -> bool:
    """Whether the values are the storage's own bytes, in order."""
    swapped = tensor.storage.byteorder == "big" and tensor.info.dtype.swap_nbytes > 1
    return tensor.compact and not swapped and not tensor.conj and not tensor.neg


def _mismatch(storage: Storage) -> CorruptFile:
    assert storage.checksum is not None
    kind = {"crc32": "CRC-32", "crc32c": "CRC-32C"}.get(storage.checksum.kind, storage.checksum.kind)
    return CorruptFile(
        f"the bytes of {storage.checksum.place} do not have the {kind} that the file records: they are damaged",
        hint="copy or download it again; ckpt verify tells which tensors are sound",
    )


def _views(tensor: Tensor) -> Iterator[StridedTensor]:
    """The views of storages that a tensor's bytes come from."""
    return (part for part in tensor.constituents() if isinstance(part, StridedTensor))


# -- reading back ------------------------------------------------------------------------------------------------------


def _compare(conversion: Conversion, path: os.PathLike[str], feed: _Feed, progress: Progress | None) -> None:
    """WriteRefused unless what is read back is what was planned: every tensor by digest, every value."""
    try:
        location = locate(path)
        # a set of shards has the format of its parts, and a row of its own
        row = format_named(conversion.writer) if len(conversion.write_plan.files) == 1 else detect(location)
        with open_location(location, row) as back:
            _compare_trees(conversion, back, feed, progress)
    except UnreadableInput as error:
        raise _differs(conversion, f"it cannot be read: {error.message}") from error


def _compare_trees(conversion: Conversion, back: Checkpoint, feed: _Feed, progress: Progress | None) -> None:
    unused = next((issue for issue in back.issues if issue.code == UNFIT_OUTLINE), None)
    if unused is not None:
        raise _differs(conversion, unused.message)
    found = dict(walk(back.root, conversion.source.limits))
    for key, node in walk(conversion.root, conversion.source.limits):
        name = flat_name(key)
        if name in conversion.write_plan.remade or (node is conversion.root and is_container(node)):
            continue  # an empty mapping is a leaf, too
        if key not in found:
            raise _differs(conversion, f"{quoted_name(key)} is not there")
        other = found[key]
        if not isinstance(node, Tensor):
            if _comparable(node) != _comparable(other):
                raise _differs(conversion, f"the value {name} differs")
            continue
        if not isinstance(other, Tensor) or not _alike(other.info, node.info):
            raise _differs(conversion, f"{name} is {getattr(other, 'info', 'no tensor')}")
        if isinstance(node, AbsentTensor):
            continue
        digest = feed.digests.get(id(node)) or _digest(node)
        if _digest(other) != digest:
            raise _differs(conversion, f"the values of {name} differ")
        if progress is not None:
            progress(node.nbytes)


def _alike(one: TensorInfo, other: TensorInfo) -> bool:
    """Whether shapes and element types are the same; those of records may be spelt in more than one way."""
    if one.shape != other.shape or one.dtype.name != other.dtype.name:
        return False
    return one.dtype is other.dtype or one.dtype.to_numpy() == other.dtype.to_numpy()


def _digest(tensor: Tensor) -> str:
    digest = hashlib.sha256()
    for chunk in tensor.chunks():
        digest.update(chunk)
    return digest.hexdigest()


def _differs(conversion: Conversion, what: str) -> WriteRefused:
    what = what if len(what) <= _LONGEST_REASON else f"{what[:_LONGEST_REASON]}…"
    return WriteRefused(
        f"what was written and read back is not what was to be written: {what}; nothing was put in place",
        where=os.fspath(conversion.target),
    )


def _comparable(node: Node) -> object:
    """A value such that two of one meaning are equal, whichever format keeps them."""
    node = read_value(node)
    if isinstance(node, NumpyScalar):
        node = node.value
    if isinstance(node, float):
        return node.hex()
    if isinstance(node, complex):
        return node.real.hex(), node.imag.hex()
    if isinstance(node, Global):
        return node.path
    if isinstance(node, Opaque):
        return node.type_name
    if isinstance(node, (dict, list, tuple)):
        return len(node)
    return type(node), node
