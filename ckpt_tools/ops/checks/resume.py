"""Would the training go on from it? The optimizer's state, the iteration in its three places, what an interrupted save left.

The state is compared with the parameters by count and shape. What a file does not tell is not guessed: an optimizer that
was never saved is a warning, since some trainers never save it.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Key
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.errors import CkptError
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.mapping.layouts import FAMILY_BY_FORMAT
from ckpt_tools.mapping.roles import assign_roles
from ckpt_tools.ops.checks import Outcome, done, skipped
from ckpt_tools.ops.listing import iteration_inside

#: Files and directories of saves that never ended: torch DCP, TensorFlow's shards before they are merged, this tool.
_UNFINISHED = re.compile(r"\.metadata\.tmp|.*_temp_[0-9a-f]{32}|.*\.tmp(-\d+)?|.*\.tempstate\d+", re.DOTALL)
#: Where TensorFlow 2 keeps shards until they are merged: ``ckpt-5_temp/part-00000-of-00001.index``.
_TF_TEMPORARY, _TF_PART = "_temp", "part-*-of-*"
#: ``snapshot_iter_60.pdz``, ``60_iterations.pth``, ``epoch=1-step=60.ckpt``: the number a trainer puts into the name.
_NUMBER_IN_NAME = re.compile(r"(?:iter(?:ation)?|step)[_=-]?(\d+)|(\d+)_iterations?", re.IGNORECASE)
#: ``ckpt-60``, ``model.ckpt-60``: TensorFlow's numbers. Other trainers put epochs there.
_TF_NUMBER = re.compile(r"ckpt-(\d+)")
#: State of torch's optimizers that has the shape of its parameter; factors, histories and scales have others.
_LIKE_PARAMETER = frozenset(
    {
        "exp_avg",
        "exp_avg_sq",
        "max_exp_avg_sq",
        "exp_inf",
        "momentum_buffer",
        "square_avg",
        "grad_avg",
        "acc_delta",
        "prev",
        "step_size",
        "ax",
    }
)
#: What only the state dict of an optimizer has: torch's groups, Paddle's schedule.
_OPTIMIZER_MARKS = frozenset({"param_groups", "LR_Scheduler"})
#: Files that keep the optimizer of the weights beside them: Hugging Face's Trainer and Accelerate.
_OPTIMIZER_FILES = ("optimizer.pt", "optimizer.bin")
#: What torch's optimizers count their steps with, for each parameter.
_COUNTERS = frozenset({"step"})
#: An option of the optimizers that cannot do without moments.
_ADAMS_OPTION = "betas"
#: Moments of the parameters have their shape; counters and powers of the betas do not.
_PADDLE_MOMENT = re.compile(
    r"(?P<variable>.+?)(?:_fp32_master_\d+)?_(?:moment[12]?|moment2_max|velocity|inf_norm)_\d+", re.DOTALL
)


@dataclass(frozen=True)
class _Tensors:
    """The tensors of a checkpoint by what a training uses them for."""

    checkpoint: Checkpoint
    state: list[Entry]
    weights: list[Entry]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> _Tensors:
        roles = assign_roles(
            [entry.key for entry in checkpoint.entries],
            family=FAMILY_BY_FORMAT.get(checkpoint.format),
            known=checkpoint.purposes,
        )
        tensors = [entry for entry in checkpoint.entries if entry.is_tensor]
        return cls(
            checkpoint,
            [entry for entry in tensors if roles.get(entry.key) is Role.OPTIMIZER],
            [entry for entry in tensors if roles.get(entry.key, Role.WEIGHT) is Role.WEIGHT],
        )

    @property
    def has_optimizer(self) -> bool:
        """Whether an optimizer was saved; plain SGD has options and a schedule, and no state."""
        return bool(self.state) or any(_OPTIMIZER_MARKS & set(entry.key) for entry in self.checkpoint.entries)


def optimizer(checkpoint: Checkpoint) -> Outcome:
    """The optimizer's state against the parameters, and whether it was ever filled."""
    name, path = "resume-optimizer", checkpoint.location.shown
    found = _Tensors.of(checkpoint)
    if found.has_optimizer:
        issues = list(_mismatches(found, found.weights)) or _lost(found)
        if found.state and not found.weights and not issues:
            return skipped(name, path, "it holds the state of an optimizer only, no parameters to compare it with")
        return done(name, path, issues)
    if not any(entry.is_tensor for entry in checkpoint.entries):
        text = "a snapshot of progress only: it holds no tensors"
        return skipped(name, path, text, [Issue("resume-no-tensors", Severity.NOTE, path, text)])
    beside = _optimizer_beside(checkpoint.location.path)
    if beside is None:
        text = "no optimizer state is in it: a resumed training begins with a fresh optimizer"
        return done(name, path, [Issue("resume-no-optimizer", Severity.WARNING, path, text)])
    try:
        with open_checkpoint(beside) as other:
            return done(name, path, list(_mismatches(_Tensors.of(other), found.weights)))
    except CkptError as error:
        text = f"its optimizer is in {beside.name}, which cannot be read: {error.message}"
        return done(name, path, [Issue("resume-no-optimizer", Severity.WARNING, path, text)])


