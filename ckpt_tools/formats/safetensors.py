"""``safetensors``: a length, a JSON header, the bytes of the tensors one after the other.

What the header may say is judged by :mod:`ckpt_tools.formats._safetensors_header`. Tensors are listed in the order of
the header; the entries of ``__metadata__`` are values below that key, those that an outline mentions stand where it says.
"""

from __future__ import annotations

import re

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import Storage, StridedTensor
from ckpt_tools.errors import LimitExceeded, TruncatedFile
from ckpt_tools.formats import _metadata_values
from ckpt_tools.formats._safetensors_header import LENGTH_NBYTES, check, parsed

#: A header that claims more is no header at all: text read as a number is larger by far.
_PLAUSIBLE_HEADER = 2**40
_OPENING = re.compile(rb"\{(\s*[\"}]|\s*\Z)")


def probe(location: Location) -> str | None:
    """Why this is a safetensors file, or None."""
    announced = int.from_bytes(location.head[:LENGTH_NBYTES], "little")
    if 2 <= announced < _PLAUSIBLE_HEADER and _OPENING.match(location.head, LENGTH_NBYTES):
        return f"a length ({announced}) and a JSON header of that length"
    return None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the file; reads the header."""
    source = Source(location.path)
    announced = int.from_bytes(source.read(0, LENGTH_NBYTES), "little")
    data_start = LENGTH_NBYTES + announced
    if announced > limits.header_nbytes:
        raise LimitExceeded(f"a header of {announced} bytes, over {limits.header_nbytes}")
    if data_start > source.nbytes:
        left = source.nbytes - LENGTH_NBYTES
        raise TruncatedFile(f"the header has {announced} bytes, the file ends after {left} of them")
    header = parsed(source.read(LENGTH_NBYTES, announced))
    check(header.entries, source.nbytes - data_start)
    tensors: dict[str, StridedTensor] = {}
    for entry in header.entries:
        extent = FileExtent(source, data_start + entry.begin, entry.end - entry.begin)
        tensors[entry.name] = StridedTensor(entry.info, Storage(extent))
    tree, issues = _metadata_values.tree_of(tensors, header.metadata, location.shown)
    framework = header.metadata.get("format")
    return Checkpoint(
        "safetensors",
        location,
        tree,
        producer=f"safetensors, format {framework}" if framework else "safetensors",
        nbytes=location.nbytes,
        issues=issues,
        facts={"header bytes": str(announced)},
        sources=[source],
        limits=limits,
    )
