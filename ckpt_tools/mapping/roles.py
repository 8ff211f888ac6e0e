"""What a tensor is to a training run: a weight, the optimizer's state, a counter, a moving average.

Decided from keys alone, by what the formats' own writers do: torch's ``{"state", "param_groups"}`` dicts, Paddle's
accumulator names, TensorFlow's slots and object paths, the groups of Keras files. A tensor that none of this concerns
is a weight: nothing is taken for optimizer state because of how it sounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum

from ckpt_tools.core.keys import Key


class Role(str, Enum):
    """The roles; ``COUNTER`` has the states of random generators too, ``BOOKKEEPING`` what only the format needs."""

    WEIGHT = "weight"
    OPTIMIZER = "optimizer"
    COUNTER = "counter"
    AVERAGE = "average"
    BOOKKEEPING = "bookkeeping"


_BOOKKEEPING = frozenset({"_CHECKPOINTABLE_OBJECT_GRAPH", "StructuredToParameterName@@", "UnpackBigParamInfor@@"})
_COUNTERS = frozenset(
    {"num_batches_tracked", "global_step", "save_counter", "seed_generator_state", "iterations", "iteration", "epoch"}
)
#: torch.get_rng_state() and its kin, under the names trainers give them
_RANDOM_STATE = re.compile(r"(?:torch_|cuda_|cpu_|cuda_cpu_)?(?:rng|random)_states?(?:_all)?")
#: The names paddle.optimizer gives its accumulators; the number at the end counts optimizers of the process.
_PADDLE_ACCUMULATOR = re.compile(
    r".+_(?:moment1|moment2|moment2_max|moment|beta1_pow_acc|beta2_pow_acc|velocity|momentum|mean_square|mean_grad"
    r"|_avg_squared_grad|_avg_squared_update|inf_norm|fp32_master)_\d+",
    re.DOTALL,
)
_PADDLE_VARIABLE = re.compile(r".*[a-z0-9]_\d+\.[wb]_\d+.*", re.DOTALL)
#: ``beta1_power`` and ``beta2_power`` of the first Adam of a graph, ``_1`` and so on of the next
_TF_ADAM_POWER = re.compile(r"(?:.*/)?beta[12]_power(?:_\d+)?", re.DOTALL)
_TF_AVERAGES = ("ExponentialMovingAverage", "MovingAverage")
_TF_SLOT = "/.OPTIMIZER_SLOT/"
_TF_ATTRIBUTES = "/.ATTRIBUTES/"
#: What a Keras 3 optimizer and a Keras 2 or TF optimizer track beside the slots
_KERAS3_OPTIMIZER = frozenset({"_iterations", "_learning_rate", "_variables"})
_KERAS2_OPTIMIZER = frozenset(
    {"iter", "beta_1", "beta_2", "decay", "learning_rate", "momentum", "rho", "_iterations", "_learning_rate"}
)
_OPTIMIZER_GROUPS = frozenset({"optimizer_weights"})
#: Parts of a key that announce moving averages; believed only where the same names occur elsewhere without them.
_AVERAGE_PARTS = re.compile(
    r"(?:model_|net_|state_dict_)?(?:ema|swa|shadow|averaged)(?:_model|_state_dict|_state|_params|_weights)?"
)


def assign_roles(keys: Sequence[Key], *, family: str | None = None) -> list[Role]:
    """The role of each key, given all tensor keys of one checkpoint and the keys of its other leaves, in any order.

    ``family`` is the framework that wrote it, where known (see :data:`ckpt_tools.mapping.layouts.FAMILY_BY_FORMAT`).
    """
    optimizers = _torch_optimizers(keys)
    is_tf_state = _tf_state(keys)
    averages = _averages(keys)
    return [_role(key, family, optimizers, is_tf_state, averages) for key in keys]


def _role(
    key: Key,
    family: str | None,
    optimizers: frozenset[Key],
    is_tf_state: Callable[[str], Role | None],
    averages: frozenset[Key],
) -> Role:
    last = str(key[-1]) if key else ""
    if last in _BOOKKEEPING:
        return Role.BOOKKEEPING
    if any(key[:length] in optimizers for length in range(len(key))):
        return Role.OPTIMIZER
    if _PADDLE_ACCUMULATOR.fullmatch(last) and (family == "paddle" or _PADDLE_VARIABLE.fullmatch(last)):
        return Role.OPTIMIZER
    if "master_weights" in key[:-1] and family in ("paddle", None):
        return Role.OPTIMIZER
    if any(part in _OPTIMIZER_GROUPS for part in key[:-1]) or _keras_optimizer(key):
        return Role.OPTIMIZER
    found = is_tf_state("/".join(map(str, key)))
    if found is not None:
        return found
    segment = re.split(r"[./]", last)[-1]
    if segment in _COUNTERS or any(_RANDOM_STATE.fullmatch(str(part)) for part in key):
        return Role.COUNTER
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


def _keras_optimizer(key: Key) -> bool:
    """``optimizer/vars/3`` of a Keras 3 file."""
    text = "/".join(map(str, key))
    return text.startswith("optimizer/vars/") or "/optimizer/vars/" in text


def _tf_state(keys: Sequence[Key]) -> Callable[[str], Role | None]:
    """How to tell TensorFlow's state from weights, given all names: object paths by their structure, graph-mode
    variables by hanging below another variable."""
    names = {"/".join(map(str, key)) for key in keys}
    objects: dict[str, set[str]] = {}
    for name in names:
        path, attributes, _ = name.partition(_TF_ATTRIBUTES)
        if attributes:
            parent, _, child = path.rpartition("/")
            objects.setdefault(parent, set()).add(child)
            for known in ("/_variables/", "/_trainable_variables/"):
                if known in f"/{path}":
                    head = f"/{path}".partition(known)[0].lstrip("/")
                    objects.setdefault(head, set()).add(known.strip("/"))
    optimizers = {
        parent
        for parent, children in objects.items()
        if len(children & _KERAS3_OPTIMIZER) >= 2 or ("iter" in children and len(children & _KERAS2_OPTIMIZER) >= 2)
    }
    graph_mode = {name for name in names if "/" in name} if not objects else set()

    def is_tf_state(name: str) -> Role | None:
        path, attributes, _ = name.partition(_TF_ATTRIBUTES)
        if attributes:
            if f"{_TF_SLOT}" in f"{path}/":
                return Role.OPTIMIZER
            parent, _, child = path.rpartition("/")
            if child in _COUNTERS and parent not in optimizers:
                return Role.COUNTER
            if parent in optimizers:
                return Role.OPTIMIZER
            head, known, _ = path.rpartition("/_variables/")
            return Role.OPTIMIZER if known and head in optimizers else None
        if _TF_ADAM_POWER.fullmatch(name):
            return Role.OPTIMIZER
        if name in graph_mode:
            parent, _, child = name.rpartition("/")
            if child in _TF_AVERAGES:
                return Role.AVERAGE
            if parent in names:
                return Role.OPTIMIZER
        return None

    return is_tf_state


def _averages(keys: Sequence[Key]) -> frozenset[Key]:
    """Keys of dicts that are called averages and repeat names found elsewhere in the same checkpoint."""
    below: dict[Key, set[Key]] = {}
    for key in keys:
        for length in range(1, len(key)):
            below.setdefault(key[:length], set()).add(key[length:])
    candidates = [key for key in below if _AVERAGE_PARTS.fullmatch(str(key[-1]))]
    return frozenset(
        key
        for key in candidates
        if any(other != key and other[: len(key)] != key and below[key] <= names for other, names in below.items())
    )
