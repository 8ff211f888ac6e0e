"""DeepSpeed directories: the model states of ZeRO checkpoints, shown as the torch files they are.

``mp_rank_<m>_model_states.pt`` holds the model of one model-parallel rank (deepspeed/runtime/engine.py). Optimizer
states lie flattened and cut over ranks in ``*_optim_states.pt``; what belongs to which name only DeepSpeed's own
``zero_to_fp32.py`` puts together, so these files are named and not listed.
"""

from __future__ import annotations

import re

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import natural_order, printable
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CorruptFile
from ckpt_tools.formats._parts import Parts

_MODEL_STATES = re.compile(r".*mp_rank_\d+_model_states\.pt")
_OPTIMIZER_STATES = re.compile(r".*_optim_states\.pt")
#: Names of files in one sentence.
_NAMED_FILES = 20


def probe(location: Location) -> str | None:
    """Why this is a DeepSpeed directory, or None."""
    found = _names(location, _MODEL_STATES) if location.is_directory else []
    return f"a directory with {found[0]}" if found else None


def _names(location: Location, pattern: re.Pattern[str]) -> list[str]:
    found = (entry.name for entry in location.path.iterdir() if pattern.fullmatch(entry.name))
    return sorted(found, key=natural_order)


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the model states; of several ranks, each below the name of its file."""
    names = _names(location, _MODEL_STATES) if location.is_directory else []
    if not names:
        raise CorruptFile("no mp_rank_<m>_model_states.pt in this directory")
    parts = Parts(location.path, limits)
    try:
        roots = Dict()
        for name in names:
            part = parts.open(name)
            if part is not None:
                roots[name.removesuffix(".pt")] = part.root
        others = _names(location, _OPTIMIZER_STATES)
        if others:
            parts.issues.append(_left_out(others))
        return Checkpoint(
            parts.format,
            location,
            roots if len(names) > 1 else next(iter(roots.values()), roots),
            producer=f"DeepSpeed; {parts.producer}",
            nbytes=parts.nbytes,
            issues=parts.issues,
            facts={"model-state files": str(len(names)), "optimizer-state files": str(len(others))},
            sources=parts.sources,
            parts=list(parts.opened.values()),
            limits=limits,
        )
    except BaseException:
        parts.close()
        raise


def _left_out(names: list[str]) -> Issue:
    shown = ", ".join(printable(name) for name in names[:_NAMED_FILES])
    more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
    return Issue(
        "integrity-left-out",
        Severity.NOTE,
        names[0],
        f"optimizer states lie cut over ranks and are not listed: {shown}{more}",
        hint="DeepSpeed's zero_to_fp32.py puts the float32 weights together",
    )
