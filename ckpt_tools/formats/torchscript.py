"""``torchscript``: what ``torch.jit.save`` writes: torch's archive with code beside the data.

Source: torch/csrc/jit/serialization/export_module.cpp, import.cpp, pickler.cpp. ``data.pkl`` holds the modules:
objects of classes below ``__torch__`` whose state is a dict of attributes; joined by dots, the names of attributes are
those of the state_dict. ``constants.pkl`` marks the format and holds the constants of the code. Files of torch 1.0 to
1.2 describe their modules in ``model.json`` (torch.proto as JSON) and keep other attributes in ``attributes.pkl``. The
code is never run; ``bytecode.pkl`` (mobile) and ``traced_inputs.pkl`` (example inputs) are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.dtypes import BY_NAME, DType
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.tensors import Storage, StridedTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CorruptFile, LimitExceeded, UnreadableInput
from ckpt_tools.formats import _torch_archive, _torch_objects
from ckpt_tools.formats._modules import ModuleState
from ckpt_tools.formats._torch_archive import TorchArchive
from ckpt_tools.pickles import findings
from ckpt_tools.pickles.machine import Constructor, Machine
from ckpt_tools.pickles.nodes import Object

#: Names below it are defined by the archive's own code.
_OWN_NAMES = "__torch__."
#: Where constants stand among the attributes; no attribute has a dot in its name.
_CONSTANTS = "constants.pkl"


def probe(location: Location) -> str | None:
    """Why this is a TorchScript archive, or None."""
    try:
        archive = _torch_archive.archive_at(location)
    except UnreadableInput:
        return None
    if archive is None:
        return None
    if "constants.pkl" in archive and "data.pkl" in archive:
        return f"a torch archive with {archive.root}/constants.pkl"
    return f"a zip archive with {archive.root}/model.json" if "model.json" in archive and "version" in archive else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The attributes of the modules; reads the directory and the pickles."""
    archive = _torch_archive.archive_at(location)
    if archive is None:
        raise CorruptFile("neither a zip archive nor a directory with data.pkl and version")
    issues = [*archive.members.issues(), *_code(archive)]
    root = _first_generation(archive, limits, issues) if "model.json" in archive else _modules(archive, limits, issues)
    version = archive.version or "none"
    return Checkpoint(
        "torchscript",
        location,
        root,
        producer=f"TorchScript, version {version}",
        nbytes=archive.members.nbytes,
        issues=issues,
        facts={"zip version": version, "byte order": archive.byteorder},
        sources=archive.members.sources,
        seals=archive.members.seals,
        audit=archive.audit,
        limits=limits,
    )


def _code(archive: TorchArchive) -> list[Issue]:
    """A note that the archive holds code, with what there is of it."""
    prefix = f"{archive.root}/code/"
    count = sum(1 for name in archive.members.members if name.startswith(prefix) and name.endswith(".py"))
    if not count:
        return []
    message = f"contains TorchScript code ({count} files), which loading with torch would run; it was not run"
    return [Issue("safety-torchscript-code", Severity.NOTE, prefix, message)]


def _modules(archive: TorchArchive, limits: Limits, issues: list[Issue]) -> Dict:
    held = _load(archive, "data", limits, issues)
    root = Dict(held if isinstance(held, dict) else {"": held}, type_name=getattr(held, "type_name", "dict"))
    constants = _load(archive, "constants", limits, issues)
    if constants:
        root[_CONSTANTS] = constants
    return root


def _load(
    archive: TorchArchive, name: str, limits: Limits, issues: list[Issue], extra: Mapping[str, Constructor] = {}
) -> Any:
    machine = archive.machine(name, limits, extra={**_CONSTRUCTORS, **extra}, built=_built)
    tree = machine.load()
    issues += findings.foreign(machine, f"{archive.root}/{name}.pkl", own=_is_own)
    return tree


def _is_own(path: str) -> bool:
    return path.startswith(_OWN_NAMES)


def _built(machine: Machine, node: Object) -> Any:
    """The attributes of a module of the archive's own, those of submodules under joined names."""
    if not _is_own(node.path) or not isinstance(node.state, dict):
        return _torch_objects.built(machine, node)
    state = ModuleState(node.type_name, node.state)
    for name, value in node.state.items():
        if isinstance(value, ModuleState):
            state.include(str(name), value, machine)
        else:
            state[name] = value
    return state


def _same(args: Any) -> Any:
    """``build_intlist([…])`` and its kin, ``restore_type_tag(value, type)``: types of the code, no data."""
    return args[0] if args else NotImplemented


