"""``ckpt truncate-stats``: forget the records of a future that no longer happens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text

if TYPE_CHECKING:
    from ckpt_tools.ops.statistics import Cut, Outcome

HELP = """Keep the records up to an iteration in a statistics pickle.

Who resumes a training from an earlier iteration has statistics of a future that no longer happens. Every list is
filtered, whatever it is called; values, dtypes, order, sharing and the pickle protocol stay as they are. Nothing in the
file is executed. It is replaced in one step, with a backup beside it.

Examples:

  ckpt truncate-stats statistics.pkl --at 100000

  ckpt truncate-stats statistics.pkl --at-checkpoint 100000_iterations.pth

  ckpt truncate-stats statistics.pkl --before 100000 --dry-run
"""


def truncate_stats(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A statistics pickle.")],
    at: Annotated[int | None, typer.Option("--at", metavar="N", help="Keep iteration <= N.")] = None,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="N", help="Keep iteration < N: who resumes at N evaluates N again."),
    ] = None,
    at_checkpoint: Annotated[
        Path | None, typer.Option("--at-checkpoint", metavar="CKPT", help="Take N from a checkpoint.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The counter of the records; usually `iteration`.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there; leave FILE as it is.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what --output names if it exists.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show kept and dropped of each list; write nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when something would be dropped.")
    ] = False,
    skip_unkeyed: Annotated[
        bool, typer.Option("--skip-unkeyed", help="Keep records that have no number under the key.")
    ] = False,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Let all lists become empty.")] = False,
    prune_backups: Annotated[
        int | None,
        typer.Option("--prune-backups", metavar="K", min=0, help="Keep the newest K time-stamped twins of FILE."),
    ] = None,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Keep no backup of FILE.")] = False,
    as_json: options.Json = False,
    color: options.Color = None,
    quiet: options.Quiet = False,
) -> int:
    from ckpt_tools.ops import statistics

    out = Output(as_json=as_json, color=color, quiet=quiet)
    cut = _cut(at, before, at_checkpoint)
    with statistics.read(file) as read:
        out.issues(read.issues)
        if key is None:
            key = read.counter()
            if key != statistics.COUNTERS[0]:
                out.note(f"the records count {key}")
        outcomes = statistics.truncate(read, cut, key=key, skip_unkeyed=skip_unkeyed, allow_empty=allow_empty)
        needed = any(outcome.dropped for outcome in outcomes)
        kept, changed = None, False
        if not (dry_run or check) and (needed or output is not None):
            with out.progress(str(output or file), read.source.nbytes) as progress:
                kept = statistics.write(read, output, overwrite=overwrite, keep_backup=not no_backup, progress=progress)
            changed = True
        twins = read.twins
        gone = statistics.prune(twins, prune_backups) if prune_backups is not None and not (dry_run or check) else []
    remaining = [twin for twin in twins if twin not in gone]
    if as_json:
        out.json(
            {
                "schema": "ckpt.truncate-stats/1",
                "path": str(file),
                "at": cut.at,
                "lists": [outcome.to_json() for outcome in outcomes],
                "changed": changed,
                "backup": str(kept) if kept else None,
                "twins": [str(twin) for twin in remaining],
            }
        )
    else:
        _show(out, outcomes)
    if not quiet:
        _tell(out, file, output if changed else None, needed=needed, kept=kept)
        if twins:
            removed = f", {len(gone)} removed" if gone else ""
            out.note(f"{count_text(len(remaining), 'time-stamped twin')} beside it{removed}")
    return 1 if check and needed else 0


truncate_stats.__doc__ = HELP


def _cut(at: int | None, before: int | None, checkpoint: Path | None) -> Cut:
    from ckpt_tools.errors import UsageError
    from ckpt_tools.formats import open_checkpoint
    from ckpt_tools.ops.listing import iteration_of
    from ckpt_tools.ops.statistics import Cut

    if sum(given is not None for given in (at, before, checkpoint)) != 1:
        raise UsageError("one of --at N, --before N and --at-checkpoint CKPT is needed")
    if checkpoint is not None:
        with open_checkpoint(checkpoint) as opened:
            at = iteration_of(opened)
        if at is None:
            raise UsageError(f"{checkpoint}: neither the checkpoint nor its name tells an iteration; give --at N")
    return Cut(at, inclusive=True) if at is not None else Cut(before or 0, inclusive=False)


def _show(out: Output, outcomes: list[Outcome]) -> None:
    rows: list[list[object]] = [[o.shown, o.kept, o.dropped] for o in outcomes]
    if not out.table:
        out.lines(rows)
        return
    from ckpt_tools.cli.render import Column, draw_table

    draw_table(out.console(), [Column("list"), Column("kept", right=True), Column("dropped", right=True)], rows)


def _tell(out: Output, file: Path, output: Path | None, *, needed: bool, kept: Path | None) -> None:
    if output is not None:
        out.note(f"wrote {output}")
    elif kept is not None:
        out.note(f"{file}: truncated; {kept.name} keeps what it was")
    elif not needed:
        out.note("nothing to do")
