"""The tables that commands draw, through rich. Imported only when something is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ckpt_tools.core.keys import printable

#: rich measures every cell of a table; beyond this many rows plain aligned lines come at once.
_ROWS_IN_A_TABLE = 4000
#: Columns that may fold are not made narrower than this; a terminal that is too narrow even so wraps the lines itself.
_NARROWEST = 16
#: Blanks between two columns.
_GAP = 3


@dataclass(frozen=True)
class Column:
    """One column: its heading, whether numbers stand in it, and whether what it holds may be folded."""

    heading: str
    right: bool = False
    folds: bool = False


def cell(text: object, style: str = "") -> Text:
    """Text of a file as it may reach a terminal."""
    return Text(printable(str(text)), style=style)


def draw_table(console: Console, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """A table without frame. Columns without anything in them are left out; long names fold, nothing is cropped."""
    cells = [[field if isinstance(field, Text) else cell(field) for field in row] for row in rows]
    used = [i for i, column in enumerate(columns) if column.heading or any(row[i].plain for row in cells)]
    columns = [columns[i] for i in used]
    cells = [[row[i] for i in used] for row in cells]
    widths = [max([cell_len(c.heading), *(row[i].cell_len for row in cells)]) for i, c in enumerate(columns)]
    if len(cells) > _ROWS_IN_A_TABLE:
        for row in cells:
            line = "  ".join([text.plain + " " * (width - text.cell_len) for text, width in zip(row, widths)])
            console.print(Text(line.rstrip()), soft_wrap=True)
        return
    widths = _fitted(widths, [column.folds for column in columns], console.width - _GAP * (len(columns) - 1))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, width in zip(columns, widths):
        table.add_column(column.heading, justify="right" if column.right else "left", width=width, overflow="fold")
    for row in cells:
        table.add_row(*row)
    width = console.width
    console.width = max(width, sum(widths) + _GAP * (len(columns) - 1))
    console.print(table, crop=False)
    console.width = width


def _fitted(widths: list[int], folds: list[bool], room: int) -> list[int]:
    """The widths, those of columns that may fold taken back, the widest first, until all columns fit."""
    widths = list(widths)
    foldable = [i for i, fold in enumerate(folds) if fold and widths[i] > _NARROWEST]
    while foldable and sum(widths) > room:
        widest = max(foldable, key=lambda i: widths[i])
        next_widest = max((widths[i] for i in foldable if widths[i] < widths[widest]), default=_NARROWEST)
        widths[widest] = max(next_widest - 1, widths[widest] - (sum(widths) - room), _NARROWEST)
        foldable = [i for i in foldable if widths[i] > _NARROWEST]
    return widths


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
