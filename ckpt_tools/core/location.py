"""What the user typed and the family it belongs to on disk: a file, a directory, or a TensorFlow prefix.

A checkpoint is often several files. Whichever of them is named, the answer must be the same, so a path is first
resolved to a :class:`Location`; formats then look at the location, never at the path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ckpt_tools.core.shards import index_of
from ckpt_tools.core.source import Source
from ckpt_tools.errors import MissingInput, damage

T = TypeVar("T")

#: ``P.data-00000-of-00001`` (tensorflow/core/util/tensor_bundle/naming.cc)
SHARD = re.compile(r"(?P<prefix>.+)\.data-\d{5}-of-\d{5}", re.DOTALL)

#: ``P-00000-of-00002``, or ``P-?????-of-00002`` for all of them: V1 checkpoints in several files
#: (tensorflow/python/training/saver.py)
V1_SHARD = re.compile(r"(?P<prefix>.+)-(?:\d{5}|\?{5})-of-(?P<count>\d{5})", re.DOTALL)

#: torch/distributed/checkpoint/_hf_utils.py, SHARDED_FILE_NAME
DCP_SAFETENSORS = re.compile(r"shard-\d+-model-\d+-of-\d+\.safetensors")

#: What ``torch.save`` and ``torch.jit.save`` put into an archive beside the storages, and where those lie.
_UNPACKED_FILES = {"data.pkl", "version", "byteorder", "constants.pkl", ".format_version", ".storage_alignment"}
_UNPACKED_FOLDERS = {"data", "constants", ".data"}

#: Bytes looked at from either end when a format is to be recognised. 512 reaches the tar magic at 257.
HEAD_NBYTES = 512
TAIL_NBYTES = 48


@dataclass(frozen=True)
class Location:
    """One checkpoint's place. ``path`` is what is read: a file, a directory, or the ``.index`` of a prefix.

    ``shown`` is what people call it (what they typed, or the prefix); ``head`` and ``tail`` are the first and last
    bytes of a file, empty for a directory.
    """

    path: Path
    shown: str
    is_directory: bool
    head: bytes = b""
    tail: bytes = b""
    nbytes: int = 0
    _known: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, what: str, find: Callable[[], T]) -> T:
        """``find()``, done once for this location: probing and reading look at the same structure."""
        if what not in self._known:
            self._known[what] = find()
        found: T = self._known[what]
        return found

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    def beside(self, name: str) -> Path:
        """A path next to this file, or inside this directory."""
        return (self.path if self.is_directory else self.path.parent) / name


def at(path: str | os.PathLike[str], shown: str | None = None) -> Location:
    """The location of exactly this file or directory. MissingInput when there is none."""
    where = Path(path)
    label = os.fspath(path) if shown is None else shown
    if where.is_dir():
        return Location(where, label, True)
    with Source(where) as source:
        return Location(
            where,
            label,
            False,
            head=source.peek(0, HEAD_NBYTES),
            tail=source.peek(source.nbytes - TAIL_NBYTES, TAIL_NBYTES),
            nbytes=source.nbytes,
        )


def locate(path: str | os.PathLike[str]) -> Location:
    """The location a user means by ``path``: itself, or the TensorFlow prefix it names or belongs to."""
    text = os.fspath(path)
    with damage(text):
        return _locate(text)


def _locate(text: str) -> Location:
    where = Path(text)
    shard = SHARD.fullmatch(text)
    if shard and (where.exists() or Path(shard["prefix"] + ".index").is_file()):
        index = shard["prefix"] + ".index"
        if not Path(index).is_file():
            raise MissingInput(f"the data of a TensorFlow checkpoint, whose index {index} is missing", where=text)
        return at(index, shown=text)
    if where.exists():
        family = _family_of(where) if where.is_file() else None
        return at(where) if family is None else at(family, shown=text)
    member = member_of_prefix(text)
    if member is not None:
        return at(member, shown=text)
    if where.is_symlink():
        raise MissingInput(f"a link to {where.readlink()}, which leads nowhere", where=text)
    raise MissingInput("no such file, directory or checkpoint prefix", where=text, hint=_near(where))


def _family_of(file: Path) -> Path | None:
    """The index or directory of the checkpoint that a file is a member of; None when it stands for itself."""
    directory = file.absolute().parent
    if file.suffix == ".meta":  # the graph beside a TensorFlow checkpoint
        return member_of_prefix(os.fspath(file.with_suffix("")))
    if file.suffix == ".distcp" or file.name == ".metadata":  # torch.distributed.checkpoint
        return directory if (directory / ".metadata").is_file() else None
    if DCP_SAFETENSORS.fullmatch(file.name):
        return directory
    # a torch archive that was unpacked: <root>/data.pkl, <root>/version, <root>/data/<key>
    for root, is_member in (
        (directory, file.name in _UNPACKED_FILES),
        (directory.parent, directory.name in _UNPACKED_FOLDERS),
    ):
        if is_member and (root / "data.pkl").is_file() and (root / "version").is_file():
            return root
    return index_of(file.absolute())


def member_of_prefix(prefix: str) -> Path | None:
    """The file that is read for a TensorFlow prefix: its index, itself (V1), or its first part (V1)."""
    for path in (Path(prefix + ".index"), Path(prefix)):
        if path.is_file():
            return path
    pattern = V1_SHARD.fullmatch(prefix)
    stem, count = (pattern["prefix"], pattern["count"]) if pattern else (prefix, None)
    wanted = re.compile(re.escape(Path(stem).name) + rf"-\d{{5}}-of-{count or '[0-9]{5}'}")
    try:
        parts = sorted(entry.name for entry in os.scandir(Path(stem).parent) if wanted.fullmatch(entry.name))
    except OSError:
        return None
    return Path(stem).parent / parts[0] if parts else None


def _near(where: Path) -> str | None:
    """Names beside ``where`` that begin like it, as a suggestion."""
    try:
        names = sorted(entry.name for entry in os.scandir(where.parent) if entry.name.startswith(where.name + "."))
    except OSError:
        return None
    if not names or not where.name:
        return None
    shown = " or ".join(str(where.parent / name) for name in names[:4])
    return f"did you mean {shown}?"
