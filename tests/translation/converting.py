"""Conversion between live models, as the command line does it, without its start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckpt_tools.formats import open_checkpoint, writers
from ckpt_tools.models import LiveModel, _describe
from ckpt_tools.ops import convert as conversions
from ckpt_tools.ops import writing
from ckpt_tools.ops.comparands import Comparand
from ckpt_tools.ops.spec import comparand_of
from ckpt_tools.ops.translating import LayoutWishes


def described(net: Any, label: str = "the model") -> LiveModel:
    return _describe(label, net)


def model_of(net: Any, label: str = "the model") -> Comparand:
    return comparand_of(described(net, label))


def translate(
    source: Path,
    target: Path,
    family: str,
    likes: Sequence[Comparand] = (),
    kinds: Sequence[tuple[str, str]] = (),
    *,
    partial: bool = False,
    with_optimizer: bool = False,
) -> conversions.Conversion:
    """Convert and write. WriteRefused when the plan has obstacles."""
    row, path = writers.choose(target, None, is_directory=False)
    layout = LayoutWishes(family, likes, kinds, partial=partial, with_optimizer=with_optimizer)
    with open_checkpoint(source) as checkpoint:
        conversion = conversions.plan(checkpoint, path, conversions.Wishes(row.name, layout=layout))
        conversion.obstacles.refuse(str(source))
        writing.write(conversion, overwrite=True, check=True)
    return conversion
