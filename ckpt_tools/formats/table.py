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
from ckpt_tools.formats import _sorted_table


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


def _may_be_tensorflow(location: Location) -> bool:
    """A table or what may have been one; a directory, a graph or a state file that may lead to one."""
    return (
        location.is_directory
        or location.tail.endswith(_sorted_table.MAGIC)
        or location.head.startswith(b"\0\0")
        or location.suffix in (".index", ".pb", ".pbtxt")
        or b"model_checkpoint_path" in location.head
    )


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
        "tf-bundle",
        "a TensorFlow checkpoint",
        (".index",),
        "a sorted table with a bundle header; a directory, SavedModel or state file that leads to one",
        _may_be_tensorflow,
    ),
    Format(
        "tf-v1",
        "a TensorFlow V1 checkpoint",
        (".ckpt",),
        "a sorted table whose first value lists the tensors",
        _may_be_tensorflow,
    ),
)
