"""What can be compared: a checkpoint, the JSON that ``ckpt ls`` printed of one, a spec, a live model. All become rows.

A row is a tensor's name, type and shape with what is known beside: its role, its layer, its bytes or their digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.keys import Key, names_of
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import StridedTensor, Tensor
from ckpt_tools.errors import CorruptFile, LimitExceeded, MissingInput, UsageError, damage
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.mapping.kinds import (
    LayerPart,
    family_of_names,
    from_paddle_variable,
    infer_parts,
    part_of_leaf,
    segments,
)
from ckpt_tools.mapping.layouts import FAMILIES, FAMILY_BY_FORMAT
from ckpt_tools.mapping.roles import assign_roles
from ckpt_tools.ops import manifests
from ckpt_tools.ops.listing import type_of, value_of
from ckpt_tools.ops.manifests import Manifest

#: TensorFlow's object graph: how names came about, not a part of what was saved.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
SPEC = "ckpt.spec/1"
#: How a live model is named.
_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One tensor of a comparand. ``tensor`` is there when its bytes can be read, ``sha256`` when only that is known.

    ``other_names`` are further names of the same tensor by the kind of name (``file``: the format's own second name);
    ``same_as`` is the name of an earlier row that is the same tensor (tied weights). ``is_parameter`` is False where a
    model tells that an optimizer is not given it. ``path`` are the attributes that lead to it, as the file tells them.
    """

    name: str
    dtype: str
    shape: Shape
    role: Role = Role.WEIGHT
    layer: LayerPart | None = None
    tensor: Tensor | None = None
    sha256: str | None = None
    other_names: Mapping[str, str] = field(default_factory=dict)
    same_as: str | None = None
    is_parameter: bool = True
    path: tuple[str, ...] = ()


@dataclass
class Comparand:
    """One side. ``kind`` is ``checkpoint``, ``manifest``, ``spec`` or ``model``; ``family`` whose layouts it has, where
    known; ``levels`` the dicts of its tree as leading parts of names; ``values`` type and value of other leaves.
    """

    label: str
    kind: str
    family: str | None
    rows: list[Row]
    values: dict[str, tuple[str, Any]] = field(default_factory=dict)
    levels: frozenset[str] = frozenset()

    @property
    def is_model(self) -> bool:
        """Whether it says what a model has, and nothing of a training: no optimizer, no values."""
        return self.kind in ("spec", "model")


def from_checkpoint(checkpoint: Checkpoint, root: Key = ()) -> Comparand:
    """The leaves of a checkpoint below ``root``, named from there."""
    entries = [entry for entry in checkpoint.entries if entry.key[: len(root)] == root and len(entry.key) > len(root)]
    names = names_of([entry.key[len(root) :] for entry in entries]) if root else [entry.name for entry in entries]
    tensors = [
        (name, entry.key, entry.node)
        for name, entry in zip(names, entries)
        if entry.is_tensor and entry.key[-1] != _OBJECT_GRAPH
    ]
    values = {
        name: (type_of(entry.node), value_of(entry.node)) for name, entry in zip(names, entries) if not entry.is_tensor
    }
    family = FAMILY_BY_FORMAT.get(checkpoint.format)
    roles = assign_roles([entry.key for entry in checkpoint.entries], family=family, known=checkpoint.purposes)
    rows = [
        Row(
            name,
            tensor.info.dtype.name,
            tensor.info.shape,
            roles.get(key, Role.WEIGHT),
            _paddle_layer(name, tensor.alias) if family == "paddle" else None,
            tensor,
            other_names={"file": tensor.alias} if tensor.alias else {},
            path=checkpoint.paths.get(key, ()),
        )
        for name, key, tensor in tensors
    ]
    rows = _with_repeats(rows, [key[:-1] for _, key, _ in tensors], by_alias=family == "paddle")
    family = family_of_names([row.name for row in rows if row.role is Role.WEIGHT]) or family
    levels = _levels(entry.key[len(root) :] for entry in entries)
    return Comparand(checkpoint.location.shown, "checkpoint", family, _with_inferred(rows), values, levels)


def _paddle_layer(name: str, alias: str | None) -> LayerPart | None:
    said = from_paddle_variable(alias) if alias else None
    if said is None:
        return None
    return LayerPart(said.kind, part_of_leaf(segments(name)[-1]) or said.part)


def _with_repeats(rows: Sequence[Row], parents: Sequence[Key], *, by_alias: bool) -> list[Row]:
    """``rows`` with those marked that are an earlier one again: the same view of the same storage, or, in Paddle's
    files, the same variable of the same dict."""
    identities: list[object] = []
    for row, parent in zip(rows, parents):
        tensor = row.tensor
        if by_alias and tensor is not None and tensor.alias and row.role is Role.WEIGHT:
            identities.append((parent, tensor.alias, row.shape))
        elif isinstance(tensor, StridedTensor) and tensor.nbytes:
            identities.append((id(tensor.storage), tensor.offset, tensor.strides, tensor.info))
        else:
            identities.append(None)
    return _marked(rows, identities)


