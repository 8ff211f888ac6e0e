"""Conversions of fixtures, and what the framework that wrote a fixture says should come out of them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fixture_cases import FIXTURES, Case, readable

from ckpt_tools.errors import CkptError
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.convert import Conversion, Wishes, plan
from ckpt_tools.ops.writing import write

#: What each framework says about a file it loads stands beside the scripts that make the fixtures.
sys.path.insert(0, str(FIXTURES / "make"))

#: (name in the target, shape, sha256)
Fact = tuple[str, tuple[int, ...], "str | None"]


@dataclass(frozen=True)
class Converted:
    """A conversion that was carried out, and the facts that must hold of its result."""

    conversion: Conversion
    path: Path
    facts: Counter[Fact]


#: Files of other people's trainings, with what the frameworks say is in them; not everybody has them.
REAL = FIXTURES.parent.parent / "shared" / "corpus"
#: Larger ones take long, seven times over.
_LARGEST_REAL = 1 << 20
#: What is no checkpoint, and archives of Paddle from before its first version.
_UNREAD = ("not-checkpoints", "paddle-v2")


class RealFile(Case):
    """One of those files."""

    @property
    def path(self) -> Path:
        return self.folder / str(self.expected["path"])


def sound_cases() -> list[Case]:
    """Fixtures whose tensors can all be read, and real files."""
    found = [case for case in readable() if case.group not in ("workspaces", "stats", "hostile", "diffs")]
    for truth in sorted((REAL / "truth").rglob("*.json")):
        told = json.loads(truth.read_text(encoding="utf-8"))
        path = REAL / "files" / told["file"]
        if path.parent.name in _UNREAD or not path.is_file() or path.stat().st_size > _LARGEST_REAL:
            continue
        # how other readers spell keys differs for these; what they hold is compared by shape alone
        exact = told["kind"] in ("torch", "paddle", "tf", "st", "npz") and "/torchscript/" not in str(truth)
        tensors = [{"key": t["path"], "sha256": t["sha256"]} for t in told["tensors"] if exact and t.get("sha256")]
        expected = {"path": told["file"], "tensors": tensors, "digest_exit": told.get("errors") and 4}
        found.append(RealFile("real", told["file"], REAL / "files", expected))
    return found


def converted(case: Case, writer: str, path: Path, shard_nbytes: int | None = None) -> Converted:
    """The fixture as another format. Losses are allowed: what the target lacks is left out. Skips what has no tensors."""
    with open_checkpoint(case.path) as checkpoint:
        if not checkpoint.tensors:
            pytest.skip("no tensors")
        try:
            conversion = plan(checkpoint, path, Wishes(writer, max_shard_nbytes=shard_nbytes, allow_loss=True))
        except CkptError as error:
            if (
                case.expected.get("digest_exit")
                or "collide" in error.message
                or "no place for the name" in error.message
                or "no tensor is left" in error.message
                or "would lie below" in error.message
            ):
                pytest.skip(str(error))
            raise
        try:
            write(conversion, overwrite=False, check=True)
        except CkptError as error:
            if case.name in ("flipped-bit", "mixed-saves") and "damaged" in error.message:
                pytest.skip(str(error))
            raise
        keys = {entry.name: entry.key for entry in checkpoint.entries}
        told = {tuple(map(repr, t["key"])): t for t in case.expected["tensors"] or () if t.get("key") is not None}
        facts = Counter(
            (
                move.target,
                tuple(move.tensor.info.shape),
                told.get(tuple(map(repr, keys[move.source])), {}).get("sha256"),
            )
            for move in conversion.moves
        )
    return Converted(conversion, path, facts)


def compare(expected: Counter[Fact], found: Iterable[dict[str, Any]]) -> None:
    """Every tensor that was to be written is there with the digest that its writer gave it, and no other."""
    from ckpt_tools.core.keys import plain_name

    there = Counter(
        (plain_name(tuple(t["key"])), tuple(t["shape"]), t["sha256"]) for t in found if t["key"][-1:] != ["ckpt.tree"]
    )
    nameless = Counter((name, shape) for name, shape, _ in there.elements())
    for fact, count in expected.items():
        if fact[2] is None:
            assert nameless[fact[:2]] >= count, fact
        else:
            assert there[fact] == count, (fact, [f for f in there if f[0] == fact[0]])
    assert there.total() == expected.total()
