"""``ckpt convert`` as people run it: what is selected, renamed, refused and said; exit codes; JSON."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from typer.testing import CliRunner

from ckpt_tools.cli.app import app
from ckpt_tools.formats import open_checkpoint


@pytest.fixture
def convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["convert", *map(str, arguments)])


class Namespace:
    """Stands for a class of somebody's project."""

    def __init__(self) -> None:
        self.rate = 0.5


class Call:
    def __reduce__(self) -> Any:
        return print, ("never",)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """A training's state as a plain pickle: nested arrays, values, an object of a foreign class."""
    weights = {"enc.weight": numpy.arange(6, dtype="f4").reshape(2, 3), "enc.bias": numpy.ones(2, "f4")}
    state = {
        "model": weights,
        "optimizer": {"state": {0: {"step": numpy.array(7.0, "f4")}}, "param_groups": [{"lr": 0.1}]},
        "epoch": 3,
        "name": "run",
    }
    (tmp_path / "state.pkl").write_bytes(pickle.dumps(state, protocol=4))
    return "state.pkl"


def names(path: str | Path) -> list[str]:
    with open_checkpoint(path) as checkpoint:
        return [entry.name for entry in checkpoint.entries]


def test_everything_goes_along(convert: Any, snapshot: str) -> None:
    result = convert(snapshot, "out.npz")
    assert result.exit_code == 0
    assert names("out.npz") == names(snapshot)
    assert result.stdout == ""
    assert "wrote out.npz: npz, 3 tensors, 3 values" in result.stderr


CLASS_AS_KEY = {"callbacks": {Namespace: {"best": 1.0}}, "w": numpy.ones(2, "f4")}
TARGETS = ("out.pth", "out.pdparams", "out.npz", "out.safetensors", "out.index", "out.h5")


@pytest.mark.parametrize("target", TARGETS)
def test_a_class_as_a_key_is_a_loss(convert: Any, tmp_path: Path, target: str) -> None:
    """PyTorch Lightning kept the state of callbacks by their class."""
    (tmp_path / "old.ckpt").write_bytes(pickle.dumps(CLASS_AS_KEY, protocol=4))
    refused = convert("old.ckpt", target)
    assert refused.exit_code == 5
    assert "Namespace/best: below a key that is the name" in refused.stderr
    assert convert("old.ckpt", target, "--allow-loss").exit_code == 3
    assert [name for name in names(target) if not name.startswith("__metadata__")] == ["w"]
    assert convert("old.ckpt", target, "--weights-only", "--overwrite").exit_code == 0


@pytest.mark.parametrize("target", TARGETS)
def test_keys_of_numpy_are_those_of_python(convert: Any, tmp_path: Path, target: str) -> None:
    state = {"m": {numpy.int64(3): numpy.ones(2, "f4"), numpy.str_("a"): 1, numpy.float32(0.5): 2, (1, ("x",)): 3}}
    (tmp_path / "in.pkl").write_bytes(pickle.dumps(state, protocol=4))
    assert convert("in.pkl", target).exit_code == 0
    assert convert(target, "back.npz").exit_code == 0
    with open_checkpoint("back.npz") as back:
        assert [entry.key[1] for entry in back.entries] == [3, "a", "0.5", "(1, ('x',))"]


@pytest.mark.parametrize("key", [frozenset([1]), (1, Namespace), numpy.datetime64("2020-01-01"), numpy.dtype("f4")])
def test_other_objects_as_keys_are_losses(convert: Any, tmp_path: Path, key: object) -> None:
    (tmp_path / "in.pkl").write_bytes(pickle.dumps({"w": numpy.ones(2), "m": {key: 1}}, protocol=4))
    for target in TARGETS:
        assert convert("in.pkl", target).exit_code == 5
        assert convert("in.pkl", target, "--allow-loss").exit_code == 3


