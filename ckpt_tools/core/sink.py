"""The one way files are written: whole, or not at all.

Bytes go to a hidden sibling named with this process's id; when they are complete and on the disk, one rename puts them
in place. Whatever happens before leaves the destination as it was. What a killed process leaves behind is removed by
the next :class:`Sink` for the same destination; siblings of living processes stay.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import TracebackType

from ckpt_tools.core.byte_stream import ByteStream, Progress
from ckpt_tools.core.limits import MIB
from ckpt_tools.errors import WriteRefused

#: What is copied is read in pieces of this.
_PIECE_NBYTES = 4 * MIB
#: File systems allow 255 bytes in a name; what is put around it (process id, mark) takes up to 40.
_LONGEST_NAME = 200
_NO_ROOM = {
    errno.ENOSPC: "no room is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than is allowed",
}
#: Not every file system can sync a directory, and none loses what was renamed because of that.
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}

_unfinished: set[str] = set()  # temporary files of this process; others that carry its id are a dead namesake's


def destination(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Where writing to ``path`` really writes: links are followed. WriteRefused when nothing may be written there."""
    target = Path(os.path.realpath(path))
    where = os.fspath(path)
    try:
        # asked of the path itself: pipes have no other, and what links in /proc say of them is no path
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return target
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise WriteRefused("is a link that leads back to itself", where=where) from None
        raise _refused(error, where) from error
    if stat.S_ISDIR(mode):
        raise WriteRefused("is a directory, a file was to be written there", where=where)
    if not stat.S_ISREG(mode):
        raise WriteRefused("is a device, socket or pipe, not a regular file", where=where)
    if not overwrite:
        raise _exists(where)
    return target


def is_directory(path: str | os.PathLike[str]) -> bool:
    """Whether ``path``, where something is to be written, is a directory. WriteRefused for a name that nothing can have."""
    with _refusals(os.fspath(path)):
        return Path(path).is_dir()


class Sink:
    """A file that is being written; as a context manager it is put in place at the end, or forgotten on an exception.

    ``overwrite`` allows any file to be replaced, ``replaces`` only the one with this status, as long as it has it.
    ``nbytes``, when known, is checked against the room on the device first. ``progress`` is told how many bytes were
    written since it was told last. A file that is replaced passes on its mode and, where this user may, its owner;
    a new one gets what the umask says. Missing parents are made. Everything that cannot be done is a WriteRefused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        replaces: os.stat_result | None = None,
        nbytes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.where = os.fspath(path)
        self.target = destination(path, overwrite=overwrite or replaces is not None)
        self.overwrite = overwrite
        self.replaces = replaces
        self._fd = -1
        self._made: list[Path] = []
        #: the sibling that holds the bytes meanwhile
        self.temporary = self.target.with_name(f"{_mark(self.target.name)}{os.getpid()}.tmp")
        try:
            with _refusals(self.where):
                self._make_parents()
                _remove_leftovers(self.target)
                require_room(self.target.parent, nbytes or 0)
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self.temporary, flags, 0o666)
                _unfinished.add(os.fspath(self.temporary))
            self._stream = ByteStream(self._fd, progress)
        except BaseException:
            self.discard()
            raise

    @property
    def position(self) -> int:
        """Bytes that were written so far."""
        return self._stream.position

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes, which the caller does not change afterwards."""
        with _refusals(self.where):
            self._stream.write(data)

    def finish(self) -> None:
        """Bring everything to the disk, with the mode and owner it shall have; :meth:`publish` may follow."""
        if self._fd < 0:
            return
        with _refusals(self.where):
            self._stream.flush()
            self._take_after(self.target)
            os.fsync(self._fd)
            self._close()

    def publish(self) -> None:
        """Put the finished file in place."""
        if self.replaces is not None:
            require_unchanged(self.target, self.replaces, self.where)
        elif not self.overwrite and os.path.lexists(self.target):
            raise _exists(self.where)
        with _refusals(self.where):
            self.temporary.replace(self.target)
        _unfinished.discard(os.fspath(self.temporary))
        self._made = []
        sync_directory(self.target.parent)

    def discard(self) -> None:
        """Forget the file, unless it is in place, and the directories that were made for it."""
        self._close()
        if os.fspath(self.temporary) in _unfinished:
            self.temporary.unlink(missing_ok=True)
            _unfinished.discard(os.fspath(self.temporary))
        for directory in reversed(self._made):
            try:
                directory.rmdir()
            except OSError:  # somebody else put something there meanwhile
                break

    def _make_parents(self) -> None:
        missing, directory = [], self.target.parent
        while not directory.exists():
            missing.append(directory)
            directory = directory.parent
        for parent in reversed(missing):
            parent.mkdir(exist_ok=True)
            self._made.append(parent)

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._stream.close()
            os.close(fd)

    def _take_after(self, old: Path) -> None:
        """Owner and mode of the file that will be replaced, if there is one."""
        try:
            status = old.stat()
        except FileNotFoundError:
            return
        mine = os.fstat(self._fd)
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            for owner in ((status.st_uid, status.st_gid), (-1, status.st_gid)):
                try:
                    os.fchown(self._fd, *owner)
                    break
                except PermissionError:
                    continue
        os.fchmod(self._fd, stat.S_IMODE(status.st_mode))

    def __enter__(self) -> Sink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
                self.publish()
        finally:
            self.discard()


