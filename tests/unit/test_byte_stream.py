"""Bytes reach the file in order, whichever thread writes them, and what goes wrong is told."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from ckpt_tools.core.byte_stream import ByteStream
from ckpt_tools.core.limits import KIB, MIB


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_bytes_of_all_lengths_arrive_in_order_and_are_counted(tmp_path: Path) -> None:
    data = os.urandom(MIB) * 40
    told: list[int] = []
    fd = opened(tmp_path / "x")
    stream = ByteStream(fd, told.append)
    at = 0
    for length in (0, 1, 5, 256 * KIB - 6, 256 * KIB, 3, 9 * MIB, 4 * MIB, 300 * KIB, 7, len(data)):
        stream.write(memoryview(data)[at : at + length])
        at = min(at + length, len(data))
        assert stream.position == at
    stream.flush()
    stream.close()
    os.close(fd)
    assert (tmp_path / "x").read_bytes() == data
    assert sum(told) == len(data)


def test_progress_is_told_by_the_thread_that_writes_to_the_stream(tmp_path: Path) -> None:
    threads = set()
    fd = opened(tmp_path / "x")
    stream = ByteStream(fd, lambda nbytes: threads.add(threading.current_thread()))
    for _ in range(10):
        stream.write(bytes(4 * MIB))
    stream.flush()
    stream.close()
    os.close(fd)
    assert threads == {threading.current_thread()}


def test_what_the_system_refuses_on_the_other_thread_is_raised(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    fd = opened(tmp_path / "x")
    stream = ByteStream(fd)
    resource.setrlimit(resource.RLIMIT_FSIZE, (24 * MIB, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            for _ in range(20):
                stream.write(bytes(4 * MIB))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    stream.close()
    os.close(fd)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
