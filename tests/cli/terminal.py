"""A terminal for tests: what a command prints when a person is looking."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def shown(*arguments: object, columns: int = 100, cwd: Path | None = None, **environment: str) -> tuple[int, str]:
    """Exit code and output of ``ckpt`` on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "ckpt_tools", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    pieces = []
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(ours)
    return process.wait(60), b"".join(pieces).decode("utf-8").replace("\r\n", "\n")
