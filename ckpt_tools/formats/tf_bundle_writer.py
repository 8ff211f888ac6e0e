"""Writes ``tf-bundle``: ``P.index`` and ``P.data-0000i-of-0000N``, by names or with an object graph.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc and tensorflow/core/protobuf/tensor_bundle.proto. Names that
are object paths (``…/.ATTRIBUTES/VARIABLE_VALUE``) get an object graph: the one that came with them, as far as its values
are still there, or one made from the names, and then with a counter of saves, without which ``restore`` is not content.
Values become scalars, the outline (:mod:`ckpt_tools.formats._values`) a
string. The ``checkpoint`` file of the directory, which names the latest, is left to who trains there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ckpt_tools.core.checksum import crc32c, mask
from ckpt_tools.core.dtypes import BY_NAME, DType
from ckpt_tools.core.keys import printable
from ckpt_tools.core.tensors import StringTensor, Tensor
from ckpt_tools.core.tree import Dict, Node, Scalar
from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import _values
from ckpt_tools.formats._object_graph import GRAPH_KEY, VARIABLE_VALUE
from ckpt_tools.formats._object_graph_writer import ATTRIBUTES, cut_down, graph_of, is_object_path, keys_of
from ckpt_tools.formats._protobuf_writer import bytes_field, fixed32_field, number_field, varint
from ckpt_tools.formats._sorted_table_writer import table
from ckpt_tools.formats._writing import (
    Feed,
    Output,
    PlannedFile,
    Request,
    Target,
    WritePlan,
    kind_of_special,
    refuse_collisions,
)

#: BundleHeaderProto: version with producer 1 (tensorflow/core/public/version.h, TF_CHECKPOINT_VERSION)
_VERSION_FIELD = bytes_field(3, number_field(1, 1))
_INT64, _FLOAT64, _BOOL, _STRING = (BY_NAME[name] for name in ("int64", "float64", "bool", "string"))
#: ``tf.train.Checkpoint`` counts what it saved in a variable that ``restore`` wants back (tensorflow/python/checkpoint/
#: checkpoint.py).
_SAVE_COUNTER_NAME = "save_counter"
_SAVE_COUNTER = f"{_SAVE_COUNTER_NAME}{ATTRIBUTES}{VARIABLE_VALUE}"
_NUMBERED = re.compile(r".*-(\d{1,18})", re.DOTALL)
#: Lengths of strings are summed as 32-bit numbers, those beyond as 64-bit ones.
_LARGEST_U32 = 0xFFFFFFFF
#: Names may be any bytes; the reader keeps those that are no text as surrogates.
_ERRORS = "surrogateescape"


def _reason_lost(node: Node) -> str | None:
    if isinstance(node, StringTensor):
        return None
    if isinstance(node, Tensor):
        return kind_of_special(node) or (None if node.info.dtype.tf is not None else f"of dtype {node.info.dtype}")
    return _values.reason_lost(node)


TARGET = Target("a TensorFlow checkpoint", _reason_lost)


@dataclass(frozen=True)
class _Item:
    """One entry of the bundle. ``data`` is what is in memory already, None for a tensor that is streamed."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    tensor: Tensor | None
    data: bytes = b""
    #: the checksum of ``data`` where it is not simply that of its bytes
    crc: int | None = None


