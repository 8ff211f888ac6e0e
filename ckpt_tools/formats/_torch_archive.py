"""The archive that torch writes, whatever is in it: a root folder with pickles, and beside each the storages it names.

``<root>/NAME.pkl`` refers to storages ``<root>/NAME/<key>``; ``version`` and ``byteorder`` (absent: little) hold for
all (caffe2/serialize/inline_container.cc, torch/serialization.py). The root folder is that of the first directory
entry. People unpack these zips, so a directory with the same files counts as one. Refused: a version outside 1 to 10,
storages whose size is not what the pickle says, pickles that unpack to far more than they should.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ckpt_tools.core.checksum import Checksum, Seal
from ckpt_tools.core.extents import Extent, InflatedExtent, MemoryExtent, PathExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.limits import DEFAULT_LIMITS, MIB, Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import Storage
from ckpt_tools.errors import CorruptFile, LimitExceeded
from ckpt_tools.formats import _torch_objects
from ckpt_tools.formats._zip import MAGIC, Archive, archive_of
from ckpt_tools.pickles.machine import Constructor, Machine

_KNOWN_VERSIONS = range(1, 11)
#: An honest ``data.pkl`` deflates about ten times; a bomb a thousand times.
_PICKLE_RATIO = 50
#: ``version`` and ``byteorder`` are a word each.
_WORD_NBYTES = 1024


class Members(Protocol):
    """Files under names: a zip archive, or the directory it was unpacked to."""

    @property
    def members(self) -> Collection[str]: ...

    def extent(self, name: str) -> Extent: ...

    def checksum(self, name: str) -> Checksum | None: ...

    def issues(self) -> list[Issue]: ...

    def seals(self) -> Iterable[Seal]: ...

    def audit(self) -> Iterable[Issue]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def sources(self) -> list[Source]: ...


class Folder:
    """An unpacked archive: the files of a directory, under the names they had as members.

    Only what a scan of the directory found can be named, so that no name leads out of it.
    """

    def __init__(self, path: Path, folders: Sequence[str]) -> None:
        self.root = path.resolve().name
        self.members: dict[str, Path] = {}
        self.nbytes = 0
        for folder in ("", *folders):
            if not (path / folder).is_dir():
                continue
            with os.scandir(path / folder) as found:
                for entry in found:
                    if Path(entry.path).is_file():  # a DirEntry raises for links that go in circles
                        self.members["/".join(filter(None, (self.root, folder, entry.name)))] = Path(entry.path)
                        self.nbytes += entry.stat().st_size
                    if len(self.members) > DEFAULT_LIMITS.members:
                        raise LimitExceeded(f"a directory of over {DEFAULT_LIMITS.members} files")

    def extent(self, name: str) -> Extent:
        """The bytes of a file."""
        return PathExtent(self.members[name])

    def checksum(self, name: str) -> None:
        """Files have none."""

    def issues(self) -> list[Issue]:
        """Nothing: a directory cannot be odd."""
        return []

    def seals(self) -> tuple[()]:
        """None: nothing vouches for the files of a directory."""
        return ()

    def audit(self) -> tuple[()]:
        """Nothing: files do not lie in one another."""
        return ()

    @property
    def sources(self) -> list[Source]:
        """None stay open."""
        return []


class TorchArchive:
    """An archive or folder read as torch reads it."""

    def __init__(self, members: Members, root: str) -> None:
        self.members = members
        self.root = root

    def __contains__(self, name: str) -> bool:
        return f"{self.root}/{name}" in self.members.members

    def text(self, name: str, default: str = "") -> str:
        """A member that is one word; ``default`` when there is none."""
        if name not in self:
            return default
        extent = self.members.extent(f"{self.root}/{name}")
        if extent.nbytes > _WORD_NBYTES:
            raise CorruptFile(f"member {name} has {extent.nbytes} bytes where one word is expected")
        return extent.read(0, extent.nbytes).decode("ascii", "replace").strip()

    @cached_property
    def version(self) -> str:
        """The version of the layout; empty when the archive does not tell."""
        version = self.text("version") or self.text(".data/version")
        if version and (not version.isdecimal() or int(version) not in _KNOWN_VERSIONS):
            raise CorruptFile(f"torch zip version {printable(version[:20])}, known are 1 to 10")
        return version

    @cached_property
    def byteorder(self) -> str:
        """``little`` or ``big``."""
        byteorder = self.text("byteorder", "little")
        if byteorder not in ("little", "big"):
            raise CorruptFile(f"the byteorder member says {printable(byteorder[:20])}, not little or big")
        return byteorder

    def audit(self) -> Iterator[Issue]:
        """What is odd about the layout of the archive, for torch's reader too."""
        yield from self.members.audit()
        strays = [name for name in self.members.members if not name.startswith(f"{self.root}/")]
        if strays:
            more = f", and {len(strays) - 1} more" if len(strays) > 1 else ""
            text = f"it lies outside the folder {printable(self.root)}{more}; torch refuses such an archive"
            yield Issue("integrity-stray-member", Severity.ERROR, printable(strays[0]), text)
        seen: dict[str, str] = {}
        for name in self.members.members:
            first = seen.setdefault(name.lower(), name)
            if first != name:
                text = f"{printable(first)} and {printable(name)} differ in case only: torch takes one for the other"
                yield Issue("safety-readers-disagree", Severity.ERROR, printable(name), text)

    def machine(
        self,
        name: str,
        limits: Limits,
        *,
        extra: Mapping[str, Constructor] | None = None,
        built: Callable[[Machine, Any], Any] = _torch_objects.built,
    ) -> Machine:
        """A machine that is about to read ``<root>/<name>.pkl`` and knows its storages."""
        storages = Storages(self.members, f"{self.root}/{name}/", self.byteorder)
        extent = self._pickle(f"{self.root}/{name}.pkl", limits)
        return _torch_objects.machine(extent, persistent=storages, extra=extra, built=built)

    def _pickle(self, name: str, limits: Limits) -> Extent:
        """A pickle, bounded; torch's own reader takes it whole."""
        if name not in self.members.members:
            raise CorruptFile(f"the archive has no {name}")
        extent = self.members.extent(name)
        allowed = limits.pickle_nbytes
        if isinstance(extent, InflatedExtent):
            allowed = min(allowed, 4 * MIB + _PICKLE_RATIO * extent.packed.nbytes)
        if extent.nbytes > allowed:
            raise LimitExceeded(f"{name} has {extent.nbytes} bytes, over {allowed}")
        return extent


