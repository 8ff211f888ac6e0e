"""``ckpt ls``: names, dtypes, shapes and sizes of everything in a checkpoint; one line each for many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.listings import Sort, View
from ckpt_tools.cli.output import Output

if TYPE_CHECKING:
    from ckpt_tools.core.checkpoint import Checkpoint
    from ckpt_tools.core.keys import Globs
    from ckpt_tools.formats.families import Member
    from ckpt_tools.ops.listing import Listing

HELP = """List names, dtypes, shapes and sizes of everything in checkpoints.

Structure only: no tensor is loaded, no framework imported, nothing in the file executed. PATH is a file, a directory,
a TensorFlow prefix (ckpt-5), or any member of such a family. A directory with several checkpoints gives a line each,
or with any option about their contents the list of each.

Examples:

  ckpt ls snapshot_iter_76000.pdz

  ckpt ls 100000_iterations.pth --match 'conv*' --sort size

  ckpt ls training_checkpoints/ckpt-5 --json --digest > ckpt-5.manifest.json
"""


def ls(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", parser=options.path, help="Files, directories or TensorFlow prefixes."),
    ],
    as_json: options.Json = False,
    match: options.Match = [],
    exclude: options.Exclude = [],
    root: options.Root = None,
    tree: Annotated[bool, typer.Option("--tree", help="Draw the names as a tree.")] = False,
    sort: Annotated[
        Sort, typer.Option("--sort", help="Order of what is shown; JSON keeps the order of the file.")
    ] = Sort.file,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, metavar="N", help="Sums of names up to N parts instead of tensors.")
    ] = None,
    digest: Annotated[bool, typer.Option("--digest", help="SHA-256 of every tensor's values; reads them.")] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Minimum, maximum, mean, deviation, NaN and Inf; reads them.")
    ] = False,
    format: options.FormatName = None,
    color: options.Color = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    from ckpt_tools.cli.boundary import report
    from ckpt_tools.core.keys import Globs
    from ckpt_tools.errors import CkptError, UsageError
    from ckpt_tools.ops import listing

    if depth is not None and (digest or stats):
        raise UsageError("--depth shows sums; --digest and --stats are about single tensors")
    out = Output(as_json=as_json, color=color, quiet=quiet)
    view = View(tree=tree, sort=sort, depth=depth, verbose=verbose)
    request = _Request(Globs(match, exclude), root, digest, stats)
    in_full = as_json or tree or depth is not None or digest or stats or root is not None or bool(match or exclude)
    documents: list[dict[str, Any]] = []
    code = 0
    for path in paths:
        try:
            found = listing.find(path, format)
        except CkptError as error:
            if len(paths) == 1:
                raise
            report(error)
            code = max(code, error.exit_code)
            continue
        several = len(paths) > 1 or len(found) > 1
        if len(found) > 1 and not in_full:
            code = max(code, _print_lines_of(found, out))
            continue
        for location, row in found:
            try:
                with listing.opened(location, row) as checkpoint:
                    result = request.answer(checkpoint, out)
                    code = max(code, 4 if result.bytes_missing else 0)
                    if as_json:
                        documents.append(result.to_json())
                    else:
                        view.show(result, out, titled=several)
            except CkptError as error:
                if not several:
                    raise
                report(error)
                code = max(code, error.exit_code)
    if as_json:
        out.json({"schema": "ckpt.ls/1", "checkpoints": documents})
    return code


ls.__doc__ = HELP


class _Request:
    """What is asked about each checkpoint."""

    def __init__(self, globs: Globs, root: str | None, digests: bool, stats: bool) -> None:
        self._globs = globs
        self._root = root
        self._digests = digests
        self._stats = stats

    def answer(self, checkpoint: Checkpoint, out: Output) -> Listing:
        """The listing of a checkpoint; values are read only when that was asked for."""
        from ckpt_tools.ops import listing

        entries = listing.selected(checkpoint, self._globs, self._root)
        passes = self._digests + self._stats
        total = passes * sum(entry.node.nbytes for entry in entries if entry.is_tensor) if passes else 0
        with out.progress(checkpoint.location.shown, total) as progress:
            return listing.make(checkpoint, entries, digests=self._digests, stats=self._stats, progress=progress)


def _print_lines_of(found: list[Member], out: Output) -> int:
    """A line for each of several checkpoints; 4 when one of them cannot be read."""
    from ckpt_tools.cli.summaries import print_summaries
    from ckpt_tools.ops import listing

    summaries, issues = listing.summarise(found)
    print_summaries(summaries, out)
    out.issues(issues)
    return 4 if any(summary.error for summary in summaries) else 0
