"""``torch-zip``: what ``torch.save`` writes since 1.6, a zip whose root folder holds ``data.pkl`` and ``data/<key>``.

Source: torch/serialization.py and caffe2/serialize/inline_container.cc. The root folder is that of the first directory
entry; a storage is a member that many tensors may look at. Byte order: ``byteorder`` (absent: little). Refused: members
outside the root folder, a version outside 1 to 10, storages whose size is not what the pickle says.
"""

from __future__ import annotations

from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import Extent, InflatedExtent
from ckpt_tools.core.limits import MIB, Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.tensors import Storage, TensorInfo
from ckpt_tools.errors import CorruptFile, LimitExceeded, UnreadableInput
from ckpt_tools.formats import _torch_objects
from ckpt_tools.formats._zip import MAGIC, Archive, archive_of, first_member_of
from ckpt_tools.pickles import findings

_KNOWN_VERSIONS = range(1, 11)
#: An honest ``data.pkl`` deflates about ten times; a bomb a thousand times.
_PICKLE_RATIO = 50


def probe(location: Location) -> str | None:
    """Why this is a torch zip archive, or None. A zip whose directory is gone counts when its first member tells."""
    if not location.head.startswith(MAGIC):
        return None
    try:
        archive = archive_of(location)
    except UnreadableInput:
        first = first_member_of(location)
        tells = ("/" in first and not first.endswith(".npy")) or first == "data.pkl"
        return "a zip archive without a readable directory" if tells else None
    root = root_of(archive)
    if f"{root}/data.pkl" in archive.members and f"{root}/constants.pkl" not in archive.members:
        return f"a zip archive with {root}/data.pkl"
    return None


def root_of(archive: Archive) -> str:
    """The root folder: what stands before the first slash of the first entry."""
    return archive.order[0].split("/", 1)[0] if archive.order else ""


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the archive; reads the directory and the pickle."""
    archive = archive_of(location)
    root = root_of(archive)
    version = _version(archive, root)
    byteorder = _text(archive, f"{root}/byteorder", "little")
    if byteorder not in ("little", "big"):
        raise CorruptFile(f"the byteorder member says {byteorder[:20]!r}, not little or big")
    storages = Storages(archive, f"{root}/data/", byteorder)
    extent = pickle_extent(archive, f"{root}/data.pkl", limits)
    machine = _torch_objects.machine(extent, persistent=storages)
    tree = machine.load()
    issues = archive.issues()
    issues += findings.foreign(machine, f"{root}/data.pkl")
    facts = {"zip version": version, "pickle protocol": str(machine.protocol), "byte order": byteorder}
    return Checkpoint(
        "torch-zip",
        location,
        tree,
        producer=f"torch zip version {version}, pickle protocol {machine.protocol}",
        nbytes=location.nbytes,
        issues=issues,
        facts=facts,
        sources=[archive.source],
        limits=limits,
    )


def pickle_extent(archive: Archive, name: str, limits: Limits) -> Extent:
    """The pickle member, bounded; torch's own reader takes it whole."""
    if name not in archive.members:
        raise CorruptFile(f"the archive has no {name}")
    extent = archive.extent(name)
    packed = isinstance(extent, InflatedExtent)
    allowed = 4 * MIB + _PICKLE_RATIO * archive.members[name].packed_nbytes if packed else limits.pickle_nbytes
    if extent.nbytes > min(allowed, limits.pickle_nbytes):
        raise LimitExceeded(f"{name} has {extent.nbytes} bytes, over {allowed}")
    return extent


def _text(archive: Archive, name: str, default: str) -> str:
    return archive.read(name, 1024).decode("ascii", "replace").strip() if name in archive.members else default


def _version(archive: Archive, root: str) -> str:
    version = _text(archive, f"{root}/version", "") or _text(archive, f"{root}/.data/version", "")
    if not version:
        raise CorruptFile("the archive has no version member")
    if not version.isdecimal() or int(version) not in _KNOWN_VERSIONS:
        raise CorruptFile(f"torch zip version {version[:20]!r}, known are 1 to 10")
    return version


class Storages:
    """The meaning of persistent ids: ``('storage', class, key, location, numel)`` names a member of the archive."""

    def __init__(self, archive: Archive, folder: str, byteorder: str) -> None:
        self._archive = archive
        self._folder = folder
        self._byteorder = byteorder
        self._known: dict[str, Storage] = {}

    def __call__(self, persistent_id: Any) -> _torch_objects.StorageView:
        if not isinstance(persistent_id, tuple) or len(persistent_id) < 5 or persistent_id[0] != "storage":
            raise CorruptFile("a persistent id that is no storage")
        _, cls, key, device, numel = persistent_id[:5]
        dtype = _torch_objects.storage_dtype(cls)
        storage = self._known.get(key)
        if storage is None:
            storage = self._known[key] = self._open(key, device)
        if type(numel) is not int or (device != "meta" and numel * dtype.itemsize != storage.nbytes):
            raise CorruptFile(
                f"storage {key} holds {storage.nbytes} bytes, {numel} elements of {dtype} were expected in it"
            )
        return _torch_objects.StorageView(TensorInfo(dtype, (numel,)), storage)

    def _open(self, key: Any, device: Any) -> Storage:
        name = f"{self._folder}{key}"
        if name not in self._archive.members:
            if device == "meta":
                from ckpt_tools.core.extents import MemoryExtent

                return Storage(MemoryExtent(b""), location="meta")
            raise CorruptFile(f"the archive has no member {name}, which a tensor needs")
        return Storage(
            self._archive.extent(name),
            byteorder=self._byteorder,
            checksum=self._archive.checksum(name),
            location=str(device),
        )
