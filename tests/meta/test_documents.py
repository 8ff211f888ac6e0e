"""The documents tell what is there: every command, every format; README's console examples print what they show."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_tools.formats.table import FORMATS

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_page_of_commands_is_what_they_print() -> None:
    spec = importlib.util.spec_from_file_location("make_commands", ROOT / "docs" / "make_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hint = "python docs/make_commands.py"
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == module.render(), hint


@pytest.mark.parametrize("name", [row.name for row in FORMATS if not row.of_parts])
def test_every_format_has_its_page(name: str) -> None:
    titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in (ROOT / "docs" / "formats").glob("*.md")]
    assert any(re.search(rf"\b{re.escape(name)}\b", title) for title in titles)


def examples() -> list[tuple[str, str]]:
    """(command, output shown) of every console block of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = piece.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.parametrize(("command", "output"), examples(), ids=lambda text: text[:40])
def test_readme_shows_what_is_printed(
    command: str, output: str, ckpt: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """As on a terminal, without its colours."""
    words = shlex.split(command)
    assert words[0] == "ckpt"
    done = ckpt(*words[1:], "--color", cwd=ROOT)
    assert plain(done.stdout) == plain(output)


def plain(text: str) -> str:
    """Without colours, blanks at the ends of lines, and ages, which depend on when the files were laid out."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r" +\d+ (?:s|min|h|d)(?= |$)", " -", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines())
