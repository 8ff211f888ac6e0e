"""Python literals as numpy writes them into headers: dicts, lists, tuples, texts, whole numbers, True, False, None.

``ast.literal_eval`` builds a syntax tree first, whose depth a file could drive beyond the C stack; here nesting is
bounded and only single texts go through it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ckpt_tools.errors import CorruptFile, LimitExceeded

#: Records within records nest once for each level.
_DEEPEST = 64
#: Dimensions and sizes are 64-bit; what is longer is no size.
_LONGEST_NUMBER = 40

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>[ub]?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    | (?P<number>\d+)L?     # Python 2 wrote long integers with an L
    | (?P<word>True|False|None)
    | (?P<mark>[{}()\[\],:])
    )\s*""",
    re.VERBOSE,
)
_WORDS = {"True": True, "False": False, "None": None}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def parsed(text: str) -> Any:
    """The value of a literal. CorruptFile when it is none of the kinds above."""
    tokens = _tokens(text)
    value = _value(tokens, next(tokens), 0)
    if next(tokens) != ("end", ""):
        raise CorruptFile("text follows the literal")
    return value


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CorruptFile(f"no Python literal at character {at}: {text[at : at + 20]!r}")
        at = match.end()
        assert match.lastgroup is not None
        yield match.lastgroup, match[match.lastgroup]
    while True:
        yield "end", ""


def _value(tokens: Iterator[tuple[str, str]], token: tuple[str, str], depth: int) -> Any:
    kind, text = token
    if kind == "text":
        try:
            return ast.literal_eval(text)
        except SyntaxError as error:  # zero bytes, escapes that are none
            raise CorruptFile(f"a text that Python does not read: {error.msg}") from None
    if kind == "number":
        if len(text) > _LONGEST_NUMBER:
            raise LimitExceeded(f"a number of {len(text)} digits")
        return int(text)
    if kind == "word":
        return _WORDS[text]
    if kind == "mark" and text in _CLOSING:
        if depth >= _DEEPEST:
            raise LimitExceeded(f"a literal nested deeper than {_DEEPEST}")
        return _container(tokens, text, depth + 1)
    raise CorruptFile(f"{text!r} where a value is expected" if text else "the literal ends too early")


def _container(tokens: Iterator[tuple[str, str]], opening: str, depth: int) -> Any:
    items: list[Any] = []
    closing = ("mark", _CLOSING[opening])
    comma = False
    token = next(tokens)
    while token != closing:
        item = _value(tokens, token, depth)
        if opening == "{":
            if not isinstance(item, (str, bytes)):
                raise CorruptFile("a key that is no text")
            if next(tokens) != ("mark", ":"):
                raise CorruptFile("a key without a colon")
            item = (item, _value(tokens, next(tokens), depth))
        items.append(item)
        token = next(tokens)
        comma = token == ("mark", ",")
        if comma:
            token = next(tokens)
        elif token != closing:
            raise CorruptFile(f"{token[1]!r} where a comma is expected" if token[1] else "the literal ends too early")
    if opening == "{":
        return dict(items)
    if opening == "[":
        return items
    return items[0] if len(items) == 1 and not comma else tuple(items)
