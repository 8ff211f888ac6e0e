"""``paddle-binary``: one tensor, or SelectedRows, as ``paddle.save(…, use_binary_format=True)`` writes it.

The record is described in :mod:`._paddle_stream`. It has no name, so the tensor is the root. Bytes that follow the
record, which Paddle ignores, are an issue.
"""

from __future__ import annotations

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.errors import CorruptFile
from ckpt_tools.formats._paddle_stream import is_combined, is_variable_name, selected_rows_of, stream_of


def probe(location: Location) -> str | None:
    """Why this is one Paddle tensor, or None."""
    stream = stream_of(location)
    if stream is None:
        return "SelectedRows in binary form" if selected_rows_of(location) is not None else None
    if is_combined(stream) or is_variable_name(location.path.name):
        return None
    return "a Paddle tensor in binary form"


def read(location: Location, limits: Limits) -> Checkpoint:
    """The header of the record."""
    stream, rows = stream_of(location), selected_rows_of(location)
    if stream is not None:
        tensor, issues = stream.only()
        return _checkpoint(location, limits, tensor, stream.source, issues)
    if rows is not None:
        return _checkpoint(location, limits, rows.tensor, rows.source, [])
    raise CorruptFile("no Paddle tensor begins at byte 0")


def _checkpoint(location: Location, limits: Limits, tensor: Tensor, source: Source, issues: list[Issue]) -> Checkpoint:
    return Checkpoint(
        "paddle-binary",
        location,
        tensor,
        producer="paddle tensor stream",
        nbytes=location.nbytes,
        issues=issues,
        sources=[source],
        limits=limits,
    )
