"""Every fixture converted to PyTorch: ``torch.load`` takes it, weights only and mapped, and finds the same bytes."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from converting import Converted, compare, converted, sound_cases
from fixture_cases import Case

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")


def facts_of(path: Path, **options: object) -> list[dict[str, object]]:
    from _torch_facts import list_object

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list_object(torch.load(path, **options)).tensors


@pytest.mark.parametrize("case", sound_cases(), ids=lambda case: case.id)
def test_zip(case: Case, tmp_path: Path) -> None:
    result = converted(case, "torch-zip", tmp_path / "out.pth")
    compare(result.facts, facts_of(result.path, weights_only=True))
    compare(result.facts, facts_of(result.path, weights_only=True, mmap=True))


@pytest.mark.parametrize("case", sound_cases(), ids=lambda case: case.id)
def test_legacy(case: Case, tmp_path: Path) -> None:
    result = converted(case, "torch-legacy", tmp_path / "out.pth")
    compare(result.facts, facts_of(result.path, weights_only=True))


def test_offsets_can_be_computed(tmp_path: Path) -> None:
    from torch.utils.serialization import config

    case = next(case for case in sound_cases() if case.id == "torch-zip/views")
    result = converted(case, "torch-zip", tmp_path / "out.pth")
    before = config.load.calculate_storage_offsets
    config.load.calculate_storage_offsets = True
    try:
        compare(result.facts, facts_of(result.path, mmap=True))
    finally:
        config.load.calculate_storage_offsets = before


def written(tmp_path: Path, saved: object) -> Converted:
    from ckpt_tools.formats import open_checkpoint
    from ckpt_tools.ops.convert import Wishes, plan
    from ckpt_tools.ops.writing import write

    torch.save(saved, tmp_path / "in.pth")
    with open_checkpoint(tmp_path / "in.pth") as checkpoint:
        conversion = plan(checkpoint, tmp_path / "out.pth", Wishes("torch-zip", allow_loss=True))
        write(conversion, overwrite=False, check=True)
    return Converted(conversion, tmp_path / "out.pth", conversion.moves)  # type: ignore[arg-type]


def test_tied_weights_stay_tied_and_views_go_on_sharing(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    result = written(tmp_path, {"a": base, "tied": base, "transposed": base.t(), "row": base[1]})
    back = torch.load(result.path)
    assert len({t.untyped_storage().data_ptr() for t in back.values()}) == 1
    assert back["transposed"].equal(base.t())
    assert back["row"].equal(base[1])


def test_views_that_do_not_overlap_get_storages_of_their_own(tmp_path: Path) -> None:
    whole = torch.arange(1_000_000.0)
    result = written(tmp_path, {"head": whole[:10], "tail": whole[-10:], "every": whole[::250_000]})
    assert result.path.stat().st_size < 5_000
    back = torch.load(result.path)
    assert back["head"].equal(whole[:10])
    assert back["tail"].equal(whole[-10:])
    assert any("larger storages" in note for note in result.conversion.notes)


def test_state_dicts_keep_their_order_and_versions(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    result = written(tmp_path, {"model": net.state_dict(), "epoch": 3})
    back = torch.load(result.path)
    assert list(back["model"]) == list(net.state_dict())
    assert back["model"]._metadata == net.state_dict()._metadata
    net.load_state_dict(back["model"])


def test_optimizer_state_loads(tmp_path: Path) -> None:
    net = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    result = written(tmp_path, {"optimizer": optimizer.state_dict()})
    back = torch.load(result.path)["optimizer"]
    optimizer.load_state_dict(back)
    assert back["param_groups"] == optimizer.state_dict()["param_groups"]
    assert list(back["state"]) == [0, 1]


def test_values_of_every_plain_kind(tmp_path: Path) -> None:
    saved = {
        "t": torch.ones(1),
        "int": 5,
        "big": 2**100,
        "negative": -1,
        "float": 0.1,
        "nan": float("inf"),
        "bool": True,
        "none": None,
        "text": "ü\n",
        "long": "x" * 10_000,
        "bytes": b"\x00\xff" * 100,
        "empty": b"",
        "complex": 1 + 2j,
        "list": [1, [2, {}], ()],
        "tuple": (1, 2, 3, 4),
        "set": {1, 2},
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        3: "number",
        (1, "x"): "pair",
    }
    result = written(tmp_path, saved)
    assert not result.conversion.losses
    back = torch.load(result.path)
    assert {k: v for k, v in back.items() if k != "t"} == {k: v for k, v in saved.items() if k != "t"}
    assert [type(v) for k, v in back.items() if k != "size"] == [type(v) for k, v in saved.items() if k != "size"]
