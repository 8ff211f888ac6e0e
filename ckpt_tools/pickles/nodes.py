"""The inert things a symbolic pickle machine leaves where the real one would have imported, called or read."""

from __future__ import annotations

from typing import Any

from ckpt_tools.core.extents import Extent, Latin1Extent
from ckpt_tools.core.limits import CHUNK_NBYTES
from ckpt_tools.core.tree import Opaque
from ckpt_tools.errors import CorruptFile, damage

# Names that moved between Python 2 and 3 (CPython Lib/_compat_pickle.py) or between numpy 1 and 2.
_MOVED_MODULES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "cPickle": "pickle",
    "Queue": "queue",
    "numpy.rec": "numpy",
    "UserDict": "collections",
}
_MOVED_NAMES = {
    "builtins.xrange": "builtins.range",
    "builtins.unicode": "builtins.str",
    "builtins.long": "builtins.int",
    "builtins.basestring": "builtins.str",
    "itertools.izip": "builtins.zip",
}


#: Bytes of UTF-8 that do not begin a character.
_CONTINUATION = bytes(range(0x80, 0xC0))


class Global:
    """A name a pickle refers to, as stored; ``path`` is today's spelling of it. Never resolved.

    ``offset`` is where the first opcode that names it lies.
    """

    __slots__ = ("make", "module", "name", "offset", "path")

    def __init__(self, module: str, name: str, offset: int) -> None:
        self.module = module
        self.name = name
        self.offset = offset
        self.path = canonical_path(module, name)
        self.make: Any = None  # the machine's own constructor for this name, if it has one

    def __repr__(self) -> str:
        return self.path


def canonical_path(module: str, name: str) -> str:
    """``module.name`` in today's spelling: Python 3's, and numpy 1's ``numpy.core`` (which both numpys know)."""
    module = _MOVED_MODULES.get(module, module)
    if module.startswith("numpy._core"):
        module = "numpy.core" + module[len("numpy._core") :]
    path = f"{module}.{name}"
    return _MOVED_NAMES.get(path, path)


class Object(Opaque):
    """What REDUCE, NEWOBJ, INST or OBJ would have made.

    ``callable`` is what would be called: a :class:`Global`, or another object (``getattr(…)(…)``). ``calls`` says
    whether arbitrary code would run (REDUCE) as against ``__new__`` of a class. ``offset`` is the opcode's place.
    """

    __slots__ = ("callable", "calls", "kwargs", "offset")

    def __init__(self, callable: Any, args: tuple[Any, ...], offset: int, *, calls: bool) -> None:
        path = callable.path if isinstance(callable, Global) else f"{getattr(callable, 'type_name', callable)!s}(…)"
        super().__init__(path, args)
        self.callable = callable
        self.calls = calls
        self.kwargs: Any = None
        self.offset = offset

    @property
    def path(self) -> str:
        """What would be called, dotted."""
        return self.type_name


class Blob:
    """A long byte string that stays where it is; ``mutable`` when the pickle makes a bytearray of it."""

    __slots__ = ("extent", "mutable")

    def __init__(self, extent: Extent, *, mutable: bool = False) -> None:
        self.extent = extent
        self.mutable = mutable

    def __repr__(self) -> str:
        return f"<{self.nbytes} bytes>"

    @property
    def nbytes(self) -> int:
        return self.extent.nbytes

    def read(self) -> bytes:
        """All of it."""
        return self.extent.read(0, self.extent.nbytes)


class LongText:
    """A long text that stays where it is, as UTF-8."""

    __slots__ = ("extent",)

    def __init__(self, extent: Extent) -> None:
        self.extent = extent

    def __repr__(self) -> str:
        return f"<text of {self.extent.nbytes} bytes>"

    def read(self) -> str:
        """All of it. CorruptFile when it is no UTF-8."""
        with damage():
            return self.extent.read(0, self.extent.nbytes).decode("utf-8", "surrogatepass")


class TextBlob:
    """A long byte string that a protocol 0-2 pickle keeps as text, one code point below 256 for each byte.

    How many bytes it is cannot be known without reading it: whoever knows (an array its shape) says so.
    """

    __slots__ = ("text",)

    def __init__(self, text: LongText) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<about {self.text.extent.nbytes} bytes>"

    def counted(self) -> Extent:
        """The bytes, when nothing else says how many there are: all are read once, a piece at a time."""
        kept = self.text.extent
        pieces = kept.chunks(0, kept.nbytes, CHUNK_NBYTES)
        return Latin1Extent(kept, sum(len(piece.translate(None, _CONTINUATION)) for piece in pieces))

    def extent(self, nbytes: int) -> Extent:
        """The bytes, ``nbytes`` of them. CorruptFile when that cannot be."""
        kept = self.text.extent.nbytes
        if not kept <= 2 * nbytes or kept < nbytes:
            raise CorruptFile(f"an array of {nbytes} bytes is kept in a text of {kept}")
        return Latin1Extent(self.text.extent, nbytes)

    def read(self) -> bytes:
        """All of it. CorruptFile when it is no text of bytes."""
        with damage():
            return self.text.read().encode("latin-1")


class Undecoded:
    """A Python 2 ``str`` as it is stored: text or bytes, nobody knows. Equal to others with the same bytes."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | Blob) -> None:
        self.data = data

    def read(self) -> bytes:
        """All of it."""
        return self.data.read() if isinstance(self.data, Blob) else self.data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undecoded) and self.read() == other.read()

    def __hash__(self) -> int:
        return hash(self.read())


class StoredScalar:
    """A numpy scalar as the pickle makes it: ``callable(*args)``, args being its element type and its bytes."""

    __slots__ = ("args", "callable")

    def __init__(self, callable: Global, args: tuple[Any, Any]) -> None:
        self.callable = callable
        self.args = args
