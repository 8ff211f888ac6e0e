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
    extra: str | None = None
    of_parts: bool = False

    def module(self) -> ModuleType:
        """The module that reads it. ImportError when a library of its extra is missing."""
        return import_module(f"ckpt_tools.formats.{self.name.replace('-', '_')}")


def _begins(*magics: bytes) -> Callable[[Location], bool]:
    def looks_like(location: Location) -> bool:
        return location.head.startswith(magics)

    return looks_like


def _is_directory_or(*magics: bytes) -> Callable[[Location], bool]:
    def looks_like(location: Location) -> bool:
        return location.is_directory or location.head.startswith(magics)

    return looks_like


def _has_bytes(location: Location) -> bool:
    """For formats that have no fixed first bytes: they stand last."""
    return location.nbytes > 0


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


def _opens_json_header(location: Location) -> bool:
    return location.head[8:9] == b"{"


def _perhaps_hdf5(location: Location) -> bool:
    named = location.suffix in (".h5", ".hdf5", ".keras", ".he5", ".json")
    return location.head.startswith(b"\x89HDF") or (named and not location.is_directory)


def _is_directory(location: Location) -> bool:
    return location.is_directory


def _is_distcp(location: Location) -> bool:
    return location.suffix == ".distcp"


def _may_be_tensorflow(location: Location) -> bool:
    """A table or what may have been one; a directory, a graph or a state file that may lead to one."""
    return (
        location.is_directory
        or location.tail.endswith(_sorted_table.MAGIC)
        or location.head.startswith(b"\0\0")
        or location.suffix in (".index", ".pb", ".pbtxt")
        or b"model_checkpoint_path" in location.head
    )


def _is_tar(location: Location) -> bool:
    return location.head[257:262] == b"ustar"


_ZIP = _begins(b"PK\x03\x04")
_TORCH_ARCHIVE = _either(_ZIP, _directory_with("data.pkl", "version"))
#: torch.serialization.MAGIC_NUMBER, as binary and as text pickles write it
_TORCH_LEGACY = _holds(bytes.fromhex("8a0a6cfc9c46f9206aa850192e"), b"L119547037146038801333356L\n.")
_ZIP_OR_EMPTY = _begins(b"PK\x03\x04", b"PK\x05\x06")
_PICKLE_PERHAPS_PACKED = _begins(
    *(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
    *(b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x5d\0\0", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
)


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
        "torch-dcp-safetensors",
        "a PyTorch distributed checkpoint in safetensors files; named as the format of its files",
        (),
        "directory with shard-<rank>-model-<i>-of-<n>.safetensors",
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
    Format(
        "safetensors",
        "a safetensors file",
        (".safetensors",),
        "8-byte length of a JSON header, then the header",
        _opens_json_header,
    ),
    Format("keras", "a Keras archive", (".keras",), "zip with config.json and metadata.json", _ZIP, extra="hdf5"),
    Format("npz", "a numpy archive", (".npz",), "zip whose members are arrays (.npy)", _ZIP_OR_EMPTY),
    Format("npy", "an array of numpy", (".npy",), "begins with \\x93NUMPY", _begins(b"\x93NUMPY")),
    Format(
        "hdf5",
        "an HDF5 file",
        (".h5", ".hdf5", ".keras", ".he5", ".json"),
        "the HDF5 signature at byte 0, 512, 1024, …; an index named .weights.json",
        _perhaps_hdf5,
        extra="hdf5",
    ),
    Format(
        "joblib",
        "a file of joblib",
        (".joblib", ".jl", ".pkl", ".gz", ".z", ".bz2", ".xz", ".lzma"),
        "pickle with joblib.numpy_pickle wrappers, or a compressed pickle",
        _PICKLE_PERHAPS_PACKED,
    ),
    Format(
        "paddle-dcp",
        "a distributed checkpoint of Paddle",
        (".distcp", ".metadata"),
        "directory with <n>.metadata and <rank>_<n>.distcp",
        _is_directory_or(b"\x80"),
    ),
    Format(
        "paddle-vars",
        "a directory of Paddle variables",
        (),
        "files that hold one Paddle tensor each, named like variables",
        _is_directory_or(b"\0\0\0\0", b"\n"),
    ),
    Format(
        "paddle-combined",
        "all parameters of a Paddle program",
        (".pdiparams",),
        "Paddle tensors one after the other; a Paddle program",
        _begins(b"\0\0\0\0", b"\n", b"{"),
    ),
    Format(
        "paddle-binary",
        "one Paddle tensor in binary form",
        (".pdtensor", ".bin"),
        "four zero bytes, then a TensorDesc where it belongs",
        _begins(b"\0\0\0\0"),
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
