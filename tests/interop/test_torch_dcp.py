"""Distributed checkpoints that torch wrote, as they are and with their metadata rewritten by torch's own classes."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex
from torch_truth import expected_of, listed

from ckpt_tools import open_checkpoint
from ckpt_tools.errors import CkptError, CorruptFile, MissingBytes, TruncatedFile, UnreadableInput

BASE = torch.arange(24.0).view(4, 6)
STATE = {
    "model": {"w": BASE, "turned": BASE.t(), "part": BASE[1:3, 2:], "half": torch.ones(3).bfloat16()},
    "optim": {"state": {0: {"step": torch.tensor(3.0)}}, "groups": [{"lr": 0.5, "betas": (0.75, 0.5)}, {"lr": 1.5}]},
    "step": 7,
    "empty": torch.empty(0, 3),
}
TENSORS = {
    "model/w": BASE,
    "model/turned": BASE.t(),
    "model/part": BASE[1:3, 2:],
    "model/half": torch.ones(3).bfloat16(),
    "optim/state/0/step": torch.tensor(3.0),
    "empty": torch.empty(0, 3),
}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dcp") / "step_7"
    dcp.save(STATE, checkpoint_id=directory, no_dist=True)
    return directory


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def rewrite(directory: Path, change: Callable[[Metadata], Any], protocol: int = 4) -> None:
    """Let ``change`` alter the metadata, and write them back."""
    path = directory / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata, protocol))


def slice_of(metadata: Metadata, name: str) -> tuple[MetadataIndex, Any]:
    return next((index, info) for index, info in metadata.storage_data.items() if index.fqn == name)


def test_everything_that_was_saved_is_listed_where_it_was(saved: Path) -> None:
    with open_checkpoint(saved) as checkpoint:
        assert checkpoint.format == "torch-dcp"
        assert listed(checkpoint) == expected_of(TENSORS)
        assert dict(checkpoint.values) == {
            "optim/groups/0/lr": 0.5,
            "optim/groups/0/betas/0": 0.75,
            "optim/groups/0/betas/1": 0.5,
            "optim/groups/1/lr": 1.5,
            "step": 7,
        }
        assert checkpoint.issues == []


@pytest.mark.parametrize("member", [".metadata", "__0_0.distcp"])
def test_any_file_of_it_stands_for_the_directory(saved: Path, member: str) -> None:
    with open_checkpoint(saved / member) as checkpoint:
        assert set(checkpoint.tensors) == set(TENSORS)


@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_metadata_of_any_protocol(copy: Path, protocol: int) -> None:
    rewrite(copy, lambda metadata: None, protocol)
    with open_checkpoint(copy) as checkpoint:
        assert listed(checkpoint) == expected_of(TENSORS)


def hugging_face(directory: Path) -> Path:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    writer = HuggingFaceStorageWriter(path=str(directory), save_distributed=True)
    dcp.save({"w": BASE, "b.c": torch.ones(2)}, storage_writer=writer, no_dist=True)
    return next(directory.rglob("*.safetensors"))


def test_distributed_safetensors_are_put_together(tmp_path: Path) -> None:
    file = hugging_face(tmp_path / "hf")
    for path in (file, file.parent):
        with open_checkpoint(path) as checkpoint:
            assert listed(checkpoint) == expected_of({"w": BASE, "b.c": torch.ones(2)})
    from safetensors.torch import save_file

    info = {"DCP_SHARDING_INFO": '{"w": {"saved_offsets": [4, 0]}}'}
    second = file.with_name("shard-00002-model-00001-of-00001.safetensors")
    save_file({"w": BASE + 1}, second, metadata=info)
    with open_checkpoint(file.parent) as checkpoint:
        assert listed(checkpoint)["w"] == expected_of({"w": torch.cat([BASE, BASE + 1])})["w"]
    save_file({"w": BASE + 1}, second, metadata={"DCP_SHARDING_INFO": '{"w": {"saved_offsets": [5, 0]}}'})
    with open_checkpoint(file.parent) as checkpoint:
        assert [issue.code for issue in checkpoint.issues] == ["integrity-chunks"]
        with pytest.raises(MissingBytes):
            checkpoint.tensors["w"].tobytes()


def test_listing_opens_no_chunk(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ckpt_tools.formats import torch_dcp

    monkeypatch.setattr(torch_dcp.StoredChunk, "chunks", lambda self: pytest.fail("a chunk was read"))
    with open_checkpoint(saved) as checkpoint:
        assert checkpoint.tensors["model/w"].info.shape == (4, 6)


def cut_in_rows(metadata: Metadata) -> None:
    """Describe ``model.w`` as two halves, each of which is what was saved as the whole."""
    described = metadata.state_dict_metadata["model.w"]
    index, info = slice_of(metadata, "model.w")
    del metadata.storage_data[index]
    described.chunks = []
    described.size = torch.Size((8, 6))
    for start in (0, 4):
        described.chunks.append(ChunkStorageMetadata(torch.Size((start, 0)), torch.Size((4, 6))))
        metadata.storage_data[MetadataIndex("model.w", torch.Size((start, 0)))] = info


def test_chunks_are_put_together(copy: Path) -> None:
    rewrite(copy, cut_in_rows)
    with open_checkpoint(copy) as checkpoint:
        assert listed(checkpoint)["model/w"] == expected_of({"w": torch.cat([BASE, BASE])})["w"]


def test_ranks_that_did_not_coordinate_are_put_together(copy: Path) -> None:
    whole = pickle.loads((copy / ".metadata").read_bytes())
    cut_in_rows(whole)
    for rank, start in ((0, 0), (10, 4)):
        mine = dataclasses.replace(whole, state_dict_metadata=dict(whole.state_dict_metadata))
        described = mine.state_dict_metadata["model.w"]
        chunks = [chunk for chunk in described.chunks if chunk.offsets[0] == start]
        mine.state_dict_metadata["model.w"] = dataclasses.replace(described, chunks=chunks)
        (copy / f"__{rank}.metadata").write_bytes(pickle.dumps(mine))
    (copy / ".metadata").unlink()
    with open_checkpoint(copy) as checkpoint:
        assert listed(checkpoint) == expected_of({**TENSORS, "model/w": torch.cat([BASE, BASE])})


def test_names_that_contradict_each_other_stay_flat(copy: Path) -> None:
    def clash(metadata: Metadata) -> None:
        metadata.planner_data["model.w"] = ("step", "w")

    rewrite(copy, clash)
    with open_checkpoint(copy) as checkpoint:
        assert "model.w" in checkpoint.tensors
        assert len(checkpoint.tensors) == len(TENSORS)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_tensors_without_their_data_file_are_listed(copy: Path, damage: str) -> None:
    data = copy / "__0_0.distcp"
    if damage == "missing":
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:10])
    with open_checkpoint(copy) as checkpoint:
        assert set(checkpoint.tensors) == set(TENSORS)
        with pytest.raises(MissingBytes, match="__0_0"):
            checkpoint.tensors["model/w"].tobytes()
        assert [issue.code for issue in checkpoint.issues] == ["integrity-missing-shard"]


def test_an_interrupted_save_says_so(copy: Path) -> None:
    (copy / ".metadata").rename(copy / ".metadata.tmp")
    with pytest.raises(TruncatedFile, match="written last"):
        open_checkpoint(copy)


def test_a_data_file_alone_is_told_apart_from_an_archive(copy: Path) -> None:
    (copy / ".metadata").unlink()
    with pytest.raises(UnreadableInput, match="one shard of a distributed checkpoint; give the directory"):
        open_checkpoint(copy / "__0_0.distcp")


def _outside(metadata: Metadata) -> None:
    slice_of(metadata, "model.w")[1].relative_path = "../__0_0.distcp"


def _beyond_a_name(metadata: Metadata) -> None:
    metadata.storage_data = {7: None}


def _negative(metadata: Metadata) -> None:
    slice_of(metadata, "model.w")[1].offset = -5


def _deep(metadata: Metadata) -> None:
    metadata.planner_data["model.w"] = tuple(range(2000))


@pytest.mark.parametrize("change", [_outside, _beyond_a_name, _negative, _deep])
def test_metadata_that_lie_are_refused(copy: Path, change: Callable[[Metadata], None]) -> None:
    rewrite(copy, change)
    with pytest.raises(CkptError) as caught:
        open_checkpoint(copy)
    assert caught.value.exit_code == 4


def _overlapping(metadata: Metadata) -> None:
    cut_in_rows(metadata)
    metadata.state_dict_metadata["model.w"].size = torch.Size((6, 8))


def _packed(metadata: Metadata) -> None:
    index, info = slice_of(metadata, "model.w")
    metadata.storage_data[index] = dataclasses.replace(info, transform_descriptors=["zstd"])


def _unplaced(metadata: Metadata) -> None:
    del metadata.storage_data[slice_of(metadata, "model.w")[0]]


@pytest.mark.parametrize(
    ("change", "words"), [(_overlapping, "piece"), (_packed, "zstd"), (_unplaced, "do not say where")]
)
def test_a_tensor_that_cannot_be_had_leaves_the_others_alone(
    copy: Path, change: Callable[[Metadata], None], words: str
) -> None:
    rewrite(copy, change)
    with open_checkpoint(copy) as checkpoint:
        assert set(checkpoint.tensors) == set(TENSORS)
        with pytest.raises(MissingBytes, match=words):
            checkpoint.tensors["model/w"].tobytes()
        assert checkpoint.tensors["model/half"].tobytes()


def test_a_slice_that_holds_something_else_is_damage_of_that_tensor(copy: Path) -> None:
    def exchange(metadata: Metadata) -> None:
        index, _ = slice_of(metadata, "model.w")
        metadata.storage_data[index] = slice_of(metadata, "model.half")[1]

    rewrite(copy, exchange)
    with open_checkpoint(copy) as checkpoint, pytest.raises(CorruptFile, match="was expected"):
        checkpoint.tensors["model/w"].tobytes()


def test_a_call_in_the_metadata_is_reported_and_not_made(copy: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            import os

            return os.system, (f"touch {tmp_path}/marker",)

    def hide(metadata: Metadata) -> None:
        metadata.storage_meta = Evil()  # type: ignore[assignment]

    rewrite(copy, hide)
    with open_checkpoint(copy) as checkpoint:
        assert [issue.code for issue in checkpoint.issues] == ["pickle-foreign-call"]
    assert not (tmp_path / "marker").exists()
