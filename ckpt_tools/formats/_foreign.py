"""What a file is that is no checkpoint: the sentence people need when a download, a copy or a name went wrong."""

from __future__ import annotations

import re

from ckpt_tools.core.keys import printable
from ckpt_tools.core.location import Location
from ckpt_tools.errors import Placeholder, UnknownFormat
from ckpt_tools.formats import _wrapped

#: First bytes of files that get weights' names: what they are, and what to do.
_MAGICS: tuple[tuple[bytes, str, str | None], ...] = (
    (b"\x7fELF", "an executable or shared library", None),
    (b"\x89PNG", "a PNG image", None),
    (b"\xff\xd8\xff", "a JPEG image", None),
    (b"%PDF", "a PDF document", None),
    (b"Rar!", "a RAR archive", "unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "Zstandard-compressed data", "unpack it first: zstd -d FILE"),
    (b"\x04\x22\x4d\x18", "LZ4-compressed data", "unpack it first: lz4 -d FILE"),
    (b"ZF0x", "a pickle compressed by joblib before 0.10", "load and dump it with a recent joblib"),
    (b"GGUF", "a GGUF model of llama.cpp", None),
    (b"TFL3", "a TensorFlow Lite model", None),
    (b"SQLite format 3", "an SQLite database", None),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O binary", None),
)
_LFS = b"version https://git-lfs.github.com/spec/"
_TEXT_SAMPLE = re.compile(rb"[\t\n\r\f\x20-\x7e\x80-\xff]*")


def explain(location: Location) -> UnknownFormat:
    """An error that says what is there instead of a checkpoint."""
    if not location.is_directory:
        standing = _placeholder(location)
        if standing is not None:
            what, hint = standing
            return Placeholder(what, where=location.shown, hint=hint)
    what, hint = _describe(location)
    return UnknownFormat(what, where=location.shown, hint=hint)


def _placeholder(location: Location) -> tuple[str, str | None] | None:
    head = location.head
    if location.nbytes == 0:
        return "an empty file, not a checkpoint", "the save or the download never wrote it; fetch it again"
    if head.startswith(_LFS):
        size = re.search(rb"size (\d+)", head)
        of = f" of a file of {size[1].decode()} bytes" if size else ""
        return f"a Git LFS pointer{of}, not the file itself", "git lfs pull"
    if not head.strip(b"\0") and not location.tail.strip(b"\0"):
        return "a file of zero bytes throughout: space was reserved, nothing was written", None
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page, not a checkpoint", "the download saved a web page; use the file's direct link"
    if start.startswith((b"<?xml", b"<error")):
        return "an XML document, not a checkpoint", None
    return None


def _describe(location: Location) -> tuple[str, str | None]:
    head, suffix = location.head, location.suffix
    if location.is_directory:
        return "a directory without a checkpoint in it", None
    for magic, what, then in _MAGICS:
        if head.startswith(magic):
            return f"{what}, not a checkpoint", then
    wrapped = _wrapped.describe(location)
    if wrapped is not None:
        return wrapped
    if _TEXT_SAMPLE.fullmatch(head) and _is_text(head):
        return _describe_text(head.decode("utf-8", "replace"), suffix)
    shown = head[:8].hex(" ")
    return f"unknown format: {location.nbytes} bytes that begin with {shown}", "ckpt formats lists what can be read"


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.end >= len(head) - 3 and len(head) > 3
    return True


def _describe_text(text: str, suffix: str) -> tuple[str, str | None]:
    lines = text.splitlines() or [""]
    first = printable(lines[0][:80])
    if suffix == ".pth" and any(line.startswith(("import ", "import\t")) for line in lines):
        return "a Python path configuration file, not a checkpoint", None
    if len(lines) == 1 and re.fullmatch(r"[~.\w\-+=/\\: ]+", lines[0]) and ("/" in lines[0] or "." in lines[0]):
        return f"a text file that holds only a path ({first}), not a checkpoint", "give the file that it names"
    return f"a text file, not a checkpoint; it begins {first!r}", None
