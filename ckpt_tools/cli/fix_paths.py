"""``ckpt fix-paths``: repairs paths that moved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text

if TYPE_CHECKING:
    from ckpt_tools.ops.repairs import Repair

HELP = """Repair paths that moved: records.jsonl, TensorFlow's `checkpoint`, dangling links.

A run that was moved cannot resume; one that was copied resumes from the original, and deletes its snapshots. PATH is a
file that keeps paths, or a directory, which is walked. What a path means is looked for beside the file, then where
--move says, then below --search. Files are replaced in one step, with a backup beside them; all other bytes stay.

States: ok, moved, elsewhere (exists outside this directory, and in it), missing, ambiguous, duplicate, mismatch (the
name, the record and the file disagree on the iteration), damaged. Exit code 1 while a path is missing or ambiguous, 4
for a damaged line.

Examples:

  ckpt fix-paths exp/default

  ckpt fix-paths exp/default/checkpoints/records.jsonl --dry-run

  ckpt fix-paths exp --check

  ckpt fix-paths exp --move /old/root=/new/root --search /data/archive
"""


def fix_paths(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Directories, or files that keep paths.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show old and new of each path; write nothing.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 when something needs repair.")] = False,
    move: Annotated[
        list[str], typer.Option("--move", metavar="OLD=NEW", help="What was below OLD is below NEW. Repeatable.")
    ] = [],
    search: Annotated[
        list[Path], typer.Option("--search", metavar="DIR", help="Look for the rest by name below DIR. Repeatable.")
    ] = [],
    absolute: Annotated[
        bool, typer.Option("--absolute", help="Repaired paths of TensorFlow and links absolute, not relative.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make records.jsonl anew from the snapshots that are there.")
    ] = False,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Take out missing paths, with their timestamps.")
    ] = False,
    drop_damaged: Annotated[bool, typer.Option("--drop-damaged", help="Take out damaged lines.")] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Keep no backup of a changed file.")] = False,
    as_json: options.Json = False,
    color: options.Color = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    from ckpt_tools.ops.finding import Finder, Move
    from ckpt_tools.ops.paths import survey
    from ckpt_tools.ops.repairs import Policy

    out = Output(as_json=as_json, color=color, quiet=quiet)
    finder = Finder([Move.parse(text) for text in move], search)
    policy = Policy(drop_missing=drop_missing, drop_damaged=drop_damaged, absolute=absolute)
    reports = []
    repairs: list[Repair] = []
    code = 0
    for repair in survey(paths, finder, policy, rebuild=rebuild):
        if not (check or dry_run):
            _apply(out, repair, keep_backup=not no_backup, warn=not any(r.changed for r in repairs))
        repairs.append(repair)
        code = max(code, _exit_code(repair, check=check, dry_run=dry_run))
        if as_json:
            reports.append(repair.to_json())
        else:
            _show(out, repair, verbose=verbose)
        _tell(out, repair)
    if as_json:
        out.json({"schema": "ckpt.fix-paths/1", "files": reports})
    if not quiet:
        out.note(_summary(repairs, written=not (check or dry_run)))
    return code


fix_paths.__doc__ = HELP


def _apply(out: Output, repair: Repair, *, keep_backup: bool, warn: bool) -> None:
    from ckpt_tools.errors import CkptError
    from ckpt_tools.ops.paths import in_use

    if repair.content is None:
        return
    if warn and repair.kind == "records" and in_use(repair.path):
        out.note(f"warning: {repair.path}: files beside it are younger than a minute; is a training writing there?")
    try:
        repair.apply(keep_backup=keep_backup)
    except CkptError as error:
        repair.error = error


def _exit_code(repair: Repair, *, check: bool, dry_run: bool) -> int:
    if repair.error is not None:
        return repair.error.exit_code
    if check:
        return 1 if repair.needed else 0
    return 1 if repair.incomplete and not dry_run else 0


def _show(out: Output, repair: Repair, *, verbose: bool) -> None:
    """The paths that are not as they should be; with ``verbose`` all."""
    from ckpt_tools.ops.repairs import State

    entries = [entry for entry in repair.entries if verbose or entry.state is not State.OK]
    rows: list[list[Any]] = []
    for entry in entries:
        new = "(taken out)" if entry.dropped else entry.new
        rows.append([entry.line, entry.state.value, entry.old, new or "-", entry.reason])
    if not rows:
        return
    if not out.table:
        out.lines([repair.path, *row] for row in rows)
        return
    from ckpt_tools.cli.render import Column, cell, draw_table

    console = out.console()
    console.print(cell(str(repair.path), "bold"))
    for row in rows:
        row[1] = cell(row[1], _STYLES.get(row[1], "yellow"))
    draw_table(console, [Column("line", right=True), *map(Column, ("state", "old", "new", ""))], rows)


_STYLES = {"ok": "green", "moved": "cyan", "missing": "red", "ambiguous": "red", "damaged": "bold red"}


def _tell(out: Output, repair: Repair) -> None:
    from ckpt_tools.cli.boundary import report
    from ckpt_tools.ops.repairs import State

    if repair.error is not None:
        report(repair.error)
    if out.quiet:
        return
    for note in repair.notes:
        out.note(f"note: {repair.path}: {note}")
    outside = sum(entry.state is State.OK and bool(entry.reason) for entry in repair.entries)
    if outside:
        what = count_text(outside, "path exists", "paths exist")
        out.note(f"note: {repair.path}: {what} outside this directory, and not in it")


def _summary(repairs: list[Repair], *, written: bool) -> str:
    """What happened, in a line."""
    touched = [repair for repair in repairs if (repair.changed if written else repair.content is not None)]
    lost = sum(repair.incomplete for repair in repairs)
    left = f"; {count_text(lost, 'file')} with paths that lead nowhere" if lost else ""
    if not touched:
        return ("nothing was changed" if any(repair.needed for repair in repairs) else "nothing to do") + left
    entries = [entry for repair in touched for entry in repair.entries]
    paths = count_text(sum(entry.new not in (None, entry.old) for entry in entries), "path")
    taken = sum(entry.dropped for entry in entries)
    taken_out = f", {count_text(taken, 'line')} taken out" if taken else ""
    if not written:
        return f"{paths} to repair in {count_text(len(touched), 'file')}{taken_out}{left}"
    kept = touched[0].backup
    before = "" if kept is None else f"; {kept.name}" + (" and its like keep" if len(touched) > 1 else " keeps")
    return f"{paths} repaired in {count_text(len(touched), 'file')}{taken_out}{before and before + ' what was'}{left}"
