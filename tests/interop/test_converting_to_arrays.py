"""Every fixture converted to safetensors, npz and HDF5: their own libraries find the same bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy
import pytest
from converting import compare, converted, sound_cases
from fixture_cases import Case

pytestmark = pytest.mark.filterwarnings("ignore")


def fact(name: str, array: Any) -> dict[str, Any]:
    if array.dtype == object:  # texts
        data = b"".join(len(text).to_bytes(8, "little") + text for text in array.reshape(-1).tolist())
    else:
        data = numpy.ascontiguousarray(array).tobytes()
    return {"key": [name], "shape": array.shape, "sha256": hashlib.sha256(data).hexdigest()}


@pytest.mark.parametrize("case", sound_cases(), ids=lambda case: case.id)
@pytest.mark.parametrize("shard_nbytes", [None, 64])
def test_safetensors(case: Case, shard_nbytes: int | None, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors")
    result = converted(case, "safetensors", tmp_path / "out.safetensors", shard_nbytes)
    found = []
    for planned in result.conversion.write_plan.files:
        if planned.path.suffix != ".safetensors":
            continue
        with safetensors.safe_open(planned.path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                tensor = file.get_tensor(name)
                flat = tensor.contiguous().reshape(-1)
                data = flat.view(torch.uint8).numpy() if flat.numel() else numpy.empty(0, "u1")
                digest = hashlib.sha256(data.tobytes()).hexdigest()
                found.append({"key": [name], "shape": tuple(file.get_slice(name).get_shape()), "sha256": digest})
    compare(result.facts, found)


@pytest.mark.parametrize("case", sound_cases(), ids=lambda case: case.id)
def test_npz(case: Case, tmp_path: Path) -> None:
    result = converted(case, "npz", tmp_path / "out.npz")
    names = {name for name, _, _ in result.facts}
    with numpy.load(result.path, allow_pickle=False) as arrays:
        compare(result.facts, [fact(name, arrays[name]) for name in arrays.files if printed(name) in names])


@pytest.mark.parametrize("case", sound_cases(), ids=lambda case: case.id)
def test_hdf5(case: Case, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    result = converted(case, "hdf5", tmp_path / "out.h5")
    found: list[dict[str, Any]] = []
    with h5py.File(result.path) as file:
        file.visititems(lambda name, node: found.append(fact(name, node[()])) if hasattr(node, "dtype") else None)
    compare(result.facts, found)


def printed(name: str) -> str:
    from ckpt_tools.core.keys import printable

    return printable(name)


def test_keras_loads_what_came_from_its_own_files(tmp_path: Path, ckpt: Any) -> None:
    keras = pytest.importorskip("keras")

    def build(last: str = "bfloat16") -> Any:
        return keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(4, name="enc"),
                keras.layers.BatchNormalization(name="bn"),
                keras.layers.Dense(2, name="head", dtype=last),
            ]
        )

    # Keras reads no bfloat16 from its older files
    for source, target, last in (("whole.h5", "copy.h5", "float32"), ("a.weights.h5", "b.weights.h5", "bfloat16")):
        model = build(last)
        model.compile("adam", "mse")
        model.fit(numpy.ones((4, 3)), numpy.ones((4, 2)), verbose=0)
        (model.save if source == "whole.h5" else model.save_weights)(tmp_path / source)
        assert ckpt("convert", source, target).returncode == 0
        fresh = build(last)
        fresh.load_weights(tmp_path / target)
        assert all((a.numpy() == b.numpy()).all() for a, b in zip(model.weights, fresh.weights))
    assert ckpt("convert", "a.weights.h5", "a.pth").returncode == 0
    assert ckpt("convert", "a.pth", "c.weights.h5").returncode == 0
    fresh = build()
    fresh.load_weights(tmp_path / "c.weights.h5")
    assert all((a.numpy() == b.numpy()).all() for a, b in zip(model.weights, fresh.weights))
    assert keras.models.load_model(tmp_path / "copy.h5", compile=False).count_params() == model.count_params()
