"""What TensorFlow writes, read here and by TensorFlow itself: the same names, dtypes, shapes and values."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from ckpt_tools import open_checkpoint
from ckpt_tools.core.purposes import Role
from ckpt_tools.ops.listing import digest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow", reason="the real framework is what this compares with")
v1 = tf.compat.v1

Listing = dict[str, tuple[str, list[int], str]]


def sha256(value: Any, dtype: Any) -> str:
    """SHA-256 of row-major little-endian bytes; of texts, each length as 64 bits, then the text."""
    if dtype == tf.string:
        return hashlib.sha256(
            b"".join(len(e).to_bytes(8, "little") + e for e in np.asarray(value, object).reshape(-1))
        ).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def by_tensorflow(prefix: Path) -> Listing:
    reader = tf.train.load_checkpoint(str(prefix))
    dtypes = reader.get_variable_to_dtype_map()
    return {
        name: (dtypes[name].name, shape, sha256(reader.get_tensor(name), dtypes[name]))
        for name, shape in reader.get_variable_to_shape_map().items()
    }


def by_us(path: Path) -> Listing:
    with open_checkpoint(path) as checkpoint:
        assert not checkpoint.issues
        return {
            name: (tensor.info.dtype.name, list(tensor.info.shape), digest(tensor))
            for name, tensor in checkpoint.tensors.items()
        }


DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("uint64", "bool", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn"),
)


def test_every_dtype(tmp_path: Path) -> None:
    values = {name: tf.Variable(tf.cast(tf.constant([[0.0, 1, 2], [3, 1, 0]]), name)) for name in DTYPES}
    values["scalar"] = tf.Variable(3.5)
    values["empty"] = tf.Variable(tf.zeros([0, 4]))
    values["texts"] = tf.Variable([["a", "", "ü" * 200], ["b\0c", "d", "e"]])
    values["no_texts"] = tf.Variable(tf.zeros([0], tf.string))
    prefix = Path(tf.train.Checkpoint(**values).write(str(tmp_path / "all")))
    assert by_us(prefix) == by_tensorflow(prefix)


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e4m3fnuz"])
def test_narrow_types_take_a_byte_for_each_value(tmp_path: Path, name: str) -> None:
    import ml_dtypes

    value = np.array([1, 0, 1, 1, 0], getattr(ml_dtypes, name))
    prefix = str(tmp_path / "narrow")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["x"], shape_and_slices=[""], tensors=[tf.constant(value)])
    assert by_us(Path(prefix)) == {"x": (name, [5], sha256(value, tf.as_dtype(value.dtype)))}


def test_a_model_with_its_optimizer(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    )
    optimizer = keras.optimizers.Adam(use_ema=True)
    optimizer.build(model.trainable_variables)
    prefix = Path(tf.train.Checkpoint(model=model, optimizer=optimizer).save(str(tmp_path / "ckpt")))
    assert by_us(prefix) == by_us(tmp_path) == by_us(tmp_path / "checkpoint") == by_tensorflow(prefix)
    with open_checkpoint(prefix) as checkpoint:
        roles = {checkpoint.tensors[key].alias: purpose.role for (key,), purpose in checkpoint.purposes.items()}
        weights = {alias for alias, role in roles.items() if role is Role.WEIGHT}
        assert weights == {variable.path for variable in model.weights if "seed" not in variable.path}
        assert sum(role is Role.AVERAGE for role in roles.values()) == len(model.trainable_variables)
        assert sum(role is Role.OPTIMIZER for role in roles.values()) == 1 + 2 * len(model.trainable_variables)
        slots = {(p.of, p.slot) for p in checkpoint.purposes.values() if p.slot == "momentums"}
        assert {checkpoint.tensors[of[0]].alias for of, _ in slots} == {v.path for v in model.trainable_variables}


def test_a_saved_model(tmp_path: Path) -> None:
    module = tf.Module()
    module.kernel = tf.Variable(tf.reshape(tf.range(12.0), [3, 4]), name="kernel")
    module.parts = [tf.Variable([1, 2]), {"a/b.c": tf.Variable(7.0)}]
    tf.saved_model.save(module, str(tmp_path))
    assert by_us(tmp_path) == by_tensorflow(tmp_path / "variables" / "variables")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.producer.startswith(f"tensorflow {tf.__version__}, ")


def saved_in_graph_mode(directory: Path, *, sharded: bool) -> tuple[Path, Path]:
    """A Saver's checkpoints in both formats: variables partitioned by rows and by columns, slots, on two devices."""
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
        with tf.device("/cpu:0"):
            rows = v1.get_variable(
                "rows", [7, 3], initializer=v1.random_normal_initializer(), partitioner=v1.fixed_size_partitioner(3)
            )
            step = v1.train.get_or_create_global_step()
        with tf.device("/cpu:1"):
            v1.get_variable(
                "columns",
                [2, 200],
                tf.float64,
                v1.random_normal_initializer(),
                partitioner=v1.fixed_size_partitioner(3, 1),
            )
            v1.get_variable("small", initializer=tf.constant([-3, 300, 70_000, -(2**31)], tf.int32))
            v1.get_variable("large", initializer=tf.constant([-1, 2**62, -(2**63)], tf.int64))
            v1.get_variable("half", initializer=tf.constant([1.5, -0.0, np.inf], tf.float16))
            v1.get_variable("bytes", initializer=tf.constant([0, 255, 7], tf.uint8))
            v1.get_variable("flags", initializer=tf.constant([True, False]))
            v1.get_variable("names", initializer=tf.constant([["a", ""], ["ccc", "d"]]))
            v1.get_variable("waves", initializer=tf.constant([1 + 2j, -3j], tf.complex64))
        v1.train.AdamOptimizer().minimize(tf.reduce_sum([tf.reduce_sum(part) for part in rows]), step)
        session.run(v1.global_variables_initializer())
        prefixes = directory / "v1" / "model.ckpt", directory / "v2" / "model.ckpt"
        for prefix, version in zip(prefixes, (v1.train.SaverDef.V1, v1.train.SaverDef.V2), strict=True):
            prefix.parent.mkdir()
            v1.train.Saver(write_version=version, sharded=sharded).save(session, str(prefix))
    return prefixes