def plan(root: Node, request: Request) -> WritePlan:
    """The index and the data files of a tree; ``request.path`` is the prefix, or the index."""
    prefix = request.path.with_name(request.path.name.removesuffix(".index"))
    root, graph = _graph_of(root)
    is_object_based = isinstance(root, dict) and any(isinstance(key, str) and is_object_path(key) for key in root)
    flat = _values.flatten(root, (int, float, bool, str), tells_aliases=not is_object_based, errors=_ERRORS)
    items = [_item(name, tensor) for name, tensor in flat.tensors]
    items += [_scalar(name, value) for name, value in flat.values]
    if flat.outline is not None:
        items.append(_strings(_values.OUTLINE, (), [flat.outline.encode()]))
    notes: list[str] = []
    if is_object_based:
        items += _graph_items(graph, flat.tensors, prefix, notes)
    refuse_collisions((item.name, item.name) for item in items)
    _refuse_names(items)
    runs = _runs(items, request.max_shard_nbytes)
    crcs: dict[str, int] = {}
    files = [
        PlannedFile(
            prefix.with_name(f"{prefix.name}.data-{n:05d}-of-{len(runs):05d}"),
            sum(item.nbytes for item in run),
            partial(_write_data, run, crcs),
        )
        for n, run in enumerate(runs)
    ]
    index = PlannedFile(
        prefix.with_name(f"{prefix.name}.index"), len(_index(runs, {})), partial(_write_index, runs, crcs)
    )
    names = [name for name, _ in flat.tensors]
    if flat.outline is None and names != sorted(names):
        notes.append("TensorFlow keeps names sorted, not in the order of the source")
    return WritePlan(
        [*files, index], notes, obsolete=_other_shards(prefix, [file.path for file in files]), remade=(GRAPH_KEY,)
    )


def _graph_of(root: Node) -> tuple[Node, bytes | None]:
    """The tree without the object graph that came with it, and that graph."""
    held = root.get(GRAPH_KEY) if isinstance(root, Dict) else None
    if not isinstance(held, StringTensor) or held.info.shape:
        return root, None
    rest = root.emptied()
    rest.update((key, node) for key, node in root.items() if key != GRAPH_KEY)
    return rest, held.elements()[0]


def _graph_items(
    graph: bytes | None, tensors: Sequence[tuple[str, Tensor]], prefix: Path, notes: list[str]
) -> list[_Item]:
    """The object graph of the tensors that have object paths; one that is made counts its saves."""
    names = {name: tensor.alias for name, tensor in tensors if is_object_path(name)}
    fitting = _fitting_graph(graph, names.keys())
    if fitting is not None:
        return [_strings(GRAPH_KEY, (), [fitting])]
    counter = []
    if _SAVE_COUNTER not in names:
        counter.append(_scalar(_SAVE_COUNTER, _saves(prefix)))
        names[_SAVE_COUNTER] = _SAVE_COUNTER_NAME
        notes.append("a save_counter is added: tf.train.Checkpoint.restore expects one")
    made = graph_of(names, {name: alias for name, alias in names.items() if alias})
    return [*counter, _strings(GRAPH_KEY, (), [made])]


def _fitting_graph(graph: bytes | None, names: Collection[str]) -> bytes | None:
    """The graph that came with the tree, for what is left of its values; None when it does not know some."""
    stored = keys_of(graph) if graph is not None else set()
    if graph is None or not stored.issuperset(names):
        return None
    return graph if len(stored) == len(names) else cut_down(graph, names)


def _saves(prefix: Path) -> int:
    """How often it was saved, as the number says that ``tf.train.Checkpoint.save`` puts behind the prefix."""
    numbered = _NUMBERED.fullmatch(prefix.name)
    return int(numbered[1]) if numbered else 1


def _refuse_names(items: Iterable[_Item]) -> None:
    for item in items:
        if not item.name or item.name.startswith("\0"):
            raise WriteRefused(
                f"TensorFlow has no place for the name {printable(item.name)!r}", hint="--rename gives it another"
            )


def _key(name: str) -> bytes:
    return name.encode("utf-8", _ERRORS)


def _item(name: str, tensor: Tensor) -> _Item:
    if not isinstance(tensor, StringTensor):
        return _Item(name, tensor.info.dtype, tensor.info.shape, tensor.nbytes, tensor)
    if tensor.info.dtype is _STRING:
        return _strings(name, tensor.info.shape, tensor.elements())
    return _variants(name, tensor)


