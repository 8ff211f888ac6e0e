"""What a tensor is to a training run, told by keys: weights apart from optimizer state, counters and averages.

Formats that know it say so themselves (:attr:`Checkpoint.purposes`). For the others, what their writers do decides:
torch's ``{"state", "param_groups"}`` dicts, Paddle's accumulator names, the groups of Keras files. A tensor that none of
this concerns is a weight: nothing is taken for optimizer state because of how it sounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ckpt_tools.core.keys import Key
from ckpt_tools.core.purposes import Purpose, Role

#: Buffers and variables that count, under the names that torch, TensorFlow, Keras and Paddle themselves give them.
_COUNTERS = frozenset({"num_batches_tracked", "global_step", "save_counter"})
#: torch.get_rng_state() and its kin under the names trainers give them, and the state of Keras' SeedGenerator
_RANDOM_STATE = re.compile(
    r"(?:torch_|cuda_|cpu_|cuda_cpu_)?(?:rng|random)_states?(?:_all)?|seed_generator(?:_\d+|_state)?"
)
#: The names paddle.optimizer gives its accumulators; the number at the end counts optimizers of the process.
_PADDLE_ACCUMULATOR = re.compile(
    r".+_(?:moment1|moment2|moment2_max|moment|beta1_pow_acc|beta2_pow_acc|velocity|momentum|mean_square|mean_grad"
    r"|_avg_squared_grad|_avg_squared_update|inf_norm|fp32_master|beta1_pow|beta2_pow|rho|momentum_decay_pow|mu_product"
    r")_\d+",
    re.DOTALL,
)
#: Paddle's own variable names, ``linear_0.w_0``: with them inside, an accumulator is one in any container.
_PADDLE_VARIABLE = re.compile(r".*[a-z0-9]_\d+\.[wb]_\d+.*", re.DOTALL)
_PADDLE_MASTER_WEIGHTS = "master_weights"
#: The group of optimizer state in Keras' whole-model HDF5, and in ``.weights.h5``
_KERAS_OPTIMIZER = "optimizer_weights"
_KERAS_OPTIMIZER_VARIABLES = ("optimizer", "vars")
#: Parts of a key that announce moving averages; believed only where the same names occur elsewhere without them.
_AVERAGES = re.compile(
    r"(?:model_|net_|state_dict_)?(?:ema|swa|shadow|averaged)(?:_model|_state_dict|_state|_params|_weights)?"
)


def assign_roles(
    keys: Sequence[Key], *, family: str | None = None, known: Mapping[Key, Purpose] | None = None
) -> dict[Key, Role]:
    """The role of each key, given the keys of all leaves of one checkpoint.

    ``family`` is the framework that wrote it, where known (:data:`ckpt_tools.mapping.layouts.FAMILY_BY_FORMAT`);
    ``known`` is what the format itself tells.
    """
    optimizers = _torch_optimizers(keys)
    averages = _average_dicts(keys)
    known = known or {}
    return {key: known[key].role if key in known else _role(key, family, optimizers, averages) for key in keys if key}


def _role(key: Key, family: str | None, optimizers: frozenset[Key], averages: frozenset[Key]) -> Role:
    last = str(key[-1])
    if any(key[:length] in optimizers for length in range(len(key))) or _KERAS_OPTIMIZER in key[:-1]:
        return Role.OPTIMIZER
    if any(key[at : at + 2] == _KERAS_OPTIMIZER_VARIABLES for at in range(len(key) - 2)):
        return Role.OPTIMIZER
    if family in ("paddle", None) and _PADDLE_MASTER_WEIGHTS in key[:-1]:
        return Role.OPTIMIZER
    if _PADDLE_ACCUMULATOR.fullmatch(last) and (family == "paddle" or _PADDLE_VARIABLE.fullmatch(last)):
        return Role.OPTIMIZER
    if re.split(r"[./]", last)[-1] in _COUNTERS:
        return Role.COUNTER
    if any(isinstance(part, str) and _RANDOM_STATE.fullmatch(part) for part in key):
        return Role.OTHER
    if any(key[:length] in averages for length in range(1, len(key))):
        return Role.AVERAGE
    return Role.WEIGHT


def _torch_optimizers(keys: Sequence[Key]) -> frozenset[Key]:
    """Where a dict has both ``state`` and ``param_groups``, as every ``torch.optim`` state dict has."""
    seen: dict[Key, set[str]] = {}
    for key in keys:
        for at, part in enumerate(key):
            if part in ("state", "param_groups"):
                seen.setdefault(key[:at], set()).add(str(part))
    return frozenset(key for key, parts in seen.items() if len(parts) == 2)


def _average_dicts(keys: Sequence[Key]) -> frozenset[Key]:
    """Keys of dicts that are called averages and repeat names found elsewhere in the same checkpoint."""
    below: dict[Key, set[Key]] = {}
    for key in keys:
        for length in range(1, len(key)):
            below.setdefault(key[:length], set()).add(key[length:])
    return frozenset(
        key
        for key in below
        if _AVERAGES.fullmatch(str(key[-1]))
        and any(other[: len(key)] != key and below[key] <= names for other, names in below.items())
    )
