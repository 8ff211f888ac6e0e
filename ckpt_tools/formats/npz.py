"""``npz``: a zip archive of arrays, as ``numpy.savez`` and ``numpy.savez_compressed`` write it.

What its members are, :mod:`ckpt_tools.formats._npy` knows.
"""

from __future__ import annotations

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Dict, Node, Scalar
from ckpt_tools.errors import CorruptFile, UnreadableInput
from ckpt_tools.formats import _npy
from ckpt_tools.formats._values import OUTLINE, outlined, stored_scalar
from ckpt_tools.formats._zip import archive_of, first_member_of


def probe(location: Location) -> str | None:
    """Why this is a zip archive of arrays, or None. One whose directory is gone counts when its first member tells."""
    try:
        archive = archive_of(location)
    except UnreadableInput:
        return "a zip archive without a readable directory" if first_member_of(location).endswith(_npy.SUFFIX) else None
    arrays = sum(name.endswith(_npy.SUFFIX) for name in archive.order)
    if arrays and (arrays == len(archive.order) or location.suffix == ".npz"):
        return f"a zip archive with {archive.order[0]}"
    return "a zip archive of nothing, named .npz" if location.suffix == ".npz" and not archive.order else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the archive; reads the directory and the header of each member."""
    archive = archive_of(location)
    issues = archive.issues()
    tree = _outlined(_npy.read_archive(archive, limits, issues), location, issues)
    return Checkpoint(
        "npz",
        location,
        tree,
        producer="numpy archive",
        nbytes=location.nbytes,
        issues=issues,
        sources=[archive.source],
        seals=archive.seals,
        audit=archive.audit,
        limits=limits,
    )


def _outlined(arrays: Dict, location: Location, issues: list[Issue]) -> Node:
    """The tree that an outline among the arrays describes; the arrays where there is none."""
    outline = arrays.get(OUTLINE)
    if not isinstance(outline, Tensor) or outline.info.shape or not outline.info.dtype.name.startswith("bytes"):
        return arrays
    tensors = {name: node for name, node in arrays.items() if isinstance(node, Tensor) and name != OUTLINE}

    def value(name: str, kind: type) -> Scalar:
        if name not in tensors:
            raise CorruptFile(f"the outline names a value {name!r}, which is not there")
        return stored_scalar(tensors[name], kind)

    root, odd = outlined(outline, tensors, value, (), location.shown)
    issues += odd
    return arrays if odd else root
