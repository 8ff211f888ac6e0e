"""Functions that call what they are given are data only with arguments that are data."""

from __future__ import annotations

import copyreg
import os
import pickle
import subprocess
from typing import Any

import numpy
import numpy.random._pickle as random_pickle
import pytest

from ckpt_tools.pickles.findings import foreign
from ckpt_tools.pickles.verbatim import VerbatimMachine


class Call:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


class Plain:
    """A class of nobody's."""


def found(value: object, protocol: int = 2) -> list[tuple[str, str]]:
    machine = VerbatimMachine(pickle.dumps(value, protocol))
    machine.load()
    return [(issue.code, issue.message) for issue in foreign(machine, "x.pkl")]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (Call(getattr(random_pickle, "__generator_ctor"), "touch x", os.system), "__generator_ctor"),
        (Call(getattr(random_pickle, "__randomstate_ctor"), "touch x", os.system), "__randomstate_ctor"),
        (Call(getattr(random_pickle, "__bit_generator_ctor"), subprocess.Popen), "__bit_generator_ctor"),
        (Call(copyreg._reconstructor, subprocess.Popen, subprocess.Popen, ["touch", "x"]), "_reconstructor"),  # type: ignore[attr-defined]
    ],
)
def test_a_call_handed_on_is_found(call: Call, named: str) -> None:
    issues = found([call])
    assert any(code == "pickle-foreign-call" and named in message for code, message in issues)


def test_an_instance_is_told_by_its_class_in_every_protocol() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        ((code, message),) = found(Plain(), protocol)
        assert code == "pickle-foreign-class"
        assert "test_calls_within_calls.Plain" in message


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_is_data_stays_data(protocol: int) -> None:
    random = [numpy.random.default_rng(0), numpy.random.RandomState(0), numpy.random.Generator(numpy.random.Philox(1))]
    assert found([*random, numpy.arange(3), numpy.dtype("f4")], protocol) == []
