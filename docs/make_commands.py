"""Write docs/commands.md: the help of every command, as the program prints it."""

from __future__ import annotations

import sys
from pathlib import Path

from typer.testing import CliRunner

from ckpt_tools.cli.app import app

TARGET = Path(__file__).with_name("commands.md")
_WIDTH = "100"


def render() -> str:
    """The page."""
    names = [command.name for command in app.registered_commands]
    pages = ["# Commands", "", "Written by `python docs/make_commands.py`.", ""]
    for name in names:
        assert name is not None
        result = CliRunner().invoke(app, [name, "--help"], prog_name="ckpt", env={"COLUMNS": _WIDTH, "TERM": "dumb"})
        pages += [f"## ckpt {name}", "", "```text", result.stdout.strip("\n"), "```", ""]
    return "\n".join(pages)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
    sys.exit(0)
