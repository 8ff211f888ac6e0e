"""Object graphs: second names, and what tensors are for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bundles import field

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.purposes import Purpose, Role
from ckpt_tools.core.tensors import TensorInfo
from ckpt_tools.errors import CkptError, CorruptFile
from ckpt_tools.formats._object_graph import ObjectGraph

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
MATRIX = TensorInfo(BY_NAME["float32"], (2, 3))
COUNT = TensorInfo(BY_NAME["int64"], ())


def node(
    children: dict[str, int] | None = None,
    key: str | None = None,
    full_name: str = "",
    slots: Sequence[tuple[int, str, int]] = (),
) -> bytes:
    message = b"".join(field(1, field(1, to) + field(2, name.encode())) for name, to in (children or {}).items())
    if key is not None:
        message += field(2, field(1, b"VARIABLE_VALUE") + field(2, full_name.encode()) + field(3, key.encode()))
    for variable, slot, to in slots:
        message += field(3, field(1, variable) + field(2, slot.encode()) + field(3, to))
    return field(1, message)


def graph(*nodes: bytes) -> ObjectGraph:
    return ObjectGraph(b"".join(nodes))


def keras_3() -> ObjectGraph:
    """Checkpoint(model=…, optimizer=…): the weights are stored below the optimizer's list of them."""
    return graph(
        node({"model": 1, "optimizer": 2, "step": 12, "save_counter": 13}),
        node({"_kernel": 7, "moving_mean": 8}),
        node(
            {
                "_variables": 3,
                "_trainable_variables": 4,
                "_iterations": 9,
                "_momentums": 5,
                "_model_variables_moving_average": 6,
            }
        ),
        node({"0": 9, "1": 10, "2": 11}),
        node({"0": 7}),
        node({"0": 10}),
        node({"0": 11}),
        node(key=f"optimizer/_trainable_variables/0{SUFFIX}", full_name="dense/kernel"),
        node(key=f"model/moving_mean{SUFFIX}"),
        node(key=f"optimizer/_iterations{SUFFIX}"),
        node(key=f"optimizer/_variables/1{SUFFIX}"),
        node(key=f"optimizer/_variables/2{SUFFIX}"),
        node(key=f"step{SUFFIX}"),
        node(key=f"save_counter{SUFFIX}"),
    )


def test_weights_of_keras_3_are_weights_though_they_are_stored_below_the_optimizer() -> None:
    weight = f"optimizer/_trainable_variables/0{SUFFIX}"
    infos = dict.fromkeys(keras_3().stored, MATRIX) | {
        f"{name}{SUFFIX}": COUNT for name in ("optimizer/_iterations", "step", "save_counter")
    }
    assert keras_3().purposes(infos) == {
        weight: Purpose(Role.WEIGHT),
        f"model/moving_mean{SUFFIX}": Purpose(Role.WEIGHT),
        f"optimizer/_iterations{SUFFIX}": Purpose(Role.COUNTER),
        f"optimizer/_variables/1{SUFFIX}": Purpose(Role.OPTIMIZER, (weight,), "momentums"),
        f"optimizer/_variables/2{SUFFIX}": Purpose(Role.AVERAGE, (weight,), "model_variables_moving_average"),
        f"step{SUFFIX}": Purpose(Role.COUNTER),
        f"save_counter{SUFFIX}": Purpose(Role.COUNTER),
    }


def test_second_names() -> None:
    aliases = keras_3().aliases()
    assert aliases[f"optimizer/_trainable_variables/0{SUFFIX}"] == "dense/kernel"
    # no name of its own: another path, where there is one
    assert aliases[f"optimizer/_variables/1{SUFFIX}"] == "optimizer/_momentums/0"
    assert f"model/moving_mean{SUFFIX}" not in aliases


