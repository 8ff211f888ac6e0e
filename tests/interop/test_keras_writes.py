"""Files that Keras 3 writes, compared with the weights of the model that was saved."""

import json
import os
import zipfile

import numpy
import pytest
from typer.testing import CliRunner

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.importorskip("h5py")
keras = pytest.importorskip("keras")

from ckpt_tools.cli.app import app  # noqa: E402
from ckpt_tools.errors import CkptError, TruncatedFile  # noqa: E402
from ckpt_tools.formats import open_checkpoint  # noqa: E402


def small_model(dtype="float32"):
    inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, name="in1", dtype=dtype)], name="inner")
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(3, name="d1", dtype=dtype),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Flatten(),
            inner,
            keras.layers.Dense(1, name="d2", use_bias=False, dtype=dtype),
        ],
        name="whole",
    )
    model.compile("adam", "mse")
    return model


@pytest.fixture(scope="module")
def model():
    made = small_model()
    made.fit(numpy.ones((4, 2)), numpy.ones((4, 1)), verbose=0)
    return made


def by_alias(checkpoint):
    return {tensor.alias: tensor.numpy() for tensor in checkpoint.tensors.values() if tensor.alias}


def check_weights(checkpoint, model):
    found = by_alias(checkpoint)
    for weight in model.weights:
        name = weight.path.removeprefix("whole/")
        numpy.testing.assert_array_equal(found[name], numpy.asarray(weight), err_msg=name)


def test_weights(tmp_path, model):
    path = tmp_path / "m.weights.h5"
    model.save_weights(path)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "hdf5"
        assert checkpoint.producer == "Keras 3"
        assert ("layers", "dense", "vars", "0") in {e.key for e in checkpoint}
        assert not checkpoint.values
        check_weights(checkpoint, model)
        iteration = checkpoint.tensors["optimizer/vars/0"]
        assert iteration.info.dtype.name == "int64"
        assert (iteration.alias or "").startswith("adam") and (iteration.alias or "").endswith("/iteration")
        numbers = [int(e.key[2]) for e in checkpoint if e.key[:2] == ("optimizer", "vars")]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("packed", [False, True])
