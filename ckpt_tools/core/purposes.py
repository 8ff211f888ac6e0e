"""What a tensor is for, where the file tells: weights apart from what only a training that goes on needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ckpt_tools.core.keys import Key


class Role(str, Enum):
    """The part a tensor has in a training; the values are words for people."""

    WEIGHT = "weight"
    OPTIMIZER = "optimizer state"
    AVERAGE = "moving average"
    COUNTER = "counter"
    #: random states, metrics, iterators, vocabularies, the format's own tables
    OTHER = "bookkeeping"


@dataclass(frozen=True)
class Purpose:
    """A tensor's role. Of a slot or an average: ``of`` is the key of the variable it belongs to, where it is known,
    and ``slot`` the optimizer's word for it (``m``, ``momentum``, ``Adam_1``).
    """

    role: Role
    of: Key | None = None
    slot: str | None = None
