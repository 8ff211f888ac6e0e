"""Legacy streams written by the real torch, read by us; torch and hashlib say what is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_truth import expected_of, listed

from ckpt_tools import open_checkpoint


def save(thing: object, path: Path, **options: object) -> Path:
    torch.save(thing, path, _use_new_zipfile_serialization=False, **options)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_kind_of_view_and_element_type(tmp_path: Path, protocol: int) -> None:
    base = torch.arange(24.0)
    tensors = {
        "flat": base,
        "part": base[3:9],
        "transposed": base.view(4, 6).t(),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "empty": torch.empty(0, 3),
        "half": torch.arange(5).half(),
        "bfloat": torch.arange(5).bfloat16(),
        "bool": torch.tensor([True, False]),
        "complex": torch.complex(base, -base).conj(),
        "float8": torch.arange(4).to(torch.float8_e4m3fn),
        "uint16": torch.arange(300).to(torch.uint16),
    }
    with open_checkpoint(save(tensors, tmp_path / "a.pt", pickle_protocol=protocol)) as checkpoint:
        assert checkpoint.format == "torch-legacy"
        assert listed(checkpoint) == expected_of(tensors)
        flat, part = checkpoint.tensors["flat"], checkpoint.tensors["part"]
        assert flat.storage is part.storage
        assert checkpoint.issues == []


def test_a_pickled_module_shows_its_state_dict(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with open_checkpoint(save(model, tmp_path / "whole.pt")) as checkpoint:
        assert listed(checkpoint) == expected_of(model.state_dict())


def test_listing_reads_no_payload(tmp_path: Path) -> None:
    path = save({"big": torch.zeros(1_000_000)}, tmp_path / "big.pt")
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors["big"].nbytes == 4_000_000
        # a window for each of the five pickles
        assert sum(source.nbytes_read for source in checkpoint.sources) < 100_000


def test_a_second_object_in_the_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "two.pt"
    with path.open("wb") as file:
        for count in (2, 3):
            torch.save(torch.ones(count), file, _use_new_zipfile_serialization=False)
    with open_checkpoint(path) as checkpoint:
        assert [list(tensor.info.shape) for tensor in checkpoint.tensors.values()] == [[2]]
        (issue,) = checkpoint.issues
        assert issue.code == "integrity-trailing-bytes"
        assert "another saved object" in issue.message
