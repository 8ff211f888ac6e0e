"""What a pickle would import and call, told as issues. Only a closed list of names passes without a word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

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


def is_harmless(node: Object) -> bool:
    """Whether what would be called is on the closed list."""
    return isinstance(node.callable, Global) and node.path in HARMLESS_CALLS


def foreign(machine: Machine, where: str, *, own: Callable[[str], bool] = lambda path: False) -> list[Issue]:
    """An issue for each foreign callable and each foreign class of what ``machine`` has read, each named once.

    Names of which ``own`` is true are the format's own: plain records, or code that lies in the file itself.
    """

    def is_foreign(node: Object) -> bool:
        return not is_harmless(node) and not (isinstance(node.callable, Global) and own(node.path))

    calls = [n for n in machine.calls if is_foreign(n) and not _reconstructs(n)]
    instances = [n for n in machine.instances if is_foreign(n)]
    told = {node.path for node in (*calls, *instances)}
    names = [
        name
        for name in machine.globals.values()
        if name.make is None and not _is_harmless_name(name.path) and not own(name.path) and name.path not in told
    ]
    return [
        *_each(
            calls,
            where,
            "pickle-foreign-call",
            "would call {path} when it is unpickled (byte {offset}); it was not called",
        ),
        *_each(
            instances,
            where,
            "pickle-foreign-class",
            "holds an object of class {path} (byte {offset}); it is named, not built",
        ),
        *_each(
            names,
            where,
            "pickle-foreign-name",
            "names {path} (byte {offset}), whose module would be imported when it is unpickled; it was not imported",
        ),
    ]


def _is_harmless_name(path: str) -> bool:
    return path in HARMLESS_CALLS or _HARMLESS_NAMES.fullmatch(path) is not None


def facts(machine: Machine, where: str) -> Pickled:
    """What a pickle that ``machine`` has read tells of itself."""
    return Pickled(where, machine.protocol, tuple(name.path for name in machine.globals.values()))


def _reconstructs(node: Object) -> bool:
    """``copyreg._reconstructor(cls, object, None)`` makes an instance of ``cls``, as NEWOBJ does."""
    return node.path == "copyreg._reconstructor"


def _each(nodes: Iterable[Object | Global], where: str, code: str, message: str) -> list[Issue]:
    first: dict[str, int] = {}
    for node in nodes:
        first.setdefault(node.path, node.offset)
    return [
        Issue(code, Severity.WARNING, where, message.format(path=printable(path), offset=offset), subject=path)
        for path, offset in first.items()
    ]
