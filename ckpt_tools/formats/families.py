"""Which checkpoints a directory holds: its files and subdirectories, those of one family counted once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ckpt_tools.core.keys import natural_order
from ckpt_tools.core.location import SHARD, Location, at
from ckpt_tools.errors import CkptError, MissingInput, Placeholder, UnreadableInput, UsageError, damage
from ckpt_tools.formats import detect, recognise
from ckpt_tools.formats.table import FORMATS, Format

#: Files that lie beside checkpoints and are none: records, logs, backups and temporary files of this and other tools.
_COMPANIONS = re.compile(
    r"(checkpoint|.*\.(meta|jsonl|json|txt|log|ya?ml|md|toml|cfg|csv|py|sh|lock|pbtxt|pb)|events\.out\..*"
    r"|.*\.bak-\d.*|\..*"
    # a Paddle program and the structured names beside its parameters
    r"|.*\.pdmodel|__model__|.*\.pdiparams\.info|__(variables|params)\.info__)",
    re.DOTALL,
)
#: What the files of checkpoints are called, in any format.
SUFFIXES = {suffix for row in FORMATS for suffix in row.suffixes}
#: Those of them that files of any kind have.
_ANYTHING = {".bz2", ".gz", ".index", ".json", ".lzma", ".p", ".tar", ".ts", ".xz", ".z"}
#: Directories deeper than that below the one that is asked about are not looked into.
_DEEPEST = 12
#: Checkpoints named in one sentence.
_NAMED = 8

Member = tuple[Location, "Format | CkptError"]


def resolve(location: Location) -> list[Member]:
    """The checkpoints that a location stands for: itself, or all that lie below a directory that is none itself.

    Raises when there is none.
    """
    if location.is_directory and recognise(location) is None:
        found = list(below(location.path))
        if found:
            return found
    return [(location, detect(location))]


def only(location: Location) -> tuple[Location, Format]:
    """The one checkpoint that a location stands for. UsageError with their names when a directory holds several."""
    found = resolve(location)
    if len(found) > 1:
        names = ", ".join(member.shown for member, _ in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise UsageError(
            f"a directory with {len(found)} checkpoints, of which one has to be named: {names}{more}",
            where=location.shown,
        )
    member, row = found[0]
    if isinstance(row, CkptError):
        raise row
    return member, row


def members(directory: Path, *, strangers: bool = False) -> Iterator[Member]:
    """The checkpoints directly inside ``directory``, by name; what is damaged or cannot be opened comes with its error.

    Files that are no checkpoint, and shards whose index is listed, are passed over. ``strangers``: those that are named
    like one come with an error that says what they are. UnreadableInput when the directory cannot be listed.
    """
    with damage(str(directory)):
        names = sorted((entry.name for entry in os.scandir(directory)), key=natural_order)
    prefixes = {name.removesuffix(".index") for name in names if name.endswith(".index")}
    for name in names:
        shard = SHARD.fullmatch(name)
        if _COMPANIONS.fullmatch(name) or (shard and shard["prefix"] in prefixes):
            continue
        path = directory / name
        shown = str(path).removesuffix(".index")
        try:
            if shard:
                prefixes.add(shard["prefix"])  # told of once
                shown = str(directory / shard["prefix"])
                raise MissingInput("the data of a TensorFlow checkpoint without its index", where=shown)
            if not _may_hold_data(path):
                if strangers and _is_named_like_one(path) and path.exists():
                    raise UnreadableInput("a device, socket or pipe, not a regular file", where=shown)
                continue
            location = at(path, shown=shown)
            row = recognise(location)
            if row is None and strangers and not location.is_directory:
                from ckpt_tools.formats import _foreign

                error = _foreign.explain(location)
                if _is_named_like_one(path) or (isinstance(error, Placeholder) and path.suffix.lower() in SUFFIXES):
                    raise error
        except CkptError as error:
            yield Location(path, shown, path.is_dir()), error
            continue
        if row is not None:
            yield location, row


def _is_named_like_one(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES - _ANYTHING


def _may_hold_data(path: Path) -> bool:
    """Whether this is a file or a directory. MissingInput for a link that is named like a checkpoint and dangles."""
    if path.is_file() or path.is_dir():
        return True
    if path.is_symlink() and not path.exists():
        target = path.readlink()
        if SUFFIXES & {path.suffix.lower(), target.suffix.lower()}:
            raise MissingInput(f"a link to {target}, which leads nowhere", where=str(path))
    return False


def below(directory: Path, depth: int = _DEEPEST, *, strangers: bool = False) -> Iterator[Member]:
    """The checkpoints anywhere below ``directory``, and ``strangers`` as :func:`members` has them; hidden directories and
    links to directories are not entered."""
    found = list(members(directory, strangers=strangers))
    yield from found
    taken = {location.path for location, _ in found}
    if not depth:
        return
    with damage(str(directory)):
        folders = [entry.path for entry in os.scandir(directory) if _is_entered(entry)]
    for folder in sorted(folders, key=natural_order):
        path = Path(folder)
        if path in taken:
            continue
        try:
            yield from below(path, depth - 1, strangers=strangers)
        except UnreadableInput as error:
            yield Location(path, folder, True), error


def _is_entered(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")


def latest(directory: Path) -> Path | None:
    """The file of the checkpoint that TensorFlow's state file in ``directory`` names as the latest; None without one.

    UnreadableInput when the state file is damaged, or the checkpoint is not there.
    """
    from ckpt_tools.formats import _tf_places

    state = directory / _tf_places.STATE_FILE
    try:
        location = at(state) if state.is_file() else None
    except CkptError:
        return None
    if location is None:
        return None
    with damage(location.shown):
        place = _tf_places.resolve(location)
    return None if place is None else place.path
