"""Every byte of each small fixture is cut off and flipped: a sentence or an answer, never a foreign exception."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fixture_cases import Case, readable

from ckpt_tools import CkptError, open_checkpoint

#: Files up to this size are damaged at every byte; of larger ones fewer places are taken, spread evenly.
EVERY_BYTE_UP_TO = 1200
PLACES = 250
#: HDF5 goes through its library, which takes twenty times as long to open a file.
PLACES_THROUGH_A_LIBRARY = 60
#: Values are read of tensors up to this size; damaged headers announce large ones.
READ_NBYTES = 1 << 16


def smallest(cases: list[Case], most: int) -> list[Case]:
    """A few cases of each format: the smallest inputs, as every byte of them is tried."""
    by_format: dict[str, list[Case]] = {}
    for case in cases:
        by_format.setdefault(case.expected["format"], []).append(case)
    chosen = []
    for group in by_format.values():
        group.sort(key=lambda case: sum(p.stat().st_size for p in case.files))
        chosen += group[:most]
    return chosen


def exercise(path: Path) -> None:
    """List everything, read small tensors."""
    try:
        with open_checkpoint(path) as checkpoint:
            for entry in checkpoint.entries:
                if entry.is_tensor and entry.node.nbytes <= READ_NBYTES:
                    try:
                        for _ in entry.node.chunks():
                            pass
                    except CkptError:
                        pass
    except CkptError as error:
        assert str(error)


def places(nbytes: int, case: Case) -> range:
    if case.expected["format"] in ("hdf5", "keras"):
        return range(0, nbytes, max(1, nbytes // PLACES_THROUGH_A_LIBRARY))
    return range(0, nbytes, 1 if nbytes <= EVERY_BYTE_UP_TO else nbytes // PLACES)


@pytest.mark.parametrize("case", smallest(readable(), 3), ids=lambda case: case.id)
def test_every_byte(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "input"
    shutil.copytree(case.input, copy, symlinks=True)
    path = copy / case.expected["path"]
    exercise(path)
    for file in sorted(p for p in copy.rglob("*") if p.is_file()):
        whole = file.read_bytes()
        for at in places(len(whole), case):
            file.write_bytes(whole[:at])
            exercise(path)
            flipped = bytearray(whole)
            flipped[at] ^= 1 << (at % 8)
            file.write_bytes(flipped)
            exercise(path)
            flipped[at] = 0xFF
            file.write_bytes(flipped)
            exercise(path)
        file.write_bytes(whole)
