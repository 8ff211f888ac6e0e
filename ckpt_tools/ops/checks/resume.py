"""Would the training go on from it? The optimizer's state, the iteration in its three places, what an interrupted save left.

The state is compared with the parameters by count and shape. What a file does not tell is not guessed: an optimizer that
was never saved is a warning, since some trainers never save it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ckpt_tools.core.checkpoint import Checkpoint, Entry
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Key
from ckpt_tools.core.purposes import Role
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.errors import CkptError
from ckpt_tools.mapping.layouts import FAMILY_BY_FORMAT
from ckpt_tools.mapping.roles import assign_roles
from ckpt_tools.ops.checks import Outcome, done, skipped
from ckpt_tools.ops.listing import iteration_inside

#: Files and directories of saves that never ended: torch DCP, TensorFlow's shards before they are merged, this tool.
_UNFINISHED = re.compile(r"\.metadata\.tmp|.*_temp(_[0-9a-f]+)?|.*\.tmp(-\d+)?|.*\.tempstate\d+", re.DOTALL)
#: ``snapshot_iter_60.pdz``, ``60_iterations.pth``, ``ckpt-60``: the number a trainer puts into the name.
_NUMBER_IN_NAME = re.compile(r"(?:iter(?:ation)?[_-]?|step[_-]?|ckpt-)(\d+)|(\d+)_iterations?", re.IGNORECASE)
#: Moments of the parameters have their shape; counters and powers of the betas do not.
_PADDLE_MOMENT = re.compile(
    r"(?P<variable>.+?)(?:_fp32_master_\d+)?_(?:moment[12]?|moment2_max|velocity|inf_norm)_\d+", re.DOTALL
)


def optimizer(checkpoint: Checkpoint) -> Outcome:
    """The optimizer's state against the parameters, and whether it was ever filled."""
    name, path = "resume-optimizer", checkpoint.location.shown
    tensors = [entry for entry in checkpoint.entries if entry.is_tensor]
    if not tensors:
        text = "a snapshot of progress only: it holds no tensors"
        return skipped(name, path, text, [Issue("resume-no-tensors", Severity.NOTE, path, text)])
    roles = assign_roles(
        [entry.key for entry in checkpoint.entries],
        family=FAMILY_BY_FORMAT.get(checkpoint.format),
        known=checkpoint.purposes,
    )
    state = [entry for entry in tensors if roles.get(entry.key) is Role.OPTIMIZER]
    weights = [entry for entry in tensors if roles.get(entry.key, Role.WEIGHT) is Role.WEIGHT]
    if not state:
        text = "no optimizer state is in it: a resumed training begins with a fresh optimizer"
        return done(name, path, [Issue("resume-no-optimizer", Severity.WARNING, path, text)])
    issues = [*_torch(checkpoint, weights), *_by_variable(checkpoint, state, weights)]
    if not issues:
        issues += _lost(checkpoint, state)
    return done(name, path, issues)


def _torch(checkpoint: Checkpoint, weights: list[Entry]) -> Iterator[Issue]:
    """torch's ``{state: {index: …}, param_groups: [{params: [index, …]}]}``: every index known, every moment's shape
    that of some parameter."""
    moments: dict[Key, dict[int | str, list[Entry]]] = {}
    listed: dict[Key, set[int | str]] = {}
    for entry in checkpoint.entries:
        key = entry.key
        if "state" in key and entry.is_tensor:
            at = key.index("state")
            if len(key) > at + 2:
                moments.setdefault(key[:at], {}).setdefault(key[at + 1], []).append(entry)
        if "params" in key and "param_groups" in key and not entry.is_tensor:
            listed.setdefault(key[: key.index("param_groups")], set()).add(_number(entry.node))
    shapes = Counter(entry.node.info.shape for entry in weights)
    for root, parameters in listed.items():
        where = "/".join(map(str, root)) or checkpoint.location.shown
        kept = {_as_number(index) for index in moments.get(root, {})}
        strangers = kept - parameters
        if strangers:
            text = f"the optimizer keeps state of {len(strangers)} parameters that its groups do not list"
            yield Issue("resume-optimizer-mismatch", Severity.ERROR, where, text)
        if len(parameters) > sum(shapes.values()):
            text = f"the optimizer lists {len(parameters)} parameters, the model has {sum(shapes.values())} tensors"
            yield Issue("resume-optimizer-mismatch", Severity.ERROR, where, text)
        wanted = Counter(
            next(e.node.info.shape for e in entries if e.node.info.shape)
            for entries in moments.get(root, {}).values()
            if any(e.node.info.shape for e in entries)
        )
        missing = wanted - shapes
        if missing:
            shape, count = next(iter(missing.items()))
            text = f"the optimizer keeps {count} more states of shape {list(shape)} than the model has parameters"
            yield Issue("resume-optimizer-mismatch", Severity.ERROR, where, text)


