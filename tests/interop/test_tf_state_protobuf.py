"""The state file parser takes and refuses what the protocol buffer library takes and refuses."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_tools.formats import _tf_state

pytest.importorskip("google.protobuf")

NAMES = ["model_checkpoint_path", "all_model_checkpoint_paths", "all_model_checkpoint_timestamps", "foo"]
VALUES = [
    '"a"', "'b\"'", r'"\\U"', r'"\350\256\255"', r'"\u00e9"', r'"\x4"', r'"\x414"', r'"\q"', r'"\N"', r'"\777"', r'"\377"',
    r'"\U0001f600"', r'"\ud83d"', '"ab', "1.5", "-2", "inf", "nan", "1.0f", "1e5", "0x10", "['a', 'b' \"c\"]", "[1, 2]",
    "[]", "[", "]", "{", "}", "{ a: 1 }", ":", ",", ";", "é", '"训"', "\\", r'"\""', r'"\?"', "",
]  # fmt: skip
BETWEEN = ["\n", " ", "; ", ", ", "", ' "x"\n', " # c 'x\n", "\r\n", ",,"]


@cache
def message_class() -> Any:
    """CheckpointState, from its definition."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="state.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="CheckpointState")
    rows = [
        ("model_checkpoint_path", kinds.TYPE_STRING, kinds.LABEL_OPTIONAL),
        ("all_model_checkpoint_paths", kinds.TYPE_STRING, kinds.LABEL_REPEATED),
        ("all_model_checkpoint_timestamps", kinds.TYPE_DOUBLE, kinds.LABEL_REPEATED),
        ("last_preserved_timestamp", kinds.TYPE_DOUBLE, kinds.LABEL_OPTIONAL),
    ]
    for number, (name, kind, label) in enumerate(rows, 1):
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.CheckpointState"))


def by_protobuf(text: str) -> str | None:
    from google.protobuf import text_format

    message = message_class()()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text_format.Merge(text, message)
    except text_format.ParseError:
        return None
    return repr(
        (
            message.model_checkpoint_path or None,
            list(message.all_model_checkpoint_paths),
            list(message.all_model_checkpoint_timestamps),
        )
    )


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES), st.sampled_from(BETWEEN)), max_size=5))
def test_the_same_texts_are_taken_with_the_same_meaning(fields: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{name}: {value}{between}" for name, value, between in fields)
    state = _tf_state.parse(text.encode())
    ours = None if state.problems else repr((state.latest, state.paths, state.timestamps))
    assert ours == by_protobuf(text)
