"""Values and names that Python itself refuses to print, or that would take far more room than the file."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ckpt_tools import open_checkpoint
from ckpt_tools.cli.app import app
from ckpt_tools.errors import LimitExceeded

LONG = 10**6000


def text(data: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(data)) + data


def listed(path: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["ls", *options, str(path)])
    return result.exit_code, result.stdout


HOLDERS: dict[str, Any] = {
    "alone": LONG,
    "negative": -LONG,
    "value": {"a": LONG},
    "key": {LONG: 1},
    "part of a key": {(LONG, "x"): 1},
    "element": [LONG],
    "iteration": {"iteration": LONG},
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_integers_of_thousands_of_digits(tmp_path: Path, holder: str) -> None:
    path = tmp_path / "long.pkl"
    path.write_bytes(pickle.dumps(HOLDERS[holder]))
    code, lines = listed(path)
    assert code == 0
    assert "0xbdd4a7155919bd827d" in lines
    code, document = listed(path, "--json")
    assert code == 0
    assert "0xbdd4a7155919bd827d" in json.dumps(json.loads(document))


def test_integers_beyond_64_bits_stay_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.pkl"
    path.write_bytes(pickle.dumps({"a": 2**70, "b": -(2**63)}))
    values = json.loads(listed(path, "--json")[1])["checkpoints"][0]["values"]
    assert [value["value"] for value in values] == [2**70, -(2**63)]


def test_odd_values_are_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "odd.pkl"
    content = {
        "nan": float("nan"),
        "inf": [float("inf"), -float("inf")],
        "bytes": b"\x00\xff",
        "surrogate": "\ud800x",
        "control": "\x1b[31m\x9b\u202e",
        "complex": 1 + 2j,
        "\udfff": 1,
    }
    path.write_bytes(pickle.dumps(content))
    code, document = listed(path, "--json")
    assert code == 0

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    values = json.loads(document, parse_constant=refuse)["checkpoints"][0]["values"]
    by_name = {value["name"]: value["value"] for value in values}
    assert by_name["nan"] == "NaN"
    assert (by_name["inf/0"], by_name["inf/1"]) == ("Infinity", "-Infinity")
    assert by_name["surrogate"] == "\ud800x"
    assert by_name["\\udfff"] == 1
    assert not any(c in document for c in "\x1b\x9b\u202e")


def test_long_names_at_every_level(tmp_path: Path) -> None:
    """A few kilobytes whose printed names would be gigabytes."""
    levels = 900
    inner = b"(" + b"K\x01" * 20_000 + b"l"
    data = b"\x80\x04" + text(b"k" * 4000) + b"q\x000" + b"}h\x00" * levels + inner + b"s" * levels + b"."
    path = tmp_path / "names.pkl"
    path.write_bytes(data)
    with pytest.raises(LimitExceeded, match="the keys of all entries") as caught, open_checkpoint(path) as checkpoint:
        _ = checkpoint.entries
    assert caught.value.where == str(path)


def test_limits_met_while_walking_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep.pkl"
    path.write_bytes(b"\x80\x04" + b"(" * 2000 + b"l" * 2000 + b".")
    code, _ = listed(path)
    assert code == 4
    with pytest.raises(LimitExceeded) as caught, open_checkpoint(path) as checkpoint:
        _ = checkpoint.entries
    assert caught.value.where == str(path)


def test_a_long_text_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "text.pkl"
    path.write_bytes(b"\x80\x04}" + text(b"a") + text(b"x" * 5000 + b"\xff" * 100) + b"s.")
    result = CliRunner().invoke(app, ["ls", str(path)])
    assert result.exit_code == 4
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_keys_of_any_kind_print_alike_each_time(tmp_path: Path) -> None:
    path = tmp_path / "keys.pkl"
    long_bytes = b"B" + struct.pack("<I", 5000) + b"k" * 5000
    path.write_bytes(b"\x80\x04}" + long_bytes + b"K\x01s" + text(b"t" * 50_000) + b"K\x02s.")
    assert listed(path)[1] == f"<5000 bytes>\tint\t= 1\t\n{'t' * 50_000}\tint\t= 2\t\n"


def test_a_deque_shows_its_elements_by_number(tmp_path: Path) -> None:
    from collections import deque

    path = tmp_path / "deque.pkl"
    path.write_bytes(pickle.dumps({"last": deque([0.5, 0.25], maxlen=5)}))
    code, lines = listed(path)
    assert code == 0
    assert "last/0\tfloat\t= 0.5" in lines
    assert "last/1\tfloat\t= 0.25" in lines
    assert "last/args/1\tint\t= 5" in lines
