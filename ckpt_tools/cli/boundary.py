"""Where errors become exit codes: one line on stderr, never a traceback."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from ckpt_tools.cli import signals
from ckpt_tools.core.keys import printable
from ckpt_tools.errors import CkptError, UnreadableInput, WriteRefused

_BUG = 70
_PIPE_CLOSED = 141
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def report(error: CkptError) -> None:
    """Print an error as people read it: where, what is wrong, and what to do."""
    print(printable(f"ckpt: {error}"), file=sys.stderr)
    if error.hint:
        print(printable(f"hint: {error.hint}"), file=sys.stderr)


def exits_cleanly(command: Callable[..., int | None]) -> Callable[..., None]:
    """Wrap a command so that every way it can end has its exit code. Its own result is the exit code (None: 0)."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            with signals.raised():
                code = _run(command, *args, **kwargs)
                sys.stdout.flush()
        except signals.Ended as ended:
            signals.end_like(ended.number)
        except KeyboardInterrupt:
            code = signals.INTERRUPTED
        except BrokenPipeError:
            # Python flushes once more on exit; let that go nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(nowhere, stream.fileno())
            code = _PIPE_CLOSED
        raise typer.Exit(code)

    return wrapped


def _run(command: Callable[..., int | None], *args: Any, **kwargs: Any) -> int:
    try:
        code = command(*args, **kwargs)
        sys.stdout.flush()
        return code or 0
    except CkptError as error:
        report(error)
        return error.exit_code
    except (BrokenPipeError, typer.Exit):
        raise
    except MemoryError:
        report(UnreadableInput("there is not enough memory"))
        return UnreadableInput.exit_code
    except Exception as error:
        if os.environ.get("CKPT_DEBUG"):
            raise
        if isinstance(error, OSError):
            kind = WriteRefused if error.errno in _NO_ROOM else UnreadableInput
            place = None if error.filename is None else os.fsdecode(error.filename)
            report(kind(error.strerror or str(error), where=place))
            return kind.exit_code
        text = f"internal error: {type(error).__name__}: {error}; CKPT_DEBUG=1 shows where"
        print(printable(f"ckpt: {text}"), file=sys.stderr)
        return _BUG
