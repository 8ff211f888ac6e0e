"""The formats that can be written: the module that does it, and the names of files that ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ckpt_tools.core.tree import Node
from ckpt_tools.errors import MissingExtra, UsageError
from ckpt_tools.formats._writing import Request, Target, WritePlan


@dataclass(frozen=True)
class Writer:
    """One row: ``suffixes`` of destinations that choose it, ``file_name`` in a destination that is a directory."""

    name: str
    suffixes: tuple[str, ...]
    file_name: str
    extra: str | None = None

    @property
    def target(self) -> Target:
        """What the format can hold."""
        target: Target = self._module().TARGET
        return target

    @property
    def plan(self) -> Callable[[Node, Request], WritePlan]:
        """The function that plans a file of this format."""
        plan: Callable[[Node, Request], WritePlan] = self._module().plan
        return plan

    def _module(self) -> ModuleType:
        try:
            return import_module(f"ckpt_tools.formats.{self.name.replace('-', '_')}_writer")
        except ImportError as error:
            if self.extra is None:
                raise
            raise MissingExtra(
                f"{self.name} is written through {error.name}, which is not installed",
                hint=f"pip install 'ckpt-tools[{self.extra}]'",
            ) from None


WRITERS: tuple[Writer, ...] = (
    Writer("torch-zip", (".pth", ".pt", ".bin"), "pytorch_model.bin"),
    Writer("torch-legacy", (), "pytorch_model.bin"),
    Writer("paddle-pickle", (".pdz", ".pdparams", ".pdopt"), "model.pdparams"),
    Writer("safetensors", (".safetensors",), "model.safetensors"),
    Writer("npz", (".npz",), "model.npz"),
    Writer("tf-bundle", (".index",), "model"),
    Writer("hdf5", (".h5",), "model.weights.h5", extra="hdf5"),
)


def writer_named(name: str) -> Writer:
    """The row of that name. UsageError when there is none."""
    for row in WRITERS:
        if row.name == name:
            return row
    raise UsageError(f"{name!r} is no format that can be written; there are {', '.join(row.name for row in WRITERS)}")


def choose(destination: Path, name: str | None, *, is_directory: bool) -> tuple[Writer, Path]:
    """The writer for a destination and the file it writes. UsageError when neither name nor suffix tells a format."""
    if name is not None:
        row = writer_named(name)
        return row, destination / row.file_name if is_directory else destination
    suffix = destination.suffix.lower()
    for row in WRITERS:
        if suffix in row.suffixes and not is_directory:
            return row, destination
    known = ", ".join(suffix for row in WRITERS for suffix in row.suffixes)
    what = "a directory" if is_directory else f"the suffix {suffix!r}" if suffix else "a name without a suffix"
    raise UsageError(
        f"{what} does not tell the format to write; the suffixes that do are {known}",
        where=str(destination),
        hint=f"--to NAME says it: {', '.join(row.name for row in WRITERS)}",
    )