def _optimizer_beside(path: Path) -> Path | None:
    """The file beside one with weights that keeps its optimizer: ``X.pdopt`` of ``X.pdparams``, ``optimizer.pt``."""
    folder = path if path.is_dir() else path.parent
    candidates = [path.with_suffix(".pdopt")] if path.suffix == ".pdparams" else [folder / n for n in _OPTIMIZER_FILES]
    return next((candidate for candidate in candidates if candidate.is_file() and candidate != path), None)


def _mismatches(found: _Tensors, weights: list[Entry]) -> Iterator[Issue]:
    """Where the state of an optimizer is not that of these parameters; nothing when there are none to compare with."""
    if weights:
        yield from _torch(found.checkpoint, weights)
        yield from _by_variable(found, weights)


def _torch(checkpoint: Checkpoint, weights: list[Entry]) -> Iterator[Issue]:
    """torch's ``{state: {index: …}, param_groups: [{params: [index, …]}]}``: every index known, every moment's shape
    that of some parameter. Frozen parameters have no state, and there may be more tensors than parameters."""
    moments: dict[Key, dict[int | str, list[Entry]]] = {}
    listed: dict[Key, set[int | str]] = {}
    for entry in checkpoint.entries:
        key = entry.key
        if "state" in key and entry.is_tensor:
            at = key.index("state")
            if len(key) > at + 2:
                moments.setdefault(key[:at], {}).setdefault(_as_number(key[at + 1]), []).append(entry)
        if "params" in key and "param_groups" in key and not entry.is_tensor:
            listed.setdefault(key[: key.index("param_groups")], set()).add(_number(entry.node))
    shapes = Counter(entry.node.info.shape for entry in weights)
    for root, parameters in listed.items():
        where = "/".join(map(str, root)) or checkpoint.location.shown
        strangers = moments.get(root, {}).keys() - parameters
        if strangers:
            text = f"the optimizer keeps state of {len(strangers)} parameters that its groups do not list"
            yield Issue("resume-optimizer-mismatch", Severity.ERROR, where, text)
        if len(parameters) > sum(shapes.values()):
            text = f"the optimizer lists {len(parameters)} parameters, the model has {sum(shapes.values())} tensors"
            yield Issue("resume-optimizer-mismatch", Severity.ERROR, where, text)
        wanted: Counter[tuple[int, ...]] = Counter()
        for entries in moments.get(root, {}).values():
            wanted.update({entry.node.info.shape for entry in entries if entry.key[-1] in _LIKE_PARAMETER})
        missing = wanted - shapes
        if missing:
            shape, count = next(iter(missing.items()))
            text = f"the optimizer keeps {count} more states of shape {list(shape)} than the model has parameters"
            yield Issue("resume-optimizer-mismatch", Severity.ERROR, where, text)


