"""Are the values such that a training wrote them on purpose? NaN, infinities, tensors of nothing, denormals."""

from __future__ import annotations

import re

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.errors import CkptError
from ckpt_tools.mapping.layouts import FAMILY_BY_FORMAT
from ckpt_tools.mapping.roles import assign_roles
from ckpt_tools.ops import numbers
from ckpt_tools.ops.checks import Outcome, done, skipped
from ckpt_tools.ops.checks.integrity import Progress

#: A tensor of fewer elements may well be constant on purpose: biases begin as zeros, norms as ones.
_MATRIX_RANK = 2
#: Masks, positions and types of tokens are integers, and constant on purpose.
_FLOATING = re.compile("float|bfloat|complex")


def finite(checkpoint: Checkpoint, progress: Progress) -> Outcome:
    """NaN and infinities are errors; weight matrices all zero or all one value are warnings; denormals are a note."""
    name, path = "values-finite", checkpoint.location.shown
    issues: list[Issue] = []
    measured, unread = 0, []
    roles = assign_roles(
        [entry.key for entry in checkpoint.entries],
        family=FAMILY_BY_FORMAT.get(checkpoint.format),
        known=checkpoint.purposes,
    )
    for entry in checkpoint.entries:
        tensor = entry.node
        if not entry.is_tensor or not numbers.has_numbers(tensor) or not tensor.info.count:
            continue
        try:
            found = numbers.measure(tensor, progress)
        except CkptError as error:
            unread.append(f"{entry.name} ({error.message})")
            continue
        measured += 1
        # moments begin at zero
        is_weight = (
            roles.get(entry.key, Role.WEIGHT) is Role.WEIGHT and _FLOATING.match(tensor.info.dtype.name) is not None
        )
        issues += _issues(entry.name, tensor, found, is_weight=is_weight)
    if unread:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        issues.append(Issue("values-not-measured", Severity.WARNING, path, f"values cannot be read: {unread[0]}{more}"))
    if not measured:
        return skipped(name, path, "no tensor has numbers that can be measured")
    return done(name, path, issues)


def _issues(name: str, tensor: Tensor, found: numbers.Numbers, *, is_weight: bool) -> list[Issue]:
    if found.nan or found.inf:
        counts = [
            f"{n} of {found.count} values are {what}" for n, what in ((found.nan, "NaN"), (found.inf, "infinite")) if n
        ]
        return [Issue("values-not-finite", Severity.ERROR, name, " and ".join(counts))]
    issues = []
    if is_weight and len(tensor.info.shape) >= _MATRIX_RANK and found.count > 1 and found.min == found.max:
        if found.min == 0:
            issues.append(Issue("values-all-zero", Severity.WARNING, name, f"all {found.count} values are zero"))
        else:
            text = f"all {found.count} values are {found.min:.6g}"
            issues.append(Issue("values-constant", Severity.WARNING, name, text))
    if found.denormal:
        text = f"{found.denormal} of {found.count} values are denormal: arithmetic with them is slow, or flushes them to zero"
        issues.append(Issue("values-denormal", Severity.NOTE, name, text))
    return issues
