"""The table of formats, and what follows from it: which one a location has, and its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.location import Location, locate
from ckpt_tools.errors import MissingExtra, UnknownFormat, UsageError, damage
from ckpt_tools.formats.table import FORMATS, Format


def format_named(name: str) -> Format:
    """The row of that name. UsageError when there is none."""
    for row in FORMATS:
        if row.name == name:
            return row
    raise UsageError(f"no format is called {name!r}; there are {', '.join(row.name for row in FORMATS)}")


def detect(location: Location) -> Format:
    """The format whose module recognises the content, in the order of the table. UnknownFormat when none does."""
    row = recognise(location)
    if row is None:
        from ckpt_tools.formats import _foreign

        raise _foreign.explain(location)
    return row


def recognise(location: Location) -> Format | None:
    """Like :func:`detect`; None when no module recognises the content."""
    for row in FORMATS:
        with damage(location.shown):
            if row.looks_like(location) and _module(row, location).probe(location) is not None:
                return row
    return None


def open_checkpoint(
    path: str | os.PathLike[str], *, format: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> Checkpoint:
    """Open one checkpoint: its structure is read, its tensors are not.

    ``path`` is a file, a directory that is or holds one checkpoint, or a TensorFlow prefix; any member of a family will
    do. ``format`` skips detection. Raises a subclass of :class:`ckpt_tools.errors.UnreadableInput` when it cannot be
    read, UsageError when a directory holds several.
    """
    location = locate(path)
    if format is not None:
        return open_location(location, format_named(format), limits)
    from ckpt_tools.formats import families

    member, row = families.only(location)
    return open_location(member, row, limits)


def open_location(location: Location, row: Format, limits: Limits = DEFAULT_LIMITS) -> Checkpoint:
    """Read a location as the given format."""
    module = _module(row, location)
    with damage(location.shown), _extra(row, location):
        checkpoint: Checkpoint = module.read(location, limits)
    return checkpoint


def _module(row: Format, location: Location) -> ModuleType:
    with _extra(row, location):
        return row.module()


@contextmanager
def _extra(row: Format, location: Location) -> Iterator[None]:
    """Say what to install when a library of the format's extra is missing."""
    try:
        yield
    except ImportError as error:
        if row.extra is None:
            raise
        raise MissingExtra(
            f"{row.title} is read through {error.name}, which is not installed",
            where=location.shown,
            hint=f"pip install 'ckpt-tools[{row.extra}]'",
        ) from None


__all__ = [
    "FORMATS",
    "Format",
    "UnknownFormat",
    "detect",
    "format_named",
    "open_checkpoint",
    "open_location",
    "recognise",
]
