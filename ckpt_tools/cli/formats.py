"""``ckpt formats``: the table of formats."""

from __future__ import annotations

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output

HELP = """List the formats that can be read and written, how each is recognised, and the extra it needs.

Example:

  ckpt formats
"""


def formats(as_json: options.Json = False, color: options.Color = None) -> None:
    from ckpt_tools.formats.table import FORMATS
    from ckpt_tools.formats.writers import WRITERS

    written = {row.name for row in WRITERS}
    out = Output(as_json=as_json, color=color)
    if as_json:
        rows = [
            {
                "name": row.name,
                "title": row.title,
                "read": True,
                "write": row.name in written,
                "suffixes": list(row.suffixes),
                "recognised_by": row.recognised_by,
                "extra": row.extra,
            }
            for row in FORMATS
        ]
        out.json({"schema": "ckpt.formats/1", "formats": rows})
        return
    headings = ("format", "read", "write", "suffixes", "recognised by", "extra")
    table = [
        [
            row.name,
            "yes",
            "yes" if row.name in written else "no",
            " ".join(row.suffixes),
            row.recognised_by,
            row.extra or "",
        ]
        for row in FORMATS
    ]
    if out.table:
        from ckpt_tools.cli.render import Column, draw_table

        draw_table(out.console(), [Column(heading) for heading in headings], table)
    else:
        out.lines(table)


formats.__doc__ = HELP
