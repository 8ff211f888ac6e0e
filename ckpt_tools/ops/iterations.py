"""How far a training was, as a checkpoint itself records it."""

from __future__ import annotations

import re
from pathlib import Path

from ckpt_tools.core.source import Source
from ckpt_tools.errors import CkptError
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops import listing

#: PaddleSpeech writes ``{'epoch': …, 'iteration': …, …}`` in this order, so that the head of a pickle tells it.
_HEAD_NBYTES = 96
_MEMO = rb"(?:\x94|q.|r.{4})?"
_HEAD = re.compile(
    rb"\x80[\x02-\x05](?:\x95.{8})?\}" + _MEMO + rb"\("
    rb"(?:(?:\x8c\x05|X\x05\0\0\0)epoch" + _MEMO + rb"(?:K.|M..|J.{4}))?"
    rb"(?:\x8c\x09|X\x09\0\0\0)iteration" + _MEMO + rb"(?:K(?P<one>.)|M(?P<two>..)|J(?P<four>.{4}))",
    re.DOTALL,
)


def recorded_iteration(path: Path) -> int | None:
    """The iteration inside a checkpoint; None when it records none or cannot be read."""
    try:
        with Source(path) as source:
            head = _HEAD.match(source.peek(0, _HEAD_NBYTES))
        if head is not None:
            raw: bytes = head["one"] or head["two"] or head["four"]
            return int.from_bytes(raw, "little", signed=len(raw) == 4)
        with open_checkpoint(path) as checkpoint:
            return listing.iteration_inside(checkpoint)
    except CkptError:
        return None
