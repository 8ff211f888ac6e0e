"""``ckpt diff`` on files the frameworks wrote: every class of difference, every systematic reason, exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ckpt_tools.cli.app import app

RUNNER = CliRunner()


def run(*arguments: object) -> tuple[int, str, str]:
    result = RUNNER.invoke(app, ["diff", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def document(*arguments: object) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert code in (0, 1), err
    loaded = json.loads(out)
    assert loaded["schema"] == "ckpt.diff/1"
    assert loaded["equal"] is (code == 0)
    return loaded


def names(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["name"] for row in rows)


@pytest.fixture
def kinds(fixtures: Path) -> Path:
    return fixtures / "diffs/kinds/input"


@pytest.fixture
def wrapped(fixtures: Path) -> Path:
    return fixtures / "diffs/wrapper-prefixes/input"


def test_every_class_of_difference(kinds: Path) -> None:
    expected = json.loads((kinds.parent / "expected.json").read_text())
    found = document(kinds / "a.pt", kinds / "b.pt", "--values")
    assert names(found["only_a"]) == expected["only_a"]
    assert names(found["only_b"]) == expected["only_b"]
    assert {row["name"]: [row["a"], row["b"]] for row in found["shape"]} == expected["shape"]
    assert {row["name"]: [row["a"], row["b"]] for row in found["dtype"]} == expected["dtype"]
    assert names(found["value"]) == expected["value"]
    assert found["reasons"] == []
    assert {row["name"]: row["note"] for row in found["shape"]}["turned"] == "transposed values"
    assert any("0.0 on one side and -0.0" in note for note in found["notes"])
    assert any("NaN equals NaN" in note for note in found["notes"])


def test_values_are_not_compared_unless_asked(kinds: Path) -> None:
    assert document(kinds / "a.pt", kinds / "b.pt")["value"] == []
    assert document(kinds / "a.pt", kinds / "a.pt", "--values")["equal"]


def test_tolerances_make_values_close(kinds: Path) -> None:
    assert document(kinds / "a.pt", kinds / "b.pt", "--values", "--atol", "1")["value"] == []
    assert run(kinds / "a.pt", kinds / "b.pt", "--atol", "1")[0] == 2


def test_prefixes_and_roots(wrapped: Path) -> None:
    expected = json.loads((wrapped.parent / "expected.json").read_text())
    plain = wrapped / expected["a"]
    for pair in expected["pairs"]:
        found = document(plain, wrapped / pair["b"])
        if pair["prefix"] is None:
            assert (names(found["only_a"]), names(found["only_b"])) == (pair["only_a"], pair["only_b"])
            assert found["reasons"] == []
            assert found["only_a"][0]["nearest"] == pair["only_b"][0]
            continue
        (reason,) = found["reasons"]
        assert reason["text"].startswith("all ")
        assert repr(pair["prefix"]) in reason["text"]
        assert (found["only_a"], found["only_b"]) == ([], [])
        assert run(plain, wrapped / pair["b"], *reason["option"].split())[0] == 0


def test_stripping_takes_only_what_is_in_front(wrapped: Path) -> None:
    found = document(wrapped / "plain.pt", wrapped / "mixed.pt", "--strip-prefix", "module.")
    assert found["equal"]


def test_renaming_that_makes_names_equal_is_a_wrong_argument(wrapped: Path) -> None:
    code, _, err = run(wrapped / "plain.pt", wrapped / "plain.pt", "--rename", "layer.0.*=same")
    assert code == 2
    assert "would all be called same" in err


def test_unused_options_are_told(wrapped: Path) -> None:
    code, _, err = run(wrapped / "plain.pt", wrapped / "plain.pt", "--strip-prefix", "nobody.")
    assert (code, "no name on either side begins with 'nobody.'" in err) == (2, True)
    code, _, err = run(wrapped / "plain.pt", wrapped / "plain.pt", "--rename", "layer=l")
    assert (code, "matches nothing" in err) == (0, True)
    assert run(wrapped / "plain.pt", wrapped / "plain.pt", "--root", "nobody")[0] == 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("torch-zip/view-of-large-storage/input", "torch-zip/view-of-large-storage-cloned/input"),
        ("torch-zip/shared-storage/input", "torch-zip/equal-but-not-tied/input"),
    ],
)
def test_how_values_are_stored_is_no_difference(fixtures: Path, a: str, b: str) -> None:
    one, other = (next(iter((fixtures / each).iterdir())) for each in (a, b))
    found = document(one, other, "--values")
    assert not found["value"]
    if "view" in a:
        assert found["equal"]


CONVERSIONS = ["batch-norm", "square-linear", "recurrent"]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("case", CONVERSIONS)
def test_the_map_that_is_written_makes_it_fit(fixtures: Path, tmp_path: Path, case: str, turned: bool) -> None:
    where = fixtures / "conversions" / case / "input"
    a, b = where / "paddle.pdparams", where / "torch.pth"
    a, b = (b, a) if turned else (a, b)
    found = document(a, b)
    assert not found["only_a"]
    assert not found["only_b"]
    assert not found["shape"]
    assert not found["ambiguous"]
    rules = tmp_path / "map.toml"
    run(a, b, "--write-map", rules)
    assert document(a, b, "--map", rules, "--values")["equal"]
    code, _, err = run(a, b, "--write-map", rules)
    assert code == 5
    assert "exists" in err


def test_a_square_linear_is_named_and_a_square_embedding_is_not(fixtures: Path) -> None:
    where = fixtures / "conversions/square-linear/input"
    (reason,) = document(where / "paddle.pdparams", where / "torch.pth")["reasons"]
    assert reason["kind"] == "layout"
    assert "linear.weight" in reason["text"]
    assert "embedding" not in reason["text"]


def test_keras_layers_are_explained_without_a_remainder(fixtures: Path, tmp_path: Path) -> None:
    where = fixtures / "conversions/keras-layers/input"
    for a, b in (("model.ckpt", "torch.pth"), ("torch.pth", "model.ckpt")):
        found = document(where / a, where / b)
        assert not found["only_a"]
        assert not found["only_b"]
        assert [row["note"] for row in found["shape"]] == ["Keras keeps both biases of a GRU in one tensor"]
        rules = tmp_path / f"{b}.toml"
        run(where / a, where / b, "--write-map", rules)
        mapped = document(where / a, where / b, "--map", rules, "--values")
        assert {reason["kind"] for reason in mapped["reasons"]} == {"recurrent-bias"}
        assert not mapped["value"]  # the values agree through the transforms


def test_attention_is_explained(fixtures: Path) -> None:
    where = fixtures / "conversions/attention/input"
    found = document(where / "paddle.pdparams", where / "torch.pth")
    assert (found["only_a"], found["only_b"]) == ([], [])
    assert {reason["kind"] for reason in found["reasons"]} == {"layout", "attention"}


def test_a_snapshot_is_searched_for_its_root(fixtures: Path) -> None:
    where = next((fixtures / "paddle-pickle/snapshot/input").iterdir())
    released = document(where, where, "--root", "main_params", "--values")
    assert released["equal"]
    found = document(where, where, "--root-b", "main_params")
    (reason,) = [reason for reason in found["reasons"] if reason["kind"] == "root"]
    assert reason["option"] == "--root main_params"
    assert found["optimizer"]["only_a"]
    assert not found["only_a"]


def test_optimizer_and_averages_are_kept_apart(fixtures: Path) -> None:
    where = fixtures / "tf-bundle/slots-and-averages/input"
    prefix = str(next(where.glob("*.index"))).removesuffix(".index")
    whole = document(prefix, prefix)
    some = document(prefix, prefix, "--weights-only")
    assert whole["equal"]
    assert some["paired"] == whole["paired"]
    other = fixtures / "conversions/keras-layers/input/model.ckpt"
    assert document(prefix, other)["optimizer"]["only_a"]
    assert not document(prefix, other, "--weights-only")["optimizer"]["only_a"]


def test_manifests_stand_for_files(fixtures: Path, tmp_path: Path, kinds: Path) -> None:
    manifest = tmp_path / "a.json"
    for digest in ([], ["--digest"]):
        listed = RUNNER.invoke(app, ["ls", "--json", *digest, str(kinds / "a.pt")])
        manifest.write_text(listed.stdout)
        assert document(kinds / "a.pt", manifest, "--values")["equal"]
    found = document(kinds / "b.pt", manifest, "--values")
    assert "moved" in names(found["value"])
    assert "zero" in names(found["value"])  # digests are of bits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "ckpt.ls/1"}', "damaged"),
        ('{"schema": "ckpt.ls/1", "checkpoints": []}', "lists 0 checkpoints"),
        (
            '{"schema": "ckpt.ls/1", "checkpoints": [{"path": "x", "format": "npz", "values": [],'
            ' "tensors": [{"name": "a", "key": [null], "dtype": "a", "shape": []}]}]}',
            "no key",
        ),
        (
            '{"schema": "ckpt.ls/1", "checkpoints": [{"path": "x", "format": "npz", "values": [],'
            ' "tensors": [{"name": "a", "key": ["a"], "dtype": "a", "shape": [-1]}]}]}',
            "shape",
        ),
        ('{"schema": "ckpt.spec/1", "tensors": 3}', "no list"),
        ('{"schema": "ckpt.spec/1", "tensors": [{"name": "x"}]}', "damaged"),
    ],
)
def test_a_wrong_document_is_one_sentence(kinds: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "wrong.json").write_text(text)
    code, _, err = run(kinds / "a.pt", tmp_path / "wrong.json")
    assert code == 4
    assert said in err
    assert err.count("\n") == 1


def test_a_directory_of_checkpoints_is_named(kinds: Path) -> None:
    code, _, err = run(kinds, kinds / "a.pt")
    assert code == 2
    assert "a.pt" in err


def test_pipes_get_tab_separated_lines(kinds: Path, ckpt: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = ckpt("diff", kinds / "a.pt", kinds / "b.pt", "-q")
    assert done.returncode == 1
    assert done.stderr == ""
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert {len(line) for line in lines} == {5}
    assert ["only_a", "gone"] in [line[:2] for line in lines]


def test_a_terminal_gets_groups_and_a_verdict(kinds: Path) -> None:
    _, out, _ = run(kinds / "a.pt", kinds / "b.pt", "--color")
    assert "only in A: 1" in out
    assert "differs:" in out
    _, out, _ = run(kinds / "a.pt", kinds / "a.pt", "--color")
    assert "nothing differs" in out


def test_ignored_and_chosen_names(kinds: Path) -> None:
    found = document(kinds / "a.pt", kinds / "b.pt", "--ignore", "gone", "--ignore", "added", "--exclude", "h*")
    assert (found["only_a"], found["only_b"]) == ([], [])
    assert "head" not in names(found["shape"])
    assert document(kinds / "a.pt", kinds / "b.pt", "--match", "same")["equal"]
