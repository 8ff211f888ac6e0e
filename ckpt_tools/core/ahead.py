"""Pieces made on another thread while the one before is used."""

from __future__ import annotations

from collections.abc import Iterator


def ahead(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces; each is asked for as soon as the one before is handed out. Errors come where they belong."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece
