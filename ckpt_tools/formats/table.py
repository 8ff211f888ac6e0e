"""The table of formats. Adding one is a module with ``probe`` and ``read``, and a row here.

``looks_like`` is a cheap look at the first and last bytes, so that only modules that have a chance are imported; their
``probe`` decides. Rows are asked in this order: the stricter a format's marks, the earlier it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from ckpt_tools.core.location import Location


@dataclass(frozen=True)
class Format:
    """One row. ``recognised_by`` is for people; ``extra`` is what has to be installed beside the base package."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    recognised_by: str
    looks_like: Callable[[Location], bool]
    writes: bool = False
    extra: str | None = None

    def module(self) -> ModuleType:
        """The module that reads it. ImportError when a library of its extra is missing."""
        return import_module(f"ckpt_tools.formats.{self.name.replace('-', '_')}")


def _begins(*magics: bytes) -> Callable[[Location], bool]:
    def looks_like(location: Location) -> bool:
        return location.head.startswith(magics)

    return looks_like


def _has_bytes(location: Location) -> bool:
    """For formats that have no fixed first bytes: they stand last."""
    return location.nbytes > 0


_ZIP = _begins(b"PK\x03\x04")

FORMATS: tuple[Format, ...] = (
    Format(
        "torch-zip",
        "a PyTorch zip archive",
        (".pth", ".pt", ".bin", ".ckpt", ".tar", ".th"),
        "zip with <root>/data.pkl",
        _ZIP,
    ),
    Format(
        "paddle-pickle",
        "a pickle of Paddle",
        (".pdparams", ".pdopt", ".pdz", ".pdstates"),
        "pickle with Paddle's table of names or (name, array) pairs",
        _has_bytes,
    ),
    Format("pickle", "a Python pickle", (".pkl", ".pickle", ".p"), "pickle opcodes up to a STOP", _has_bytes),
)
