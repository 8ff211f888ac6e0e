"""What is odd about how the parts of a data file lie in it: some overlap, some bytes belong to none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.runs import Run, between, overlapping


def issues(runs: Iterable[Run], nbytes: int, where: str) -> Iterator[Issue]:
    """Findings about a file of ``nbytes`` bytes whose parts are ``runs``; parts that are the same bytes share them."""
    by_place = {(run.start, run.end): run for run in runs}
    for first, second in overlapping(by_place.values()):
        text = f"the bytes of {printable(second.name)} overlap those of {printable(first.name)}"
        yield Issue("integrity-overlap", Severity.ERROR, where, text)
    for gap in between(by_place.values(), 0, nbytes):
        length = gap.end - gap.start
        if gap.end == nbytes:
            yield Issue("integrity-trailing-bytes", Severity.WARNING, where, f"{length} bytes follow the last part")
        else:
            after = f", behind {printable(gap.name)}," if gap.name else ""
            yield Issue(
                "integrity-gap", Severity.WARNING, where, f"{length} bytes at {gap.start}{after} belong to nothing"
            )
