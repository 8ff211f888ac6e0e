"""How each framework lays out each part of each kind of layer, as steps to and from torch's layout.

torch is the hub: ``between`` goes from one framework to torch's layout and on to the other's. The tables follow from
the shapes the frameworks document for torch.nn, paddle.nn and keras.layers: Paddle keeps Linear weights as (in, out),
Keras keeps kernels channels-last and (in, out). Recurrent weights of Paddle are those of torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ckpt_tools.mapping.kinds import CONVOLUTIONS, MATRIX_PARTS, NORMS, PARAMETER, RECURRENT, LayerPart, Shape
from ckpt_tools.mapping.transforms import Blocks, Permute, Reshape, Rows, Transform, Transforms, shape_after

FAMILIES = ("torch", "paddle", "keras")

#: Format name -> the framework whose layouts its writer uses; the formats not here belong to nobody.
FAMILY_BY_FORMAT: Mapping[str, str] = {
    "torch-zip": "torch",
    "torch-legacy": "torch",
    "torch-tar": "torch",
    "torchscript": "torch",
    "torch-dcp": "torch",
    "paddle-pickle": "paddle",
    "paddle-combined": "paddle",
    "paddle-vars": "paddle",
    "paddle-binary": "paddle",
    "paddle-dcp": "paddle",
    "tf-bundle": "keras",
    "tf-v1": "keras",
    "keras": "keras",
    "hdf5": "keras",
}

_TRANSPOSE: Transforms = (Permute((1, 0)),)
#: Keras has its gates as z, r, n; torch and Paddle as r, z, n
_GRU_GATES: Transforms = (Blocks((1, 0, 2)),)
#: Rank of a kernel -> Keras (k…, in, out) to torch (out, in, k…); transposed ones have in and out swapped on both sides
_KERNEL_AXES = {3: (2, 1, 0), 4: (3, 2, 0, 1), 5: (4, 3, 0, 1, 2)}
_KERNEL_AXES_BACK = {3: (2, 1, 0), 4: (2, 3, 1, 0), 5: (2, 3, 4, 1, 0)}


def to_torch(family: str, layer: LayerPart, shape: Shape) -> Transforms | None:
    """Steps from ``family``'s layout of this part to torch's. None when the kind has to be known and is not, or when
    no such steps exist (a fused attention projection, for one)."""
    if family == "torch" or not shape:
        return ()
    if family == "paddle":
        return _paddle(layer, shape)
    return _keras_to_torch(layer, shape)


def from_torch(family: str, layer: LayerPart, shape: Shape, target: Shape | None = None) -> Transforms | None:
    """Steps from torch's layout of this part to ``family``'s; None as for :func:`to_torch`. The shape of the ``target``
    tells how many inputs a depthwise convolution has."""
    if family == "torch" or not shape:
        return ()
    if family == "paddle":
        flattens = layer.kind == "layer_norm" and len(shape) > 1
        return (Reshape((math.prod(shape),)),) if flattens else _paddle(layer, shape)
    return _torch_to_keras(layer, shape, target)


def between(
    source: str, target: str, layer: LayerPart, shape: Shape, target_shape: Shape | None = None
) -> Transforms | None:
    """Steps from one framework's layout to the other's, ending in ``target_shape`` where only extents of 1 or the
    grouping of axes differ. None as for :func:`to_torch`."""
    if source == target:
        return ()
    first = to_torch(source, layer, shape)
    if first is None:
        return None
    middle = shape_after(first, shape)
    second = from_torch(target, layer, middle, target_shape)
    if second is None:
        return None
    steps = simplified((*first, *second), shape)
    reached = shape_after(steps, shape)
    if target_shape is not None and reached != target_shape and _only_grouping(layer, reached, target_shape):
        steps = (*steps, Reshape(target_shape))
    return steps


def matters(source: str, target: str) -> bool:
    """Whether a matrix of unknown kind could lie transposed between the two."""
    return source != target and "torch" in (source, target)


def _paddle(layer: LayerPart, shape: Shape) -> Transforms | None:
    """Paddle to torch and back: transposing is its own inverse."""
    kind, part = layer
    if len(shape) != 2 or kind in RECURRENT or kind in ("embedding", PARAMETER):
        return _TRANSPOSE if part.startswith(("weight_ho", "weight_hr")) else ()
    if kind == "linear":
        return _TRANSPOSE if part in MATRIX_PARTS else ()
    if kind == "bilinear" or kind in NORMS or kind in CONVOLUTIONS or part not in ("", *MATRIX_PARTS):
        return ()
    return None


def _keras_to_torch(layer: LayerPart, shape: Shape) -> Transforms | None:
    kind, part = layer
    rank = len(shape)
    if rank == 1 or kind in NORMS or kind in ("prelu", "embedding", PARAMETER):
        return ()
    if part == "bias" and kind not in RECURRENT:
        return ()
    if kind in RECURRENT:
        gates = _GRU_GATES if kind.startswith("gru") else ()
        if part.startswith("weight"):
            return (*_TRANSPOSE, *gates)
        return None  # two biases in one tensor
    if kind == "linear" and rank == 2:
        return _TRANSPOSE
    if kind.startswith("depthwise_conv") and rank in (3, 4):
        inputs, multiplier = shape[-2:]
        axes = (1, 2, 0) if rank == 3 else (2, 3, 0, 1)
        return (Permute(axes), Reshape((inputs * multiplier, 1, *shape[:-2])))
    if kind in CONVOLUTIONS and rank in _KERNEL_AXES:
        return (Permute(_KERNEL_AXES[rank]),)
    return None


def _torch_to_keras(layer: LayerPart, shape: Shape, target: Shape | None) -> Transforms | None:
    kind, part = layer
    rank = len(shape)
    if rank == 1 or kind in NORMS or kind in ("prelu", "embedding", PARAMETER):
        return ()
    if part == "bias" and kind not in RECURRENT:
        return ()
    if kind in RECURRENT:
        gates = _GRU_GATES if kind.startswith("gru") else ()
        return (*gates, *_TRANSPOSE) if part.startswith("weight") else None
    if kind == "linear" and rank == 2:
        return _TRANSPOSE
    if kind.startswith("depthwise_conv") and shape[0] > 1 and (target is None or target[-2:-1] != (1,)):
        if target is None or len(target) != rank or rank not in (3, 4):
            return None  # the number of inputs is not in torch's shape
        axes = (2, 0, 1) if rank == 3 else (2, 3, 0, 1)
        return (Reshape((*target[-2:], *shape[2:])), Permute(axes))
    if kind in CONVOLUTIONS and rank in _KERNEL_AXES_BACK:
        return (Permute(_KERNEL_AXES_BACK[rank]),)
    return None


def simplified(steps: Transforms, shape: Shape) -> Transforms:
    """The same effect on tensors of this shape in fewer steps: what undoes each other and what changes nothing is left
    out. UsageError when a step does not fit."""
    kept: list[Transform] = []
    shapes = [shape]
    for step in steps:
        last = kept[-1] if kept else None
        merged: Transform = step
        if isinstance(step, Permute) and isinstance(last, Permute):
            merged = Permute(tuple(last.axes[axis] for axis in step.axes))
        elif isinstance(step, Blocks) and isinstance(last, Blocks) and len(step.order) == len(last.order):
            merged = Blocks(tuple(last.order[block] for block in step.order))
        elif not (isinstance(step, Reshape) and isinstance(last, Reshape)):
            last = None
        if last is not None:
            kept.pop()
            shapes.pop()
        before, after = shapes[-1], merged.shape_after(shapes[-1])
        if not _does_nothing(merged, before, after):
            kept.append(merged)
            shapes.append(after)
    return tuple(kept)


def _does_nothing(step: Transform, before: Shape, after: Shape) -> bool:
    if isinstance(step, (Reshape, Rows)):
        return before == after
    if isinstance(step, Permute):
        moved = [axis for axis in step.axes if before[axis] > 1]
        return before == after and moved == sorted(moved)
    return isinstance(step, Blocks) and step.order == tuple(range(len(step.order)))


def _only_grouping(layer: LayerPart, shape: Shape, target: Shape) -> bool:
    """Whether a reshape is what the frameworks do to this part: flattened norms, weight_g, PReLU, Bilinear's bias."""
    kind = layer.kind
    if math.prod(shape) != math.prod(target):
        return False
    squeezed = tuple(extent for extent in shape if extent != 1)
    return squeezed == tuple(extent for extent in target if extent != 1) or (kind == "layer_norm" and len(target) == 1)
