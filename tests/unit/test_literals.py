"""The parser of Python literals in numpy's headers."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded
from ckpt_tools.formats._literals import parsed

scalars = st.none() | st.booleans() | st.integers(0, 10**20) | st.text()
literals = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(literals)
def test_reads_what_repr_writes(value):
    assert parsed(repr(value)) == value


@given(st.text(alphabet="{}()[],:'\"\\ 1LTrueNone\n", max_size=30))
def test_agrees_with_python_or_refuses(text):
    try:
        value = parsed(text)
    except (CkptError, ValueError, SyntaxError):
        return
    assert value == ast.literal_eval(text.replace("L", "").strip())


def test_long_integers_of_python_2():
    assert parsed("{'shape': (10L, 3L)}") == {"shape": (10, 3)}


@pytest.mark.parametrize(
    "text", ["", "{", "{'a'}", "{1: 2}", "(1 2)", "[1,,2]", "1 2", "-1", "1.5", "f()", "a", "'a' 'b'", "(,)", "{'a': }"]
)
def test_refuses_what_is_no_literal(text):
    with pytest.raises(CorruptFile):
        parsed(text)


def test_bounds():
    with pytest.raises(LimitExceeded, match="nested"):
        parsed("(" * 100_000)
    with pytest.raises(LimitExceeded, match="digits"):
        parsed("9" * 5000)
