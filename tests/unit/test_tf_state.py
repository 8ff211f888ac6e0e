"""The state file of TensorFlow: what it says, and edits that leave everything else as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.errors import CorruptFile
from ckpt_tools.formats._tf_state import ALL, LATEST, State, looks_like, parse, quoted

WRITTEN = b"""model_checkpoint_path: "ckpt-2"
all_model_checkpoint_paths: "ckpt-1"
all_model_checkpoint_paths: "ckpt-2"
all_model_checkpoint_timestamps: 1700000000.25
all_model_checkpoint_timestamps: 1700000100.5
last_preserved_timestamp: 1699999999.5
"""


def edited(state: State, replaced: dict[str, str], removed: set[str] = frozenset()) -> str:  # type: ignore[assignment]
    values = state.values(LATEST) + state.values(ALL)
    return state.edited(
        replaced={v: replaced[v.content] for v in values if v.content in replaced},
        removed={v for v in values if v.content in removed},
    )


def test_what_tensorflow_writes() -> None:
    state = parse(WRITTEN)
    assert (state.latest, state.paths) == ("ckpt-2", ["ckpt-1", "ckpt-2"])
    assert state.timestamps == [1700000000.25, 1700000100.5]
    assert not state.problems
    assert [value.line for value in state.values(ALL)] == [2, 3]


@pytest.mark.parametrize(
    ("literal", "content"),
    [
        (rb'"C:\\Users\\user\\run one\\m-5"', r"C:\Users\user\run one\m-5"),
        (rb"'/home/\350\256\255\347\273\203'", "/home/训练"),
        ('"/home/训练"'.encode(), "/home/训练"),
        (rb'"\x41\x4" "\u00e9" # joined' + b"\n" + rb" '\U0001f600'", "A\x04é😀"),
        (rb'"\"\'\n\t\101\q"', "\"'\n\tA\\q"),
        (b"\"'\" '\"'", "'\""),
    ],
)
def test_strings(literal: bytes, content: str) -> None:
    state = parse(b"model_checkpoint_path: " + literal + b"\n")
    assert not state.problems
    assert state.latest == content


def test_lists_separators_comments_and_line_ends() -> None:
    text = (
        b"# saved by hand\r\nall_model_checkpoint_paths: ['a', \"b\" 'c' # tail\r\n , 'd'];"
        b" model_checkpoint_path:'x', model_checkpoint_path: 'd'\r\nall_model_checkpoint_timestamps: [1, 2.5f, inf]"
    )
    state = parse(text)
    assert not state.problems
    assert (state.latest, state.paths, state.timestamps) == ("d", ["a", "bc", "d"], [1.0, 2.5, float("inf")])
    assert edited(state, {"bc": "e"}).encode() == text.replace(b"\"b\" 'c'", b'"e"')
    without = edited(state, {"d": "D"}, {"a"}).encode()
    assert without.startswith(b"# saved by hand\r\nall_model_checkpoint_paths: [\"b\" 'c', 'D'];")
    assert parse(without.replace(b"\r\n", b"\n")).paths == ["bc", "D"]
    assert parse(edited(state, {}, {"a", "bc", "d"}).encode()).paths == []


def test_removing_a_value_removes_its_line_and_no_other() -> None:
    text = b'model_checkpoint_path: "b"\nall_model_checkpoint_paths: "a"  # old\nall_model_checkpoint_paths: "b"'
    assert edited(parse(text), {}, {"a"}).encode() == b'model_checkpoint_path: "b"\nall_model_checkpoint_paths: "b"'
    text = b'all_model_checkpoint_paths: "a"; all_model_checkpoint_paths: "b"'
    assert parse(edited(parse(text), {}, {"a"}).encode()).paths == ["b"]


def test_a_replaced_string_keeps_its_manner() -> None:
    text = rb"model_checkpoint_path: '/\350\256\255/m'  # best"
    assert edited(parse(text), {"/训/m": "练\\'"}).encode() == rb"model_checkpoint_path: '\347\273\203\\\''  # best"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (b'model_checkpoint_path: "a"\ncolour: { red: 1 shade: [2, "x"] }\n', 2, "no field colour"),
        (b'colour: "a"\n "b"\nmodel_checkpoint_path: "a"\n', 1, "no field colour"),
        (b'model_checkpoint_path: "a"\nall_model_checkpoint_paths: "/home/u', 2, "closing quote"),
        (b'\nmodel_checkpoint_path: "C:\\Users"\n', 2, r"\\U"),
        (b"model_checkpoint_path: 5\n", 1, "not followed by a string"),
        (b'model_checkpoint_path "a"\n', 1, "colon"),
        (b"all_model_checkpoint_timestamps: soon\n", 1, "no number"),
        (b'\xef\xbb\xbfmodel_checkpoint_path: "a"\n', 1, "field name"),
        (b"model_checkpoint_path: '\\777'\n", 1, "escape"),
        (b"model_checkpoint_path: '\\377'\n", 1, "UTF-8"),
        (b"all_model_checkpoint_paths: ['a' 'b'; 'c']\n", 1, "comma"),
    ],
)
def test_what_makes_tensorflow_ignore_the_file_is_found(text: bytes, line: int, said: str) -> None:
    problem = parse(text).problems[0]
    assert problem.line == line
    assert said.replace("\\\\", "\\") in problem.message


def test_a_problem_can_be_dropped_and_the_rest_stays() -> None:
    text = b'model_checkpoint_path: "a"\nowner {\n name: "x"\n}\nall_model_checkpoint_paths: "a"\n'
    state = parse(text)
    assert len(state.problems) == 1
    assert (
        state.edited(replaced={}, dropped=state.problems).encode()
        == b'model_checkpoint_path: "a"\nall_model_checkpoint_paths: "a"\n'
    )


def test_no_text_is_an_error() -> None:
    with pytest.raises(CorruptFile, match="byte 1 is 0xff"):
        parse(b"a\xff")


def test_looks() -> None:
    assert looks_like(WRITTEN)
    assert looks_like(b"all_model_checkpoint_paths: ['x']")
    assert not looks_like(b"model_checkpoint_path:10\n")


@given(st.text(), st.sampled_from("\"'"), st.booleans())
def test_what_is_quoted_reads_back(content: str, quote: str, ascii_only: bool) -> None:
    written = quoted(content, quote=quote, ascii_only=ascii_only)
    assert parse(f"model_checkpoint_path: {written}".encode()).values(LATEST)[0].content == content
    assert not ascii_only or written.isascii()


@given(st.binary(max_size=60) | st.text(alphabet="[]:,;'\"\\ab#\n{}", max_size=40).map(str.encode))
def test_no_text_breaks_the_parser_and_no_edit_is_the_identity(data: bytes) -> None:
    data = b"all_model_checkpoint_paths: " + data
    try:
        state = parse(data)
    except CorruptFile:
        return
    assert state.edited(replaced={}).encode() == data