def _identity(key: Key, row: manifests.Row, family: str | None) -> object:
    """What rows of a manifest share when they are the same tensor; None when it does not tell."""
    if family == "paddle" and row.alias:
        return key[:-1], row.alias, row.shape
    if row.storage is None or row.sha256 is None:
        return None
    return row.storage, row.sha256, row.shape


def _marked(rows: Sequence[Row], identities: Sequence[object]) -> list[Row]:
    """``rows`` with ``same_as`` set where an identity came before."""
    first: dict[object, str] = {}
    marked = []
    for row, identity in zip(rows, identities):
        known = first.setdefault(identity, row.name) if identity is not None else row.name
        marked.append(replace(row, same_as=known) if known != row.name else row)
    return marked


def _with_inferred(rows: list[Row]) -> list[Row]:
    """``rows`` with the layer of weights that names and shapes leave no doubt about."""
    inferred = infer_parts({row.name: row.shape for row in rows if row.role in (Role.WEIGHT, Role.COUNTER)})
    return [
        replace(row, layer=inferred[row.name]) if row.layer is None and row.name in inferred else row for row in rows
    ]


def _levels(keys: Any) -> frozenset[str]:
    return frozenset("/".join(map(str, key[:depth])) + "/" for key in keys for depth in range(1, len(key)))


def open_side(text: str, files: ExitStack, format: str | None = None) -> Checkpoint | dict[str, Any] | str:
    """What ``text`` names: a checkpoint, open as long as ``files``; a manifest or spec; the reference of a live model.

    ``format`` skips the detection. MissingInput when it is none of these.
    """
    document = read_document(Path(text)) if format is None else None
    if document is not None:
        return document
    try:
        return files.enter_context(open_checkpoint(text, format=format))
    except MissingInput:
        if _MODEL.fullmatch(text) is None:
            raise
    return text


# ---- JSON


def read_document(path: Path) -> dict[str, Any] | None:
    """A manifest or spec; None when the file is something else. Looks at the first bytes before it reads the rest."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        if not stream.read(64).lstrip().startswith(b"{"):
            return None
        if path.stat().st_size > DEFAULT_LIMITS.header_nbytes:
            raise LimitExceeded("a JSON document of more than 100 MB", where=str(path))
        stream.seek(0)
        data = stream.read()
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and document.get("schema") in (manifests.SCHEMA, SPEC) else None


def from_document(document: Mapping[str, Any], label: str, root: str | None = None) -> Comparand:
    """A comparand from a manifest or spec, below ``root`` if one is given. CorruptFile when it is not as it should be."""
    with damage(label):
        if document["schema"] == SPEC:
            return _from_spec(document, label)
        listed = manifests.parse(document)
        if len(listed) != 1:
            raise CorruptFile(f"lists {len(listed)} checkpoints, one is expected")
        return _from_manifest(listed[0], label, tuple(root.strip("/").split("/")) if root else ())


def _from_manifest(listed: Manifest, label: str, root: Key) -> Comparand:
    keys = [*listed.tensors, *listed.values]
    family = FAMILY_BY_FORMAT.get(listed.format)
    roles = assign_roles(keys, family=family)
    inside = (
        [key for key in keys if tuple(map(str, key[: len(root)])) == root and len(key) > len(root)] if root else keys
    )
    if root and not inside:
        raise UsageError(f"nothing lies below {'/'.join(map(str, root))!r}")
    names = dict(zip(inside, names_of([key[len(root) :] for key in inside])))
    tensors = {key: row for key, row in listed.tensors.items() if key in names and _OBJECT_GRAPH not in key[-1:]}
    rows = [
        Row(
            names[key],
            row.dtype,
            row.shape,
            roles.get(key, Role.WEIGHT),
            _paddle_layer(names[key], row.alias) if family == "paddle" else None,
            sha256=row.sha256,
            other_names={"file": row.alias} if row.alias else {},
        )
        for key, row in tensors.items()
    ]
    rows = _marked(rows, [_identity(key, row, family) for key, row in tensors.items()])
    family = family_of_names([row.name for row in rows if row.role is Role.WEIGHT]) or family
    return Comparand(
        label,
        "manifest",
        family,
        _with_inferred(rows),
        {names[key]: value for key, value in listed.values.items() if key in names},
        _levels(key[len(root) :] for key in inside),
    )


def _from_spec(document: Mapping[str, Any], label: str) -> Comparand:
    family = document.get("framework")
    rows = []
    for row in manifests.objects(document["tensors"], "tensors"):
        kind, part = str(row.get("kind") or ""), str(row.get("role") or "")
        rows.append(
            Row(
                str(row["name"]),
                str(row["dtype"]),
                manifests.shape_of(row["shape"]),
                _role(row, part),
                LayerPart(kind, part) if kind or part else None,
                other_names={str(k): str(v) for k, v in row.get("names", {}).items()},
                same_as=row.get("same_as"),
                is_parameter=row.get("parameter") is not False,
            )
        )
    return Comparand(label, "spec", family if family in FAMILIES else None, rows)


def _role(row: Mapping[str, Any], part: str) -> Role:
    if row.get("purpose") == Role.OPTIMIZER.value:
        return Role.OPTIMIZER
    if part == "seed_generator_state":
        return Role.OTHER
    return Role.COUNTER if part == "num_batches_tracked" else Role.WEIGHT
