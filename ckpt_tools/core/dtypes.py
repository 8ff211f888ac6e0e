"""Element types, once: how wide they are and what each format calls them.

The names are those of numpy and ml_dtypes. The table is ours, so that bfloat16 and the float8 family are known
without numpy; numpy and ml_dtypes are asked only when values are wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy


class DType:
    """An element type. Instances are interned: compare with ``is`` or ``==`` alike.

    ``bit_width`` is the width of one element as stored (0: elements differ in length, as strings do);
    ``swap_nbytes`` is the unit whose bytes are reversed between byte orders (half an element for complex types).
    """

    __slots__ = ("bit_width", "name", "numpy_spec", "paddle", "safetensors", "swap_nbytes", "tf", "torch")

    def __init__(
        self,
        name: str,
        bit_width: int,
        *,
        swap_nbytes: int | None = None,
        torch: str | None = None,
        safetensors: str | None = None,
        tf: int | None = None,
        paddle: int | None = None,
        numpy_spec: object = None,
    ) -> None:
        self.name = name
        self.bit_width = bit_width
        self.swap_nbytes = swap_nbytes if swap_nbytes is not None else max(bit_width // 8, 1)
        self.torch = torch
        self.safetensors = safetensors
        self.tf = tf
        self.paddle = paddle
        self.numpy_spec = numpy_spec

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __reduce__(self) -> str | tuple[object, ...]:
        return (dtype, (self.name,)) if self.name in BY_NAME else super().__reduce__()

    @property
    def itemsize(self) -> int:
        """Bytes of one element; only for types of whole bytes."""
        if self.bit_width % 8:
            raise ValueError(f"{self.name} has {self.bit_width} bits, not whole bytes")
        return self.bit_width // 8

    def nbytes(self, count: int) -> int:
        """Bytes of ``count`` packed elements."""
        return (count * self.bit_width + 7) // 8

    def to_numpy(self) -> numpy.dtype:
        """The little-endian numpy dtype; ml_dtypes supplies the small floats. ValueError where none exists."""
        import numpy

        if self.numpy_spec is not None:
            return numpy.dtype(self.numpy_spec)  # type: ignore[call-overload, no-any-return]
        if self.name in _ML_DTYPES:
            import ml_dtypes

            small: numpy.dtype = numpy.dtype(getattr(ml_dtypes, self.name))
            return small
        raise ValueError(f"numpy has no element type for {self.name}")


_ML_DTYPES = {
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float8_e4m3b11fnuz",
    "float8_e4m3",
    "float8_e3m4",
    "int4",
    "uint4",
    "int2",
    "uint2",
}

# name, bits, torch dtype, safetensors, tensorflow DataType, paddle VarType, numpy
# Sources: torch.dtype names; safetensors format page; tensorflow/core/framework/types.proto; paddle framework.proto.
_ROWS: tuple[tuple[str, int, str | None, str | None, int | None, int | None, str | None], ...] = (
    ("float64", 64, "float64", "F64", 2, 6, "<f8"),
    ("float32", 32, "float32", "F32", 1, 5, "<f4"),
    ("float16", 16, "float16", "F16", 19, 4, "<f2"),
    ("bfloat16", 16, "bfloat16", "BF16", 14, 22, None),
    ("float8_e4m3fn", 8, "float8_e4m3fn", "F8_E4M3", 25, 32, None),
    ("float8_e5m2", 8, "float8_e5m2", "F8_E5M2", 24, 33, None),
    ("float8_e4m3fnuz", 8, "float8_e4m3fnuz", "F8_E4M3FNUZ", 26, None, None),
    ("float8_e5m2fnuz", 8, "float8_e5m2fnuz", "F8_E5M2FNUZ", 28, None, None),
    ("float8_e8m0fnu", 8, "float8_e8m0fnu", "F8_E8M0", None, None, None),
    ("float8_e4m3b11fnuz", 8, None, None, 27, None, None),
    ("float8_e4m3", 8, None, None, None, None, None),
    ("float8_e3m4", 8, None, None, None, None, None),
    ("int64", 64, "int64", "I64", 9, 3, "<i8"),
    ("int32", 32, "int32", "I32", 3, 2, "<i4"),
    ("int16", 16, "int16", "I16", 5, 1, "<i2"),
    ("int8", 8, "int8", "I8", 6, 21, "|i1"),
    ("uint64", 64, "uint64", "U64", 23, 38, "<u8"),
    ("uint32", 32, "uint32", "U32", 22, 37, "<u4"),
    ("uint16", 16, "uint16", "U16", 17, 36, "<u2"),
    ("uint8", 8, "uint8", "U8", 4, 20, "|u1"),
    ("bool", 8, "bool", "BOOL", 10, 0, "|b1"),
    ("complex128", 128, "complex128", None, 18, 24, "<c16"),
    ("complex64", 64, "complex64", "C64", 8, 23, "<c8"),
    ("complex32", 32, "complex32", None, None, None, None),
    ("qint8", 8, "qint8", None, 11, None, None),
    ("quint8", 8, "quint8", None, 12, None, None),
    ("qint32", 32, "qint32", None, 13, None, None),
    ("qint16", 16, None, None, 15, None, None),
    ("quint16", 16, None, None, 16, None, None),
    ("quint4x2", 8, "quint4x2", None, None, None, None),
    ("quint2x4", 8, "quint2x4", None, None, None, None),
    ("bits8", 8, "bits8", None, None, None, None),
    ("bits16", 16, "bits16", None, None, None, None),
    ("bits1x8", 8, "bits1x8", None, None, None, None),
    ("bits2x4", 8, "bits2x4", None, None, None, None),
    ("bits4x2", 8, "bits4x2", None, None, None, None),
    # torch counts bytes here, two values in each
    ("float4_e2m1fn_x2", 8, "float4_e2m1fn_x2", None, None, None, None),
    # safetensors packs these; tensorflow gives each int4 a byte of its own
    ("float4_e2m1fn", 4, None, "F4", None, None, None),
    ("float6_e2m3fn", 6, None, "F6_E2M3", None, None, None),
    ("float6_e3m2fn", 6, None, "F6_E3M2", None, None, None),
    ("int4", 8, None, None, 29, None, None),
    ("uint4", 8, None, None, 30, None, None),
    ("int2", 8, None, None, 31, None, None),
    ("uint2", 8, None, None, 32, None, None),
    ("string", 0, None, None, 7, None, None),
    ("variant", 0, None, None, 21, None, None),
    ("float128", 128, None, None, None, None, "<f16"),
    ("complex256", 256, None, None, None, None, "<c32"),
)

BY_NAME: dict[str, DType] = {
    name: DType(
        name,
        bits,
        swap_nbytes=bits // 16 if name.startswith("complex") else None,
        torch=torch,
        safetensors=safetensors,
        tf=tf,
        paddle=paddle,
        numpy_spec=numpy_spec,
    )
    for name, bits, torch, safetensors, tf, paddle, numpy_spec in _ROWS
}
#: The type of a tensor whose name is known and whose description is in a file that is not here.
UNKNOWN = DType("unknown", 0)
BY_TORCH = {d.torch: d for d in BY_NAME.values() if d.torch}
BY_SAFETENSORS = {d.safetensors: d for d in BY_NAME.values() if d.safetensors}
BY_TF = {d.tf: d for d in BY_NAME.values() if d.tf is not None}
BY_PADDLE = {d.paddle: d for d in BY_NAME.values() if d.paddle is not None}
_COMPOSED: dict[tuple[str, str], DType] = {}


def dtype(name: str) -> DType:
    """The element type of that name. KeyError when there is none."""
    return BY_NAME[name]


def composed(name: str, nbytes: int, numpy_spec: object, *, swap_nbytes: int = 1) -> DType:
    """An element type outside the table (numpy text, void, datetime and record types), interned by name and layout.

    ``numpy_spec`` is what ``numpy.dtype`` takes to build it; ``name`` is what numpy calls it.
    """
    key = (name, repr(numpy_spec))
    if key not in _COMPOSED:
        _COMPOSED[key] = DType(name, nbytes * 8, swap_nbytes=swap_nbytes, numpy_spec=numpy_spec)
    return _COMPOSED[key]