class Storages:
    """The meaning of persistent ids: ``('storage', class, key, location, numel)`` names a member of the archive."""

    def __init__(self, members: Members, folder: str, byteorder: str) -> None:
        self._members = members
        self._folder = folder
        self._byteorder = byteorder
        self._known: dict[str, Storage] = {}

    def __call__(self, persistent_id: Any) -> _torch_objects.StorageView:
        if type(persistent_id) is not tuple or len(persistent_id) < 5 or persistent_id[0] != "storage":
            raise CorruptFile("a persistent id that is no storage")
        key, device, numel = persistent_id[2:5]
        dtype = _torch_objects.storage_dtype(persistent_id[1])
        if type(key) is not str or type(numel) is not int:
            raise CorruptFile("a storage whose key is no text or whose size is no number of elements")
        storage = self._known.get(key)
        if storage is None:
            storage = self._known[key] = self._open(key, device)
        if numel * dtype.itemsize != storage.extent.nbytes and device != "meta":
            raise CorruptFile(
                f"storage {printable(key)} holds {storage.nbytes} bytes, {numel} elements of {dtype} were expected"
            )
        return _torch_objects.StorageView(dtype, numel, storage)

    def _open(self, key: str, device: Any) -> Storage:
        name = self._folder + key
        if name not in self._members.members:
            if device == "meta":
                return Storage(MemoryExtent(b""), location="meta")
            raise CorruptFile(f"the archive has no member {printable(name)}, which a tensor needs")
        return Storage(
            self._members.extent(name),
            byteorder=self._byteorder,
            checksum=self._members.checksum(name),
            location=device if type(device) is str else "cpu",
        )


def root_of(archive: Archive) -> str:
    """The root folder: what stands before the first slash of the first entry."""
    return archive.order[0].split("/", 1)[0] if archive.order else ""


def looks_unpacked(location: Location) -> bool:
    """Whether a directory holds what a torch archive unpacks to."""
    return location.is_directory and location.beside("data.pkl").is_file() and location.beside("version").is_file()


def archive_at(location: Location) -> TorchArchive | None:
    """The archive or unpacked folder at a location, parsed once; None when it is neither.

    UnreadableInput when it is a zip whose directory cannot be read.
    """
    if location.is_directory:
        if not looks_unpacked(location):
            return None
        folder = location.once("folder", lambda: Folder(location.path, ("data", "constants", ".data")))
        return TorchArchive(folder, folder.root)
    if not location.head.startswith(MAGIC):
        return None
    archive = archive_of(location)
    return TorchArchive(archive, root_of(archive))
