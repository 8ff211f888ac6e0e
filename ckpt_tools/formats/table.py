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


def _opens_json_header(location: Location) -> bool:
    return location.head[8:9] == b"{"


_ZIP = _begins(b"PK\x03\x04")
_ZIP_OR_EMPTY = _begins(b"PK\x03\x04", b"PK\x05\x06")
_BINARY_PICKLE = _begins(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_COMPRESSED = _begins(
    b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x5d\0\0", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"
)


def _pickle_perhaps_compressed(location: Location) -> bool:
    return _BINARY_PICKLE(location) or _COMPRESSED(location)


FORMATS: tuple[Format, ...] = (
    Format(
        "torch-zip",
        "a PyTorch zip archive",
        (".pth", ".pt", ".bin", ".ckpt", ".tar", ".th"),
        "zip with <root>/data.pkl",
        _ZIP,
    ),
    Format(
        "safetensors",
        "a safetensors file",
        (".safetensors",),
        "8-byte length of a JSON header, then the header",
        _opens_json_header,
    ),
    Format("npz", "a numpy archive", (".npz",), "zip whose members are arrays (.npy)", _ZIP_OR_EMPTY),
    Format("npy", "an array of numpy", (".npy",), "begins with \\x93NUMPY", _begins(b"\x93NUMPY")),
    Format(
        "joblib",
        "a file of joblib",
        (".joblib", ".jl", ".pkl", ".gz", ".z", ".bz2", ".xz", ".lzma"),
        "pickle with joblib.numpy_pickle wrappers, or a compressed pickle",
        _pickle_perhaps_compressed,
    ),
)