def test_slots_of_keras_2() -> None:
    kernel, slot = f"model/kernel{SUFFIX}", f"model/kernel/.OPTIMIZER_SLOT/optimizer/m{SUFFIX}"
    found = graph(
        node({"model": 1, "optimizer": 2}),
        node({"kernel": 3}),
        node({"iter": 5, "learning_rate": 6}, slots=[(3, "m", 4)]),
        node(key=kernel),
        node(key=slot),
        node(key=f"optimizer/iter{SUFFIX}"),
        node(key=f"optimizer/learning_rate{SUFFIX}"),
    ).purposes(
        {
            kernel: MATRIX,
            slot: MATRIX,
            f"optimizer/iter{SUFFIX}": COUNT,
            f"optimizer/learning_rate{SUFFIX}": TensorInfo(BY_NAME["float32"], ()),
        }
    )
    assert found == {
        kernel: Purpose(Role.WEIGHT),
        slot: Purpose(Role.OPTIMIZER, (kernel,), "m"),
        f"optimizer/iter{SUFFIX}": Purpose(Role.COUNTER),
        f"optimizer/learning_rate{SUFFIX}": Purpose(Role.OPTIMIZER),
    }


def test_names_are_escaped_as_in_keys() -> None:
    found = graph(node({"a": 1, "b": 1}), node({"x.y/z": 2}), node(key=f"elsewhere{SUFFIX}")).aliases()
    assert found == {f"elsewhere{SUFFIX}": "a/x..y.Sz"}


def test_cycles_end() -> None:
    found = graph(node({"self": 0, "a": 1}), node({"up": 0, "v": 2}), node({"down": 1}, key=f"a/v{SUFFIX}"))
    assert found.aliases() == {}
    assert found.purposes({f"a/v{SUFFIX}": MATRIX}) == {f"a/v{SUFFIX}": Purpose(Role.WEIGHT)}


def test_an_optimizer_alone_keeps_the_weights_it_lists() -> None:
    weight, moment = f"_trainable_variables/0{SUFFIX}", f"_variables/1{SUFFIX}"
    found = graph(
        node({"_variables": 1, "_trainable_variables": 2, "_iterations": 3}),
        node({"0": 3, "1": 4}),
        node({"0": 5}),
        node(key=f"_iterations{SUFFIX}"),
        node(key=moment),
        node(key=weight),
    ).purposes({weight: MATRIX, moment: MATRIX})
    assert found == {weight: Purpose(Role.WEIGHT), moment: Purpose(Role.OPTIMIZER)}


@pytest.mark.parametrize(
    "data",
    [
        node({"a": 7}),
        node(slots=[(0, "m", 7)]),
        node(slots=[(7, "m", 0)]),
        node({"a": (1 << 64) - 1}),
    ],
)
def test_nodes_that_are_not_there(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="refers to node"):
        ObjectGraph(data)


@pytest.mark.parametrize("data", [b"\x0a\x7f", field(1, field(1, 3)), field(1, 3), field(1, field(2, field(1, 3)))])
def test_damage(data: bytes) -> None:
    with pytest.raises(CkptError):
        ObjectGraph(data)


def test_an_empty_graph() -> None:
    assert ObjectGraph(b"").aliases() == {}
    assert ObjectGraph(b"").purposes({}) == {}


def test_paths_do_not_lead_through_optimizers() -> None:
    found = graph(
        node({"optimizer": 1, "model": 2}),
        node({"_variables": 3, "_iterations": 3, "_trainable_variables": 4}),
        node({"layer.one": 5}),
        node(),
        node({"0": 6, "1": 7}),
        node({"_kernel": 6}),
        node(key=f"optimizer/_trainable_variables/0{SUFFIX}"),
        node(key=f"optimizer/_trainable_variables/1{SUFFIX}"),
    )
    assert found.paths() == {
        f"optimizer/_trainable_variables/0{SUFFIX}": ("model", "layer..one", "_kernel"),
        f"optimizer/_trainable_variables/1{SUFFIX}": (),
    }
