"""``torch-legacy``: what ``torch.save`` wrote before 1.6, and still does when asked: pickles, then raw storages.

Source: torch/serialization.py, read by :mod:`~ckpt_tools.formats._torch_stream`. Of several objects saved into one file
only the first is shown, and the others are told of.
"""

from __future__ import annotations

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source, kept_open
from ckpt_tools.formats import _torch_stream
from ckpt_tools.pickles import findings


def probe(location: Location) -> str | None:
    """Why this is a legacy stream, or None."""
    return "the magic number of torch.save's stream" if _torch_stream.begins_like(location.head) else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the stream; reads the pickles and the element count before each storage."""
    with kept_open(location.path) as source:
        return _read(source, location, limits)


def _read(source: Source, location: Location, limits: Limits) -> Checkpoint:
    stream = _torch_stream.read(FileExtent(source, 0, source.nbytes))
    issues = findings.foreign(stream.machine, location.path.name)
    if stream.end < source.nbytes:
        issues.append(_trailing(source, stream.end, location.path.name))
    return Checkpoint(
        "torch-legacy",
        location,
        stream.tree,
        producer=f"torch legacy stream, pickle protocol {stream.protocol}",
        nbytes=location.nbytes,
        issues=issues,
        facts={"pickle protocol": str(stream.protocol)},
        sources=[source],
        limits=limits,
    )


def _trailing(source: Source, end: int, where: str) -> Issue:
    more = _torch_stream.begins_like(source.peek(end, 64))
    return Issue(
        "integrity-trailing-bytes",
        Severity.WARNING,
        where,
        f"{source.nbytes - end} bytes follow the last storage"
        + ("; they begin another saved object, only the first is shown" if more else ""),
    )