class SinkSet:
    """Several files that make sense together through one of them, the index: all are put in place, the index last.

    Where an older set is replaced, its index goes first: a kill between leaves no index, never an index of one set with
    parts of another. Sinks are asked for with :meth:`part` and :meth:`index`, and finished by the set.
    """

    def __init__(
        self,
        index: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        nbytes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._overwrite = overwrite
        self._progress = progress
        self._parts: list[Sink] = []
        self._index = Sink(index, overwrite=overwrite, nbytes=nbytes, progress=progress)

    @property
    def index(self) -> Sink:
        """The file that the others are found through."""
        return self._index

    def part(self, path: str | os.PathLike[str]) -> Sink:
        """A further file of the set."""
        sink = Sink(path, overwrite=self._overwrite, progress=self._progress)
        self._parts.append(sink)
        return sink

    @property
    def sinks(self) -> list[Sink]:
        """Every file of the set, the index last."""
        return [*self._parts, self._index]

    def finish(self) -> None:
        """Bring all files to the disk, under their temporary names."""
        for sink in self.sinks:
            sink.finish()

    def __enter__(self) -> SinkSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            for sink in (*self._parts, self._index):
                sink.discard()

    def _publish(self) -> None:
        self.finish()
        if self._overwrite:
            with _refusals(self._index.where):
                self._index.target.unlink(missing_ok=True)
            sync_directory(self._index.target.parent)
        for sink in self._parts:
            sink.publish()
        self._index.publish()


def write_file(path: str | os.PathLike[str], pieces: Iterable[bytes], *, overwrite: bool) -> None:
    """Write a file from pieces of bytes, whole or not at all."""
    with Sink(path, overwrite=overwrite) as sink:
        for piece in pieces:
            sink.write(piece)


@contextmanager
def staged(sinks: Sequence[Sink]) -> Iterator[Path]:
    """A directory in which finished files that are not in place yet stand under their final names, as links.

    So a set can be opened and checked as a whole before any of it is seen. The directory lies beside the last of them.
    """
    last = sinks[-1].target
    directory = last.with_name(f"{_mark(last.name)}{os.getpid()}.tmp.d")
    with _refusals(sinks[-1].where):
        directory.mkdir()
    try:
        with _refusals(sinks[-1].where):
            for sink in sinks:
                (directory / sink.target.name).symlink_to(sink.temporary)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def backup(path: str | os.PathLike[str]) -> Path:
    """Keep what ``path`` holds now as ``<name>.bak-<time>`` beside it, under a name nothing has; returns that name.

    A second name for the same file where the file system has those: a :class:`Sink` gives the path to a new file.
    """
    target = destination(path, overwrite=True)
    for kept in _backup_names(target):
        try:
            os.link(target, kept)
        except FileExistsError:
            continue
        except FileNotFoundError as error:
            raise _refused(error, os.fspath(path)) from error
        except OSError:
            if os.path.lexists(kept):
                continue
            _copy(target, kept)
        return kept
    raise AssertionError


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    before: os.stat_result | None,
    *,
    keep_backup: bool,
    nbytes: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Sink, Path | None]]:
    """A sink for the new content of a file that had the status ``before`` (None: there was none), and its backup."""
    kept = backup(path) if keep_backup and before is not None else None
    try:
        with Sink(path, replaces=before, nbytes=nbytes, progress=progress) as out:
            yield out, kept
    except BaseException:
        if kept is not None:
            kept.unlink(missing_ok=True)
        raise


