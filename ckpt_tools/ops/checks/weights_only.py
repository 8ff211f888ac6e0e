"""Whether ``torch.load(weights_only=True)``, its default since 2.6, takes a file (torch/_weights_only_unpickler.py)."""

from __future__ import annotations

import shlex

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.dtypes import BY_TORCH
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.ops.checks import Outcome, done, skipped

_REBUILDS = (
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_qtensor",
    "_rebuild_sparse_tensor",
    "_rebuild_nested_tensor",
    "_rebuild_meta_tensor_no_storage",
    "_rebuild_device_tensor_from_numpy",
    "_rebuild_device_tensor_from_cpu_tensor",
    "_rebuild_wrapper_subclass",
)
#: Names that are taken without being allowed by the caller.
_TAKEN = {
    "collections.OrderedDict",
    "collections.Counter",
    "builtins.set",
    "builtins.complex",
    "builtins.bytearray",
    "_codecs.encode",
    "torch.Size",
    "torch.Tensor",
    "torch.device",
    "torch.nn.parameter.Parameter",
    "torch.serialization._get_layout",
    "torch._tensor._rebuild_from_type_v2",
    "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage",
    "torch.per_tensor_affine",
    "torch.per_tensor_symmetric",
    "torch.per_channel_affine",
    "torch.per_channel_symmetric",
    "torch.per_channel_affine_float_qparams",
    *(f"torch._utils.{name}" for name in _REBUILDS),
    *(f"torch.{name}" for name in BY_TORCH),
}
#: Protocols above this use opcodes that its reader does not have.
_LAST_PROTOCOL = 3
_FORMATS = ("torch-zip", "torch-legacy")
_NAMED = 5


def takes(checkpoint: Checkpoint) -> Outcome:
    """A note when it would be refused, with the reasons; such a file loads only with ``weights_only=False``."""
    name, path = "safety-weights-only", checkpoint.location.shown
    if checkpoint.format not in _FORMATS or not checkpoint.pickles:
        return skipped(name, path, "only torch files are loaded with weights_only")
    reasons = []
    for pickle in checkpoint.pickles:
        foreign = [path for path in pickle.names if not _is_taken(path)]
        if foreign:
            more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
            reasons.append(f"it names {', '.join(foreign[:_NAMED])}{more}")
        if pickle.protocol > _LAST_PROTOCOL:
            reasons.append(f"it is pickled with protocol {pickle.protocol}")
    if not reasons:
        return done(name, path)
    text = f"torch.load refuses it under weights_only=True: {'; '.join(dict.fromkeys(reasons))}"
    runs_code = any(issue.code == "pickle-foreign-call" for issue in checkpoint.issues)
    hint = None if runs_code else f"ckpt convert {shlex.quote(path)} weights.pth --allow-loss writes a file that loads"
    return done(name, path, [Issue("safety-weights-only", Severity.NOTE, path, text, hint)])


def _is_taken(path: str) -> bool:
    if path in _TAKEN:
        return True
    module, _, last = path.rpartition(".")
    inner = {"torch", "torch.cuda", "torch.sparse", "torch.cuda.sparse"}
    return module in inner and last.endswith(("Storage", "Tensor"))
