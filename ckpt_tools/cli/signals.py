"""What becomes of a command that is asked to end: Ctrl-C, the SIGTERM of schedulers and containers, a terminal that closes.

Until a command begins there is nothing to clear up, and the process ends at once. While it runs the signal is an
exception on the main thread, so that whatever is half done is undone on its way out. This module is the first that is
loaded, and loads nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # as in ckpt_tools/__init__.py
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130
#: A terminal that closes sends SIGHUP, which not every system has.
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(KeyboardInterrupt):
    """The process is to end: ``number`` is the signal that said so."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def end_at_once() -> None:
    """Let Ctrl-C end the process without a word, where it is not ignored. For the time before a command begins."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


@contextmanager
def raised() -> Iterator[None]:
    """Raise :class:`Ended` within for the signals that ask a process to end.

    Those that it was started to ignore (by ``nohup``, say) stay ignored. Elsewhere than on the main thread, which is the
    only one that hears signals, nothing changes.
    """
    before = {number: signal.getsignal(number) for number in _ENDING}
    changed: list[int] = []
    try:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, _raise)
                changed.append(number)
    except ValueError:  # not on the main thread
        pass
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


def end_like(number: int) -> NoReturn:
    """End as a process does that the signal ends, so that who sent it sees that; on Ctrl-C with the code that says it.

    At once: what had to be cleared up is, and libraries that were left in the middle of something crash at a usual end.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(INTERRUPTED)


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Ended(number)
