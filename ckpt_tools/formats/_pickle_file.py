"""A file that is one pickle: read once, then judged by the formats that are pickles.

``pickle`` and ``paddle-pickle`` look the same from outside; what the pickle holds tells them apart. The machine
therefore runs once for both, with the names of Python, numpy, Paddle and torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CkptError, CorruptFile, TruncatedFile, damage
from ckpt_tools.formats import _torch_objects
from ckpt_tools.formats._paddle_objects import Reductions
from ckpt_tools.formats._torch_stream import NestedStreams
from ckpt_tools.pickles import findings
from ckpt_tools.pickles.machine import Machine

_PROTO = 0x80
_NEWEST_PROTOCOL = 5
#: What a pickle of protocol 0 or 1 can begin with: a mark, an empty container, a global, a scalar.
_OLD_BEGINNINGS = b"(]})cNILJKMGFSTUVX"
#: The first opcodes of containers and numpy objects as protocol 0 and 1 write them: no text begins like that.
_CERTAINLY_OLD = re.compile(
    rb"\([dl]p\d+\n|[}\]](?:q.|r....)|c(?:copy_?reg|collections|numpy[\w.]*|__builtin__|builtins)\n\w+\n", re.DOTALL
)


@dataclass(frozen=True)
class PickleFile:
    """What the machine made of a file; ``tree`` is as the pickle has it, save that torch's and Paddle's reductions are
    tensors."""

    source: Source
    machine: Machine
    tree: Any
    reductions: Reductions
    streams: NestedStreams

    @property
    def producer(self) -> str:
        """What the file tells of its writer."""
        return f"pickle protocol {self.machine.protocol}" if self.machine.protocol else "pickle protocol 0 or 1"

    def issues(self, location: Location) -> list[Issue]:
        """Foreign classes and calls, and bytes behind the end."""
        found = findings.foreign(self.machine, location.shown) + self.streams.issues(location.shown)
        rest = self.source.nbytes - self.machine.position
        if rest:
            another = begins_like_pickle(self.source.peek(self.machine.position, 16))
            what = "another pickle follows; only the first is shown" if another else "they belong to nothing"
            found.append(
                Issue(
                    "integrity-trailing-bytes",
                    Severity.WARNING,
                    location.shown,
                    f"{rest} bytes follow the end of the pickle at byte {self.machine.position}: {what}",
                )
            )
        return found


def may_be_pickle(head: bytes) -> bool:
    """Whether bytes can be the beginning of a pickle of any protocol."""
    return begins_like_pickle(head) or (bool(head) and head[0] in _OLD_BEGINNINGS)


def begins_like_pickle(head: bytes) -> bool:
    """Whether bytes are the beginning of a pickle beyond doubt, whatever becomes of the rest."""
    if head[:1] == bytes([_PROTO]):
        return len(head) > 1 and 2 <= head[1] <= _NEWEST_PROTOCOL
    return _CERTAINLY_OLD.match(head) is not None


def attempt(location: Location, limits: Limits = DEFAULT_LIMITS) -> PickleFile | CkptError | None:
    """The pickle at ``location``; an error when it is a damaged or a refused one; None when it is no pickle at all.

    Without the mark of protocol 2 and later, and without a beginning that nothing else has, only a file that is sound
    and ends with its STOP counts as a pickle: plain text can look like one for a while.
    """
    if location.is_directory or not may_be_pickle(location.head):
        return None
    outcome = location.once(f"pickle within {limits}", lambda: _outcome(location, limits))
    if begins_like_pickle(location.head) or (isinstance(outcome, PickleFile) and _is_whole(outcome)):
        return outcome
    return None


def pickle_of(location: Location, limits: Limits) -> PickleFile:
    """The pickle at ``location``, read. Raises what is wrong with it."""
    outcome = location.once(f"pickle within {limits}", lambda: _outcome(location, limits))
    if isinstance(outcome, CkptError):
        raise outcome
    return outcome


def _is_whole(outcome: PickleFile) -> bool:
    return outcome.machine.position == outcome.source.nbytes


def _outcome(location: Location, limits: Limits) -> PickleFile | CkptError:
    source = Source(location.path)
    try:
        with damage(location.shown):
            return _read(source, limits)
    except TruncatedFile as error:
        source.close()
        return TruncatedFile(f"the pickle is truncated: {error.message}", where=error.where)
    except CkptError as error:
        source.close()
        return error
    except BaseException:
        source.close()
        raise


def _read(source: Source, limits: Limits) -> PickleFile:
    reductions, streams = Reductions(), NestedStreams()
    machine = Machine(
        source,
        constructors={**streams.constructors, **reductions.constructors},
        persistent=_no_persistent_ids,
        built=_torch_objects.built,
        limits=limits,
    )
    tree = machine.load()
    reductions.refuse_code(machine)
    return PickleFile(source, machine, tree, reductions, streams)


def _no_persistent_ids(value: Any) -> Any:
    raise CorruptFile("a persistent id, which has a meaning only in the archive that the pickle was taken from")