_CONSTRUCTORS: Mapping[str, Constructor] = {
    f"torch.jit._pickle.{name}": _same
    for name in ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist", "restore_type_tag")
}

# -- torch 1.0 to 1.2 --------------------------------------------------------------------------------------------------

#: caffe2.TensorProto.DataType, as JSON spells it
_DATA_TYPES: Mapping[str, DType] = {
    "FLOAT": BY_NAME["float32"],
    "INT32": BY_NAME["int32"],
    "UINT8": BY_NAME["uint8"],
    "INT8": BY_NAME["int8"],
    "UINT16": BY_NAME["uint16"],
    "INT16": BY_NAME["int16"],
    "BOOL": BY_NAME["bool"],
    "INT64": BY_NAME["int64"],
    "FLOAT16": BY_NAME["float16"],
    "DOUBLE": BY_NAME["float64"],
}


def _first_generation(archive: TorchArchive, limits: Limits, issues: list[Issue]) -> Dict:
    model = json.loads(_whole(archive, "model.json", limits))
    if not isinstance(model, dict) or not isinstance(model.get("mainModule"), dict):
        raise CorruptFile("model.json describes no main module")
    storages: dict[str, Storage] = {}
    tensors = [_stored(archive, entry, storages) for entry in _list(model, "tensors")]
    attributes: Any = []
    if "attributes.pkl" in archive:
        by_id = {"torch.jit._pickle.build_tensor_from_id": lambda args: _numbered(tensors, args[0])}
        attributes = _load(archive, "attributes", limits, issues, by_id)
        if not isinstance(attributes, (list, tuple)):
            raise CorruptFile("attributes.pkl is no list")
    root = Dict(type_name=str(model["mainModule"].get("name", "module")))
    pending: list[tuple[str, Any]] = [("", model["mainModule"])]
    while pending:
        prefix, module = pending.pop()
        if not isinstance(module, dict):
            raise CorruptFile("model.json lists a module that is no object")
        for entry in _list(module, "parameters"):
            root[prefix + _text(entry, "name")] = _numbered(tensors, entry.get("tensorId", 0))
        for entry in _list(module, "attributes"):
            root[prefix + _text(entry, "name")] = _numbered(attributes, entry.get("id", 0))
        below = [(f"{prefix}{_text(entry, 'name')}.", entry) for entry in _list(module, "submodules")]
        pending.extend(reversed(below))
    return root


def _whole(archive: TorchArchive, name: str, limits: Limits) -> bytes:
    extent = archive.members.extent(f"{archive.root}/{name}")
    if extent.nbytes > limits.header_nbytes:
        raise LimitExceeded(f"{name} has {extent.nbytes} bytes, over {limits.header_nbytes}")
    return extent.read(0, extent.nbytes)


def _list(holder: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = holder.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorruptFile(f"{name} in model.json is no list of objects")
    return entries


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise CorruptFile(f"an entry of model.json without its {name}")
    return value


def _whole_number(value: Any) -> int:
    """64-bit numbers are texts in the JSON of protocol buffers."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise CorruptFile("a number is expected in model.json and something else found")
    return int(value)


def _numbered(among: Sequence[Any], index: Any) -> Any:
    number = _whole_number(index)
    if not 0 <= number < len(among):
        raise CorruptFile(f"tensor or attribute {number} of {len(among)} is referred to")
    return among[number]


def _stored(archive: TorchArchive, entry: dict[str, Any], storages: dict[str, Storage]) -> Tensor:
    """A tensor of ``model.json``; its storage is a member of the archive, one in ``storages`` for each."""
    dtype = _DATA_TYPES.get(_text(entry, "dataType"))
    if dtype is None:
        raise CorruptFile(f"a tensor of unknown type {printable(_text(entry, 'dataType')[:20])} in model.json")
    data, dims, steps = entry.get("data"), entry.get("dims", []), entry.get("strides", [])
    if not isinstance(data, dict) or not isinstance(dims, list) or not isinstance(steps, list):
        raise CorruptFile("a tensor of model.json without data, dims or strides")
    name = f"{archive.root}/{_text(data, 'key')}"
    if name not in storages:
        if name not in archive.members.members:
            raise CorruptFile(f"the archive has no member {printable(name)}, which a tensor needs")
        storages[name] = Storage(archive.members.extent(name), checksum=archive.members.checksum(name))
    shape, strides = tuple(map(_whole_number, dims)), tuple(map(_whole_number, steps))
    tensor = StridedTensor(TensorInfo(dtype, shape), storages[name], _whole_number(entry.get("offset", 0)), strides)
    tensor.check_span()
    return tensor