def test_archive(tmp_path, model, packed):
    path = tmp_path / "m.keras"
    model.save(path)
    if packed:
        with (
            zipfile.ZipFile(path) as stored,
            zipfile.ZipFile(tmp_path / "p.keras", "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name in stored.namelist():
                archive.writestr(name, stored.read(name))
        path = tmp_path / "p.keras"
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "keras"
        assert checkpoint.producer == f"Keras {keras.__version__}"
        check_weights(checkpoint, model)
        assert checkpoint.values["metadata.json/keras_version"] == keras.__version__
        assert json.loads(checkpoint.values["config.json"].read())["class_name"] == "Sequential"


def test_names_from_the_configuration(tmp_path, model):
    """Releases before 3.6 did not write names of layers beside the weights."""
    import h5py

    model.save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (tmp_path / "w.h5").write_bytes(members["model.weights.h5"])
    with h5py.File(tmp_path / "w.h5", "r+") as file:
        file.visititems(lambda name, node: node.attrs.pop("name", None))
    members["model.weights.h5"] = (tmp_path / "w.h5").read_bytes()
    with zipfile.ZipFile(tmp_path / "old.keras", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with open_checkpoint(tmp_path / "old.keras") as checkpoint:
        check_weights(checkpoint, model)


def test_legacy_files(tmp_path, model):
    import h5py
    from keras.src.legacy.saving import legacy_h5_format

    legacy_h5_format.save_model_to_hdf5(model, tmp_path / "whole.h5")
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
    for name in ("whole.h5", "weights.h5"):
        with open_checkpoint(tmp_path / name) as checkpoint:
            assert checkpoint.format == "hdf5"
            assert checkpoint.producer.startswith(f"Keras {keras.__version__}")
            found = by_alias(checkpoint)
            for weight in model.weights:
                alias = next(a for a in found if a.endswith(weight.path.removeprefix("whole/")))
                numpy.testing.assert_array_equal(found[alias], numpy.asarray(weight))
            order = [t.alias.rsplit("/", 1)[1] for k, t in checkpoint.tensors.items() if "/norm/" in k]
            assert order == ["gamma", "beta", "moving_mean", "moving_variance"]
    with open_checkpoint(tmp_path / "whole.h5") as checkpoint:
        assert json.loads(checkpoint.values["@training_config"])["loss"] == "mse"
        assert any(e.key[0] == "optimizer_weights" for e in checkpoint)


def test_names_split_over_several_attributes(tmp_path, model, monkeypatch):
    import h5py
    from keras.src.legacy.saving import legacy_h5_format

    monkeypatch.setattr(legacy_h5_format, "HDF5_OBJECT_HEADER_LIMIT", 30)
    with h5py.File(tmp_path / "w.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
        assert "layer_names" not in file.attrs
    with open_checkpoint(tmp_path / "w.h5") as checkpoint:
        assert [name.split("/")[0] for name in checkpoint.tensors][:2] == ["d1", "d1"]
        assert not [name for name in checkpoint.values if "_names" in name]


def test_bfloat16(tmp_path):
    model = small_model("bfloat16")
    model.save_weights(tmp_path / "m.weights.h5")
    with open_checkpoint(tmp_path / "m.weights.h5") as checkpoint:
        kernel = checkpoint.tensors["layers/dense/vars/0"]
        assert kernel.info.dtype.name == "bfloat16"
        assert kernel.tobytes() == numpy.asarray(model.layers[0].kernel).tobytes()
        assert not checkpoint.values


def test_sharded_weights(tmp_path, model):
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=1e-7)
    shards = sorted(tmp_path.glob("m_*.weights.h5"))
    assert len(shards) > 2
    with open_checkpoint(tmp_path / "m.weights.json") as checkpoint:
        assert checkpoint.format == "hdf5"
        check_weights(checkpoint, model)
        names = list(checkpoint.tensors)
    with open_checkpoint(shards[1]) as checkpoint:
        assert list(checkpoint.tensors) == names
    shards[1].unlink()
    with open_checkpoint(tmp_path / "m.weights.json") as checkpoint:
        assert [issue.code for issue in checkpoint.issues] == ["integrity-missing-shard"]
        assert 0 < len(checkpoint.tensors) < len(names)


def test_archives_cut_short_or_without_weights(tmp_path, model):
    model.save(tmp_path / "m.keras")
    whole = (tmp_path / "m.keras").read_bytes()
    (tmp_path / "cut.keras").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TruncatedFile, match="zip archive is truncated"):
        open_checkpoint(tmp_path / "cut.keras")
    with zipfile.ZipFile(tmp_path / "none.keras", "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", "{}")
    with pytest.raises(CkptError, match=r"neither model.weights.h5 nor model.weights.npz"):
        open_checkpoint(tmp_path / "none.keras")


def test_weights_as_numpy_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.keras", "w") as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.0.0"}')
        archive.writestr("config.json", "{}")
        numpy.savez(tmp_path / "w.npz", **{"layers/dense": numpy.array({"0": numpy.arange(3.0)}, object)})
        archive.write(tmp_path / "w.npz", "model.weights.npz")
    with open_checkpoint(tmp_path / "x.keras") as checkpoint:
        assert checkpoint.tensors["layers/dense/0"].numpy().tolist() == [0, 1, 2]


def test_names_of_layers_are_written_back(tmp_path):
    import h5py

    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="d")], name="inner")
    x = keras.Input((5, 2))
    outputs = [
        inner(keras.layers.LSTM(4, name="l")(x)),
        keras.layers.LSTM(4)(x),
        keras.layers.MultiHeadAttention(2, 3, name="mha")(x, x),
        keras.layers.Bidirectional(keras.layers.GRU(2, name="g"), name="bi")(x),
    ]
    model = keras.Model(x, outputs)
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    first, *copies = [tmp_path / f"{number}.weights.h5" for number in range(3)]
    model.save_weights(first)
    for source, copy in zip([first, *copies], copies):
        assert CliRunner().invoke(app, ["convert", str(source), str(copy)]).exit_code == 0
    names = []
    for path in (first, *copies):
        with h5py.File(path) as file:
            found = {}
            file.visititems(lambda where, node, found=found: found.update({where: node.attrs.get("name")}))
        names.append({where: name for where, name in found.items() if name is not None})
    with_variables = {where for where in names[0] if not where.startswith(("vars", "layers/input", "layers/dropout"))}
    unused = {where for where in with_variables if where.endswith(("_dropout_layer/vars", "_softmax/vars"))}
    assert names[1] == names[2] == {where: names[0][where] for where in with_variables - unused}
    assert names[1]["layers/lstm/vars"] == "l"
    with open_checkpoint(first) as before, open_checkpoint(copies[1]) as after:
        assert [entry.node.alias for entry in before if entry.key[0] != "optimizer"] == [
            entry.node.alias for entry in after if entry.key[0] != "optimizer"
        ]
    model.load_weights(copies[1])
