"""Tensors of texts in HDF5 files that are written."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from typer.testing import CliRunner

h5py = pytest.importorskip("h5py")

from ckpt_tools.cli.app import app  # noqa: E402
from ckpt_tools.core.dtypes import BY_NAME  # noqa: E402
from ckpt_tools.core.tensors import StringTensor  # noqa: E402
from ckpt_tools.formats import hdf5_writer, open_checkpoint  # noqa: E402
from ckpt_tools.ops.listing import digest  # noqa: E402

TEXTS = ["one", "", "zwölf", "a longer text " * 500, "\x01", "last"]


def test_texts_come_back(tmp_path: Path) -> None:
    source, target = tmp_path / "in.h5", tmp_path / "out.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("names/all", data=numpy.array(TEXTS, object).reshape(2, 3), dtype=h5py.string_dtype())
        file.create_dataset("names/none", (0, 4), dtype=h5py.string_dtype())
        file.create_dataset("names/raw", data=[b"\xff\xfe", b"b"], dtype=h5py.string_dtype("ascii"))
        file.create_dataset("names/fixed", data=numpy.array([b"x", b"yz"]))
        file["w"] = numpy.ones((3, 3), "f4")
    result = CliRunner().invoke(app, ["convert", str(source), str(target)])
    assert result.exit_code == 0, result.output
    with open_checkpoint(source) as before, open_checkpoint(target) as after:
        assert {n: digest(t) for n, t in before.tensors.items()} == {n: digest(t) for n, t in after.tensors.items()}
    with h5py.File(target) as file:
        assert file["names/all"].asstr()[()].reshape(-1).tolist() == TEXTS
        assert file["names/none"].shape == (0, 4)
        assert file["names/raw"][()].tolist() == [b"\xff\xfe", b"b"]


@pytest.mark.parametrize(("shape", "elements", "why"), [((), [b"a"], "single"), ((2,), [b"a", b"b\0"], "zero bytes")])
def test_texts_that_would_come_back_otherwise_are_lost(shape: tuple[int, ...], elements: list[bytes], why: str) -> None:
    reason = hdf5_writer.TARGET.reason_lost(StringTensor(shape, BY_NAME["string"], lambda: elements))
    assert reason is not None
    assert why in reason
