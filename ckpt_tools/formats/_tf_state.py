r"""The ``checkpoint`` state file of TensorFlow, parsed so that it can be edited without touching the rest.

It is a ``CheckpointState`` message (tensorflow/python/training/checkpoint_state.proto) in the protocol buffer text
format: fields may be repeated or written as a ``[list]``, separated by ``,`` or ``;`` or nothing; strings are in single
or double quotes, adjacent ones are joined; ``\n``, ``\\``, octal, ``\x`` and ``\u`` escapes count; ``#`` begins
a comment. Of a singular field the last value counts. Whatever is not in the message makes TensorFlow ignore the whole
file: such places are collected as :class:`Problem` and stepped over, a line at a time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_tools.errors import CorruptFile

LATEST = "model_checkpoint_path"
ALL = "all_model_checkpoint_paths"
TIMESTAMPS = "all_model_checkpoint_timestamps"
PRESERVED = "last_preserved_timestamp"

_IS_TEXT = {LATEST: True, ALL: True, TIMESTAMPS: False, PRESERVED: False}
_REPEATED = {ALL, TIMESTAMPS}

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][0-9A-Za-z_+-]*")
_SCALAR = re.compile(r"[-+.]?[0-9A-Za-z_][0-9A-Za-z_.+-]*")
_QUOTES = ('"', "'")
_LITERAL = re.compile(r"""(["'])((?:[^\\\n]|\\[^\n])*?)\1""")
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<code>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})"
    r"|[xuUN]|(?P<one>.))"
)
_ONE_CHARACTER = {
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
    "\\": b"\\",
    "'": b"'",
    '"': b'"',
}
_WRITTEN = {ord("\t"): r"\t", ord("\n"): r"\n", ord("\r"): r"\r", ord('"'): r"\"", ord("'"): r"\'", ord("\\"): r"\\"}
_WRITTEN |= {code: f"\\{code:03o}" for code in (*range(32), 127) if code not in _WRITTEN}


@dataclass(frozen=True)
class Value:
    """One value of a field: where it is written (all its literals), the line where it begins, from 1."""

    field: str
    content: Any  # str or float
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Field:
    """A field as written, with the separator behind it. ``brackets`` is the place of a ``[list]``."""

    name: str
    line: int
    start: int
    end: int
    values: tuple[Value, ...]
    brackets: tuple[int, int] | None = None


@dataclass(frozen=True)
class Problem:
    """A place for which TensorFlow ignores the file."""

    line: int
    start: int
    end: int
    message: str


@dataclass(frozen=True)
class State:
    """A parsed state file. ``text`` is all of it; spans count its characters."""

    text: str
    fields: tuple[Field, ...]
    problems: tuple[Problem, ...]

    def values(self, name: str) -> list[Value]:
        """All values of a field, in order."""
        return [value for field in self.fields if field.name == name for value in field.values]

    @property
    def latest(self) -> str | None:
        """What ``model_checkpoint_path`` says, which a training resumes from; relative to the file's directory."""
        values = self.values(LATEST)
        return values[-1].content or None if values else None

    @property
    def paths(self) -> list[str]:
        """``all_model_checkpoint_paths``, oldest first."""
        return [value.content for value in self.values(ALL)]

    @property
    def timestamps(self) -> list[float]:
        """``all_model_checkpoint_timestamps``: the n-th belongs to the n-th path."""
        return [value.content for value in self.values(TIMESTAMPS)]

    def edited(
        self, *, replaced: Mapping[Value, str], removed: Collection[Value] = (), dropped: Collection[Problem] = ()
    ) -> str:
        """The text with other strings in some places and some values or problems taken out; the rest stays as it is."""
        edits: list[tuple[int, int, str]] = [(*self._with_line(p.start, p.end), "") for p in dropped]
        for field in self.fields:
            kept = [value for value in field.values if value not in removed]
            if field.values and not kept:
                edits.append((*self._with_line(field.start, field.end), ""))
            elif len(kept) < len(field.values) and field.brackets:
                start, end = field.brackets
                written = (self._literal(v, replaced[v]) if v in replaced else self.text[v.start : v.end] for v in kept)
                edits.append((start, end, f"[{', '.join(written)}]"))
            else:
                edits += [(v.start, v.end, self._literal(v, replaced[v])) for v in kept if v in replaced]
        pieces, at = [], 0
        for start, end, new in sorted(edits):
            pieces += [self.text[at : max(at, start)], new]
            at = max(at, end)
        return "".join(pieces) + self.text[at:]

    def _literal(self, old: Value, content: str) -> str:
        """``content`` in the manner of the value it replaces: its quote, and its escapes beyond ASCII."""
        before = self.text[old.start : old.end]
        escaped = before.isascii() and not str(old.content).isascii()
        return quoted(content, quote=before[0], ascii_only=escaped)

    def _with_line(self, start: int, end: int) -> tuple[int, int]:
        """The span, and the whole lines it is on when nothing else but blanks and a comment is there."""
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", end)
        line_end = len(self.text) if line_end < 0 else line_end + 1
        rest = self.text[end:line_end].strip()
        if self.text[line_start:start].strip() or (rest and not rest.startswith("#")):
            return start, end
        return line_start, line_end


def quoted(content: str, *, quote: str = '"', ascii_only: bool = False) -> str:
    """A string literal as TensorFlow writes it; ``ascii_only`` as it wrote it once, with octal beyond ASCII."""
    text = content.translate(_WRITTEN)
    if ascii_only:
        text = "".join(c if c.isascii() else "".join(f"\\{byte:03o}" for byte in c.encode()) for c in text)
    return f"{quote}{text}{quote}"


