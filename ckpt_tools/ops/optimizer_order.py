"""Which variable of a model each weight is that ``tf.train.Checkpoint`` has for an optimizer alone: TensorFlow does not
track the lists of layers that models of Keras 3 have, but the optimizer lists all that it trains, in the order of the
model's ``trainable_variables``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.keys import Key
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.ops.comparands import Comparand, Row

#: The variables of an optimizer are in the order of the weights that these are of.
_OWN = re.compile(r"(?P<optimizer>.*)/_variables/(?P<number>\d+)/\.ATTRIBUTES/VARIABLE_VALUE")
#: Keras counts layers as they are made: the numbers are others in another process.
_COUNTS = re.compile(r"_?\d+")


def trained_rows(source: Checkpoint, models: Sequence[Comparand]) -> dict[Key, tuple[Row, Comparand]]:
    """What a model has for the weights that the file's only optimizer trains, by their keys. Nothing unless there are as
    many, each of the shape, and called by the optimizer as in the model (``adam/net_dense_1_kernel_momentum``)."""
    tensors = {entry.key: entry.node for entry in source.entries if isinstance(entry.node, Tensor)}
    places: dict[Key, int] = {}
    called: dict[Key, str] = {}
    optimizers = set()
    for key, purpose in source.purposes.items():
        found = _OWN.fullmatch("/".join(map(str, key)))
        if found is None or purpose.role is not Role.OPTIMIZER or purpose.of not in tensors or key not in tensors:
            continue
        optimizers.add(found["optimizer"])
        if int(found["number"]) <= places.setdefault(purpose.of, int(found["number"])):
            places[purpose.of] = int(found["number"])
            called[purpose.of] = (tensors[key].alias or "").partition("/")[2]
    trained = sorted(places, key=lambda key: places[key])
    for model in models:
        rows = [row for row in model.rows if row.is_parameter and row.role is Role.WEIGHT and row.same_as is None]
        if len(optimizers) == 1 and model.is_model and len(rows) == len(trained):
            pairs = dict(zip(trained, rows))
            if all(tensors[key].info.shape == row.shape and _is_of(called[key], row) for key, row in pairs.items()):
                return {key: (row, model) for key, row in pairs.items()}
    return {}


def _is_of(slot: str, row: Row) -> bool:
    """Whether the name of an optimizer's variable begins with that of a model's, but for what was counted."""
    return _COUNTS.sub("", slot).startswith(_COUNTS.sub("", row.name.replace("/", "_")) + "_")
