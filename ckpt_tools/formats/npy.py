"""``npy``: one array of numpy in a file. The array is the whole checkpoint, so its key is empty."""

from __future__ import annotations

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.formats import _npy


def probe(location: Location) -> str | None:
    """Why this is an array of numpy, or None."""
    return "an array of numpy" if location.head.startswith(_npy.MAGIC) else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the file; reads the header, and all of it when the elements are Python objects."""
    source = Source(location.path)
    array, issues = _npy.read(FileExtent(source, 0, source.nbytes), location.path.name, limits)
    version = f"{location.head[len(_npy.MAGIC)]}.{location.head[len(_npy.MAGIC) + 1]}"
    return Checkpoint(
        "npy",
        location,
        array,
        producer=f"numpy, format version {version}",
        nbytes=location.nbytes,
        issues=issues,
        sources=[source],
        limits=limits,
    )
