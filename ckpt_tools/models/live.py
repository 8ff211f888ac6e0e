"""What a live model comes down to: its tensors, described, and for TensorFlow its graph of objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LiveTensor:
    """One parameter, buffer or variable. ``kind`` and ``part`` are words of :mod:`ckpt_tools.mapping.kinds`, "" where
    they are not known; an empty ``dtype`` is an unknown one.

    ``other_names`` are further names by the kind of name; ``same_as`` is the name under which the same tensor came
    before; ``node`` is its place in the graph; ``is_optimizer`` marks what an optimizer keeps for itself, and
    ``is_parameter`` is False for buffers and for variables that are not trained: no optimizer is given them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: str = ""
    part: str = ""
    other_names: Mapping[str, str] = field(default_factory=dict)
    same_as: str | None = None
    node: int | None = None
    is_optimizer: bool = False
    is_parameter: bool = True


@dataclass(frozen=True)
class LiveNode:
    """An object of a TensorFlow program: its children by name, whether it has values of its own to restore, and of a
    variable type and shape."""

    path: str
    children: tuple[tuple[str, int], ...] = ()
    has_values: bool = False
    shape: tuple[int, ...] | None = None
    dtype: str = ""


@dataclass(frozen=True)
class LiveGraph:
    """The objects below a root, node 0. ``is_checkpoint`` when the root is a ``tf.train.Checkpoint``, which is what gets
    restored; a model alone has to be put into one."""

    nodes: tuple[LiveNode, ...]
    is_checkpoint: bool


@dataclass(frozen=True)
class LiveModel:
    """``family`` is ``torch``, ``paddle`` or ``keras``, None for a plain mapping; ``label`` is what people called it."""

    label: str
    family: str | None
    tensors: tuple[LiveTensor, ...]
    graph: LiveGraph | None = None
