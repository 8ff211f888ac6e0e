"""Keys and their names.

A key is the path of a leaf, a tuple of text and whole numbers, as stored. A name is how people read and type it: the
parts joined by ``/``. Names are given to all keys of one checkpoint together, since only there can they clash.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

Key = tuple["str | int", ...]

#: The name of a leaf that is the whole checkpoint: a lone array, a pickled object. Its key is empty.
ROOT_NAME = "."

# C0 and C1 controls, DEL, the backslash that begins an escape only when one follows, separators that break lines,
# and the marks that turn the direction of text: none of them may reach a terminal as they are.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """``text`` with control, direction and unencodable characters written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable_json(text: str) -> str:
    """JSON text with the same characters as the escapes that JSON has for them."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def plain_name(key: Key) -> str:
    """The parts joined by ``/``, escaped for printing; two keys can share it, see :func:`names_of`."""
    return printable("/".join(map(str, key))) if key else ROOT_NAME


def quoted_name(key: Key) -> str:
    """Text parts in JSON quotes, numbers bare: no two keys share it."""
    return "/".join(str(part) if isinstance(part, int) else json.dumps(part) for part in key) or ROOT_NAME


def names_of(keys: Sequence[Key]) -> list[str]:
    """One name for each key, all different: plain where that is unique, quoted where it is not."""
    names = [plain_name(key) for key in keys]
    counts = Counter(names)
    quote = {i for i, name in enumerate(names) if counts[name] > 1 or not name}
    while quote:
        for i in quote:
            names[i] = quoted_name(keys[i])
        counts = Counter(names)
        clashing = {i for i, name in enumerate(names) if counts[name] > 1}
        if clashing <= quote:
            break
        quote |= clashing
    return names


def renamed_key(name: str, key: Key) -> Key:
    """The key that a new name stands for: one part where the old key had one, else parts between slashes.

    Parts at either end that the renaming left alone stay what they were, numbers among them.
    """
    if len(key) <= 1:
        return (name,)
    parts: list[str | int] = list(name.split("/"))
    for front in range(min(len(parts), len(key))):
        if parts[front] != str(key[front]):
            break
        parts[front] = key[front]
    for back in range(1, min(len(parts), len(key)) + 1):
        if str(parts[-back]) != str(key[-back]):
            break
        parts[-back] = key[-back]
    return tuple(parts)


#: Names that one sentence lists before it only counts them.
SHOWN_NAMES = 8


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """The first of the names as a part of a sentence, and how many there are besides."""
    more = len(names) - SHOWN_NAMES
    shown = separator.join(names[:SHOWN_NAMES])
    return f"{shown}{separator if separator.strip() != ',' else ' '}and {more} more" if more > 0 else shown


_DIGITS = re.compile(r"(\d+)")


def natural_order(name: str) -> tuple[object, ...]:
    """A sort key that puts ``layer.10`` after ``layer.9``, and numbers before letters."""
    return tuple(
        (0, int(piece), "") if piece.isdecimal() and len(piece) < 20 else (1, 0, piece)
        for piece in _DIGITS.split(name)
        if piece
    )


class Globs:
    """Which names ``--match`` and ``--exclude`` let through.

    A glob matches a whole name or its end from any part on; parts begin after ``/`` and, inside a part, after ``.``.
    """

    def __init__(self, match: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._match = [_compiled(glob) for glob in match]
        self._exclude = [_compiled(glob) for glob in exclude]

    def __call__(self, name: str) -> bool:
        if self._match and not any(pattern.search(name) for pattern in self._match):
            return False
        return not any(pattern.search(name) for pattern in self._exclude)


def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(r"(?:^|(?<=[/.]))(?:" + fnmatch.translate(glob) + ")", re.DOTALL)
