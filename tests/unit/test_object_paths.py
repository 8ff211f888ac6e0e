"""Names made of the attributes that lead to variables."""

from __future__ import annotations

import pytest

from ckpt_tools.mapping.object_paths import Variable, count_by_position, full_names_tell_layers, plain_names


def plain(*paths: str, by_order: bool = True) -> list[str]:
    variables = {path: Variable(tuple(path.split("/")), f"net/{path.rpartition('/')[2].strip('_')}") for path in paths}
    return [*plain_names(variables, by_order=by_order).values()]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("model/out/_kernel", "model/out/kernel"),
        ("model/out/bias", "model/out/bias"),
        ("model/net/_functional/_operations/3/_kernel", "model/net/2/kernel"),
        ("model/_operations/3/_kernel", "model/(3)/kernel"),
        ("model/layer_with_weights-1/kernel", "model/(1)/kernel"),
        ("model/query_dense/_kernel", "model/query_dense/kernel"),
    ],
)
def test_what_keras_has_on_the_way(path: str, name: str) -> None:
    assert plain(path) == [name]


def test_positions_are_no_numbers_where_order_tells_nothing() -> None:
    assert plain("net/_functional/_operations/3/_kernel", by_order=False) == ["net/(3)/kernel"]


def test_a_users_variable_has_the_name_of_the_attribute() -> None:
    assert plain_names({"a": Variable(("layer", "_w"), "layer/scale")}) == {"a": "layer/_w"}


def test_projections_of_attention() -> None:
    names = ("query", "key", "value", "output")
    found = plain(*(f"block/attn/_{name}_dense/_kernel" for name in names))
    assert found == [f"block/attn/{name}/kernel" for name in ("query", "key", "value", "attention_output")]


@pytest.mark.parametrize(
    ("variables", "tells"),
    [
        ({"model/a/kernel": "dense/kernel", "model/a/bias": "dense/bias", "model/b/kernel": "dense_1/kernel"}, True),
        ({"model/a/kernel": "net/kernel", "model/b/gamma": "net/gamma"}, False),
        ({"model/a/kernel": "one/kernel", "model/a/bias": "other/bias"}, False),
        ({"model/a/kernel": ""}, False),
        ({}, True),
    ],
)
def test_full_names_that_tell_layers(variables: dict[str, str], tells: bool) -> None:
    assert full_names_tell_layers(Variable(tuple(path.split("/")), name) for path, name in variables.items()) == tells


@pytest.mark.parametrize(
    ("names", "in_order"),
    [
        (["net/0/kernel", "net/2/kernel", "net/10/kernel"], True),
        (["net/2/kernel", "net/0/kernel"], False),
        (["net/(1)/kernel", "net/(2)/kernel"], True),
        (["net/fc0/kernel", "net/fc1/kernel"], False),
        (["net/a/kernel", "net/b/kernel"], False),
        (["net/0/kernel", "net/0/kernel"], False),
    ],
)
def test_counts_by_position(names: list[str], in_order: bool) -> None:
    assert count_by_position(names) == in_order
