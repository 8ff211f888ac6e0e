"""What the names of name-based checkpoints tell."""

from __future__ import annotations

import pytest

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.purposes import Purpose, Role
from ckpt_tools.core.tensors import TensorInfo
from ckpt_tools.formats._variable_names import purposes

MATRIX = TensorInfo(BY_NAME["float32"], (2, 3))
SCALAR = TensorInfo(BY_NAME["float32"], ())
COUNT = TensorInfo(BY_NAME["int64"], ())
TEXT = TensorInfo(BY_NAME["string"], (2,))

KERNEL = ("net/dense/kernel",)


@pytest.mark.parametrize(
    ("name", "info", "expected"),
    [
        ("net/dense/kernel", MATRIX, Purpose(Role.WEIGHT)),
        ("net/dense/kernel/Adam", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "Adam")),
        ("net/dense/kernel/Adam_1", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "Adam_1")),
        ("net/dense/kernel/Momentum", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "Momentum")),
        ("net/dense/kernel/t_0/Adagrad", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "Adagrad")),
        ("net/dense/kernel/adam_m", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "adam_m")),
        ("net/dense/kernel/adafactor_vr", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "adafactor_vr")),
        ("net/dense/kernel_slot_vc", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "vc")),
        ("training/Adam/net/dense/kernel/m", MATRIX, Purpose(Role.OPTIMIZER, KERNEL, "m")),
        (
            "net/dense/kernel/ExponentialMovingAverage",
            MATRIX,
            Purpose(Role.AVERAGE, KERNEL, "ExponentialMovingAverage"),
        ),
        ("net/dense/kernel/local_step", SCALAR, Purpose(Role.COUNTER)),
        ("net/dense/kernel/biased", MATRIX, Purpose(Role.OTHER, KERNEL)),
        ("elsewhere/kernel/Adam", MATRIX, Purpose(Role.OPTIMIZER, None, "Adam")),
        ("elsewhere/kernel_slot_vc", MATRIX, Purpose(Role.WEIGHT)),
        ("cell/m", MATRIX, Purpose(Role.WEIGHT)),
        ("moving_mean", MATRIX, Purpose(Role.WEIGHT)),
        ("beta1_power", SCALAR, Purpose(Role.OPTIMIZER)),
        ("train/beta2_power_1", SCALAR, Purpose(Role.OPTIMIZER)),
        ("dnn/learning_rate", SCALAR, Purpose(Role.OPTIMIZER)),
        ("global_step", COUNT, Purpose(Role.COUNTER)),
        ("Global_Step", SCALAR, Purpose(Role.COUNTER)),
        ("step", MATRIX, Purpose(Role.WEIGHT)),
        ("vocabulary", TEXT, Purpose(Role.OTHER)),
    ],
)
def test_purposes(name: str, info: TensorInfo, expected: Purpose) -> None:
    assert purposes({"net/dense/kernel": MATRIX, name: info})[name] == expected


def test_long_names_are_no_work() -> None:
    names = {"/".join("a" * 30_000) + str(n): MATRIX for n in range(50)}
    assert {purpose.role for purpose in purposes(names).values()} == {Role.WEIGHT}
