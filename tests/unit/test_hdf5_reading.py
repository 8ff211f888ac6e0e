"""Reading HDF5 files costs as much as there is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

h5py = pytest.importorskip("h5py")

from ckpt_tools.formats import open_checkpoint  # noqa: E402


def test_a_group_is_gone_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        for number in range(50):
            file[f"layer/t{number}"] = [number]
            file[f"layer/t{number}"].attrs["unit"] = "m"
        file["layer/soft"] = h5py.SoftLink("/layer/t3")
    looks = []
    iterate = h5py.Group.__iter__

    def counted(group: Any) -> Any:
        looks.append(group.name)
        return iterate(group)

    monkeypatch.setattr(h5py.Group, "__iter__", counted)
    with open_checkpoint(path) as checkpoint:
        assert len(checkpoint.tensors) == 51
        assert len(checkpoint.entries) == 101
    assert looks == ["/", "/layer"]
