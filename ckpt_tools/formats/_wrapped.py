"""Compressed files and bundles that hold checkpoints: what is inside, and the command that gets it out.

They are not read through: a tensor in the middle of a compressed file costs all that lies before it, each time.
"""

from __future__ import annotations

import shlex
from pathlib import PurePath

from ckpt_tools.core.keys import printable
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.errors import UnreadableInput
from ckpt_tools.formats._packed import beginning, packing_of
from ckpt_tools.formats._zip import MAGIC, archive_of

#: Enough to see what is inside: the tar magic stands at 257.
_START_NBYTES = 512
_TAR_BLOCK = 512
#: Members of a tar that are looked at: its directory is spread over the file.
_LOOKED_AT = 1000
_INSIDE: tuple[tuple[bytes, str], ...] = (
    (MAGIC, "a zip archive, as torch, numpy and Keras write it"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "an array of numpy"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
)
_CHECKPOINT_SUFFIXES = (
    *(".pth", ".pt", ".bin", ".ckpt", ".th", ".pdz", ".pdparams", ".pdopt", ".pdiparams", ".index"),
    *(".safetensors", ".npz", ".h5", ".hdf5", ".keras", ".joblib", ".pkl"),
)


def describe(location: Location) -> tuple[str, str | None] | None:
    """What a compressed file or a bundle is, and what to do; None for anything else."""
    if location.head[257:262] == b"ustar":
        return _bundle("a tar archive", _tar_members(location), f"tar -xf {_quoted(location)}")
    if location.head.startswith(MAGIC):
        try:
            members = list(archive_of(location).order)
        except UnreadableInput as error:
            return error.message, error.hint
        return _bundle("a zip archive", members, f"unzip {_quoted(location)}")
    packing = packing_of(location.head)
    if packing is None:
        return None
    with Source(location.path) as source:
        start = beginning(packing, source, _START_NBYTES)
    if not start:
        return None
    if start[257:262] == b"ustar":
        name = printable(_tar_name(start))
        return f"a {packing.name}-compressed tar archive that begins with {name}", f"tar -xf {_quoted(location)}"
    inside = next((what for magic, what in _INSIDE if start.startswith(magic)), "")
    if start[8:9] == b"{":
        inside = "a safetensors file"
    what = f"{packing.name}-compressed data" + (f"; inside is {inside}" if inside else ", not a checkpoint")
    return what, f"{packing.command} {_quoted(location)}"


def _quoted(location: Location) -> str:
    return shlex.quote(str(location.path))


def _bundle(what: str, members: list[str], command: str) -> tuple[str, str | None]:
    files = [name for name in members if not name.endswith("/")]
    inside = [name for name in files if PurePath(name).suffix.lower() in _CHECKPOINT_SUFFIXES]
    if not inside:
        begins = f" that begins with {printable(files[0])}" if files else " of nothing"
        return f"{what}{begins}, not a checkpoint", None
    more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
    told = f"{what} that holds {printable(inside[0])}{more}, not a checkpoint itself"
    return told, f"{command} {shlex.quote(inside[0])}"


def _tar_members(location: Location) -> list[str]:
    """Names of members of a tar archive, as far as its chain of headers is whole (POSIX.1-1988 ustar)."""
    names: list[str] = []
    with Source(location.path) as source:
        at = 0
        while len(names) < _LOOKED_AT:
            header = source.peek(at, _TAR_BLOCK)
            size = header[124:136].strip(b"\0 ")
            if len(header) < _TAR_BLOCK or not header.strip(b"\0") or not size.isdigit():
                break
            if header[156:157] in (b"0", b"\0"):  # regular files
                names.append(_tar_name(header))
            try:
                nbytes = int(size, 8)
            except ValueError:
                break
            at += _TAR_BLOCK + -(-nbytes // _TAR_BLOCK) * _TAR_BLOCK
    return names


def _tar_name(header: bytes) -> str:
    name, prefix = (part.split(b"\0")[0].decode("utf-8", "replace") for part in (header[:100], header[345:500]))
    return f"{prefix}/{name}" if prefix else name
