"""What variables are for, told by their names: the habits of TensorFlow's name-based ``Saver``.

Sources: the slot names of tf.compat.v1.train's optimizers (``kernel/Adam``, ``kernel/Adam_1``), of the optimizers that
came with BERT (``adam_m``), Tensor2Tensor (``adafactor_vr``) and Mesh TensorFlow (``kernel_slot_vr``), of Keras in
graph mode (``training/Adam/kernel/m``), and tf.train.ExponentialMovingAverage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ckpt_tools.core.purposes import Purpose, Role
from ckpt_tools.core.tensors import TensorInfo

_SLOT = re.compile(
    r"(?:Adam|AdaMax|LazyAdam|Adagrad|AdagradDA|Adadelta|Momentum|RMSProp|Ftrl|LAMB|LARS)(?:_\d+)?"
    r"|(?:adam|lamb)_[mv]|adafactor_(?:m|v|vr|vc)"
)
#: Slots of Mesh TensorFlow are not below the variable, they begin with its name.
_JOINED_SLOT = re.compile(r"(?P<of>.+)_slot_(?P<slot>m|v|vr|vc)", re.DOTALL)
#: Too common to be told from a layer's own variable by themselves: what lies below a variable is no layer's.
_SLOT_BELOW_VARIABLE = re.compile(r"m|v|vhat|momentum|rms|mg|accumulator|linear|gradient_squared_accumulator")
_KERAS_SLOT = re.compile(r"(?:training/)?[A-Z]\w*/(?P<of>.+)/(?P<slot>m|v|vhat|momentum|rms|mg|accumulator)", re.DOTALL)
_AVERAGE = "ExponentialMovingAverage"
#: The correction of a moving average for the zeros it began with (moving_averages.assign_moving_average).
_DEBIASING = re.compile(r"biased|local_step")
_OPTIMIZER_SCALAR = re.compile(r"beta_?[12](?:_power)?(?:_\d+)?|(?:current_)?learning_rate|loss_scale|good_steps|decay")
#: How far above a slot its variable is looked for; old Savers put a few scopes between the two.
_SCOPES = 16
_COUNTER = re.compile(r"(?i:(?:global|training|local|train)_?step|step|iter|iterations?|epoch|save_counter)(?:_\d+)?")


def purposes(infos: Mapping[str, TensorInfo]) -> dict[str, Purpose]:
    """What each variable of a name-based checkpoint is for."""
    return {name: _purpose(name, info, infos) for name, info in infos.items()}


def _purpose(name: str, info: TensorInfo, infos: Mapping[str, TensorInfo]) -> Purpose:
    if not info.dtype.bit_width:
        return Purpose(Role.OTHER)
    last = name.rpartition("/")[2]
    if not info.shape:
        if _COUNTER.fullmatch(last):
            return Purpose(Role.COUNTER)
        if _OPTIMIZER_SCALAR.fullmatch(last):
            return Purpose(Role.OPTIMIZER)
    variable = _above(name, infos)
    of = (variable,) if variable is not None else None
    if last == _AVERAGE:
        return Purpose(Role.AVERAGE, of, last)
    if _SLOT.fullmatch(last) or (of and _SLOT_BELOW_VARIABLE.fullmatch(last)):
        return Purpose(Role.OPTIMIZER, of, last)
    if of and _DEBIASING.fullmatch(last):
        return Purpose(Role.OTHER, of)
    for pattern in (_JOINED_SLOT, _KERAS_SLOT):
        match = pattern.fullmatch(name)
        if match and match["of"] in infos:
            return Purpose(Role.OPTIMIZER, (match["of"],), match["slot"])
    return Purpose(Role.WEIGHT)


def _above(name: str, infos: Mapping[str, TensorInfo]) -> str | None:
    """The variable whose name is followed by a slash and the rest of this one; the nearest where there are several."""
    scope = name
    for _ in range(_SCOPES):
        scope = scope.rpartition("/")[0]
        if scope in infos:
            return scope
    return None
