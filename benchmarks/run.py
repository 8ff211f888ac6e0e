"""Measure everything that this project claims about speed and memory, and write it to benchmarks/README.md.

    python benchmarks/run.py [--small] [--only SECTION] [--output FILE] [--folder DIR]

Large files are made by the frameworks in a temporary folder (about 8 GiB; --folder keeps them). ``--small`` runs the same
on small files, to see that it still works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import sys
import tempfile
from pathlib import Path

from files import Files

SECTIONS = ("listing", "comparing", "converting", "translating", "truncating", "verifying")
HERE = Path(__file__).resolve().parent


def _sections_of(report: Path) -> dict[str, str]:
    """The tables of an earlier report by their titles, so that one can be measured anew."""
    if not report.is_file():
        return {}
    pieces = re.split(r"^## ", report.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {piece.partition("\n")[0]: f"## {piece.rstrip()}\n" for piece in pieces}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", action="append", choices=SECTIONS)
    parser.add_argument("--output", type=Path, default=HERE / "README.md")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.small:
            os.environ["CKPT_BENCH_ONCE"] = "1"
        files = Files(folder, 8, 1000, 300) if arguments.small else Files(folder, 250, 1 << 20, 100_000)
        sections = []
        for name in arguments.only or SECTIONS:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            sections.append(importlib.import_module(name).measure(files))
    kept = _sections_of(arguments.output) if arguments.only else {}
    written = kept | {section.title: section.markdown() for section in sections}
    text = "\n".join(
        [
            "# Benchmarks",
            "",
            "Written by `python benchmarks/run.py`. Every line is a ratio of whole processes that ran in turn on one machine"
            f" ({platform.machine()}, Python {platform.python_version()}), the files in the page cache; peak memory is that of"
            " the process as the kernel accounts it.",
            "",
            *written.values(),
        ]
    )
    arguments.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
