"""The documents tell what is there: every command, every format; README's console examples print what they show."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from ckpt_tools.formats.table import FORMATS

ROOT = Path(__file__).resolve().parent.parent.parent


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_examples = load("make_examples")


def test_the_page_of_commands_is_what_they_print() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == load("make_commands").render(), "python docs/make_commands.py"


@pytest.mark.parametrize("name", [row.name for row in FORMATS if not row.of_parts])
def test_every_format_has_its_page(name: str) -> None:
    titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in (ROOT / "docs" / "formats").glob("*.md")]
    assert any(re.search(rf"\b{re.escape(name)}\b", title) for title in titles)


def examples() -> list[tuple[str, str]]:
    """(command, output shown) of every console block of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [pair for block in make_examples.BLOCK.findall(text) for pair in make_examples.commands(block)]


@pytest.mark.parametrize(("command", "output"), examples(), ids=lambda text: text[:40])
def test_readme_shows_what_is_printed(command: str, output: str) -> None:
    # ages depend on when the files were laid out
    age = re.compile(r" +\d+ (?:s|min|h|d)(?= |$)", re.MULTILINE)
    assert age.sub(" -", make_examples.run(command)) == age.sub(" -", output), "python docs/make_examples.py"
