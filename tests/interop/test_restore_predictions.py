"""What ``ckpt diff`` says of a restore, against what TensorFlow's restore does."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from ckpt_tools.formats import open_checkpoint
from ckpt_tools.models import load_model
from ckpt_tools.ops.restoring import predict

TWINS = Path(__file__).parent.parent / "twins"

#: What is saved, by what name; written with save(), the last one with write(), which has no counter.
SAVED = ["trained", "model_only", "stepped", "trained_extra", "model_written"]
RESTORED = ["trained", "model_only", "stepped", "extra", "trained_extra"]


@pytest.fixture(scope="module")
def twins(monkeypatch_module: pytest.MonkeyPatch) -> object:
    return importlib.import_module("keras_twins")


@pytest.fixture(scope="module")
def monkeypatch_module() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TWINS))
        patch.chdir(TWINS)
        yield patch
        sys.modules.pop("keras_twins", None)


def _make(twins: object, name: str) -> object:
    if name in ("trained_extra", "extra"):
        return (twins.trained if name == "trained_extra" else twins.model_only)(extra=True)
    return twins.model_only() if name == "model_written" else getattr(twins, name)()


@pytest.fixture(scope="module")
def checkpoints(twins: object, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("saved")
    paths = {}
    for name in SAVED:
        checkpoint = _make(twins, name)
        path = str(directory / name)
        paths[name] = checkpoint.write(path) if name == "model_written" else checkpoint.save(path)
    return paths


def _passes(check: object) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("live", RESTORED)
@pytest.mark.parametrize("saved", SAVED)
def test_the_prediction_is_what_tensorflow_does(
    twins: object, checkpoints: dict[str, str], saved: str, live: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twins, "under_test", lambda: _make(twins, live), raising=False)
    model = load_model("keras_twins:under_test")
    assert model.graph is not None
    with open_checkpoint(checkpoints[saved]) as checkpoint:
        predicted = predict(checkpoint, model.graph)
    assert predicted is not None

    status = _make(twins, live).restore(checkpoints[saved])
    assert predicted.passes_existing_objects_matched == _passes(status.assert_existing_objects_matched)
    assert predicted.passes_consumed == _passes(status.assert_consumed)


@pytest.mark.parametrize("below", ["", "net"])
def test_a_module_is_found_where_it_hangs(twins: object, tmp_path: Path, below: str) -> None:
    import tensorflow as tf

    module = twins.module()
    saved = tf.train.Checkpoint(net=module) if below else tf.train.Checkpoint(module)
    path = saved.save(str(tmp_path / "ckpt"))
    model = load_model("keras_twins:module")
    with open_checkpoint(path) as checkpoint:
        predicted = predict(checkpoint, model.graph)
    assert predicted.below == below
    assert predicted.passes_consumed
    assert "passes assert_consumed()" in predicted.sentences()[0]


def test_another_shape_makes_the_restore_itself_fail(twins: object, tmp_path: Path) -> None:
    import tensorflow as tf

    path = tf.train.Checkpoint(net=twins.module()).save(str(tmp_path / "ckpt"))
    model = load_model("keras_twins:wider_module")
    with open_checkpoint(path) as checkpoint:
        predicted = predict(checkpoint, model.graph)
    assert predicted.misshapen == ("w",)
    with pytest.raises(ValueError, match="shape"):
        tf.train.Checkpoint(net=twins.wider_module()).restore(path)


def test_the_answer_is_in_the_document(checkpoints: dict[str, str]) -> None:
    import json

    from typer.testing import CliRunner

    from ckpt_tools.cli.app import app

    result = CliRunner().invoke(app, ["diff", checkpoints["trained"], "keras_twins:small", "--json"])
    found = json.loads(result.stdout)
    assert (result.exit_code, found["equal"]) == (0, True)
    restore = found["restore"]
    assert (restore["below"], restore["assert_consumed"]) == ("model", False)
    assert restore["assert_existing_objects_matched"]
    assert "expect_partial" in found["notes"][0]
