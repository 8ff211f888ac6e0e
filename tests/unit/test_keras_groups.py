"""What groups of ``.weights.h5`` are called by the attributes of models, and what Keras' own attention is among them."""

from __future__ import annotations

import pytest

from ckpt_tools.mapping.keras_groups import names_by_groups, spoken_names

Shapes = dict[str, tuple[int, ...]]


def attention(owner: str, *, hidden: str = "") -> Shapes:
    """The variables of a layer with two heads of size 4 over 8 channels."""
    inner = {f"{hidden}{name}_dense/vars/0": (8, 2, 4) for name in ("query", "key", "value")}
    biases = {name.replace("/0", "/1"): (2, 4) for name in inner}
    output = {f"{hidden}output_dense/vars/0": (2, 4, 8), f"{hidden}output_dense/vars/1": (8,)}
    return {owner + name: shape for name, shape in {**inner, **biases, **output}.items()}


def spoken(shapes: Shapes) -> dict[str, str]:
    return {name: said.name for name, said in spoken_names({name: (s, None) for name, s in shapes.items()}).items()}


def by_groups(shapes: Shapes, leaves: tuple[str, str] = ("kernel", "bias")) -> dict[str, str]:
    return names_by_groups({name: (shape, f"layer/{leaves[int(name[-1])]}") for name, shape in shapes.items()})


@pytest.mark.parametrize("owner", ["", "encoder/block_1/self_attn/"])
@pytest.mark.parametrize("hidden", ["", "_"])
def test_attention_is_called_as_its_layers_are(owner: str, hidden: str) -> None:
    shapes = attention(owner, hidden=hidden)
    for named in (spoken(shapes), by_groups(shapes)):
        assert named[f"{owner}{hidden}query_dense/vars/0"] == f"{owner}query/kernel"
        assert named[f"{owner}{hidden}key_dense/vars/1"] == f"{owner}key/bias"
        assert named[f"{owner}{hidden}output_dense/vars/0"] == f"{owner}attention_output/kernel"


def test_a_second_name_of_the_format_keeps_its_path() -> None:
    names = {name: (shape, name.replace("/vars", "")) for name, shape in attention("att/").items()}
    assert spoken_names(names)["att/value_dense/vars/0"].name == "att/value/kernel"


def test_attributes_of_the_same_names_are_the_users_own() -> None:
    flat: Shapes = {name: (8, 8) if name[-1] == "0" else (8,) for name in attention("att/")}
    assert spoken(flat)["att/query_dense/vars/0"] == "att/query_dense/0"
    assert by_groups(flat)["att/query_dense/vars/0"] == "att/query_dense/kernel"
    partly = {name: shape for name, shape in attention("att/").items() if "output" not in name}
    assert spoken(partly)["att/query_dense/vars/0"] == "att/query_dense/0"


def test_a_cell_is_its_layer() -> None:
    shapes: Shapes = {"rnn/cell/vars/0": (3, 8), "rnn/cell/vars/1": (2, 8), "fc/vars/0": (2, 2)}
    assert by_groups(shapes) == {
        "rnn/cell/vars/0": "rnn/kernel",
        "rnn/cell/vars/1": "rnn/bias",
        "fc/vars/0": "fc/kernel",
    }


def test_cells_of_a_stack_are_told_by_their_shapes() -> None:
    shapes: Shapes = {f"layers/rnn/cell/cells/lstm_cell/vars/{at}": s for at, s in enumerate([(3, 8), (2, 8), (8,)])}
    assert [*spoken(shapes).values()][1] == "rnn/cell/cells/lstm_cell/recurrent_kernel"
    assert spoken({"cells/lstm_cell/vars/0": (4, 4)}) == {"cells/lstm_cell/vars/0": "cells/lstm_cell/0"}


def test_an_attribute_is_no_class() -> None:
    shapes: Shapes = {"embedding/vars/0": (4, 4), "enc/dense/vars/0": (4, 4), "enc/dense/vars/1": (4,)}
    assert spoken(shapes) == {name: name.replace("/vars", "") for name in shapes}
    assert spoken({f"layers/{name}": shape for name, shape in shapes.items()})["layers/embedding/vars/0"] == (
        "embedding/embeddings"
    )