def relink(path: str | os.PathLike[str], target: str, *, replaces: os.stat_result, keep_backup: bool) -> Path | None:
    """Let the symbolic link ``path``, of which ``replaces`` is the status, lead to ``target``, in one step.

    Returns where the old link is kept, if it is.
    """
    link = Path(os.path.realpath(Path(path).parent), Path(path).name)
    temporary = link.with_name(f"{_mark(link.name)}{os.getpid()}.tmp")
    kept: Path | None = None
    with _refusals(os.fspath(path)):
        _remove_leftovers(link)
        require_unchanged(link, replaces, os.fspath(path))
        if keep_backup:
            kept = next(name for name in _backup_names(link) if not os.path.lexists(name))
            kept.symlink_to(link.readlink())
        temporary.symlink_to(target)
        temporary.replace(link)
    sync_directory(link.parent)
    return kept


def _backup_names(target: Path) -> Iterator[Path]:
    base = f"{target.name}.bak-{time.strftime('%Y%m%d-%H%M%S')}"
    yield target.with_name(base)
    for number in count(1):
        yield target.with_name(f"{base}-{number}")


#: Names of what this module leaves beside a file: backups, and temporary files of killed processes.
LEFT_BESIDE = re.compile(r".*\.bak-\d{8}-\d{6}(-\d+)?|\..*\.ckpt-\d+\.tmp", re.DOTALL)


def _copy(source: Path, target: Path) -> None:
    with _refusals(os.fspath(source)), source.open("rb") as old:
        status = os.fstat(old.fileno())
        with Sink(target, nbytes=status.st_size) as new:
            while piece := old.read(_PIECE_NBYTES):
                new.write(piece)
            new.temporary.chmod(stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def require_unchanged(path: Path, before: os.stat_result, where: str) -> None:
    """WriteRefused when ``path`` is not the file, or the link, that had the status ``before``."""
    try:
        now = path.lstat()
    except FileNotFoundError:
        raise WriteRefused("was removed while it was looked at", where=where) from None
    if (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) != (
        before.st_dev,
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    ):
        raise WriteRefused(
            "changed while it was looked at", where=where, hint="stop the training that writes it, then run this again"
        )


def require_room(directory: Path, nbytes: int) -> None:
    """WriteRefused when the device of ``directory`` has less than ``nbytes`` free."""
    free = shutil.disk_usage(directory).free
    if free < nbytes:
        raise WriteRefused(f"{nbytes} bytes are to be written, {free} are free on the device", where=str(directory))


def sync_directory(directory: Path) -> None:
    """Bring the names in ``directory`` to the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise _refused(error, str(directory)) from error
    finally:
        os.close(fd)


def _mark(name: str) -> str:
    """How the names of temporary files for ``name`` begin."""
    raw = os.fsencode(name)
    if len(raw) > _LONGEST_NAME:
        name = sha256(raw).hexdigest()
    return f".{name}.ckpt-"


def _remove_leftovers(target: Path) -> None:
    pattern = re.compile(re.escape(_mark(target.name)) + r"(\d+)\.tmp(\.d)?", re.DOTALL)
    with os.scandir(target.parent) as entries:
        found = [(entry.path, match) for entry in entries if (match := pattern.fullmatch(entry.name))]
    for path, match in found:
        if path in _unfinished or _is_alive(int(match[1])):
            continue
        if match[2]:
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)


def _is_alive(process_id: int) -> bool:
    if process_id == os.getpid():
        return False
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _exists(where: str) -> WriteRefused:
    return WriteRefused("exists already", where=where, hint="--overwrite replaces it")


def _refused(error: OSError, where: str) -> WriteRefused:
    reason = _NO_ROOM.get(error.errno or 0) or f"cannot be written: {error.strerror or error}"
    return WriteRefused(reason, where=where)


@contextmanager
def _refusals(where: str) -> Iterator[None]:
    """Say what the system refused in one sentence."""
    try:
        yield
    except OSError as error:
        raise _refused(error, where) from error
