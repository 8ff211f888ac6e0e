"""What both of TensorFlow's checkpoint formats say about a tensor, and tensors that are kept in slices.

Sources: tensorflow/core/framework/{types,tensor_shape,tensor_slice}.proto.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from ckpt_tools.core.dtypes import BY_NAME, BY_TF, DType, composed
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Key, printable
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.purposes import Purpose, Role
from ckpt_tools.core.tensors import AbsentTensor, AssembledTensor, StringTensor, Tensor, TensorInfo
from ckpt_tools.errors import CorruptFile, LimitExceeded
from ckpt_tools.formats._ordered_code import Span
from ckpt_tools.formats._protobuf import fields, message, number, signed, submessage

STRING, VARIANT = BY_NAME["string"], BY_NAME["variant"]

#: DT_FLOAT4_E2M1FN: TensorFlow gives each value a byte of its own, other formats pack two into one.
_FLOAT4 = 33
#: Tensors that are named in an issue that concerns many.
_NAMED = 3

#: A part of a tensor: its first index and its shape.
Box = tuple[tuple[int, ...], tuple[int, ...]]


class Troubles:
    """What is wrong with tensors, collected so that tensors with one reason share one issue."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._names: dict[tuple[str, Severity, str, str], list[str]] = {}

    def add(
        self, code: str, message: str, name: str, *, where: str | None = None, severity: Severity = Severity.ERROR
    ) -> None:
        """Note that ``message`` is true of the tensor ``name``; ``where`` is a file, if not the one of names."""
        self._names.setdefault((code, severity, where or self._where, message), []).append(name)

    def absent(
        self,
        name: str,
        info: TensorInfo,
        code: str,
        reason: str,
        *,
        where: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> AbsentTensor:
        """A tensor without bytes, for a reason that is noted."""
        self.add(code, reason, name, where=where, severity=severity)
        return AbsentTensor(info, reason)

    def issues(self) -> list[Issue]:
        return [
            Issue(code, severity, where, f"{message}: {_enumerated(names)}")
            for (code, severity, where, message), names in self._names.items()
        ]


def _enumerated(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def annotate(tensors: Mapping[str, Tensor], purposes: Mapping[str, Purpose]) -> dict[Key, Purpose]:
    """Note on the tensors what they are for, weights aside; the purposes by key."""
    for name, purpose in purposes.items():
        tensor = tensors[name]
        if purpose.role is not Role.WEIGHT:
            tensor.note = f"{tensor.note}, {purpose.role.value}" if tensor.note else purpose.role.value
    return {(name,): purpose for name, purpose in purposes.items()}


def element_type(code: int, nbytes: int, count: int) -> tuple[DType, bool]:
    """The element type of that DataType number, and whether it is known; if not, the bytes of ``count`` elements tell
    its width.
    """
    known = composed("float4_e2m1fn", 1, "V1") if code == _FLOAT4 else BY_TF.get(code)
    if known is not None:
        return known, True
    width = nbytes // count if count > 0 and nbytes % count == 0 else 0
    return composed(f"tf-type-{code}", width, f"V{width}"), False


def parse_shape(data: bytes) -> tuple[int, ...]:
    """The shape of a TensorShapeProto. CorruptFile when a size is unknown or negative."""
    sizes = []
    for index, _, value in fields(data):
        if index == 2:
            sizes.append(signed(number(message(submessage(value)).get(1, 0))))
        elif index == 3 and value:
            raise CorruptFile("a tensor of unknown rank")
    if len(sizes) > DEFAULT_LIMITS.rank:
        raise LimitExceeded(f"a tensor of {len(sizes)} dimensions")
    if any(size < 0 for size in sizes):
        raise CorruptFile(f"a tensor of shape {sizes}")
    return tuple(sizes)


def parse_spans(data: bytes) -> tuple[Span, ...]:
    """The part of each dimension that a TensorSliceProto names."""
    spans = []
    for index, _, value in fields(data):
        if index == 1:
            parts = message(submessage(value))
            length = signed(number(parts[2])) if 2 in parts else None
            spans.append(Span(signed(number(parts.get(1, 0))), length))
    if len(spans) > DEFAULT_LIMITS.rank:
        raise LimitExceeded(f"a slice of {len(spans)} dimensions")
    return tuple(spans)


def box(spans: Sequence[Span], shape: tuple[int, ...]) -> Box:
    """First index and shape of a slice of a tensor. CorruptFile when it lies outside."""
    if len(spans) != len(shape):
        raise CorruptFile(f"a slice of {len(spans)} dimensions of a tensor that has {len(shape)}")
    starts, sizes = [], []
    for (start, length), whole in zip(spans, shape):
        size = whole - start if length is None else length
        if start < 0 or size < 0 or start + size > whole:
            raise CorruptFile(f"a slice of {size} at {start} of a dimension of {whole}")
        starts.append(start)
        sizes.append(size)
    return tuple(starts), tuple(sizes)


def assembled(info: TensorInfo, pieces: Sequence[tuple[tuple[int, ...], Tensor]]) -> Tensor:
    """The tensor whose slices these are. CorruptFile unless they cover it once."""
    if len(pieces) == 1 and pieces[0][1].info == info:
        return pieces[0][1]
    note = f"{len(pieces)} slices" if len(pieces) > 1 else None
    whole = AssembledTensor(info, pieces, note=note)
    if info.dtype.bit_width:
        return whole
    stored = sum(piece.nbytes for _, piece in pieces)
    return StringTensor(info.shape, info.dtype, lambda: _texts(whole), stored_nbytes=stored, note=note)


def _texts(whole: AssembledTensor) -> list[bytes]:
    """The elements of a tensor of strings, from its slices."""
    found: dict[tuple[int, ...], bytes] = {}
    for starts, piece in whole.pieces:
        assert isinstance(piece, StringTensor)
        places = itertools.product(*(range(a, a + n) for a, n in zip(starts, piece.info.shape)))
        found.update(zip(places, piece.elements()))
    return [found[place] for place in sorted(found)]
