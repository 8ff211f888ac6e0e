"""Values that travel as texts: in the metadata of a safetensors file, or of the index of a set of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ckpt_tools.core.issues import Issue
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Dict, Node, Scalar
from ckpt_tools.errors import CorruptFile
from ckpt_tools.formats._safetensors_header import METADATA
from ckpt_tools.formats._values import OUTLINE, outlined


def text_of(value: Scalar) -> str:
    """How a number, a truth value or a text stands in metadata."""
    return value if isinstance(value, str) else json.dumps(value)


def tree_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], where: str) -> tuple[Node, list[Issue]]:
    """The tree of named tensors and metadata: as an outline among these says, or flat, metadata below a key of its own."""
    rest = dict(metadata)
    issues: list[Issue] = []

    def value(name: str, kind: type) -> Scalar:
        if name not in rest:
            raise CorruptFile(f"the outline names a value {name!r}, which is not in the metadata")
        return _value_of(rest.pop(name), kind)

    if OUTLINE in metadata:
        outline = rest.pop(OUTLINE)
        root, issues = outlined(outline, tensors, value, (), where)
        if not issues:
            if isinstance(root, Dict) and rest:
                held = Dict({METADATA: Dict(rest)}, type_name=root.type_name)
                held.update(root)
                return held, []
            return root, []
        rest = dict(metadata)
    tree = Dict({METADATA: Dict(rest)} if rest else ())
    tree.update(tensors)
    return tree, issues


def _value_of(text: str, kind: type) -> Scalar:
    if kind is str:
        return text
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = None
    if type(value) is kind and isinstance(value, (bool, int, float)):
        return value
    raise CorruptFile(f"{text!r:.40} in the place of a value of type {kind.__name__}")