@pytest.mark.parametrize("target", [*TARGETS, "out.safetensors"])
def test_metadata_of_safetensors_come_back(convert: Any, tmp_path: Path, target: str) -> None:
    header = {
        "__metadata__": {"format": "pt", "note": "mine"},
        "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
    }
    text = json.dumps(header).encode()
    (tmp_path / "in.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"x")
    assert convert("in.safetensors", target).exit_code == 0
    assert convert(target, "back.safetensors").exit_code == 0
    with open_checkpoint("back.safetensors") as back:
        assert dict(back.root["__metadata__"]) == {"format": "pt", "note": "mine"}


def test_metadata_of_safetensors_are_no_key_of_a_state_dict(convert: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    text = b'{"__metadata__":{"note":"mine"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "in.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    assert convert("in.safetensors", "out.pth").exit_code == 0
    state = torch.load("out.pth", weights_only=True)
    assert list(state) == ["w"]
    assert vars(state) == {"__metadata__": {"note": "mine"}}


def test_names_of_variables_that_PyTorch_does_not_keep_are_said(convert: Any, tmp_path: Path) -> None:
    state = {"fc.weight": numpy.ones((2, 2), "f4"), "StructuredToParameterName@@": {"fc.weight": "linear_0.w_0"}}
    (tmp_path / "in.pdparams").write_bytes(pickle.dumps(state, protocol=4))
    assert "no place for the names of Paddle's variables: linear_0.w_0" in convert("in.pdparams", "out.pth").stderr
    assert "no place for the names" not in convert("in.pdparams", "out.npz").stderr


def test_rules_do_not_rename_metadata(convert: Any, tmp_path: Path) -> None:
    text = b'{"__metadata__":{"note":"mine"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "in.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    for target in ("out.pth", "out.safetensors", "out.npz"):
        assert convert("in.safetensors", target, "--rename", "{x:any}=net.{x}").exit_code == 0
        assert convert(target, "back.safetensors", "--overwrite").exit_code == 0
        assert names("back.safetensors") == ["__metadata__/format", "__metadata__/note", "net.w"]


@pytest.mark.parametrize("target", TARGETS)
def test_names_of_any_length(convert: Any, tmp_path: Path, target: str) -> None:
    long = "k" * 20_000
    state = {long + "a": numpy.ones(2, "f4"), long + "b": numpy.zeros(2, "f4"), "v": {long: 5}}
    (tmp_path / "in.pkl").write_bytes(pickle.dumps(state, protocol=4))
    assert convert("in.pkl", target).exit_code == 0
    assert {long + "a", long + "b"} < set(names(target))


def test_an_order_that_TensorFlow_does_not_keep_is_said(convert: Any, tmp_path: Path) -> None:
    numpy.savez(tmp_path / "in.npz", z=numpy.ones(1), a=numpy.ones(1))
    assert "keeps names sorted" in convert("in.npz", "out.index").stderr
    assert "keeps names sorted" not in convert("out.index", "again.index").stderr


def test_one_part_of_it(convert: Any, snapshot: str) -> None:
    assert convert(snapshot, "out.safetensors", "--root", "model").exit_code == 0
    assert names("out.safetensors")[1:] == ["enc.weight", "enc.bias"]
    missing = convert(snapshot, "other.safetensors", "--root", "modell")
    assert missing.exit_code == 2
    assert "the top level has model, optimizer" in missing.stderr


def test_globs(convert: Any, snapshot: str) -> None:
    assert convert(snapshot, "out.npz", "--match", "model/*", "--exclude", "*.bias").exit_code == 0
    assert names("out.npz") == ["model/enc.weight"]
    nothing = convert(snapshot, "none.npz", "--match", "encoder*")
    assert nothing.exit_code == 5
    assert "no tensor is left" in nothing.stderr


def test_weights_only(convert: Any, snapshot: str) -> None:
    result = convert(snapshot, "out.npz", "--weights-only")
    assert names("out.npz") == ["model/enc.weight", "model/enc.bias"]
    assert "left out: 1 × optimizer state, 3 × value" in result.stderr
    nothing = convert(snapshot, "none.npz", "--averages")
    assert nothing.exit_code == 5
    assert "no moving averages" in nothing.stderr


def test_renaming(convert: Any, snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(
        'schema = "ckpt.map/1"\n[[rule]]\nfrom = "model/{rest:any}"\nto = "net/{rest}"\n'
        '[[rule]]\nfrom = "epoch"\ndrop = true\n'
    )
    assert convert(snapshot, "out.npz", "--map", "map.toml", "--rename", "name=title").exit_code == 0
    assert names("out.npz") == [
        "net/enc.weight",
        "net/enc.bias",
        "optimizer/state/0/step",
        "optimizer/param_groups/0/lr",
        "title",
    ]
    with open_checkpoint("out.npz") as checkpoint:
        assert [entry.key for entry in checkpoint.entries][2] == ("optimizer", "state", 0, "step")
    assert convert(snapshot, "b.npz", "--root", "model", "--strip-prefix", "enc.").exit_code == 0
    assert names("b.npz") == ["weight", "bias"]
    unused = convert(snapshot, "c.npz", "--rename", "nobody=x")
    assert "no name is matched by the rule nobody -> x" in unused.stderr


def test_transforms_of_rules(convert: Any, snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(
        '[[rule]]\nfrom = "enc.weight"\nto = "w"\ntransform = "permute(1, 0) then reshape(-1)"\nexpect = { rank = 2 }\n'
    )
    result = convert(snapshot, "out.npz", "--root", "model", "--map", "map.toml", "--json")
    (moved, _) = json.loads(result.stdout)["moves"]
    assert (moved["from"], moved["to"]) == ("model/enc.weight", "w")
    assert (moved["transform"], moved["shape"]) == ("permute(1, 0) then reshape(-1)", [6])
    assert numpy.load("out.npz")["w"].tolist() == [0, 3, 1, 4, 2, 5]
    (tmp_path / "wrong.toml").write_text('[[rule]]\nfrom = "enc.bias"\nto = "b"\nexpect = { rank = 2 }\n')
    broken = convert(snapshot, "x.npz", "--root", "model", "--map", "wrong.toml")
    assert broken.exit_code == 5
    assert "enc.bias has 1 dimensions" in broken.stderr


def test_collisions_are_listed(convert: Any, snapshot: str) -> None:
    result = convert(snapshot, "out.npz", "--root", "model", "--rename", "*=same")
    assert result.exit_code == 5
    assert "enc.weight, enc.bias would all be called same" in result.stderr
    below = convert(snapshot, "out.pth", "--rename", "epoch=model")
    assert below.exit_code == 5
    assert not Path("out.npz").exists()


def test_dtype(convert: Any, snapshot: str) -> None:
    numpy.savez("in.npz", w=numpy.array([1e30, 1.00390625, 3], "f4"), i=numpy.arange(3))
    result = convert("in.npz", "out.safetensors", "--dtype", "fp16")
    assert result.exit_code == 0
    assert "1 value of w is beyond the range of float16" in result.stderr
    with open_checkpoint("out.safetensors") as checkpoint:
        assert [str(t.info.dtype) for t in checkpoint.tensors.values()] == ["float16", "int64"]
    assert convert("in.npz", "x.npz", "--dtype", "int8").exit_code == 2


def test_losses_are_refused_or_allowed(convert: Any, tmp_path: Path) -> None:
    state = {"w": numpy.ones(2, "f4"), "args": Namespace(), "names": numpy.array(["a", "b"])}
    (tmp_path / "in.pkl").write_bytes(pickle.dumps(state))
    refused = convert("in.pkl", "out.safetensors")
    assert refused.exit_code == 5
    assert "Namespace" in refused.stderr
    assert "names: of dtype str32" in refused.stderr
    assert not Path("out.safetensors").exists()
    document = json.loads(convert("in.pkl", "out.safetensors", "--json").stdout)
    assert document["written"] is False
    assert [loss["name"] for loss in document["losses"]] == ["args", "names"]
    shown = convert("in.pkl", "out.safetensors", "--dry-run")
    assert shown.exit_code == 0
    assert not Path("out.safetensors").exists()
    allowed = convert("in.pkl", "out.safetensors", "--allow-loss")
    assert allowed.exit_code == 3
    assert names("out.safetensors")[1:] == ["w", "args/rate"]


def test_calls_are_refused(convert: Any, tmp_path: Path) -> None:
    (tmp_path / "in.pkl").write_bytes(pickle.dumps({"w": numpy.ones(2, "f4"), "evil": Call()}))
    refused = convert("in.pkl", "out.pth")
    assert refused.exit_code == 4
    assert "builtins.print" in refused.stderr
    assert "never" not in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["in.pkl"]
    assert convert("in.pkl", "out.pth", "--allow-loss").exit_code == 3
    assert names("out.pth") == ["w"]


def test_what_exists_is_kept(convert: Any, snapshot: str) -> None:
    Path("out.pth").write_bytes(b"precious")
    refused = convert(snapshot, "out.pth")
    assert refused.exit_code == 5
    assert "hint: --overwrite" in refused.stderr
    assert Path("out.pth").read_bytes() == b"precious"
    assert convert(snapshot, "out.pth", "--overwrite").exit_code == 0


@pytest.mark.parametrize("target", ["in.npz", "./in.npz", "link.npz", "hard.npz"])
def test_a_source_is_never_its_own_target(convert: Any, target: str) -> None:
    numpy.savez("in.npz", w=numpy.ones(2))
    Path("link.npz").symlink_to("in.npz")
    Path("hard.npz").hardlink_to("in.npz")
    before = Path("in.npz").read_bytes()
    refused = convert("in.npz", target, "--overwrite")
    assert refused.exit_code == 5
    assert "same file" in refused.stderr
    assert Path("in.npz").read_bytes() == before


def test_the_suffix_or_an_option_tells_the_format(convert: Any, snapshot: str) -> None:
    unknown = convert(snapshot, "out.xyz")
    assert unknown.exit_code == 2
    assert ".pth" in unknown.stderr and ".safetensors" in unknown.stderr
    assert convert(snapshot, "out.xyz", "--to", "safetensorz").exit_code == 2
    assert convert(snapshot, "out.xyz", "--to", "safetensors", "--root", "model").exit_code == 0
    assert convert(snapshot, "folder/", "--root", "model").exit_code == 2
    assert convert(snapshot, "new/deep/", "--to", "safetensors", "--root", "model").exit_code == 0
    assert Path("new/deep/model.safetensors").exists()
    assert convert(snapshot, "a/b/c.pth").exit_code == 0


def test_shards(convert: Any) -> None:
    numpy.savez("in.npz", a=numpy.ones(100, "f4"), b=numpy.ones(100, "f4"), c=numpy.ones(1, "f4"))
    assert convert("in.npz", "out/", "--to", "safetensors", "--max-shard-size", "450B").exit_code == 0
    index = json.loads(Path("out/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 804
    assert index["weight_map"]["c"] == "model-00002-of-00002.safetensors"
    assert names("out") == ["__metadata__/format", "a", "b", "c"]
    # a checkpoint of another number of shards takes the place of the older one
    assert convert("in.npz", "out/", "--to", "safetensors").exit_code == 5
    assert convert("in.npz", "out/", "--to", "safetensors", "--overwrite").exit_code == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["model.safetensors"]
    assert convert("in.npz", "x.npz", "--max-shard-size", "1KB").exit_code == 5
    assert convert("in.npz", "x.npz", "--max-shard-size", "much").exit_code == 2


def test_an_older_prefix_goes_with_its_data(convert: Any) -> None:
    numpy.savez("in.npz", a=numpy.ones(100, "f4"), b=numpy.ones(100, "f4"))
    assert convert("in.npz", "ck.index", "--max-shard-size", "400B").exit_code == 0
    assert len(list(Path().glob("ck.data-*"))) == 2
    assert convert("in.npz", "ck.index", "--overwrite").exit_code == 0
    assert [path.name for path in Path().glob("ck.*")] == ["ck.index", "ck.data-00000-of-00001"] or len(
        list(Path().glob("ck.data-*"))
    ) == 1


def test_damage_is_named(convert: Any) -> None:
    numpy.savez("in.npz", good=numpy.ones(100, "f4"), bad=numpy.full(100, 2, "f4"))
    data = bytearray(Path("in.npz").read_bytes())
    data[data.index(struct.pack("<f", 2) * 4) + 2] ^= 1
    Path("in.npz").write_bytes(data)
    for target in ("out.npz", "out.pth", "out.index"):
        for options in ([], ["--no-check"], ["--dtype", "float16"]):
            failed = convert("in.npz", target, *options)
            assert failed.exit_code == 4
            assert "bad: the bytes of member bad.npy do not have the CRC-32" in failed.stderr
    assert [path.name for path in Path().iterdir()] == ["in.npz"]
    assert convert("in.npz", "out.npz", "--match", "good").exit_code == 0


def test_the_same_input_gives_the_same_bytes(convert: Any, snapshot: str) -> None:
    for target in ("{}.pth", "{}.pdz", "{}.npz", "{}.safetensors", "{}.h5", "{}.index"):
        for name in ("a", "b"):
            assert convert(snapshot, target.format(name)).exit_code == 0
        assert Path(target.format("a")).read_bytes() == Path(target.format("b")).read_bytes(), target


def test_round_trips_give_the_tree_back(convert: Any, snapshot: str) -> None:
    assert convert(snapshot, "first.pdz").exit_code == 0
    for middle in ("m.safetensors", "m.npz", "m.h5", "m.index", "m.pth"):
        assert convert("first.pdz", middle).exit_code == 0
        assert convert(middle, "last.pdz", "--overwrite").exit_code == 0
        assert Path("last.pdz").read_bytes() == Path("first.pdz").read_bytes(), middle
    assert convert(snapshot, "first.pth").exit_code == 0
    for middle in ("n.npz", "n.pdz", "n.safetensors"):
        assert convert("first.pth", middle).exit_code == 0
        assert convert(middle, "last.pth", "--overwrite").exit_code == 0
        assert Path("last.pth").read_bytes() == Path("first.pth").read_bytes(), middle


def test_dry_run_shows_the_plan(convert: Any, snapshot: str) -> None:
    result = convert(snapshot, "out.pth", "--dry-run", "--root", "model", "--dtype", "bfloat16")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split("\t")[:6] == [
        "model/enc.weight",
        "enc.weight",
        "cast(bfloat16)",
        "bfloat16",
        "[2, 3]",
        "12",
    ]
    assert "would write out.pth" in result.stderr
    assert not Path("out.pth").exists()
    document = json.loads(convert(snapshot, "out.pth", "-n", "--json").stdout)
    told = ["schema", "source", "target", "format", "written", "moves", "dropped", "losses", "ambiguous", "notes"]
    assert [member for member in document if member in told] == told
    assert document["schema"] == "ckpt.convert/1"
    assert (document["format"], document["written"]) == ("torch-zip", False)


def test_an_outline_that_no_longer_fits_is_not_believed(convert: Any, snapshot: str) -> None:
    assert convert(snapshot, "a.npz").exit_code == 0
    with numpy.load("a.npz") as arrays:
        kept = {name: arrays[name] for name in arrays.files if name != "model/enc.bias"}
    numpy.savez("b.npz", **kept)
    refused = convert("b.npz", "c.npz")
    assert refused.exit_code == 5
    assert "the outline ckpt.tree does not fit the file" in refused.stderr
    assert "--exclude leaves it out" in refused.stderr
    assert convert("b.npz", "c.npz", "--exclude", "ckpt.tree").exit_code == 0
    assert "model/enc.weight" in names("c.npz")


def test_a_directory_of_several_names_them(convert: Any) -> None:
    for name in ("a", "b"):
        numpy.savez(f"{name}.npz", w=numpy.ones(2))
    result = convert(".", "out.pth")
    assert result.exit_code == 2
    assert "a.npz" in result.stderr and "b.npz" in result.stderr


def test_missing_and_foreign_sources(convert: Any) -> None:
    assert convert("nothing.pth", "out.pth").exit_code == 4
    Path("page.pth").write_text("<html>")
    assert convert("page.pth", "out.npz").exit_code == 4
    assert not Path("out.npz").exists()