def looks_like(head: bytes) -> bool:
    """Whether a file that begins so is a state file: it names the field, and a string follows."""
    return re.search(rb"\b(?:all_)?model_checkpoint_paths?\s*:\s*\[?\s*[\"']", head) is not None


def parse(data: bytes) -> State:
    """Parse a state file. CorruptFile when it is no UTF-8 text; everything else that is wrong is a problem in it."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFile(
            f"the state file is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        ) from None
    return _Parser(text).state()


class _Unparsed(Exception):
    """The text at this place is not in the grammar."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0  # where the next token begins
        self.end = 0  # where the last one ended
        self._line, self._counted = 1, 0

    def state(self) -> State:
        fields: list[Field] = []
        problems: list[Problem] = []
        self._advance(0)
        while self.at < len(self.text):
            start, line = self.at, self._line_of(self.at)
            try:
                field = self._field(start, line)
            except _Unparsed as error:
                end = self.text.find("\n", self.at)
                self._advance(len(self.text) if end < 0 else end)
                problems.append(Problem(line, start, self.end, str(error)))
            else:
                if field.name in _IS_TEXT:
                    fields.append(field)
                else:
                    message = f"the message has no field {field.name[:60]}"
                    problems.append(Problem(line, start, field.end, message))
        return State(self.text, tuple(fields), tuple(problems))

    def _line_of(self, position: int) -> int:
        self._line += self.text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def _advance(self, end: int) -> None:
        """A token ended at ``end``: go on behind the blanks and comments that follow."""
        match = _BLANK.match(self.text, end)
        assert match is not None
        self.end, self.at = end, match.end()

    def _take(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            found = self.text[self.at : self.at + 20].split("\n", 1)[0]
            raise _Unparsed(f"{what} is expected, found {found!r}" if found.strip() else f"{what} is missing")
        self._advance(match.end())
        return match[0]

    def _try(self, *marks: str) -> bool:
        found = self.text.startswith(marks, self.at)
        if found:
            self._advance(self.at + 1)
        return found

    def _field(self, start: int, line: int) -> Field:
        name = self._take(_IDENTIFIER, "a field name")
        values: list[Value] = []
        brackets = None
        if name not in _IS_TEXT:
            self._skip_contents()
        elif not self._try(":"):
            raise _Unparsed(f"a colon is missing after {name}")
        elif name in _REPEATED and self.text.startswith("[", self.at):
            opened = self.at
            self._try("[")
            while not self._try("]"):
                if values and not self._try(","):
                    raise _Unparsed(f"a comma or ] is missing in the list of {name}")
                values.append(self._value(name))
            brackets = (opened, self.end)
        else:
            values.append(self._value(name))
        if not self._try(","):
            self._try(";")
        return Field(name, line, start, self.end, tuple(values), brackets)

    def _value(self, name: str) -> Value:
        start, line = self.at, self._line_of(self.at)
        if not _IS_TEXT[name]:
            number = _number(self._take(_SCALAR, "a number"))
            return Value(name, number, line, start, self.end)
        pieces = []
        while match := _LITERAL.match(self.text, self.at):
            pieces.append(_unescaped(match[2]))
            self._advance(match.end())
        if self.text.startswith(_QUOTES, self.at):
            raise _Unparsed("a string without its closing quote")
        if not pieces:
            raise _Unparsed(f"{name} is not followed by a string")
        try:
            content = b"".join(pieces).decode("utf-8")
        except UnicodeDecodeError:
            raise _Unparsed("a string that is not UTF-8") from None
        return Value(name, content, line, start, self.end)

    def _skip_contents(self) -> None:
        """Whatever an unknown field may hold: scalars, lists and messages in any nesting."""
        self._try(":")
        depth = 0
        while True:
            if self._try("{", "<", "["):
                depth += 1
            elif depth and self._try("}", ">", "]"):
                depth -= 1
            elif match := _LITERAL.match(self.text, self.at):
                self._advance(match.end())
            elif not (depth and self._try(",", ";", ":")):
                self._take(_SCALAR, "a value")
            if not depth and not self.text.startswith(_QUOTES, self.at):
                return


def _number(written: str) -> float:
    try:
        return float(written)
    except ValueError:
        pass
    try:
        return float(written.rstrip("fF"))
    except ValueError:
        raise _Unparsed(f"{written[:20]!r} is no number") from None


def _unescaped(literal: str) -> bytes:
    pieces, at = [], 0
    for match in _ESCAPE.finditer(literal):
        pieces += [literal[at : match.start()].encode("utf-8"), _meaning(match)]
        at = match.end()
    return b"".join(pieces) + literal[at:].encode("utf-8")


def _meaning(escape: re.Match[str]) -> bytes:
    one, octal, digits = escape["one"], escape["octal"], escape["hex"]
    if one:
        # what it does not know, TensorFlow's parser leaves as it is
        return _ONE_CHARACTER.get(one, escape[0].encode("utf-8"))
    try:
        if octal or digits:
            return bytes([int(octal, 8) if octal else int(digits, 16)])
        return chr(int(escape["code"] or escape["long"] or "", 16)).encode("utf-8")
    except (ValueError, OverflowError):
        raise _Unparsed(f"an escape {escape[0][:12]} that means nothing") from None
