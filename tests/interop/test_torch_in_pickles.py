"""Tensors of torch in pickles that torch.save did not write: pickle.dump, joblib, arrays of objects."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from ckpt_tools import open_checkpoint

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


def state() -> dict[str, Any]:
    return {
        "weight": torch.arange(6.0).reshape(2, 3),
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "part": torch.arange(10)[2:8:2],
        "turned": torch.arange(6.0).reshape(2, 3).t(),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }


def check(path: Path, prefix: str = "") -> None:
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == [prefix + name for name in state()]
        for name, tensor in state().items():
            ours = checkpoint.tensors[prefix + name]
            assert ours.info.dtype.name == str(tensor.dtype).removeprefix("torch.")
            assert ours.info.shape == tuple(tensor.shape)
            assert b"".join(ours.chunks()) == bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
        assert not checkpoint.issues


@pytest.mark.parametrize("protocol", range(6))
def test_pickle(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(state(), protocol))
    check(path)


def test_long_storages_as_text(tmp_path: Path) -> None:
    path = tmp_path / "long.pkl"
    tensor = torch.arange(100_000.0)
    path.write_bytes(pickle.dumps({"w": tensor}, 2))
    with open_checkpoint(path) as checkpoint:
        assert b"".join(checkpoint.tensors["w"].chunks()) == tensor.numpy().tobytes()


@pytest.mark.parametrize("compress", [0, 3])
def test_joblib(tmp_path: Path, compress: int) -> None:
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "state.joblib"
    joblib.dump({"net": state(), "array": numpy.arange(3)}, path, compress=compress)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors["net/weight"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert checkpoint.tensors["array"].numpy().tolist() == [0, 1, 2]


def test_array_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "state.npy"
    numpy.save(path, numpy.array([state()], dtype=object), allow_pickle=True)
    check(path, "0/")


def test_module(tmp_path: Path) -> None:
    path = tmp_path / "module.pkl"
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    path.write_bytes(pickle.dumps(module))
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == list(module.state_dict())


def test_keys_that_are_tensors_have_lasting_names(tmp_path: Path) -> None:
    path = tmp_path / "optimizer.pt"
    one, two = torch.ones(2, 3), torch.zeros(2, 3)
    torch.save({one: 1, two: 2, ("a", 1): 3}, path)
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.values) == ["<float32 [2, 3]>", "<float32 [2, 3]>#2", "('a', 1)"]


class Attack:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


def test_code_hidden_in_a_nested_stream_is_named(tmp_path: Path) -> None:
    import io

    stream = io.BytesIO()
    torch.save([torch.ones(1).untyped_storage(), Attack()], stream, _use_new_zipfile_serialization=False)

    class Holder:
        def __reduce__(self) -> Any:
            return torch.storage._load_from_bytes, (stream.getvalue(),)

    path = tmp_path / "nested.pkl"
    path.write_bytes(pickle.dumps(Holder()))
    with open_checkpoint(path) as checkpoint:
        (issue,) = checkpoint.issues
    assert issue.code == "pickle-foreign-call"
    assert "posix.system" in issue.message or "nt.system" in issue.message
    assert issue.where == f"{path} (a storage in it)"


def test_damaged_nested_stream(tmp_path: Path) -> None:
    from ckpt_tools.errors import CorruptFile

    data = pickle.dumps({"w": torch.ones(4)})
    path = tmp_path / "damaged.pkl"
    path.write_bytes(data.replace(b"FloatStorage", b"FloatSt0rage"))
    with pytest.raises(CorruptFile, match="unknown class"):
        open_checkpoint(path)
