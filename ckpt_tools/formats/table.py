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
    of_parts: bool = False

    def module(self) -> ModuleType:
        """The module that reads it. ImportError when a library of its extra is missing."""
        return import_module(f"ckpt_tools.formats.{self.name.replace('-', '_')}")


def _begins(*magics: bytes) -> Callable[[Location], bool]:
    def looks_like(location: Location) -> bool:
        return location.head.startswith(magics)

    return looks_like


def _holds(*magics: bytes) -> Callable[[Location], bool]:
    def looks_like(location: Location) -> bool:
        return any(magic in location.head for magic in magics)

    return looks_like


def _directory_with(*names: str) -> Callable[[Location], bool]:
    def looks_like(location: Location) -> bool:
        return location.is_directory and all(location.beside(name).exists() for name in names)

    return looks_like


def _either(*looks: Callable[[Location], bool]) -> Callable[[Location], bool]:
    def looks_like(location: Location) -> bool:
        return any(look(location) for look in looks)

    return looks_like


def _is_directory(location: Location) -> bool:
    return location.is_directory


def _is_distcp(location: Location) -> bool:
    return location.suffix == ".distcp"


def _is_tar(location: Location) -> bool:
    return location.head[257:262] == b"ustar"


_ZIP = _begins(b"PK\x03\x04")
_TORCH_ARCHIVE = _either(_ZIP, _directory_with("data.pkl", "version"))
#: torch.serialization.MAGIC_NUMBER, as binary and as text pickles write it
_TORCH_LEGACY = _holds(bytes.fromhex("8a0a6cfc9c46f9206aa850192e"), b"L119547037146038801333356L\n.")

FORMATS: tuple[Format, ...] = (
    Format(
        "sharded",
        "shards behind an index (safetensors, PyTorch); read and named as the format of the shards",
        (".index.json",),
        "JSON with weight_map, or a directory with one",
        _either(_begins(b"{"), _is_directory),
        of_parts=True,
    ),
    Format(
        "deepspeed",
        "a DeepSpeed ZeRO directory: model states; read and named as the format of its files",
        (),
        "directory with *mp_rank_*_model_states.pt",
        _is_directory,
        of_parts=True,
    ),
    Format(
        "torch-dcp",
        "a PyTorch distributed checkpoint (DCP)",
        (),
        "directory with .metadata of torch.distributed",
        _either(_is_directory, _is_distcp),
    ),
    Format(
        "torchscript",
        "a TorchScript archive",
        (".pt", ".pth", ".ptl", ".ts"),
        "zip with <root>/constants.pkl, or model.json",
        _TORCH_ARCHIVE,
    ),
    Format(
        "torch-zip",
        "a PyTorch zip archive",
        (".pth", ".pt", ".bin", ".ckpt", ".tar", ".th"),
        "zip with <root>/data.pkl, or a directory that one was unpacked to",
        _TORCH_ARCHIVE,
    ),
    Format(
        "torch-legacy",
        "a PyTorch file as written before 1.6",
        (".pth", ".pt", ".bin", ".ckpt", ".tar", ".pkl"),
        "pickle of torch's magic number",
        _TORCH_LEGACY,
    ),
    Format(
        "torch-tar",
        "a PyTorch tar archive as written before 0.1.10",
        (".pth", ".pt", ".tar", ".pkl"),
        "tar with members storages, tensors and pickle",
        _is_tar,
    ),
)