def _scalar(name: str, value: Scalar) -> _Item:
    if isinstance(value, str):
        return _strings(name, (), [value.encode()])
    if isinstance(value, bool):
        return _Item(name, _BOOL, (), 1, None, bytes([value]))
    if isinstance(value, int):
        return _Item(name, _INT64, (), 8, None, value.to_bytes(8, "little", signed=True))
    if isinstance(value, float):
        return _Item(name, _FLOAT64, (), 8, None, struct.pack("<d", value))
    raise TypeError(f"no scalar for a {type(value).__name__}")


def _strings(name: str, shape: tuple[int, ...], elements: Sequence[bytes]) -> _Item:
    """Lengths, the checksum of the lengths, the texts. Their entry's checksum goes on from that of the lengths."""
    lengths = b"".join(len(e).to_bytes(4 if len(e) <= _LARGEST_U32 else 8, "little") for e in elements)
    crc = crc32c(lengths)
    stored = struct.pack("<I", mask(crc))
    texts = b"".join(elements)
    data = b"".join(varint(len(e)) for e in elements) + stored + texts
    return _Item(name, _STRING, shape, len(data), None, data, crc32c(texts, crc32c(stored, crc)))


def _variants(name: str, tensor: StringTensor) -> _Item:
    """Each element with its length before and a running checksum behind it."""
    crc, out = 0, b""
    for element in tensor.elements():
        crc = crc32c(element, crc32c(struct.pack("<Q", len(element)), crc))
        stored = struct.pack("<I", mask(crc))
        out += varint(len(element)) + element + stored
        crc = crc32c(stored, crc)
    return _Item(name, tensor.info.dtype, tensor.info.shape, len(out), None, out, crc)


def _runs(items: Sequence[_Item], most: int | None) -> list[list[_Item]]:
    """The items of each data file, in order; there is always one file."""
    runs: list[list[_Item]] = [[]]
    filled = 0
    for item in items:
        if most is not None and runs[-1] and filled + item.nbytes > most:
            runs.append([])
            filled = 0
        runs[-1].append(item)
        filled += item.nbytes
    return runs


def _write_data(run: Sequence[_Item], crcs: dict[str, int], output: Output, feed: Feed) -> None:
    for item in run:
        crc = 0
        for chunk in _chunks(item, feed):
            crc = crc32c(chunk, crc)
            output.write(chunk)
        crcs[item.name] = crc if item.crc is None else item.crc


def _chunks(item: _Item, feed: Feed) -> Iterator[bytes]:
    if item.tensor is not None:
        yield from feed(item.tensor)
    elif item.data:
        yield item.data


def _write_index(runs: Sequence[Sequence[_Item]], crcs: dict[str, int], output: Output, feed: Feed) -> None:
    output.write(_index(runs, crcs))


def _index(runs: Sequence[Sequence[_Item]], crcs: dict[str, int]) -> bytes:
    """The table. Checksums have a fixed width, so its size is known before they are."""
    entries = {b"": number_field(1, len(runs)) + _VERSION_FIELD}
    for shard, run in enumerate(runs):
        offset = 0
        for item in run:
            entries[_key(item.name)] = (
                number_field(1, item.dtype.tf or 0)
                + bytes_field(2, b"".join(bytes_field(2, number_field(1, n)) for n in item.shape))
                + number_field(3, shard)
                + number_field(4, offset)
                + number_field(5, item.nbytes)
                + fixed32_field(6, mask(crcs.get(item.name, 0)))
            )
            offset += item.nbytes
    return table(sorted(entries.items()))


def _other_shards(prefix: Path, planned: Sequence[Path]) -> list[Path]:
    """Data files of an older checkpoint of this prefix that had another number of them."""
    if not prefix.parent.is_dir():
        return []
    pattern = re.compile(re.escape(prefix.name) + r"\.data-\d{5}-of-\d{5}", re.DOTALL)
    taken = {path.name for path in planned}
    return sorted(p for p in prefix.parent.iterdir() if pattern.fullmatch(p.name) and p.name not in taken)
