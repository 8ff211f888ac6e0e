"""Does it fit a model? Nothing missing, nothing unexpected, shapes and dtypes as the model has them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.errors import CkptError, UsageError
from ckpt_tools.models import load_model
from ckpt_tools.models.live import LiveModel
from ckpt_tools.ops import diff
from ckpt_tools.ops.checks import Outcome, done
from ckpt_tools.ops.comparands import Comparand, from_checkpoint, from_document, read_document
from ckpt_tools.ops.listing import root_key
from ckpt_tools.ops.restoring import predict
from ckpt_tools.ops.spec import comparand_of

_NAME = "expect-model"


@dataclass(frozen=True)
class Expected:
    """A live model, or the document of a spec or manifest; ``root`` is where the checkpoint keeps its weights."""

    label: str
    model: LiveModel | dict[str, Any]
    root: str | None = None

    def __call__(self, checkpoint: Checkpoint) -> Outcome:
        """Compare a checkpoint's weights with it."""
        path = checkpoint.location.shown
        try:
            below = root_key(checkpoint, self.root) if self.root else ()
            difference = diff.compare_sides(
                from_checkpoint(checkpoint, below), self._comparand(checkpoint), diff.Options(weights_only=True)
            )
        except UsageError as error:
            return done(_NAME, path, [Issue("expect-names", Severity.ERROR, path, error.message, error.hint)])
        except CkptError as error:
            return done(_NAME, path, [Issue("expect-model", Severity.ERROR, path, error.message, error.hint)])
        return done(_NAME, path, _issues(difference, path, self.label))

    def _comparand(self, checkpoint: Checkpoint) -> Comparand:
        if isinstance(self.model, dict):
            return from_document(self.model, self.label)
        if self.model.graph is not None:
            restoration = predict(checkpoint, self.model.graph, self.root)
            if restoration is not None:
                return comparand_of(self.model, restoration.names)
        return comparand_of(self.model)


def expected(reference: str, root: str | None, kwargs: dict[str, Any]) -> Callable[[Checkpoint], Outcome]:
    """The check for what ``reference`` names: a file with a spec or manifest, or ``package.module:attribute``."""
    document = read_document(Path(reference))
    return Expected(reference, document if document is not None else load_model(reference, kwargs), root)


def _issues(difference: diff.Difference, path: str, label: str) -> list[Issue]:
    issues = [
        Issue("expect-names", Severity.ERROR, path, reason.text, _hint(path, label, reason.option))
        for reason in difference.reasons
    ]

    def add(code: str, where: str, text: str) -> None:
        issues.append(Issue(f"expect-{code}", Severity.ERROR, where, text))

    lists = difference.weights
    for row in lists.only_b:
        add("missing", row["name"], "is in the model and not in the checkpoint")
    for row in lists.only_a:
        add("unexpected", row["name"], "is in the checkpoint and not in the model")
    for row in lists.shape:
        add("shape", row["name"], f"has shape {list(row['a'])}, the model {list(row['b'])}")
    for row in lists.dtype:
        add("dtype", row["name"], f"has dtype {row['a']}, the model {row['b']}")
    for row in lists.ambiguous:
        add("ambiguous", row["name"], f"may or may not fit: {row['why']}")
    return issues


def _hint(path: str, label: str, option: str | None) -> str | None:
    if not option:
        return None
    where, what = shlex.quote(path), shlex.quote(label)
    return (
        f"ckpt verify {where} --model {what} {option}"
        if option.startswith("--root ")
        else f"ckpt diff {where} {what} {option}"
    )
