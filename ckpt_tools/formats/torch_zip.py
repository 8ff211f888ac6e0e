"""``torch-zip``: what ``torch.save`` writes since 1.6, a zip whose root folder holds ``data.pkl`` and ``data/<key>``.

Source: torch/serialization.py. A storage is a member that many tensors may look at. The same files in a directory,
unpacked, are read alike. Refused beside what :mod:`~ckpt_tools.formats._torch_archive` refuses: archives without
``version``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.errors import CorruptFile, UnreadableInput
from ckpt_tools.formats import _torch_archive
from ckpt_tools.formats._torch_archive import TorchArchive
from ckpt_tools.formats._zip import first_member_of
from ckpt_tools.pickles import findings


def probe(location: Location) -> str | None:
    """Why this is a torch zip archive, or None. A zip whose directory is gone counts when its first member tells."""
    try:
        archive = _torch_archive.archive_at(location)
    except UnreadableInput:
        first = first_member_of(location)
        tells = ("/" in first and not first.endswith(".npy")) or first == "data.pkl"
        return "a zip archive without a readable directory" if tells else None
    if archive is None or "data.pkl" not in archive or "constants.pkl" in archive:
        return None
    return "an unpacked torch archive" if location.is_directory else f"a zip archive with {archive.root}/data.pkl"


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the archive; reads the directory and the pickle."""
    archive = _torch_archive.archive_at(location)
    if archive is None:
        raise CorruptFile("neither a zip archive nor a directory with data.pkl and version")
    if not archive.version:
        raise CorruptFile("the archive has no version member")
    machine = archive.machine("data", limits)
    tree = machine.load()
    facts = {
        "zip version": archive.version,
        "pickle protocol": str(machine.protocol),
        "byte order": archive.byteorder,
    }
    return Checkpoint(
        "torch-zip",
        location,
        tree,
        producer=f"torch zip version {archive.version}, pickle protocol {machine.protocol}",
        nbytes=archive.members.nbytes,
        issues=archive.members.issues() + findings.foreign(machine, f"{archive.root}/data.pkl"),
        facts=facts,
        sources=archive.members.sources,
        seals=archive.members.seals,
        audit=lambda: (*archive.audit(), *_unread(archive)),
        pickles=[findings.facts(machine, f"{archive.root}/data.pkl")],
        limits=limits,
    )


def _unread(archive: TorchArchive) -> Iterator[Issue]:
    """A finding for each pickle that is in the archive and no part of what ``torch.load`` reads."""
    for name in archive.members.members:
        if name.endswith(".pkl") and name != f"{archive.root}/data.pkl":
            text = "a pickle that nothing refers to: it was not looked at, and torch.load does not load it"
            yield Issue("safety-unread-pickle", Severity.WARNING, printable(name), text)
