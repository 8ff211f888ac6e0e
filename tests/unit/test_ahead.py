"""Pieces that are made ahead are the same pieces, errors included."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ckpt_tools.core.ahead import ahead


def test_the_pieces_are_the_same() -> None:
    pieces = [bytes([n]) * n for n in range(9)]  # the first is empty, and no end
    assert list(ahead(iter(pieces))) == pieces
    assert list(ahead(iter([]))) == []


def test_an_error_comes_behind_the_pieces_before_it() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        raise ValueError("broken")

    running = ahead(pieces())
    assert [next(running), next(running)] == [b"a", b"b"]
    with pytest.raises(ValueError, match="broken"):
        next(running)


def test_the_next_piece_is_made_before_it_is_asked_for_and_none_after_that() -> None:
    made: list[int] = []
    second = threading.Event()

    def pieces() -> Iterator[bytes]:
        for number in range(5):
            made.append(number)
            if number == 1:
                second.set()
            yield b"x"

    running = ahead(pieces())
    next(running)
    assert second.wait(10)
    running.close()  # type: ignore[attr-defined]
    assert made == [0, 1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
