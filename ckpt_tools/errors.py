"""The whole error family. The exit code sits on the class; a hint, where one helps, on the instance.

Every message is one sentence that says what is wrong, what was expected and what was found; the place it concerns
is kept apart in ``where`` so that callers can add it once, in one form.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager


class CkptError(Exception):
    """Base of everything this package raises on purpose.

    ``where`` names a file, a member or a key; ``hint`` is an action, best a command that can be pasted.
    """

    exit_code = 70

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(CkptError):
    """The arguments cannot be taken as they are."""

    exit_code = 2


class UnreadableInput(CkptError):
    """The input cannot be read."""

    exit_code = 4


class MissingInput(UnreadableInput):
    """No such file, directory or prefix."""


class UnknownFormat(UnreadableInput):
    """The input is there, and it is not a checkpoint of a known format."""


class Placeholder(UnknownFormat):
    """Something stands where a checkpoint was meant to be: nothing, zeros, a pointer, a web page."""


class CorruptFile(UnreadableInput):
    """The format is known, and the bytes break its rules."""


class TruncatedFile(CorruptFile):
    """Bytes end before what the file itself announces."""


class LimitExceeded(UnreadableInput):
    """The file asks for more than :class:`ckpt_tools.core.limits.Limits` allows."""


class UnsafePickle(UnreadableInput):
    """A pickle would run code where the format has data."""


class MissingBytes(UnreadableInput):
    """A tensor is known, its bytes are not here: a missing shard, a meta tensor."""


class MissingExtra(UnreadableInput):
    """A library that this format needs is not installed."""


class WriteRefused(CkptError):
    """Nothing was written, because writing would lose, overwrite or guess something."""

    exit_code = 5


#: What reading foreign bytes may raise below us. TypeError and AttributeError are not here: those are bugs of ours.
LOW_LEVEL_ERRORS = (
    struct.error,
    UnicodeError,
    zlib.error,
    KeyError,
    IndexError,
    ValueError,
    OverflowError,
    EOFError,
    RecursionError,
)


@contextmanager
def located(where: str | None) -> Iterator[None]:
    """Add ``where`` to errors of the block that have none."""
    try:
        yield
    except CkptError as error:
        if error.where is None:
            error.where = where
        raise


@contextmanager
def damage(where: str | None = None) -> Iterator[None]:
    """Turn low-level exceptions of the block into :class:`CorruptFile`, and what the system refuses (a directory that may
    not be listed, a file that vanished) into :class:`UnreadableInput`; add ``where`` to errors that have none."""
    try:
        with located(where):
            yield
    except OSError as error:
        place = where if error.filename is None else os.fsdecode(error.filename)
        raise UnreadableInput(f"cannot be read: {error.strerror or error}", where=place) from error
    except LOW_LEVEL_ERRORS as error:
        text = str(error).splitlines()[0] if str(error) else ""
        reason = f"{type(error).__name__} ({text})" if text else type(error).__name__
        raise CorruptFile(f"the structure is damaged: {reason}", where=where) from error
