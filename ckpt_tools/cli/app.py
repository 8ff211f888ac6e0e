"""``ckpt``: the commands put together, and the one place that turns errors into exit codes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from ckpt_tools import __version__
from ckpt_tools.cli import convert, diff, fix_paths, formats, ls, show, spec, stats, truncate_stats, verify
from ckpt_tools.cli.boundary import exits_cleanly

_OBJECTS_BETWEEN_COLLECTIONS = 500_000

app = typer.Typer(
    name="ckpt",
    help="Inspect, compare, convert, repair and verify checkpoints of PyTorch, PaddlePaddle, TensorFlow and their kin."
    " Nothing from a file is ever executed, and no framework has to be installed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        print(f"ckpt {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


_COMMANDS: dict[str, Callable[..., int | None]] = {
    "ls": ls.ls,
    "show": show.show,
    "diff": diff.diff,
    "spec": spec.spec,
    "convert": convert.convert,
    "verify": verify.verify,
    "fix-paths": fix_paths.fix_paths,
    "truncate-stats": truncate_stats.truncate_stats,
    "stats": stats.stats,
    "formats": formats.formats,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(exits_cleanly(_command))


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
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
