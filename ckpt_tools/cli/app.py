"""``ckpt``: the commands put together, and the one place that turns errors into exit codes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from ckpt_tools import __version__
from ckpt_tools.cli.boundary import exits_cleanly

_OBJECTS_BETWEEN_COLLECTIONS = 500_000

#: Each is a function of the same name in a module of the same name.
COMMANDS = (
    "ls",
    "show",
    "diff",
    "spec",
    "convert",
    "verify",
    "fix-paths",
    "truncate-stats",
    "stats",
    "formats",
)


def _version(value: bool) -> None:
    if value:
        print(f"ckpt {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def build(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The program with these commands."""
    app = typer.Typer(
        name="ckpt",
        help="Inspect, compare, convert, repair and verify checkpoints of PyTorch, PaddlePaddle, TensorFlow and their"
        " kin. Nothing from a file is ever executed, and no framework has to be installed.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for name in names:
        function = name.replace("-", "_")
        app.command(name)(exits_cleanly(getattr(import_module(f"ckpt_tools.cli.{function}"), function)))
    return app


def __getattr__(name: str) -> Any:
    """``app``: the whole program, made when somebody asks for it."""
    if name == "app":
        return build()
    raise AttributeError(name)


def _wanted(words: list[str]) -> Iterable[str]:
    """The one command that the words call; all of them when they ask for help or name none.

    The options of ten commands take Typer longer to put together than a listing takes.
    """
    first = next((word for word in words if not word.startswith("-")), None)
    return (first,) if first in COMMANDS else COMMANDS


def main() -> None:
    """Run the command line. Never returns."""
    # A checkpoint's tree is a hundred thousand small objects that all stay: collecting while it grows finds nothing.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # Python has None for a stream that was closed before it began.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - open as long as the process lives
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # What the terminal's encoding lacks is printed escaped, not refused half-way.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    build(_wanted(sys.argv[1:]))()
