"""Where errors become exit codes: one line on stderr, never a traceback."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from ckpt_tools.core.keys import printable
from ckpt_tools.errors import CkptError, UnreadableInput

_BUG = 70
_INTERRUPTED = 130
_PIPE_CLOSED = 141


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
            code = command(*args, **kwargs)
            sys.stdout.flush()
        except CkptError as error:
            report(error)
            code = error.exit_code
        except KeyboardInterrupt:
            code = _INTERRUPTED
        except BrokenPipeError:
            # Python flushes once more on exit; let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = _PIPE_CLOSED
        except MemoryError:
            report(UnreadableInput("there is not enough memory"))
            code = UnreadableInput.exit_code
        except OSError as error:
            if os.environ.get("CKPT_DEBUG"):
                raise
            place = None if error.filename is None else os.fsdecode(error.filename)
            report(UnreadableInput(error.strerror or str(error), where=place))
            code = UnreadableInput.exit_code
        except typer.Exit:
            raise
        except Exception as error:
            if os.environ.get("CKPT_DEBUG"):
                raise
            kind = type(error).__name__
            print(printable(f"ckpt: internal error: {kind}: {error}; CKPT_DEBUG=1 shows where"), file=sys.stderr)
            code = _BUG
        raise typer.Exit(code or 0)

    return wrapped
