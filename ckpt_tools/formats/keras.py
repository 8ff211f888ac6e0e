"""``keras``: the archive of Keras 3, a zip of ``config.json``, ``metadata.json`` and the weights.

Source: keras/src/saving/saving_lib.py. The weights are ``model.weights.h5`` (or ``model.weights.npz``); keys are those
inside them, so that an archive compares with a ``.weights.h5`` file. A stored member is read where it lies, a packed
one through a nameless temporary file. The other members are values below their names; ``config.json`` also gives the
layers their names, where the weights do not.
"""

from __future__ import annotations

import json
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.spool import SpooledSource
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CorruptFile, LimitExceeded, UnreadableInput
from ckpt_tools.formats import _hdf5, _keras_names, _npy
from ckpt_tools.formats._packed import allowed_nbytes
from ckpt_tools.formats._zip import Archive, archive_in, archive_of, first_member_of
from ckpt_tools.pickles.nodes import Blob, LongText

_CONFIG, _METADATA = "config.json", "metadata.json"
_H5, _NPZ = "model.weights.h5", "model.weights.npz"
_COPY_STEP = 1024 * 1024


def probe(location: Location) -> str | None:
    """Why this is an archive of Keras, or None. One whose directory is gone counts when its first member tells."""
    try:
        archive = archive_of(location)
    except UnreadableInput:
        return (
            "a zip archive without a readable directory" if first_member_of(location) in (_METADATA, _CONFIG) else None
        )
    return f"a zip archive with {_CONFIG} and {_METADATA}" if {_CONFIG, _METADATA} <= archive.members.keys() else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the archive; reads the configuration and the structure of the weights."""
    archive = archive_of(location)
    issues = archive.issues()
    metadata, config = _json(archive, _METADATA), _json(archive, _CONFIG)
    root = Dict({_METADATA: Dict(metadata) if isinstance(metadata, dict) else metadata})
    for name in archive.order:
        if name not in (_METADATA, _H5, _NPZ) and not name.endswith("/"):
            root[name] = LongText(archive.extent(name)) if name == _CONFIG else Blob(archive.extent(name))
    for name, node in _weights(archive, config, limits, issues).items():
        if name in root:
            raise CorruptFile(f"the weights hold {name}, as the archive itself does")
        root[name] = node
    release = metadata.get("keras_version") if isinstance(metadata, dict) else None
    return Checkpoint(
        "keras",
        location,
        root,
        producer=f"Keras {release}" if isinstance(release, str) else "Keras",
        nbytes=location.nbytes,
        issues=issues,
        sources=[archive.source],
        seals=archive.seals,
        audit=archive.audit,
        limits=limits,
    )


def _json(archive: Archive, name: str) -> Any:
    return json.loads(archive.read(name).decode("utf-8"))


def _weights(archive: Archive, config: Any, limits: Limits, issues: list[Issue]) -> Dict:
    if _H5 in archive.members:
        found = _hdf5.contents(_member(archive, _H5, limits), limits)
        _keras_names.give_aliases(found.root, {**_keras_names.layer_names(config), **found.layer_names})
        return found.root
    if _NPZ in archive.members:
        return _npy.read_archive(archive_in(_member(archive, _NPZ, limits)), limits, issues)
    raise CorruptFile(f"the archive has neither {_H5} nor {_NPZ}")


def _member(archive: Archive, name: str, limits: Limits) -> FileExtent:
    """A member that can be read out of order."""
    extent = archive.extent(name)
    if isinstance(extent, FileExtent):
        return extent.part(0, extent.nbytes)
    allowed = allowed_nbytes(archive.members[name].packed_nbytes, limits)
    if extent.nbytes > allowed:
        raise LimitExceeded(f"{name} unpacks to {extent.nbytes} bytes, over {allowed}")
    spooled = SpooledSource(extent.chunks(0, extent.nbytes, _COPY_STEP), name, extent.nbytes)
    return FileExtent(spooled, 0, spooled.nbytes)
