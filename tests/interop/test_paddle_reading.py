"""What paddle writes lists as paddle loads it: names, element types, shapes and digests, computed by paddle alone."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # paddle misses ccache
    import paddle
    from paddle.distributed.flex_checkpoint.dcp.metadata import LocalTensorIndex, LocalTensorMetadata, Metadata

from ckpt_tools import open_checkpoint
from ckpt_tools.core.keys import Key
from ckpt_tools.ops.listing import digest

Facts = tuple[str, list[int], str]

pytestmark = pytest.mark.filterwarnings("ignore")


def facts_of(leaf: Any) -> Facts:
    values = leaf.numpy() if isinstance(leaf, paddle.Tensor) else leaf
    dtype = str(leaf.dtype).removeprefix("paddle.")
    return dtype, list(leaf.shape), hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def leaves(node: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    if isinstance(node, dict):
        for part, below in node.items():
            yield from leaves(below, (*key, part))
    elif isinstance(node, (list, tuple)):
        for index, below in enumerate(node):
            yield from leaves(below, (*key, index))
    else:
        yield key, node


def loaded(root: Any) -> dict[Key, Facts]:
    return {key: facts_of(leaf) for key, leaf in leaves(root) if isinstance(leaf, (paddle.Tensor, np.ndarray))}


def listed(path: Path) -> dict[Key, Facts]:
    with open_checkpoint(path) as checkpoint:
        return {
            entry.key: (entry.node.info.dtype.name, list(entry.node.info.shape), digest(entry.node))
            for entry in checkpoint
            if entry.is_tensor
        }


def format_of(path: Path) -> str:
    with open_checkpoint(path) as checkpoint:
        return checkpoint.format


def ramp(*shape: int, dtype: str = "float32") -> paddle.Tensor:
    return paddle.arange(int(np.prod(shape)), dtype="float32").reshape(shape).astype(dtype)


def trained() -> tuple[paddle.nn.Layer, paddle.optimizer.Optimizer]:
    net = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.BatchNorm1D(3), paddle.nn.Linear(3, 2))
    schedule = paddle.optimizer.lr.StepDecay(0.1, 2)
    optimizer = paddle.optimizer.Adam(schedule, parameters=net.parameters())
    net(ramp(5, 4)).sum().backward()
    optimizer.step()
    schedule.step()
    return net, optimizer


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_snapshots_of_a_trainer(protocol: int, tmp_path: Path) -> None:
    net, optimizer = trained()
    path = tmp_path / "snapshot_iter_60.pdz"
    state = {"epoch": 2, "iteration": 60, "main_params": net.state_dict(), "main_optimizer": optimizer.state_dict()}
    paddle.save(state, str(path), protocol=protocol)
    assert listed(path) == loaded(paddle.load(str(path)))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "paddle-pickle"
        assert checkpoint.values["iteration"] == 60
        assert checkpoint.tensors["main_params/0.weight"].alias == net[0].weight.name
        assert checkpoint.issues == []


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("kind", ["params", "optimizer"])
def test_state_dicts(kind: str, protocol: int, tmp_path: Path) -> None:
    net, optimizer = trained()
    path = tmp_path / "model.pdparams"
    paddle.save(net.state_dict() if kind == "params" else optimizer.state_dict(), str(path), protocol=protocol)
    assert listed(path) == loaded(paddle.load(str(path)))
    assert loaded(paddle.load(str(path)))


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64"]
)
@pytest.mark.parametrize("nested", [False, True], ids=["state-dict", "nested"])
def test_element_types(dtype: str, nested: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.pdparams"
    tensors = {"w": ramp(2, 3, dtype=dtype), "scalar": paddle.to_tensor(2.0), "none": paddle.zeros([0, 3])}
    paddle.save({"step": 1, "net": tensors} if nested else tensors, str(path))
    assert listed(path) == loaded(paddle.load(str(path)))


def test_one_tensor_under_two_names_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "x.pdz"
    weight = ramp(2, 2)
    paddle.save({"step": 1, "encoder": [weight], "decoder": weight}, str(path))
    with open_checkpoint(path) as checkpoint:
        first, second = checkpoint.tensors.values()
        assert first.storage is second.storage


BITS = np.array([16256, 49184, 16464], "<u2")
FLOATS = np.ones(2, "<f4")


@pytest.mark.parametrize(
    "root",
    [
        {"a": BITS, "b": FLOATS},
        {"a": BITS, "b": ("name", FLOATS)},
        {"a": ("name", BITS), "b": BITS},
        {"a": BITS, "b": BITS.copy(), "StructuredToParameterName@@": {"a": "x"}},
        {"a": [BITS, ("deep", [("name", FLOATS), 1])], "b": (1, BITS)},
        {"a": [1, (BITS, "text")], "b": {3: BITS}},
        BITS,
        ("name", BITS),
        [("name", BITS), BITS],
        {"a": np.arange(6, dtype="<i2").reshape(2, 3), "b": np.asfortranarray(np.arange(6.0).reshape(2, 3))},
        {"a": np.arange(24, dtype="<f8").reshape(2, 3, 4).transpose(2, 0, 1)},
    ],
    ids=range(11),
)
@pytest.mark.parametrize("protocol", range(6))
def test_which_arrays_are_tensors(root: Any, protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pdparams"
    path.write_bytes(pickle.dumps(root, protocol))
    assert listed(path) == loaded(paddle.load(str(path)))


@pytest.mark.parametrize("protocol", range(5))
def test_big_endian_arrays(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pdparams"
    path.write_bytes(pickle.dumps({"a": np.arange(6, dtype=">f4").reshape(2, 3)}, protocol))
    assert listed(path) == loaded(paddle.load(str(path)))


def test_slices_of_big_arrays(tmp_path: Path) -> None:
    path = tmp_path / "big.pdparams"
    values = np.arange(24, dtype="f4")
    state = {
        "first": FLOATS,
        "emb@@.0": values[:10],
        "emb@@.1": values[10:20],
        "emb@@.2": values[20:],
        "last": FLOATS,
        "UnpackBigParamInfor@@": {"emb": {"OriginShape": (6, 4), "slices": ["emb@@.0", "emb@@.1", "emb@@.2"]}},
        "StructuredToParameterName@@": {"first": "f", "emb": "embedding_0.w_0", "last": "l"},
    }
    path.write_bytes(pickle.dumps(state, 2))
    assert listed(path) == loaded(paddle.load(str(path)))
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == ["first", "emb", "last"]
        assert checkpoint.tensors["emb"].alias == "embedding_0.w_0"


BINARY_DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool"]


@pytest.mark.parametrize("dtype", [*BINARY_DTYPES, "complex64", "complex128"])
def test_binary_tensors(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "tensor.bin"
    tensor = ramp(2, 3, dtype=dtype)
    paddle.save(tensor, str(path), use_binary_format=True)
    assert listed(path) == {(): facts_of(tensor)}
    assert format_of(path) == "paddle-binary"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_binary_tensors_keep_float8(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "tensor.bin"
    tensor = ramp(2, 3, dtype=dtype)
    paddle.save(tensor, str(path), use_binary_format=True)
    with open_checkpoint(path) as checkpoint:
        values = checkpoint.tensors["."].numpy()
    assert values.dtype.name == dtype
    assert values.astype("f4").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_selected_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    rows = paddle.base.core.SelectedRows([0, 4, 7], 20)
    values = np.arange(6, dtype="f4").reshape(3, 2)
    rows.get_tensor().set(values, paddle.CPUPlace())
    paddle.save(rows, str(path), use_binary_format=True)
    parts = np.array([0, 4, 7], "<i8").tobytes() + values.tobytes()
    assert listed(path) == {(): ("float32", [20, 2], hashlib.sha256(parts).hexdigest())}


def test_parameters_of_a_program(tmp_path: Path) -> None:
    net, _ = trained()
    net.eval()
    paddle.jit.save(net, str(tmp_path / "inference"), input_spec=[paddle.static.InputSpec([None, 4], "float32")])
    by_name = {(tensor.name,): facts_of(tensor) for tensor in net.state_dict().values()}
    assert listed(tmp_path / "inference.pdiparams") == by_name
    assert listed(tmp_path / "inference.json") == by_name
    (tmp_path / "inference.json").unlink()
    assert list(listed(tmp_path / "inference.pdiparams").values()) == [by_name[key] for key in sorted(by_name)]


def test_a_directory_of_variables(tmp_path: Path) -> None:
    tensors = {"fc_0.w_0": ramp(3, 2), "block/fc_0.b_0": ramp(2), "@COUNTER@": ramp(1, dtype="int64"), "crfw": ramp(4)}
    for name, tensor in tensors.items():
        paddle.save(tensor, str(tmp_path / name), use_binary_format=True)
    wanted = {(name,): facts_of(tensor) for name, tensor in tensors.items()}
    assert listed(tmp_path) == wanted
    assert loaded(paddle.load(str(tmp_path))) == wanted
    assert format_of(tmp_path) == "paddle-vars"
    assert listed(tmp_path / "fc_0.w_0") == {("fc_0.w_0",): wanted["fc_0.w_0",]}


def test_a_distributed_checkpoint_of_one_process(tmp_path: Path) -> None:
    tree = {"model": {"w": ramp(2, 3), "half": ramp(3, dtype="bfloat16")}, "step": ramp(1, dtype="int64")}
    paddle.distributed.save_state_dict(tree, str(tmp_path))
    assert listed(tmp_path) == loaded(tree)


def write_shards(directory: Path) -> dict[str, np.ndarray]:
    """Two ranks: ``w`` is cut along its first axis, ``b`` is flattened and cut, ``bits`` lie on the second alone."""
    w, b = np.arange(24, dtype="f4").reshape(4, 6), np.arange(10, dtype="f4")
    first = {"w": w[:2], "b": b[:7]}
    second = {"w": w[2:], "b": b[7:], "bits": np.ones(3, "f4")}
    for rank, shard in enumerate((first, second)):
        tensors = {name: paddle.to_tensor(values) for name, values in shard.items()}
        paddle.save(tensors, str(directory / f"{rank}_0.distcp"))
    part = LocalTensorMetadata
    tensors = {
        "w": [part((0, 0), (2, 6), "float32", (4, 6)), part((2, 0), (2, 6), "float32", (4, 6))],
        "b": [
            part((0,), (10,), "float32", (10,), True, (0, 7)),
            part((0,), (10,), "float32", (10,), True, (7, 10)),
        ],
        "bits": [part((0,), (3,), "float32", (3,))],
    }
    index = LocalTensorIndex
    files = {
        index("w", (0, 0), local_shape=(2, 6)): "0_0.distcp",
        index("w", (2, 0), local_shape=(2, 6)): "1_0.distcp",
        index("b", (0,), True, (0, 7), local_shape=(10,)): "0_0.distcp",
        index("b", (0,), True, (7, 10), local_shape=(10,)): "1_0.distcp",
        index("bits", (0,), local_shape=(3,)): "1_0.distcp",
    }
    with (directory / "0.metadata").open("wb") as file:
        pickle.dump(Metadata(tensors, files, {name: (name,) for name in tensors}), file)
    return {"w": w, "b": b, "bits": np.ones(3, "f4")}


def test_a_distributed_checkpoint_of_two_ranks(tmp_path: Path) -> None:
    whole = write_shards(tmp_path)
    state = {name: paddle.zeros(list(values.shape)) for name, values in whole.items()}
    paddle.distributed.load_state_dict(state, str(tmp_path))
    assert all((state[name].numpy() == values).all() for name, values in whole.items())
    assert listed(tmp_path) == loaded(state)
    assert listed(tmp_path / "1_0.distcp") == loaded(state)


def test_a_rank_is_missing(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "1_0.distcp").unlink()
    with open_checkpoint(tmp_path) as checkpoint:
        assert list(checkpoint.tensors) == ["w", "b", "bits"]
        assert {issue.code for issue in checkpoint.issues} == {"integrity-data-file", "integrity-missing-part"}
        assert "1_0.distcp" in str(checkpoint.issues)
