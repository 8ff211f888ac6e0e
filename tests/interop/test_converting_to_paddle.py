"""Every fixture converted to Paddle: ``paddle.load`` takes it and finds the same bytes; layers and optimizers load it."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from converting import compare, converted, sound_cases
from fixture_cases import Case

paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("case", sound_cases(), ids=lambda case: case.id)
def test_pickle(case: Case, tmp_path: Path) -> None:
    import _paddle_facts
    from _expected import walk

    result = converted(case, "paddle-pickle", tmp_path / "out.pdparams")

    def describe(leaf: object) -> object:
        if isinstance(leaf, numpy.ndarray):
            return _paddle_facts.TensorFacts(str(leaf.dtype), list(leaf.shape), numpy.ascontiguousarray(leaf).tobytes())
        return _paddle_facts.describe_tensor(leaf)

    compare(result.facts, walk(paddle.load(str(result.path)), tensor_of=describe).tensors)  # type: ignore[arg-type]


def test_layers_and_optimizers_take_what_came_from_a_snapshot(tmp_path: Path, ckpt) -> None:  # type: ignore[no-untyped-def]
    net = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4))
    rate = paddle.optimizer.lr.StepDecay(0.1, 3)
    optimizer = paddle.optimizer.Adam(parameters=net.parameters(), learning_rate=rate)
    net(paddle.rand([2, 3])).sum().backward()
    optimizer.step()
    snapshot = {"epoch": 1, "iteration": 60, "main_params": net.state_dict(), "main_optimizer": optimizer.state_dict()}
    paddle.save(snapshot, str(tmp_path / "snapshot_iter_60.pdz"))
    for middle in ("s.safetensors", "s.npz", "s.h5", "s.index"):
        assert ckpt("convert", "snapshot_iter_60.pdz", middle).returncode == 0
        assert ckpt("convert", middle, "back.pdz", "--overwrite").returncode == 0
        back = paddle.load(str(tmp_path / "back.pdz"))
        assert (back["epoch"], back["iteration"]) == (1, 60)
        assert [t.name for t in back["main_params"].values()] == [t.name for t in net.state_dict().values()]
        assert not any(map(len, net.set_state_dict(back["main_params"])))
        optimizer.set_state_dict(back["main_optimizer"])
    assert ckpt("convert", "back.pdz", "opt.pdopt", "--root", "main_optimizer").returncode == 0
    optimizer.set_state_dict(paddle.load(str(tmp_path / "opt.pdopt")))


def test_bare_arrays_stay_numpys_beside_tensors(tmp_path: Path, ckpt) -> None:  # type: ignore[no-untyped-def]
    saved = {"w": paddle.ones([2], dtype="bfloat16"), "ids": numpy.array([1, 2], "u2"), "s": numpy.float32(0.5)}
    paddle.save({"nest": saved}, str(tmp_path / "a.pdz"))
    assert ckpt("convert", "a.pdz", "b.pdz").returncode == 0
    back = paddle.load(str(tmp_path / "b.pdz"))["nest"]
    assert back["ids"].dtype == "uint16"
    assert isinstance(back["ids"], numpy.ndarray)
    assert back["w"].dtype == paddle.bfloat16
    assert isinstance(back["s"], numpy.float32)
