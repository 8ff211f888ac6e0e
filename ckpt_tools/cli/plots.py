"""Learning curves drawn through matplotlib, which the extra ``plot`` installs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpt_tools.core.sink import destination, write_file
from ckpt_tools.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from ckpt_tools.ops.curves import Curve

#: What each kind of file says about the moment it was made in, left out: the same curves give the same bytes.
_UNDATED: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
_WIDTH_INCHES, _HEIGHT_INCHES = 9.0, 2.6
_DOTS_PER_INCH = 110


def draw(
    by_metric: Mapping[str, Sequence[Curve]], target: Path, *, key: str, mark: int | None, overwrite: bool
) -> None:
    """Draw one panel for each metric, a line for each list, and a vertical line at the iteration ``mark``."""
    suffix = target.suffix.lower()
    if suffix not in _UNDATED:
        raise UsageError(f"{target}: a drawing is .png, .svg or .pdf")
    destination(target, overwrite=overwrite)
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(
            f"drawings are made by {error.name}, which is not installed", hint="pip install 'ckpt-tools[plot]'"
        ) from None
    figure = Figure(figsize=(_WIDTH_INCHES, _HEIGHT_INCHES * max(len(by_metric), 1)), layout="constrained")
    for row, (metric, curves) in enumerate(by_metric.items(), 1):
        axes = figure.add_subplot(len(by_metric), 1, row)
        for curve in curves:
            axes.plot(*zip(*curve.points), marker=".", label=_plain(curve.list_name))
        if mark is not None:
            axes.axvline(mark, color="black", linestyle="--", linewidth=1)
        axes.set_ylabel(_plain(metric))
        axes.set_xlabel(_plain(key))
        axes.legend()
        axes.grid(visible=True, alpha=0.3)
    drawing = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "ckpt"}):
        figure.savefig(drawing, format=suffix[1:], dpi=_DOTS_PER_INCH, metadata=_UNDATED[suffix])
    write_file(target, [drawing.getvalue()], overwrite=overwrite)


def _plain(text: str) -> str:
    """Names of a file are no formulas, which dollar signs would make of them."""
    return text.replace("$", r"\$")
