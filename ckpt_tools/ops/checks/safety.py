"""Would loading it run code? What its pickles call, which classes they name, whether torch's weights_only takes them.

Only a closed list of names is harmless (:mod:`ckpt_tools.pickles.findings`); everything else is an error until a policy
allows it. A list of the harmful would always lack one.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.ops.checks import Outcome, done, skipped

#: What readers call their findings, and what they are called here.
_CODES = {
    "pickle-foreign-call": "safety-call",
    "pickle-foreign-class": "safety-class",
    "pickle-foreign-name": "safety-name",
}
#: Zip archives, and files made of them.
_ARCHIVES = {"torch-zip", "torchscript", "torch-dcp", "npz", "keras"}
#: Formats that can hold no code and no objects.
_WITHOUT_OBJECTS = {"safetensors", "tf-bundle", "tf-v1", "hdf5", "paddle-combined", "paddle-vars", "paddle-binary"}


def code(checkpoint: Checkpoint, allowed: tuple[str, ...]) -> Outcome:
    """What would be called or built; ``allowed`` are globs of classes and callables that may be."""
    path = checkpoint.location.shown
    if checkpoint.format in _WITHOUT_OBJECTS:
        return skipped("safety-code", path, f"{checkpoint.format} holds numbers only, nothing that could run")
    issues = []
    for issue in checkpoint.issues:
        if issue.code in _CODES:
            if any(fnmatch.fnmatchcase(_named_in(issue), glob) for glob in allowed):
                continue
            issues.append(dataclasses.replace(issue, code=_CODES[issue.code], severity=Severity.ERROR))
        elif issue.code.startswith("safety-"):
            issues.append(issue)
    return done("safety-code", path, issues)


def archive(checkpoint: Checkpoint, odd: Sequence[Issue]) -> Outcome:
    """Whether all readers of an archive understand the same; ``odd`` is what a look at its layout found."""
    name, path = "safety-archive", checkpoint.location.shown
    if checkpoint.format not in _ARCHIVES:
        return skipped(name, path, f"{checkpoint.format} is no archive that readers could disagree on")
    return done(name, path, [issue for issue in odd if issue.code.startswith("safety-")])


def _named_in(issue: Issue) -> str:
    """The dotted name that a finding is about."""
    return issue.subject or ""
