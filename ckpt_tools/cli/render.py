"""The tables that commands draw, through rich. Imported only when something is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ckpt_tools.core.keys import printable

#: rich measures every cell of a table; beyond this many rows plain aligned lines come at once.
_ROWS_IN_A_TABLE = 4000


@dataclass(frozen=True)
class Column:
    """One column: its heading, whether numbers stand in it, its style."""

    heading: str
    right: bool = False
    style: str = ""


def cell(text: object, style: str = "") -> Text:
    """Text of a file as it may reach a terminal."""
    return Text(printable(str(text)), style=style)


def draw_table(console: Console, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """A table without frame; long names wrap, nothing is cropped."""
    rows = list(rows)
    if len(rows) > _ROWS_IN_A_TABLE:
        widths = [max(len(printable(str(row[i]))) for row in rows) for i in range(len(columns))]
        for row in rows:
            console.print(Text("  ".join(printable(str(f)).ljust(w) for f, w in zip(row, widths)).rstrip()))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column.heading, justify="right" if column.right else "left", style=column.style, overflow="fold"
        )
    for row in rows:
        table.add_row(*[field if isinstance(field, Text) else cell(field) for field in row])
    console.print(table)


def draw_tree(console: Console, title: str, rows: Iterable[tuple[Sequence[str | int], str]]) -> None:
    """A tree from (key, text behind its last part). The parts ``0`` and ``"0"`` are two, and are told apart."""
    tree = Tree(cell(title, "bold"))
    nodes: dict[tuple[str | int, ...], Tree] = {(): tree}
    for key, text in rows:
        for depth in range(1, len(key) + 1):
            above = tuple(key[:depth])
            if above not in nodes:
                nodes[above] = nodes[above[:-1]].add(cell(_part_text(key[depth - 1])))
            label = nodes[above].label
            if depth == len(key) and text and isinstance(label, Text):
                label.append("  ").append(printable(text), style="dim")
    console.print(tree)


def _part_text(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return part or '""'
