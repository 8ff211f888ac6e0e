"""``paddle-pickle``: what ``paddle.save`` and ``fluid.save_dygraph`` write: .pdparams, .pdopt, .pdz, .pdstates.

Two forms: a state dict of bare arrays with a table of variable names, and any nested object whose tensors are
``(variable name, array)`` pairs. The tables are used and not listed; variable names are the tensors' aliases. Content
decides: a table, a pair rebuilt by Paddle, a DenseTensor. A pickle without any of them is Paddle's when its name says
so (``paddle.static.save`` writes plain dicts of arrays). Element types: :func:`._paddle_objects.tensor_of`.
"""

from __future__ import annotations

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.formats._paddle_objects import NAME_TABLE, SLICE_TABLE, Loaded
from ckpt_tools.formats._pickle_file import PickleFile, attempt, pickle_of

#: Names that Paddle's manual and its trainers give to saved objects.
_SUFFIXES = (".pdparams", ".pdopt", ".pdz", ".pdstates", ".pdtensor")


def probe(location: Location) -> str | None:
    """Why this is a pickle of Paddle, or None."""
    outcome = attempt(location)
    if outcome is None:
        return None
    mark = _mark(outcome) if isinstance(outcome, PickleFile) else None
    if mark is None and location.suffix in _SUFFIXES:
        return f"a pickle named {location.suffix}"
    return mark


def _mark(pickled: PickleFile) -> str | None:
    if isinstance(pickled.tree, dict) and (NAME_TABLE in pickled.tree or SLICE_TABLE in pickled.tree):
        return "a pickled state dict with Paddle's table of names"
    if pickled.reductions.pairs:
        return "a pickle of (variable name, array) pairs"
    if pickled.reductions.evaluated:
        return "a pickle with DenseTensors"
    if any(name.module.split(".", 1)[0] == "paddle" for name in pickled.machine.globals.values()):
        return "a pickle with Paddle's classes"
    return None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the pickle; array payloads are located, not read."""
    pickled = pickle_of(location, limits)
    # The tree is changed in place: once for each time it was read.
    loaded = location.once(f"paddle pickle within {limits}", lambda: Loaded(pickled.tree, pickled.reductions))
    return Checkpoint(
        "paddle-pickle",
        location,
        loaded.root,
        producer=pickled.producer,
        nbytes=location.nbytes,
        issues=pickled.issues(location) + loaded.issues,
        facts={"pickle protocol": str(pickled.machine.protocol), "form": loaded.form},
        sources=[pickled.source],
        limits=limits,
    )