@pytest.mark.parametrize("sharded", [False, True])
def test_a_saver(tmp_path: Path, sharded: bool) -> None:
    _, prefix = saved_in_graph_mode(tmp_path, sharded=sharded)
    assert by_us(prefix) == by_us(Path(f"{prefix}.meta")) == by_tensorflow(prefix)
    with open_checkpoint(prefix) as checkpoint:
        assert checkpoint.facts["data files"] == ("2" if sharded else "1")
        assert checkpoint.tensors["columns"].note == "3 slices"
        assert checkpoint.producer.startswith(f"tensorflow {tf.__version__}, ")


@pytest.mark.parametrize("sharded", [False, True])
def test_a_saver_of_the_first_format(tmp_path: Path, sharded: bool) -> None:
    prefix, second = saved_in_graph_mode(tmp_path, sharded=sharded)
    named = Path(f"{prefix}-?????-of-00002") if sharded else prefix
    # TensorFlow's own reader takes neither slices nor complex numbers in this format, so its second one is the truth
    assert by_us(prefix) == by_us(named) == by_us(prefix.parent / "checkpoint") == by_tensorflow(second)
    with open_checkpoint(prefix) as checkpoint:
        assert checkpoint.format == "tf-v1"
        assert checkpoint.purposes["rows/Adam",].role is Role.OPTIMIZER


def test_state_of_an_iterator(tmp_path: Path) -> None:
    """Variants have no values to compare; their checksums are checked while they are read."""
    iterator = iter(tf.data.Dataset.range(10).shuffle(4).batch(2))
    next(iterator)
    prefix = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "it"))
    with open_checkpoint(prefix) as checkpoint:
        assert not checkpoint.issues
        variants = [tensor for tensor in checkpoint.tensors.values() if tensor.info.dtype.name == "variant"]
        assert variants
        for tensor in variants:
            assert len(tensor.elements()) == tensor.info.count  # type: ignore[attr-defined]


def test_a_vocabulary_table(tmp_path: Path) -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(["b", "a"], [1, 2])
    prefix = Path(tf.train.Checkpoint(table=table).write(str(tmp_path / "t")))
    assert by_us(prefix) == by_tensorflow(prefix)
