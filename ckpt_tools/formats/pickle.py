"""``pickle``: whatever ``pickle.dump`` wrote, of any protocol: statistics, scalers, bare arrays, objects of any class.

Source: CPython Lib/pickletools.py for the opcodes, numpy for arrays. Nothing is imported, called or built: foreign
objects are shown by their class with their attributes below them. Text of Python 2 is taken as Latin-1. Only the first
of several pickles in one file is shown, and the others are told of. Refused: codes of the extension registry, arrays
whose bytes were pickled out of band, and ``eval``.
"""

from __future__ import annotations

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.formats._pickle_file import PickleFile, attempt, pickle_of


def probe(location: Location) -> str | None:
    """Why this is a pickle, or None."""
    outcome = attempt(location)
    if outcome is None:
        return None
    return outcome.producer if isinstance(outcome, PickleFile) else "it begins like a pickle"


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the pickle; array payloads are located, not read."""
    pickled = pickle_of(location, limits)
    return Checkpoint(
        "pickle",
        location,
        pickled.tree,
        producer=pickled.producer,
        nbytes=location.nbytes,
        issues=pickled.issues(location),
        facts={"pickle protocol": str(pickled.machine.protocol)},
        sources=[pickled.source],
        limits=limits,
    )
