"""How results reach people and scripts: a table on a terminal, tab-separated lines in a pipe, JSON when asked.

Results go to stdout, everything else to stderr. Text from files is never taken for markup and never reaches a terminal
with control characters in it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console

#: Progress appears when something has lasted this long.
_PATIENCE_SECONDS = 1.0
#: Tables wider than a pipe's reader can show are still not cropped.
_UNBOUNDED_WIDTH = 10_000
_STYLES = {Severity.NOTE: "dim", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


class Output:
    """Where one command's results go. ``table`` says whether a person is looking."""

    def __init__(self, *, as_json: bool = False, color: bool | None = None, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._color = color
        self.table = not as_json and (sys.stdout.isatty() or bool(color))

    def console(self, stream: TextIO | None = None) -> Console:
        """A rich console on stdout (or ``stream``) with this output's colour rules."""
        from rich.console import Console

        stream = stream or sys.stdout
        color = self._color if self._color is not None else stream.isatty() and "NO_COLOR" not in os.environ
        return Console(
            file=stream,
            force_terminal=True if color else None,
            no_color=not color,
            color_system="auto" if color else None,
            width=None if stream.isatty() else _UNBOUNDED_WIDTH,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=not stream.isatty(),
        )

    def json(self, document: dict[str, Any]) -> None:
        """One document on one line, its schema first."""
        # dumps is one call of C code, dump runs Python code for each of millions of tokens
        text = json.dumps(document, ensure_ascii=not _encodes_all(sys.stdout), allow_nan=False)
        sys.stdout.write(printable_json(text) + "\n")

    def lines(self, rows: Iterable[Sequence[object]]) -> None:
        """Tab-separated lines; tabs and line ends inside a field are escaped by :func:`printable`."""
        write = sys.stdout.write
        for row in rows:
            write("\t".join([printable(str(field)) for field in row]) + "\n")

    def line(self, *spans: tuple[str, str]) -> None:
        """One line for people on stdout, made of (text, style): coloured on a terminal, plain in a pipe."""
        if self.table:
            from rich.text import Text

            self.console().print(Text.assemble(*((printable(text), style) for text, style in spans)))
        else:
            sys.stdout.write("".join(printable(text) for text, _ in spans) + "\n")

    def issues(self, issues: Iterable[Issue]) -> None:
        """Findings, on stderr."""
        for issue in issues:
            if self.quiet and issue.severity is Severity.NOTE:
                continue
            self.note(f"{issue.severity.value}: {issue.where}: {issue.message}", style=_STYLES[issue.severity])
            if issue.hint:
                self.note(f"hint: {issue.hint}", style="dim")

    def note(self, text: str, *, style: str = "") -> None:
        """One line for people, on stderr."""
        if sys.stderr.isatty():
            from rich.text import Text

            self.console(sys.stderr).print(Text(printable(text), style=style))
        else:
            print(printable(text), file=sys.stderr)

    @contextmanager
    def progress(self, label: str, total: int = 0) -> Iterator[Progress]:
        """A bar on stderr, drawn only when it lasts and somebody is looking; ``total`` bytes, 0 when nobody knows."""
        progress = Progress(label, total, shown=sys.stderr.isatty() and not self.quiet, output=self)
        try:
            yield progress
        finally:
            progress.close()


class Progress:
    """Counts bytes; begins to draw once patience has run out."""

    def __init__(self, label: str, total: int, *, shown: bool, output: Output) -> None:
        self._label = label
        self._total = total
        self._shown = shown
        self._output = output
        self._began = time.monotonic()
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, nbytes: int) -> None:
        self._done += nbytes
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._shown and time.monotonic() - self._began > _PATIENCE_SECONDS:
            self._start()

    def _start(self) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._output.console(sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task(printable(self._label), total=self._total or None, completed=self._done)
        self._bar.start()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _encodes_all(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", "") or "").lower().replace("-", "") == "utf8"


def size_text(nbytes: int) -> str:
    """Bytes for people: ``24 B``, ``1.5 KiB``, ``3.2 GiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def count_text(count: int, one: str, many: str | None = None) -> str:
    """``1 tensor``, ``2,048 tensors``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shape_text(shape: Sequence[int]) -> str:
    """``[3, 2]``; ``[]`` is a 0-d tensor."""
    return "[" + ", ".join(map(str, shape)) + "]"
