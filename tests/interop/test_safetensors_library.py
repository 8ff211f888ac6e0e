"""Files written by the safetensors library, digests computed from what was given to it."""

import hashlib

import ml_dtypes
import numpy
import pytest

from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.listing import digest

safetensors_numpy = pytest.importorskip("safetensors.numpy")

TYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "b1", "c8", ml_dtypes.bfloat16]


def test_every_type_of_the_numpy_binding(tmp_path):
    arrays = {}
    for kind in map(numpy.dtype, TYPES):
        try:
            safetensors_numpy.save({"x": numpy.zeros(1, kind)})
        except (KeyError, ValueError):
            continue  # not in this release of the library
        arrays[f"layer.{kind.name}"] = numpy.arange(6).reshape(2, 3).astype(kind)
    arrays["empty"] = numpy.zeros((0, 4), "f4")
    arrays["scalar"] = numpy.array(3, "i8")
    assert len(arrays) > 12
    path = tmp_path / "x.safetensors"
    safetensors_numpy.save_file(arrays, path, metadata={"format": "np", "step": "3"})
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint.tensors) == set(arrays)
        assert checkpoint.values["__metadata__/step"] == "3"
        for name, array in arrays.items():
            tensor = checkpoint.tensors[name]
            assert tensor.info.dtype.name == array.dtype.name
            assert tensor.info.shape == array.shape
            assert digest(tensor) == hashlib.sha256(array.tobytes()).hexdigest()


def test_a_file_of_the_torch_binding(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    state = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()
    state["half"] = torch.arange(4.0).bfloat16()
    save_file(state, tmp_path / "x.safetensors", metadata={"format": "pt"})
    with open_checkpoint(tmp_path / "x.safetensors") as checkpoint:
        assert set(checkpoint.tensors) == set(state)
        for name, value in state.items():
            assert checkpoint.tensors[name].tobytes() == value.reshape(-1).view(torch.uint8).numpy().tobytes()
