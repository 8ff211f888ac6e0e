"""``ckpt verify``: the step of CI that says whether what a training wrote is sound."""

from __future__ import annotations

import dataclasses
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckpt_tools.core.checkpoint import Checkpoint
    from ckpt_tools.ops.baselines import Finding
    from ckpt_tools.ops.checks import Outcome
    from ckpt_tools.ops.policy import Policy
    from ckpt_tools.ops.verify import Report

HELP = """Say whether checkpoints are whole, safe to load, and what was expected. The verdict is the exit code.

Every check is done or said to be skipped. Exit codes: 0 sound, 1 not, 4 nothing could be read. A directory is walked:
every checkpoint in it, the records and state files, and which is the newest good one.

Examples:

  ckpt verify exp/default/checkpoints --resume

  ckpt verify model.pth --manifest model.manifest.json

  ckpt verify runs/ --report junit=out.xml --report sarif=out.sarif --fail-on warning -j 2
"""


class FailOn(str, Enum):
    """Severities of ``--fail-on``."""

    error = "error"
    warning = "warning"


def verify(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, directories or TensorFlow prefixes.")],
    as_json: options.Json = False,
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", metavar="FILE", help="Compare with the JSON of `ckpt ls --json --digest`."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Compare with a live model (package.module:name) or a spec."),
    ] = None,
    root: options.Root = None,
    kwargs: options.Kwargs = None,
    kwargs_file: options.KwargsFile = None,
    finite: Annotated[
        bool, typer.Option("--finite", help="Read all values: NaN, infinities, tensors of nothing.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Would the training go on from it?")] = False,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="FILE", help="Which checks, which severities, what is allowed (TOML)."),
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="The least severity that makes it unsound.", show_default="error")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Earlier --json output; only what is new fails.")
    ] = None,
    report: Annotated[
        list[str],
        typer.Option(
            "--report", metavar="KIND[=FILE]", help="junit=FILE, sarif=FILE, or github (annotations); repeatable."
        ),
    ] = [],
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Checkpoints verified at a time.")] = 1,
    format: options.FormatName = None,
    color: options.Color = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    from ckpt_tools.ops import baselines, manifests
    from ckpt_tools.ops import verify as verifying

    out = Output(as_json=as_json, color=color, quiet=quiet)
    targets = [_report_target(text) for text in report]
    request = verifying.Request(
        policy=_policy(policy, fail_on),
        manifests=manifests.load(manifest) if manifest is not None else None,
        fits=_fits(model, root, kwargs, kwargs_file),
        finite=finite,
        resume=resume,
        format=format,
    )
    earlier = baselines.load(baseline) if baseline is not None else None
    with out.progress("verifying") as progress:
        result = verifying.run(paths, request, jobs=jobs, progress=progress)
    if earlier is not None:
        result.known = earlier.known_among(result.findings)
    for kind, target in targets:
        _write_report(result, kind, target)
    if as_json:
        out.json(result.to_json())
    elif not any(kind == "github" and target is None for kind, target in targets):
        _print(out, result, verbose=verbose)
    return result.exit_code


verify.__doc__ = HELP


def _fits(
    model: str | None, root: str | None, kwargs: str | None, kwargs_file: Path | None
) -> Callable[[Checkpoint], Outcome] | None:
    from ckpt_tools.errors import UsageError

    if model is None:
        if root or kwargs or kwargs_file:
            raise UsageError("--root, --kwargs and --kwargs-file are about a model: give --model too")
        return None
    from ckpt_tools.models import read_kwargs
    from ckpt_tools.ops.checks import fitting

    return fitting.expected(model, root, read_kwargs(kwargs, kwargs_file))


_KINDS = ("junit", "sarif", "github")


def _report_target(text: str) -> tuple[str, Path | None]:
    from ckpt_tools.errors import UsageError

    kind, _, file = text.partition("=")
    if kind not in _KINDS or (kind != "github" and not file):
        raise UsageError(f"--report {text}: expected junit=FILE, sarif=FILE, or github")
    return kind, Path(file) if file else None


def _policy(path: Path | None, fail_on: FailOn | None) -> Policy:
    from ckpt_tools.core.issues import Severity
    from ckpt_tools.ops import policy

    found = policy.load(path) if path is not None else policy.Policy()
    return dataclasses.replace(found, fail_on=Severity(fail_on.value)) if fail_on is not None else found


def _write_report(result: Report, kind: str, target: Path | None) -> None:
    from ckpt_tools import __version__
    from ckpt_tools.core.sink import write_file
    from ckpt_tools.ops.reports import github, sarif

    if kind == "junit":
        from ckpt_tools.ops.reports import junit

        text = junit.render(result)
    else:
        text = sarif.render(result, __version__) if kind == "sarif" else github.render(result)
    if target is None:
        sys.stdout.write(text)
    else:
        write_file(target, [text.encode("utf-8")], overwrite=True)


_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def _print(out: Output, result: Report, *, verbose: bool) -> None:
    """Findings by path, the worst path first; skipped checks of a single path, all checks when asked for."""
    from ckpt_tools.ops.checks import Status

    by_path: dict[str, list[Outcome]] = {}
    for outcome in result.outcomes:
        by_path.setdefault(outcome.path, []).append(outcome)
    found: dict[str, list[Finding]] = {}
    for finding in result.findings:
        found.setdefault(finding.path, []).append(finding)
    for path in sorted(by_path, key=lambda path: (_SEVERITIES.index(_worst(found.get(path, []))), path)):
        shown = [f for f in found.get(path, []) if not (out.quiet and f.issue.severity.value == "note")]
        if not (shown or verbose or len(by_path) == 1):
            continue
        out.line((path, "bold"))
        for finding in shown:
            issue = finding.issue
            text = issue.message if issue.where == path else f"{issue.where}: {issue.message}"
            known = "  (known)" if finding in result.known else ""
            severity = issue.severity.value
            out.line(("  ", ""), (f"{severity:<8}", _STYLES[severity]), (f"{issue.code}  {text}", ""), (known, "dim"))
            if issue.hint:
                out.line((f"          {issue.hint}", "dim"))
        for outcome in by_path[path]:
            if outcome.status is Status.SKIPPED and (verbose or (len(by_path) == 1 and not out.quiet)):
                out.line((f"  skipped {outcome.check}: {outcome.why}", "dim"))
            elif outcome.status is Status.PASSED and verbose:
                out.line((f"  passed  {outcome.check}", "green"))
    out.line((_verdict(result), "bold green" if result.verdict == "sound" else "bold red"))


_SEVERITIES = ["error", "warning", "note", None]


def _worst(findings: list[Finding]) -> str | None:
    """The severity of the first, the worst; None when there are none."""
    return findings[0].issue.severity.value if findings else None


def _verdict(result: Report) -> str:
    from ckpt_tools.core.issues import Severity
    from ckpt_tools.ops.checks import Status

    counts = {status: sum(o.status is status for o in result.outcomes) for status in Status}
    found = {severity: sum(f.issue.severity is severity for f in result.findings) for severity in Severity}
    newest = f"; newest good: {result.newest_good}" if result.newest_good else ""
    told = [count_text(found[s], s.value) for s in reversed(Severity) if found[s]]
    return (
        f"{result.verdict}: {count_text(counts[Status.PASSED], 'check')} passed, {counts[Status.FAILED]} failed,"
        f" {counts[Status.SKIPPED]} skipped{''.join(f', {text}' for text in told)}{newest}"
    )
