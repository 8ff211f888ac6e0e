"""TorchScript, unpacked archives, tar files and sharded sets that torch wrote or loads; torch says what is right."""

from __future__ import annotations

import json
import pickle
import struct
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
import torch
from torch_truth import expected_of, listed

from ckpt_tools import open_checkpoint
from ckpt_tools.errors import CorruptFile, MissingBytes


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)
        self.blocks = torch.nn.ModuleList([torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2, bias=False)])
        self.tied = self.fc
        self.extra = {"a": torch.arange(3.0)}
        self.pair = (torch.ones(2), 7)
        self.sizes = [3, 4]
        self.register_buffer("unsaved", torch.arange(4.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x) + self.extra["a"].sum() + torch.tensor([1.0, 2.0]) + self.unsaved.sum() + self.pair[0].sum()
        for block in self.blocks:
            x = block(x)
        return self.tied(torch.cat([x, x[:, :1]], 1))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "net.pt"
    torch.jit.save(torch.jit.script(Net()), path)
    return path


def test_torchscript_has_the_names_of_the_state_dict_and_every_other_tensor(scripted: Path) -> None:
    expected = expected_of(torch.jit.load(scripted).state_dict())
    with open_checkpoint(scripted) as checkpoint:
        found = listed(checkpoint)
        assert checkpoint.format == "torchscript"
        assert expected.items() <= found.items()
        assert set(found) - set(expected) == {"extra/a", "pair/0"}
        assert checkpoint.tensors["tied.weight"].storage is checkpoint.tensors["fc.weight"].storage
        assert checkpoint.values["sizes/1"] == 4
        assert checkpoint.values["pair/1"] == 7
        assert [issue.code for issue in checkpoint.issues] == ["safety-torchscript-code"]


def test_traced_modules_have_mangled_classes_and_plain_names(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Sequential(torch.nn.Linear(2, 2)))
    traced = torch.jit.trace(model, torch.zeros(1, 3))
    torch.jit.save(traced, tmp_path / "traced.pt")
    with open_checkpoint(tmp_path / "traced.pt") as checkpoint:
        assert listed(checkpoint) == expected_of(model.state_dict())


def test_constants_of_the_code_are_listed_apart(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2).eval()
    torch.jit.save(torch.jit.freeze(torch.jit.script(model)), tmp_path / "frozen.pt")
    with open_checkpoint(tmp_path / "frozen.pt") as checkpoint:
        constants = [entry for name, entry in listed(checkpoint).items() if name.startswith("constants.pkl/")]
        assert all(entry in constants for entry in expected_of(model.state_dict()).values())


@pytest.mark.parametrize("member", ["", "data.pkl", "version", "data/0"])
def test_an_unpacked_archive_is_read_through_any_of_its_files(tmp_path: Path, member: str) -> None:
    tensors = {"w": torch.arange(6.0).view(2, 3), "t": torch.arange(6.0).view(2, 3).t(), "h": torch.ones(3).half()}
    torch.save(tensors, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        archive.extractall(tmp_path)
    with open_checkpoint(tmp_path / "model" / member) as checkpoint:
        assert checkpoint.format == "torch-zip"
        assert listed(checkpoint) == expected_of(tensors)


def test_an_unpacked_torchscript_archive_is_one(scripted: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(scripted) as archive:
        archive.extractall(tmp_path)
    with open_checkpoint(scripted) as whole, open_checkpoint(tmp_path / "net") as unpacked:
        assert unpacked.format == "torchscript"
        assert listed(unpacked) == listed(whole)


# -- tar ---------------------------------------------------------------------------------------------------------------


class _Id:
    def __init__(self, value: object) -> None:
        self.value = value


class _Pickler(pickle.Pickler):
    def persistent_id(self, thing: object) -> object:
        return thing.value if isinstance(thing, _Id) else None


def _dumps(thing: object) -> bytes:
    buffer = BytesIO()
    _Pickler(buffer, 2).dump(thing)
    return buffer.getvalue()


def tar_file(path: Path, tar_format: int) -> Path:
    """A float storage of 6, its last 3 elements as a storage of their own, and three tensors."""
    storages = _dumps(1) + _dumps((10, "cpu", torch.FloatStorage)) + struct.pack("<q6f", 6, *range(6))
    storages += _dumps([(11, 10, 3, 3)])
    tensors = _dumps(3)
    for key, storage, size, stride, offset in (
        (1, 10, (2, 3), (3, 1), 0),
        (2, 10, (3, 2), (1, 3), 0),
        (3, 11, (2,), (1,), 1),
    ):
        numbers = (*size, *stride, offset)
        tensors += _dumps((key, storage, torch.FloatTensor)) + struct.pack(f"<i4x{len(numbers)}q", len(size), *numbers)
    members = {
        "sys_info": _dumps({"little_endian": True}),
        "pickle": _dumps({"w": _Id(1), "turned": _Id(2), "tail": _Id(3), "epoch": 4}),
        "tensors": tensors,
        "storages": storages,
    }
    with tarfile.open(path, "w", format=tar_format) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1.5
            archive.addfile(entry, BytesIO(data))
    return path


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_files_read_as_torch_reads_them(tmp_path: Path, tar_format: int) -> None:
    path = tar_file(tmp_path / "old.pth.tar", tar_format)
    theirs = torch.load(path, weights_only=False)
    assert theirs.pop("epoch") == 4
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "torch-tar"
        assert listed(checkpoint) == expected_of(theirs)
        assert checkpoint.values["epoch"] == 4


# -- sharded sets ------------------------------------------------------------------------------------------------------

FIRST = {"embed.weight": torch.arange(8.0).view(4, 2), "norm.weight": torch.ones(2).bfloat16()}
SECOND = {"head.weight": torch.arange(6).view(2, 3)}


def sharded_set(directory: Path, kind: str = "pytorch_model", suffix: str = "bin") -> dict[str, Path]:
    """Two shards and their index."""
    paths = {}
    for number, tensors in ((1, FIRST), (2, SECOND)):
        path = directory / f"{kind}-{number:05d}-of-00002.{suffix}"
        if suffix == "bin":
            torch.save(tensors, path)
        else:
            from safetensors.torch import save_file

            save_file(tensors, path, metadata={"format": "pt"})
        paths[f"shard {number}"] = path
    weight_map = dict.fromkeys(FIRST, paths["shard 1"].name) | dict.fromkeys(SECOND, paths["shard 2"].name)
    paths["index"] = directory / f"{kind}.{suffix}.index.json"
    paths["index"].write_text(json.dumps({"metadata": {"total_size": 84}, "weight_map": weight_map}))
    paths["directory"] = directory
    return paths


@pytest.mark.parametrize("member", ["index", "shard 1", "shard 2", "directory"])
@pytest.mark.parametrize(("kind", "suffix"), [("pytorch_model", "bin"), ("model", "safetensors")])
def test_a_sharded_set_is_one_checkpoint_whichever_member_is_named(
    tmp_path: Path, member: str, kind: str, suffix: str
) -> None:
    with open_checkpoint(sharded_set(tmp_path, kind, suffix)[member]) as checkpoint:
        assert checkpoint.format == {"bin": "torch-zip", "safetensors": "safetensors"}[suffix]
        assert listed(checkpoint) == expected_of(FIRST | SECOND)
        assert checkpoint.issues == []


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_tensors_of_a_shard_that_cannot_be_read_are_listed_without_bytes(tmp_path: Path, damage: str) -> None:
    paths = sharded_set(tmp_path)
    if damage == "missing":
        paths["shard 1"].unlink()
    else:
        paths["shard 1"].write_bytes(paths["shard 1"].read_bytes()[:500])
    with open_checkpoint(paths["index"]) as checkpoint:
        assert set(checkpoint.tensors) == {*FIRST, *SECOND}
        with pytest.raises(MissingBytes, match="00001-of-00002"):
            checkpoint.tensors["embed.weight"].tobytes()
        assert [issue.code for issue in checkpoint.issues] == [
            {"missing": "integrity-missing-shard", "cut": "integrity-damaged-shard"}[damage]
        ]


def test_an_index_and_shards_that_disagree_are_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    paths = sharded_set(tmp_path)
    torch.save({**SECOND, "norm.weight": torch.zeros(2), "strange": torch.ones(1)}, paths["shard 2"])
    index = json.loads(paths["index"].read_text())
    index["weight_map"]["lost"] = paths["shard 1"].name
    paths["index"].write_text(json.dumps(index))
    with open_checkpoint(paths["index"]) as checkpoint:
        assert set(checkpoint.tensors) == {*FIRST, *SECOND, "strange", "lost"}
        assert listed_one(checkpoint.tensors["norm.weight"]) == "bfloat16"
        assert sorted(issue.code for issue in checkpoint.issues) == [
            "integrity-missing-tensor",
            "integrity-repeated-tensor",
            "integrity-unindexed-tensor",
        ]


def listed_one(tensor: object) -> str:
    return str(tensor.info.dtype)  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", ["../evil.bin", "/etc/passwd", "", 7, "pytorch_model.bin.index.json"])
def test_an_index_cannot_lead_elsewhere(tmp_path: Path, file: object) -> None:
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"w": file}}))
    with pytest.raises(CorruptFile):
        open_checkpoint(index)


def test_an_index_that_names_a_tensor_twice_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w": "a-1-of-2.safetensors", "w": "a-2-of-2.safetensors"}}')
    with pytest.raises(CorruptFile, match="twice"):
        open_checkpoint(index)


# -- DeepSpeed ---------------------------------------------------------------------------------------------------------


def test_a_deepspeed_directory_shows_the_model_and_names_the_rest(tmp_path: Path) -> None:
    torch.save({"module": FIRST, "global_steps": 7}, tmp_path / "mp_rank_00_model_states.pt")
    torch.save({"optimizer_state_dict": {}}, tmp_path / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.format == "torch-zip"
        assert listed(checkpoint) == expected_of({f"module/{name}": tensor for name, tensor in FIRST.items()})
        assert checkpoint.values["global_steps"] == 7
        (issue,) = checkpoint.issues
        assert "zero_pp_rank_0_mp_rank_00_optim_states.pt" in issue.message
    torch.save({"module": SECOND}, tmp_path / "mp_rank_01_model_states.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        assert "mp_rank_01_model_states/module/head.weight" in checkpoint.tensors
        assert len(checkpoint.tensors) == 3