def _number(node: object) -> int | str:
    return node if isinstance(node, (int, str)) else str(node)


def _as_number(part: int | str) -> int | str:
    return int(part) if isinstance(part, str) and part.isdecimal() else part


def _by_variable(found: _Tensors, weights: list[Entry]) -> Iterator[Issue]:
    """Slots that name their variable (Paddle by its variable name, TensorFlow through the object graph)."""
    checkpoint = found.checkpoint
    by_alias = {entry.node.alias: entry for entry in weights if entry.node.alias}
    by_key = {entry.key: entry for entry in checkpoint.entries if entry.is_tensor}
    wrong, lone = [], []
    for entry in found.state:
        purpose = checkpoint.purposes.get(entry.key)
        moment = _PADDLE_MOMENT.fullmatch(str(entry.key[-1]))
        if purpose is not None and purpose.of is not None:
            variable = by_key.get(purpose.of)
        elif moment and by_alias:
            variable = by_alias.get(moment["variable"])
        else:
            continue
        if variable is None:
            lone.append(entry)
        elif entry.node.info.shape not in (variable.node.info.shape, (), (1,)):
            wrong.append((entry, variable))
    if lone:
        text = f"{len(lone)} optimizer states belong to parameters that are not here, first {lone[0].name}"
        yield Issue("resume-optimizer-mismatch", Severity.ERROR, checkpoint.location.shown, text)
    for entry, variable in wrong[:1]:
        text = (
            f"{len(wrong)} optimizer states do not have their parameter's shape: {list(entry.node.info.shape)},"
            f" {variable.name} has {list(variable.node.info.shape)}"
        )
        yield Issue("resume-optimizer-mismatch", Severity.ERROR, entry.name, text)


def _lost(found: _Tensors) -> list[Issue]:
    """All moments or all counters zero although the training has gone some way: the optimizer was made anew."""
    checkpoint = found.checkpoint
    inside = iteration_inside(checkpoint)
    step = inside if inside is not None else _number_in_name(checkpoint)
    if not step:
        return []
    counters = [entry.node for entry in found.state if str(entry.key[-1]) in _COUNTERS]
    moments = [entry.node for entry in found.state if entry.node.info.shape and entry.node.info.count > 1]
    if not found.state and any(
        "param_groups" in entry.key and _ADAMS_OPTION in entry.key for entry in checkpoint.entries
    ):
        text = f"the optimizer was lost: one of Adam's kind has no moments at step {step}"
        return [Issue("resume-optimizer-lost", Severity.WARNING, checkpoint.location.shown, text)]
    for kind, tensors in (("moments", moments), ("step counters", counters)):
        try:
            if tensors and not any(map(_has_other_than_zero, tensors)):
                text = f"the optimizer was lost: all its {len(tensors)} {kind} are zero at step {step}"
                return [Issue("resume-optimizer-lost", Severity.WARNING, checkpoint.location.shown, text)]
        except CkptError:
            continue  # told by the integrity checks
    return []


def _has_other_than_zero(tensor: Tensor) -> bool:
    return any(chunk.strip(b"\0") for chunk in tensor.chunks())


def iteration(checkpoint: Checkpoint, recorded: int | None) -> Outcome:
    """The iteration inside the file, in its name and in the records: those that are there must agree."""
    name, path = "resume-iteration", checkpoint.location.shown
    inside = iteration_inside(checkpoint, epochs=False)
    named = _number_in_name(checkpoint)
    if checkpoint.format in ("tf-bundle", "tf-v1"):
        return _tf_iteration(checkpoint, named)
    found = {"inside the file": inside, "in its name": named, "in the records": recorded}
    known = {where: value for where, value in found.items() if value is not None}
    if len(known) < 2:
        return skipped(name, path, "the iteration stands in one place only" if known else "no iteration is recorded")
    if len(set(known.values())) == 1:
        return done(name, path)
    text = "the iteration differs: " + ", ".join(f"{value} {where}" for where, value in known.items())
    return done(name, path, [Issue("resume-iteration-mismatch", Severity.ERROR, path, text)])


