"""What a pickle would import and call, told as issues. Only a closed list of names passes without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ckpt_tools.core.checkpoint import Pickled
from ckpt_tools.core.dtypes import BY_TORCH
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.pickles.machine import Machine
from ckpt_tools.pickles.nodes import Global, Object
from ckpt_tools.pickles.numpy_objects import BUILT_NAMES

#: Calls that give plain data and nothing else, beyond those the machines have constructors for.
HARMLESS_CALLS = BUILT_NAMES | {
    "numpy.dtype",
    "builtins.range",
    "builtins.slice",
    "builtins.float",
    "builtins.int",
    "builtins.str",
    "builtins.bool",
    "builtins.object",
    "collections.deque",
    "copyreg._reconstructor",
    "datetime.datetime",
    "datetime.date",
    "datetime.time",
    "datetime.timedelta",
    "datetime.timezone",
    "decimal.Decimal",
    "fractions.Fraction",
    "uuid.UUID",
    "pathlib.Path",
    "pathlib.PurePath",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib.PurePosixPath",
    "pathlib.PureWindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "types.SimpleNamespace",
    "torch.device",
    "torch._C.Generator",
    "torch.nn.parameter.Parameter",
    "numpy.random._pickle.__generator_ctor",
    "numpy.random._pickle.__bit_generator_ctor",
    "numpy.random._pickle.__randomstate_ctor",
    "numpy.random.bit_generator.__pyx_unpickle_SeedSequence",
    "joblib.numpy_pickle.NumpyArrayWrapper",
    "joblib.numpy_pickle.NDArrayWrapper",
    "joblib.numpy_pickle_compat.NDArrayWrapper",
    "sklearn.externals.joblib.numpy_pickle.NumpyArrayWrapper",
    "sklearn.externals.joblib.numpy_pickle.NDArrayWrapper",
}


#: Names that stand for a type or a constant where they are not called: the types of Python's containers and numbers,
#: numpy's, torch's dtypes, storages, layouts and quantization schemes.
_HARMLESS_NAMES = re.compile(
    r"builtins\.(?:dict|list|tuple|set|frozenset|int|float|str|bool|bytes|bytearray|complex|object|NoneType|range|slice)"
    r"|collections\.(?:OrderedDict|defaultdict|Counter|deque)"
    r"|numpy(?:\.ma(?:\.core)?|\.core\.\w+|\.matrixlib\.defmatrix)?\."
    r"(?:ndarray|matrix|recarray|record|memmap|void|MaskedArray|dtype|generic|number"
    r"|(?:bool|u?int|float|complex|str|bytes|object|datetime|timedelta)(?:8|16|32|64|128|256)?_?)"
    r"|numpy\.random\.(?:\w+\.)*[A-Z]\w+"
    r"|ml_dtypes\.\w+"
    r"|torch(?:\.(?:cuda|xpu|sparse|cuda\.sparse|storage))?\.\w*(?:Storage|Tensor)"
    r"|torch\._utils\._rebuild_wrapper_subclass"
    r"|torch\.(?:Size|device|dtype|nn\.parameter\.(?:Parameter|Buffer))"
    r"|torch\.(?:"
    + "|".join(BY_TORCH)
    + r"|strided|sparse_\w+|(?:contiguous|channels_last|channels_last_3d|preserve)(?:_format)?"
    r"|per_(?:tensor|channel)_(?:affine|symmetric|affine_float_qparams))"
)


#: Calls of the list that call in turn what they are given: harmless only with these.
_BIT_GENERATORS = frozenset({"MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"})
_GENERATOR_CALLS = frozenset(
    f"numpy.random._pickle.{name}" for name in ("__generator_ctor", "__bit_generator_ctor", "__randomstate_ctor")
)
_RECONSTRUCTOR = "copyreg._reconstructor"
_BASES = frozenset(f"builtins.{kind.__name__}" for kind in (object, list, dict, tuple, set, frozenset, int, float, str))


def is_harmless(node: Object) -> bool:
    """Whether what would be called is on the closed list, and calls nothing else in turn."""
    if not isinstance(node.callable, Global) or node.path not in HARMLESS_CALLS:
        return False
    if node.path in _GENERATOR_CALLS:
        return all(map(_makes_a_generator, node.args))
    return node.path != _RECONSTRUCTOR or _reconstructed(node) == "builtins.object"


def _makes_a_generator(argument: Any) -> bool:
    if isinstance(argument, Object):
        return is_harmless(argument) and argument.path in _GENERATOR_CALLS
    if not isinstance(argument, Global):
        return isinstance(argument, str)
    return argument.path in _GENERATOR_CALLS or (
        argument.module.startswith("numpy.random.") and argument.name in _BIT_GENERATORS
    )


def _reconstructed(node: Object) -> str | None:
    """``copyreg._reconstructor(cls, object, None)`` makes an instance of ``cls``, as NEWOBJ does: the path of ``cls``.

    None for everything else: with another base, that base's constructor runs.
    """
    if node.path == _RECONSTRUCTOR and len(node.args) == 3:
        cls, base, _ = node.args
        if isinstance(cls, Global) and isinstance(base, Global) and base.path in _BASES:
            return cls.path
    return None


def foreign(machine: Machine, where: str, *, own: Callable[[str], bool] = lambda path: False) -> list[Issue]:
    """An issue for each foreign callable and each foreign class of what ``machine`` has read, each named once.

    Names of which ``own`` is true are the format's own: plain records, or code that lies in the file itself.
    """
    calls: dict[str, int] = {}
    classes: dict[str, int] = {}
    for node in (*machine.calls, *machine.instances):
        if is_harmless(node):
            continue
        cls = _reconstructed(node) or (node.path if not node.calls else None)
        path = cls or node.path
        if own(path) and (cls is not None or isinstance(node.callable, Global)):
            continue
        (calls if cls is None else classes).setdefault(path, node.offset)
    names = {
        name.path: name.offset
        for name in machine.globals.values()
        if name.make is None
        and not own(name.path)
        and not _is_harmless_name(name.path)
        and name.path not in calls
        and name.path not in classes
    }
    return [
        *_each(calls, where, "pickle-foreign-call", "would call {} when it is unpickled (byte {}); it was not called"),
        *_each(classes, where, "pickle-foreign-class", "holds an object of class {} (byte {}); it is named, not built"),
        *_each(
            names,
            where,
            "pickle-foreign-name",
            "names {} (byte {}), whose module would be imported when it is unpickled; it was not imported",
        ),
    ]


def _is_harmless_name(path: str) -> bool:
    return path in HARMLESS_CALLS or _HARMLESS_NAMES.fullmatch(path) is not None


def facts(machine: Machine, where: str) -> Pickled:
    """What a pickle that ``machine`` has read tells of itself."""
    return Pickled(where, machine.protocol, tuple(name.path for name in machine.globals.values()))


def _each(offsets: dict[str, int], where: str, code: str, message: str) -> list[Issue]:
    return [
        Issue(code, Severity.WARNING, where, message.format(printable(path), offset), subject=path)
        for path, offset in offsets.items()
    ]
