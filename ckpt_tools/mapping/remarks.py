"""What equal weights do not settle between two frameworks: defaults and conventions that live in code, not in files."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ckpt_tools.mapping.kinds import CONVOLUTIONS

_TITLES = {"torch": "PyTorch", "paddle": "Paddle", "keras": "Keras"}
#: Defaults of torch.nn, paddle.nn and keras.layers.
_EPSILON: Mapping[str, Mapping[str, str]] = {
    "batch_norm": {"torch": "1e-5", "paddle": "1e-5", "keras": "1e-3"},
    "layer_norm": {"torch": "1e-5", "paddle": "1e-5", "keras": "1e-3"},
    "group_norm": {"torch": "1e-5", "paddle": "1e-5", "keras": "1e-3"},
    "rms_norm": {"torch": "the element type's own", "paddle": "1e-6", "keras": "1e-6"},
}
_MOMENTUM = {
    "torch": "0.1, the weight of the new value",
    "paddle": "0.9, the weight of the old value",
    "keras": "0.99, the weight of the old value",
}


def outside_the_file(kinds: Collection[str], source: str, target: str) -> list[str]:
    """A sentence for each convention that layers of these kinds leave to the code of the two frameworks."""
    ours, theirs = _TITLES[source], _TITLES[target]
    notes = []
    for kind, epsilon in _EPSILON.items():
        if kind in kinds and epsilon[source] != epsilon[target]:
            notes.append(
                f"{kind}: epsilon is not in the file; by default it is {epsilon[source]} in {ours}, {epsilon[target]} in {theirs}"
            )
    if "batch_norm" in kinds:
        notes.append(
            f"batch_norm: momentum is not in the file; by default it is {_MOMENTUM[source]}, in {ours}, {_MOMENTUM[target]},"
            f" in {theirs}"
        )
    convolutions = CONVOLUTIONS & set(kinds)
    if convolutions and "keras" in (source, target):
        notes.append("convolutions: Keras has channels last, and pads 'same' on one side more when strides are above 1")
        if "linear" in kinds:
            notes.append(
                "a Linear behind a flattened feature map counts its inputs as (C, H, W), in Keras as (H, W, C): its rows"
                " are not reordered, since no file tells that it is there"
            )
    return notes


def weight_norm_axis(target: str) -> str:
    """What Paddle has to be told of a Linear under weight norm."""
    return f"weight norm of a Linear: magnitudes are one for each output, which in Paddle is dim=1 ({_TITLES[target]} gets them so)"