def _number_in_name(checkpoint: Checkpoint) -> int | None:
    name = Path(checkpoint.location.shown).name
    of_tf = _TF_NUMBER.search(name) if checkpoint.format in ("tf-bundle", "tf-v1") else None
    number = of_tf or _NUMBER_IN_NAME.search(name)
    return int(next(filter(None, number.groups()))) if number else None


def _tf_iteration(checkpoint: Checkpoint, named: int | None) -> Outcome:
    """TensorFlow numbers its files by ``save_counter``, unless told otherwise: a difference is a note."""
    name, path = "resume-iteration", checkpoint.location.shown
    counter = next((e.node for e in checkpoint.entries if str(e.key[-1]).startswith("save_counter/")), None)
    if counter is None or named is None:
        return skipped(name, path, "no save_counter to compare the name with")
    try:
        saved = int.from_bytes(counter.tobytes(), "little", signed=True)
    except CkptError:
        return skipped(name, path, "save_counter cannot be read")
    if saved == named:
        return done(name, path)
    text = f"it was save number {saved}, its name says {named}: the files were numbered by something else"
    return done(name, path, [Issue("resume-save-counter", Severity.NOTE, path, text)])


def statistics(checkpoint: Checkpoint, last: int | None, where: Path) -> Outcome:
    """The statistics beside a checkpoint must not tell of a future that no longer happens."""
    name, path = "resume-statistics", checkpoint.location.shown
    at = iteration_inside(checkpoint, epochs=False)
    if at is None or last is None:
        return skipped(name, path, "no iteration to compare with")
    if last <= at:
        return done(name, path)
    text = f"{where} has records up to iteration {last}, beyond {at} where a training resumed here would be"
    hint = f"ckpt truncate-stats {shlex.quote(str(where))} --at-checkpoint {shlex.quote(path)}"
    return done(name, path, [Issue("resume-statistics-ahead", Severity.NOTE, path, text, hint)])


def unfinished(directory: Path, names: Iterable[str]) -> Outcome:
    """What an interrupted save left in a directory that holds files and directories of these names."""
    name = "resume-unfinished"
    found = sorted(left for left in names if _is_unfinished(directory / left))
    issues = [
        Issue(
            "resume-unfinished-save",
            Severity.WARNING,
            str(directory / left),
            "left by a save that never ended; nothing reads it",
            f"rm -r {shlex.quote(str(directory / left))}",
        )
        for left in found
    ]
    return done(name, str(directory), issues)


def _is_unfinished(path: Path) -> bool:
    of_tf = path.name.endswith(_TF_TEMPORARY) and path.is_dir() and any(path.glob(_TF_PART))
    return of_tf or _UNFINISHED.fullmatch(path.name) is not None


#: The level of its checkpoint directories that the transcription trainer forgets when it resumes.
_FORGOTTEN_LEVEL = re.compile(r"max_note_shift=[^/]+")


def expected_path(path: Path) -> Outcome:
    """Trainers that write below ``max_note_shift=N/`` and resume without that level: whether it can be found there."""
    name, shown = "resume-path", path
    path = path if any(map(_FORGOTTEN_LEVEL.fullmatch, path.parts)) else path.absolute()
    level = next((i for i, part in enumerate(path.parts) if _FORGOTTEN_LEVEL.fullmatch(part)), None)
    if level is None or level + 1 >= len(path.parts):
        return skipped(name, str(shown), "no level that a trainer is known to forget")
    wanted = Path(*path.parts[:level], *path.parts[level + 1 :])
    if wanted.exists():
        return done(name, str(shown))
    link = Path(*path.parts[:level], path.parts[level + 1])
    text = f"the trainer resumes from {wanted}, without the {path.parts[level]} level: it would not find this file"
    hint = f"ln -s {shlex.quote(f'{path.parts[level]}/{path.parts[level + 1]}')} {shlex.quote(str(link))}"
    return done(name, str(shown), [Issue("resume-path-level", Severity.WARNING, str(shown), text, hint)])
