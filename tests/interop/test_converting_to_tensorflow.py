"""Every fixture converted to TensorFlow: ``tf.train.load_checkpoint`` finds the same bytes; objects and names restore."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy
import pytest
from converting import compare, converted, sound_cases
from fixture_cases import Case

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore")

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def facts_of(prefix: Path, wanted: set[str]) -> list[dict[str, Any]]:
    """The tensors of these names; values have names of their own in a bundle."""
    reader = tf.train.load_checkpoint(str(prefix))
    found = []
    for name, shape in reader.get_variable_to_shape_map().items():
        if name not in wanted:
            continue
        if reader.get_variable_to_dtype_map()[name] == tf.variant:
            found.append({"key": [name], "shape": shape, "sha256": None})
            continue
        value = numpy.asarray(reader.get_tensor(name))
        if value.dtype == object:
            data = b"".join(len(e).to_bytes(8, "little") + e for e in value.reshape(-1).tolist())
        else:
            data = numpy.ascontiguousarray(value).tobytes()
        found.append({"key": [name], "shape": shape, "sha256": hashlib.sha256(data).hexdigest()})
    return found


@pytest.mark.parametrize("case", sound_cases(), ids=lambda case: case.id)
@pytest.mark.parametrize("shard_nbytes", [None, 64])
def test_bundle(case: Case, shard_nbytes: int | None, tmp_path: Path) -> None:
    result = converted(case, "tf-bundle", tmp_path / "out", shard_nbytes)
    if any(name != name.encode("ascii", "backslashreplace").decode() for name, _, _ in result.facts):
        pytest.skip("names that are printed escaped")
    graph = {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    facts = result.facts
    for fact in [fact for fact in facts if fact[0] in graph]:
        del facts[fact]
    compare(facts, facts_of(result.path, {name for name, _, _ in facts}))


def test_names_restore(tmp_path: Path, ckpt: Any) -> None:
    numpy.savez(tmp_path / "in.npz", **{"net/dense/kernel": numpy.ones((2, 3), "f4"), "step": numpy.array(7, "i8")})
    assert ckpt("convert", "in.npz", "out", "--to", "tf-bundle").returncode == 0
    kernel = tf.Variable(tf.zeros((2, 3)), name="net/dense/kernel")
    step = tf.Variable(tf.zeros((), tf.int64), name="step")
    tf.train.Checkpoint(kernel=kernel, step=step).restore(str(tmp_path / "out")).assert_consumed()
    assert (kernel.numpy() == 1).all()
    assert step.numpy() == 7


def test_object_paths_restore(tmp_path: Path, ckpt: Any) -> None:
    """Names in the form of object paths, slots and an escaped name among them, get an object graph of their own."""
    arrays = {
        "model/w": 1.0,
        "model/layers/0/b..c": 2.0,
        "opt/rate": 3.0,
        "model/w/.OPTIMIZER_SLOT/opt/m": 4.0,
    }
    numpy.savez(tmp_path / "in.npz", **{name + VALUE: numpy.full(2, value, "f4") for name, value in arrays.items()})
    assert ckpt("convert", "in.npz", "out.index").returncode == 0
    layer = tf.train.Checkpoint(**{"b.c": tf.Variable(tf.zeros(2))})
    model = tf.train.Checkpoint(w=tf.Variable(tf.zeros(2)), layers=[layer])
    opt = tf.train.Checkpoint(rate=tf.Variable(tf.zeros(2)))
    status = tf.train.Checkpoint(model=model, opt=opt).restore(str(tmp_path / "out"))
    status.assert_existing_objects_matched()
    assert model.w.numpy().tolist() == [1, 1]
    assert getattr(layer, "b.c").numpy().tolist() == [2, 2]
    assert opt.rate.numpy().tolist() == [3, 3]
    listed = ckpt("convert", "out", "weights.npz", "--weights-only", "--json")
    assert "OPTIMIZER_SLOT" in listed.stdout.partition('"dropped"')[2]


@pytest.mark.parametrize(("prefix", "saves"), [("model", 1), ("ckpt-7", 7)])
def test_restore_is_content_with_object_paths(prefix: str, saves: int, tmp_path: Path, ckpt: Any) -> None:
    """``restore`` makes a save_counter, and ``assert_consumed`` wants it among what was saved."""
    numpy.savez(tmp_path / "in.npz", **{"net/w" + VALUE: numpy.ones(2, "f4")})
    made = ckpt("convert", "in.npz", prefix, "--to", "tf-bundle")
    assert made.returncode == 0
    assert "note: a save_counter is added" in made.stderr
    checkpoint = tf.train.Checkpoint(net=tf.train.Checkpoint(w=tf.Variable(tf.zeros(2))))
    checkpoint.restore(str(tmp_path / prefix)).assert_consumed()
    assert checkpoint.save_counter.numpy() == saves
    # one that is there stays, and nothing is added to a graph that came along
    for source, target in ((prefix, "again.npz"), ("again.npz", "other.index"), (prefix, "same.index")):
        copied = ckpt("convert", source, target)
        assert copied.returncode == 0
        assert "save_counter" not in copied.stderr
    checkpoint.restore(str(tmp_path / "other")).assert_consumed()
    assert checkpoint.save_counter.numpy() == saves


def test_a_keras_model_restores_whole_and_its_weights_alone(tmp_path: Path, ckpt: Any) -> None:
    import keras

    def build() -> Any:
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
        )
        model.compile("adam", "mse")
        return model

    model = build()
    model.fit(numpy.ones((4, 3)), numpy.ones((4, 2)), verbose=0)
    text = tf.Variable(["a", "bc"])
    tf.train.Checkpoint(model=model, optimizer=model.optimizer, text=text).save(str(tmp_path / "ck"))
    assert ckpt("convert", "ck-1", "copy", "--to", "tf-bundle").returncode == 0
    other = build()
    other.fit(numpy.zeros((4, 3)), numpy.ones((4, 2)), verbose=0)
    read = tf.Variable(["", ""])
    whole = tf.train.Checkpoint(model=other, optimizer=other.optimizer, text=read)
    whole.restore(str(tmp_path / "copy")).assert_consumed()
    assert read.numpy().tolist() == [b"a", b"bc"]
    for one, two in zip(model.weights + model.optimizer.variables, other.weights + other.optimizer.variables):
        assert (one.numpy() == two.numpy()).all()
    # what the optimizer's list is called after are weights, not its state
    assert ckpt("convert", "ck-1", "weights", "--to", "tf-bundle", "--weights-only").returncode == 0
    fresh = build()
    tf.train.Checkpoint(model=fresh).restore(str(tmp_path / "weights")).expect_partial()
    assert all((a.numpy() == b.numpy()).all() for a, b in zip(model.weights, fresh.weights))
    assert ckpt("convert", "ck-1", "weights.safetensors", "--weights-only").returncode == 0
    listed = ckpt("ls", "weights.safetensors", "--match", "*VALUE").stdout
    assert len(listed.splitlines()) == len(model.weights)


def test_averages_take_the_place_of_weights(tmp_path: Path, ckpt: Any, fixtures: Path) -> None:
    source = next((fixtures / "tf-bundle/slots-and-averages/input").glob("*.index"))
    run = ckpt("convert", source, "averages.npz", "--averages")
    assert run.returncode == 0, run.stderr
    raw = tf.train.load_checkpoint(str(source.with_suffix("")))
    with numpy.load(tmp_path / "averages.npz") as averages:
        assert averages.files
        for name in averages.files:
            shadow = f"{name}/ExponentialMovingAverage"
            assert (averages[name] == raw.get_tensor(shadow if raw.has_tensor(shadow) else name)).all()
        assert any(raw.has_tensor(f"{name}/ExponentialMovingAverage") for name in averages.files)