def _number(node: object) -> int | str:
    return node if isinstance(node, (int, str)) else str(node)


def _as_number(part: int | str) -> int | str:
    return int(part) if isinstance(part, str) and part.isdecimal() else part


def _by_variable(checkpoint: Checkpoint, state: list[Entry], weights: list[Entry]) -> Iterator[Issue]:
    """Slots that name their variable (Paddle by its variable name, TensorFlow through the object graph)."""
    by_alias = {entry.node.alias: entry for entry in weights if entry.node.alias}
    by_key = {entry.key: entry for entry in checkpoint.entries if entry.is_tensor}
    wrong, lone = [], []
    for entry in state:
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


def _lost(checkpoint: Checkpoint, state: list[Entry]) -> list[Issue]:
    """All moments zero although the training has gone some way: the optimizer was made anew before the save."""
    step = iteration_inside(checkpoint)
    moments = [e.node for e in state if len(e.node.info.shape) > 0 and e.node.info.count > 1]
    if not step or not moments:
        return []
    try:
        if any(_has_other_than_zero(tensor) for tensor in moments):
            return []
    except CkptError:
        return []  # told by the integrity checks
    text = f"the optimizer was lost: all its {len(moments)} moments are zero at step {step}"
    return [Issue("resume-optimizer-lost", Severity.WARNING, checkpoint.location.shown, text)]


def _has_other_than_zero(tensor: Tensor) -> bool:
    return any(chunk.strip(b"\0") for chunk in tensor.chunks())


def iteration(checkpoint: Checkpoint, recorded: int | None) -> Outcome:
    """The iteration inside the file, in its name and in the records: those that are there must agree."""
    name, path = "resume-iteration", checkpoint.location.shown
    inside = iteration_inside(checkpoint)
    number = _NUMBER_IN_NAME.search(Path(path).name.rpartition("/")[2])
    named = int(number[1] or number[2]) if number else None
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
    at = iteration_inside(checkpoint)
    if at is None or last is None:
        return skipped(name, path, "no iteration to compare with")
    if last <= at:
        return done(name, path)
    text = f"{where} has records up to iteration {last}, beyond {at} where a training resumed here would be"
    hint = f"ckpt truncate-stats {where} --at-checkpoint {path}"
    return done(name, path, [Issue("resume-statistics-ahead", Severity.NOTE, path, text, hint)])


def unfinished(directory: Path, names: Iterable[str]) -> Outcome:
    """What an interrupted save left in a directory that holds files and directories of these names."""
    name = "resume-unfinished"
    found = sorted(left for left in names if _UNFINISHED.fullmatch(left))
    issues = [
        Issue(
            "resume-unfinished-save",
            Severity.WARNING,
            str(directory / left),
            "left by a save that never ended; nothing reads it",
            f"rm -r {directory / left}",
        )
        for left in found
    ]
    return done(name, str(directory), issues)


#: The level of its checkpoint directories that the transcription trainer forgets when it resumes.
_FORGOTTEN_LEVEL = re.compile(r"max_note_shift=[^/]+")


def expected_path(path: Path) -> Outcome:
    """Trainers that write below ``max_note_shift=N/`` and resume without that level: whether it can be found there."""
    name = "resume-path"
    level = next((i for i, part in enumerate(path.parts) if _FORGOTTEN_LEVEL.fullmatch(part)), None)
    if level is None or level + 1 >= len(path.parts):
        return skipped(name, str(path), "no level that a trainer is known to forget")
    wanted = Path(*path.parts[:level], *path.parts[level + 1 :])
    if wanted.exists():
        return done(name, str(path))
    link = Path(*path.parts[:level], path.parts[level + 1])
    text = f"the trainer resumes from {wanted}, without the {path.parts[level]} level: it would not find this file"
    hint = f"ln -s {path.parts[level]}/{path.parts[level + 1]} {link}"
    return done(name, str(path), [Issue("resume-path-level", Severity.WARNING, str(path), text, hint)])
