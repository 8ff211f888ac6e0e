"""`ckpt convert --to-layout` of matrices that have to be transposed, against `cp` with a sync."""

from __future__ import annotations

from files import Files
from measure import CKPT, Section, in_turn, python

_COPY = """
import os, subprocess, sys
source, target = sys.argv[1:]
subprocess.run(["cp", source, target], check=True)
with open(target, "rb+") as file:
    os.fsync(file.fileno())
"""


def measure(files: Files) -> Section:
    """The table for translating."""
    side = 64 if files.small else 4096
    section = Section(
        "Translating",
        f"`ckpt convert --to-layout torch --no-check` of Paddle's linear layers, {16 * side * side * 4 >> 20} MiB of weights"
        " to transpose, beside `cp` and a sync of the same bytes. Best of runs in turn.",
    )
    for label, source in (
        (f"16 matrices of {side} × {side}", files.linear_layers(16, side)),
        (f"one matrix of {4 * side} × {4 * side}", files.linear_layers(1, 4 * side)),
    ):
        made = {"ckpt": files.folder / "turned.pth", "copy": files.folder / "copy"}
        runs = in_turn(
            {
                "ckpt": (
                    *CKPT,
                    "convert",
                    str(source),
                    str(made["ckpt"]),
                    "--to-layout",
                    "torch",
                    "--no-check",
                    "--quiet",
                ),
                "copy": python(_COPY, source, made["copy"]),
            },
            made=made,
        )
        section.ratio(f"{label} / cp and sync", runs["ckpt"].best, runs["copy"].best, at_most=3)
        section.memory(f"{label}, peak memory", runs["ckpt"].peak_nbytes, at_most_mib=250)
    return section
