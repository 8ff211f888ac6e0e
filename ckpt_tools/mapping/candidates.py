"""Which kinds of layer a tensor can be of, by what its name says it is there, its axes, and what lies beside it.

The answers take in every layer of torch.nn, paddle.nn and keras.layers whose state looks like that, and parameters of
users' own layers where these look like it. Whether the kinds differ is another question, which depends on the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckpt_tools.mapping.kinds import MATRIX_PARTS, PARAMETER, Shape

Kinds = tuple[str, ...]

#: Normalisations that have a vector for scale and one for shift, and no statistics.
_SCALE_AND_SHIFT: Mapping[str, Kinds] = {
    "torch": ("layer_norm", "group_norm", "batch_norm", "instance_norm"),
    "paddle": ("layer_norm", "group_norm"),  # its InstanceNorm says "scale", its BatchNorm always has statistics
    "keras": ("layer_norm", "group_norm", "instance_norm"),
}
#: Layers whose only tensor is one vector, by the word for it.
_VECTOR_ALONE: Mapping[str, Mapping[str, Kinds]] = {
    "torch": {"weight": ("layer_norm", "rms_norm", "prelu", PARAMETER)},
    "paddle": {"weight": ("layer_norm", "group_norm", "rms_norm", PARAMETER), "_weight": ("prelu",)},
    "keras": {
        "gamma": ("layer_norm", "group_norm", PARAMETER),
        "beta": ("layer_norm", "group_norm", PARAMETER),
        "scale": ("rms_norm", PARAMETER),
    },
}
#: Layers of so many vectors, where Keras has numbers for names. A normalisation that leaves one out is not among them: its
#: numbers do not tell which.
_NUMBERED_VECTORS: Mapping[int, Kinds] = {
    1: ("rms_norm", "prelu", PARAMETER),
    2: ("layer_norm", "group_norm", PARAMETER),
    4: ("batch_norm", PARAMETER),
}
#: A matrix whose name says nothing; torch and Paddle call the weights of their layers weight.
_MATRIX: Mapping[str, Kinds] = {
    "torch": (PARAMETER, "linear"),
    "paddle": (PARAMETER, "linear"),
    "keras": ("linear", "embedding", PARAMETER, "lstm", "rnn", "gru"),
}


@dataclass(frozen=True)
class Neighbourhood:
    """The shapes of ``weight`` and ``bias`` of one layer in the layout of ``family``, None for what it does not have;
    ``word`` is what the weight is called there; ``numbered`` how many tensors have numbers for names."""

    family: str
    weight: Shape | None = None
    bias: Shape | None = None
    word: str = "weight"
    numbered: int = 0

    def kinds(self, leaf: str, part: str, shape: Shape, *, is_floating: bool = True) -> Kinds:
        """The kinds that a tensor of this neighbourhood can be of, those that are likelier first. ``part`` is what its
        last segment, ``leaf``, stands for; "" when it is nobody's word."""
        if self.family == "keras" and leaf.isdecimal() and is_floating and self.weight:
            rank = len(self.weight)
            return _NUMBERED_VECTORS.get(self.numbered, (PARAMETER,)) if rank == 1 else self._of_anything(rank)
        if not shape or (not is_floating and not part):
            return (PARAMETER,)  # layers have no weights of whole numbers
        if part == "bias" and self.weight is None and leaf != "beta":
            return (PARAMETER,)
        if self.family == "paddle" and self.word == "scale" and {leaf, part} & {"scale", "bias"}:
            return ("instance_norm", PARAMETER) if self.weight == self.bias else (PARAMETER,)
        if part in MATRIX_PARTS or part == "bias":
            return self._of_layer(leaf, part, shape if self.weight is None else self.weight)
        return self._of_anything(len(shape)) if not part else (PARAMETER,)

    def _of_layer(self, leaf: str, part: str, weight: Shape) -> Kinds:
        rank = len(weight)
        is_alone = self.bias is None or self.weight is None
        if rank == 1:
            if is_alone:
                return _VECTOR_ALONE[self.family].get(leaf, (PARAMETER,))
            return _SCALE_AND_SHIFT[self.family] if self.bias == weight else (PARAMETER,)
        if weight == self.bias or leaf in ("gamma", "beta", "scale"):
            return ("layer_norm", PARAMETER)
        if rank == 2:
            return self._matrices(weight, is_weight=part in ("weight", "bias"))
        if not 3 <= rank <= 5:
            return (PARAMETER,)
        if rank == 3 and self.family == "paddle" and self.bias == (1, weight[0]):
            return ("bilinear",)
        return self._kernels(weight, is_plain=part == "weight")

    def _matrices(self, weight: Shape, *, is_weight: bool) -> Kinds:
        """A bias as long as the outputs tells a Linear, unless the inputs are as many: there are layers that have their
        matrix the other way round (``Conv1D`` of GPT-2)."""
        inputs, outputs = weight if self.family != "torch" else reversed(weight)
        if self.bias == (outputs,) and inputs != outputs:
            return ("linear",)
        return ("linear", "embedding", PARAMETER) if is_weight else ("linear", PARAMETER)

    def _kernels(self, weight: Shape, *, is_plain: bool) -> Kinds:
        rank = len(weight) - 2
        if self.family == "keras":
            return (f"conv{rank}d", f"conv_transpose{rank}d", *_keras_depthwise(weight))
        first, second = weight[:2]
        found = [f"conv{rank}d"] if self.bias in (None, (first,)) else []
        if self.bias is None or (len(self.bias) == 1 and _is_transposed(first, second, self.bias[0])):
            found.append(f"conv_transpose{rank}d")
        if second == 1 and first > 1 and rank < 3 and self.bias in (None, (first,)):
            found.append(f"depthwise_conv{rank}d")
        if not found:
            return (f"conv{rank}d", PARAMETER)
        is_own = rank == 1 and self.bias is None and is_plain  # experts, factors: matrices of one size as one tensor
        return (*found, PARAMETER) if is_own else tuple(found)

    def _of_anything(self, rank: int) -> Kinds:
        if rank == 2:
            return _MATRIX[self.family]
        if not 3 <= rank <= 5:
            return (PARAMETER,)
        plain = (f"conv{rank - 2}d", f"conv_transpose{rank - 2}d")
        if self.family == "keras":
            return (*plain, *_keras_depthwise(self.weight or (0,) * rank), PARAMETER)
        return (PARAMETER, *plain, *((f"depthwise_conv{rank - 2}d",) if rank < 5 else ()))


def _keras_depthwise(kernel: Shape) -> Kinds:
    """What else a kernel (…, inputs, outputs) can be: (…, inputs, multiplier). Of one input that is a plain convolution."""
    rank = len(kernel) - 2
    return (f"depthwise_conv{rank}d",) if rank < 3 and kernel[-2] != 1 else ()


def _is_transposed(inputs: int, outputs: int, bias: int) -> bool:
    """Whether a transposed convolution of this many inputs, and outputs for each group, has a bias of this length."""
    return outputs > 0 and bias % outputs == 0 and bias > 0 and inputs % (bias // outputs) == 0
