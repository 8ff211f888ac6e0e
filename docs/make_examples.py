"""Fill the console blocks of README.md with what their commands print on a terminal, without its colours."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def commands(block: str) -> list[tuple[str, str]]:
    """(command, output) of each command of a block."""
    pieces = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(piece.partition("\n")[0], piece.partition("\n")[2]) for piece in pieces]


def run(command: str) -> str:
    """What a command prints, blanks at the ends of lines left out."""
    words = shlex.split(command)
    if words[0] != "ckpt":
        raise SystemExit(f"not a command of ours: {command}")
    done = subprocess.run(
        [sys.executable, "-m", "ckpt_tools", *words[1:], "--color"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "110"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "".join(line.rstrip() + "\n" for line in _COLOURS.sub("", done.stdout).splitlines())


def main() -> None:
    """Rewrite README.md."""
    text = README.read_text(encoding="utf-8")
    filled = BLOCK.sub(
        lambda match: "```console\n" + "".join(f"$ {c}\n{run(c)}" for c, _ in commands(match[1])) + "```", text
    )
    README.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    main()
