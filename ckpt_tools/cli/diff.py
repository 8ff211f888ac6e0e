"""``ckpt diff``: what differs between two checkpoints, or a checkpoint and a model, why, and how to make it fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckpt_tools.cli import options
from ckpt_tools.cli.output import Output, count_text, shape_text

if TYPE_CHECKING:
    from ckpt_tools.core.checkpoint import Checkpoint
    from ckpt_tools.ops.comparands import Comparand
    from ckpt_tools.ops.diff import Difference, Lists
    from ckpt_tools.ops.restoring import Restoration

HELP = """Say what differs between A and B, why, and how to make A fit.

A is a checkpoint. B is a checkpoint of any format, the JSON that `ckpt ls --json` printed of one, a spec that `ckpt spec`
wrote, or a live model `package.module:attribute` (a class, a factory or an instance; torch, paddle, keras, tf.Module,
tf.train.Checkpoint, or a mapping of names to shapes). Structure only, unless --values is given.

Exit code 0: nothing differs under the options given; 1: something does; 4: one of them cannot be read.

Examples:

  ckpt diff old.pth new.pth

  ckpt diff snapshot_iter_60.pdz model.pdparams --root main_params

  ckpt diff 100000_iterations.pth pkg.models:Net --root model --kwargs '{"classes_num": 88}'

  ckpt diff step100.pth step200.pth --values --rtol 1e-5 --atol 1e-8

  ckpt diff x.pdparams y.pth --write-map map.toml && ckpt convert x.pdparams z.pth --map map.toml
"""

#: Layers that --values names as those that moved most.
_MOVED_LAYERS = 8
_OF_THE_RUN = " of the optimizer and the run"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A checkpoint.", show_default=False)],
    b: Annotated[
        str, typer.Argument(metavar="B", help="A checkpoint, manifest, spec, or module:attribute.", show_default=False)
    ],
    values: Annotated[bool, typer.Option("--values", help="Compare values too; reads both.")] = False,
    rtol: Annotated[float, typer.Option("--rtol", min=0, help="Relative difference that is still close.")] = 0.0,
    atol: Annotated[float, typer.Option("--atol", min=0, help="Absolute difference that is still close.")] = 0.0,
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="Leave out optimizer state, counters and averages.")
    ] = False,
    root: Annotated[
        str | None,
        typer.Option("--root", metavar="KEY", help="Only what lies below this key, on the sides that have it."),
    ] = None,
    root_a: Annotated[str | None, typer.Option("--root-a", metavar="KEY", help="The same, of A.")] = None,
    root_b: Annotated[str | None, typer.Option("--root-b", metavar="KEY", help="The same, of B.")] = None,
    strip_prefix: Annotated[
        list[str], typer.Option("--strip-prefix", metavar="PREFIX", help="Take this off the front of names, of both.")
    ] = [],
    rename: Annotated[
        list[str],
        typer.Option(
            "--rename", metavar="OLD=NEW", help="Rename A's names: patterns over whole names, as in rule files."
        ),
    ] = [],
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="Rename A's names by the rules of this file.")
    ] = None,
    write_map: Annotated[
        Path | None,
        typer.Option(
            "--write-map", metavar="FILE", help="Write the rules that make A fit B, for --map of `ckpt convert`."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="--write-map may replace a file.")] = False,
    ignore: Annotated[list[str], typer.Option("--ignore", metavar="GLOB", help="Leave out these names, of both.")] = [],
    match: options.Match = [],
    exclude: options.Exclude = [],
    kwargs: options.Kwargs = None,
    kwargs_file: options.KwargsFile = None,
    as_json: options.Json = False,
    format: options.FormatName = None,
    color: options.Color = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    from ckpt_tools.core.keys import Globs
    from ckpt_tools.errors import UsageError
    from ckpt_tools.mapping.rule_files import read_rules
    from ckpt_tools.mapping.rules import rename as rename_rule
    from ckpt_tools.mapping.rules import strip_prefix as strip_rule
    from ckpt_tools.ops import diff as comparing

    out = Output(as_json=as_json, color=color, quiet=quiet)
    if root and (root_a or root_b):
        raise UsageError("--root stands for --root-a and --root-b; give either the one or the others")
    if (rtol or atol) and not values:
        raise UsageError("--rtol and --atol are about values: give --values too")
    chosen = comparing.Options(
        strip=tuple(strip_rule(prefix) for prefix in strip_prefix),
        renames=tuple(rename_rule(option) for option in rename),
        rules=read_rules(map_file) if map_file else (),
        ignored=Globs(ignore) if ignore else None,
        chosen=Globs(match, exclude),
        weights_only=weights_only,
        values=values,
        rtol=rtol,
        atol=atol,
    )
    with ExitStack() as open_files:
        sides = _Sides(open_files, kwargs, kwargs_file, format)
        side_a, side_b = sides.load(a, b, root, root_a, root_b)
        total = comparing.values_nbytes(side_a, side_b) if values else 0
        with out.progress(f"{a} / {b}", total) as progress:
            result = comparing.compare_sides(side_a, side_b, chosen, progress)
        restoration = sides.restoration
    if restoration is not None:
        result.notes[:0] = restoration.sentences()
    if write_map is not None:
        _write_map(write_map, result, a, b, overwrite=overwrite)
        result.notes.append(f"{count_text(len(result.rules), 'rule')} written to {write_map}")
    if as_json:
        restore = {} if restoration is None else {"restore": restoration.to_json()}
        out.json(result.to_json() | restore)
    elif out.table:
        _draw(out, result, verbose=verbose)
    else:
        out.lines(_lines(result))
    if not as_json and not quiet:
        for note in result.notes:
            out.note(f"note: {note}", style="dim")
    return 0 if result.equal else 1


diff.__doc__ = HELP


class _Sides:
    """Turns what was typed into comparands; checkpoints stay open until the values were compared."""

    def __init__(self, files: ExitStack, kwargs: str | None, kwargs_file: Path | None, format: str | None) -> None:
        self._files = files
        self._kwargs = kwargs
        self._kwargs_file = kwargs_file
        self._format = format
        #: what TensorFlow would do, where a live object of its own is given
        self.restoration: Restoration | None = None

    def load(
        self, a: str, b: str, root: str | None, root_a: str | None, root_b: str | None
    ) -> tuple[Comparand, Comparand]:
        from ckpt_tools.errors import UsageError
        from ckpt_tools.ops.comparands import open_side

        opened = [open_side(text, self._files, self._format) for text in (a, b)]
        model_given = any(isinstance(each, str) for each in opened)
        if (self._kwargs or self._kwargs_file) and not model_given:
            raise UsageError("--kwargs is for a live model, and neither side is one")
        roots = [root_a or root, root_b or root]
        if root:
            if not any(_has_root(each, root) for each in opened):
                raise UsageError(f"nothing lies below {root!r} on either side")
            roots = [root if _has_root(each, root) else None for each in opened]
        sides: list[Comparand | None] = [None, None]
        for at, each in enumerate(opened):
            if not isinstance(each, str):
                sides[at] = _comparand(each, (a, b)[at], roots[at])
        for at, each in enumerate(opened):
            if isinstance(each, str):
                sides[at] = self._model(each, opened[1 - at], roots[1 - at])
        assert sides[0] is not None and sides[1] is not None
        return sides[0], sides[1]

    def _model(self, reference: str, other: object, root: str | None) -> Comparand:
        from ckpt_tools.core.checkpoint import Checkpoint
        from ckpt_tools.models import load_model, read_kwargs
        from ckpt_tools.ops.restoring import predict
        from ckpt_tools.ops.spec import comparand_of

        model = load_model(reference, read_kwargs(self._kwargs, self._kwargs_file))
        if isinstance(other, Checkpoint) and model.graph is not None:
            self.restoration = predict(other, model.graph, root)
        return comparand_of(model, self.restoration.names if self.restoration is not None else None)


def _has_root(opened: Checkpoint | dict[str, Any] | str, root: str) -> bool:
    if isinstance(opened, str):
        return False
    wanted = root.strip("/") + "/"
    if isinstance(opened, dict):
        rows = [row for listed in opened.get("checkpoints", []) for row in listed.get("tensors", [])]
        return any("/".join(map(str, row.get("key", []))).startswith(wanted) for row in rows)
    return any("/".join(map(str, entry.key)).startswith(wanted) for entry in opened.entries if len(entry.key) > 1)


def _comparand(opened: Checkpoint | dict[str, Any], label: str, root: str | None) -> Comparand:
    from ckpt_tools.ops.comparands import from_checkpoint, from_document
    from ckpt_tools.ops.listing import root_key

    if isinstance(opened, dict):
        return from_document(opened, label, root)
    return from_checkpoint(opened, root_key(opened, root) if root else ())


def _write_map(path: Path, result: Difference, a: str, b: str, *, overwrite: bool) -> None:
    from ckpt_tools.core.sink import write_file
    from ckpt_tools.mapping.rule_files import rules_text

    heading = f"Rules that take the names of {a}\nto those of {b}.\nApply with: ckpt convert SRC DST --map {path}"
    write_file(path, [rules_text(result.rules, heading).encode("utf-8")], overwrite=overwrite)


# ---- for pipes


def _lines(result: Difference) -> Iterator[list[object]]:
    """Columns class, name, A, B, remark."""
    for reason in result.reasons:
        yield ["reason", reason.kind, "", "", reason.text + (f" [{reason.option}]" if reason.option else "")]
    for prefix, lists in (("", result.weights), ("optimizer.", result.optimizer)):
        for row in lists.only_a:
            yield [f"{prefix}only_a", row["name"], _what(row), "", _nearest(row)]
        for row in lists.only_b:
            yield [f"{prefix}only_b", row["name"], "", _what(row), _nearest(row)]
        for row in lists.shape:
            yield [f"{prefix}shape", row["name"], shape_text(row["a"]), shape_text(row["b"]), row["note"] or ""]
        for row in lists.dtype:
            yield [f"{prefix}dtype", row["name"], row["a"], row["b"], ""]
        for row in lists.value:
            yield [f"{prefix}value", row["name"], *_value_cells(row)]
        for row in lists.ambiguous:
            yield [f"{prefix}ambiguous", row["name"], shape_text(row["shape"]), shape_text(row["shape"]), row["why"]]


def _what(row: dict[str, Any]) -> str:
    return f"{row['dtype']} {shape_text(row['shape'])}"


def _nearest(row: dict[str, Any]) -> str:
    return f"nearest: {row['nearest']}" if "nearest" in row else ""


def _value_cells(row: dict[str, Any]) -> list[str]:
    """A and B of what is no tensor, or what is to be said of a tensor's change."""
    if "state" not in row:
        return [*("absent" if row[side] is None else str(row[side]["value"]) for side in "ab"), ""]
    return ["", "", _value_text(row)]


def _value_text(row: dict[str, Any]) -> str:
    if "state" not in row:
        return " -> ".join(_value_cells(row)[:2])
    if row.get("max_abs") is None:
        return "differs"
    text = f"{row['differing']} of {row['count']} differ"
    if row["at"] is not None:
        text += f", at most {_short(row['max_abs'])} at {shape_text(row['at'])}"
        text += f", relative change {_short(row['relative'])}"
    if "nan_on_one_side" in row:
        text += f", {row['nan_on_one_side']} NaN on one side only"
    return text


def _short(number: float | str | None) -> str:
    return f"{number:.3g}" if isinstance(number, float) else str(number)


# ---- for people


def _draw(out: Output, result: Difference, *, verbose: bool) -> None:
    from ckpt_tools.cli.render import cell

    console = out.console()
    console.print(cell(f"A  {result.a}", "dim"))
    console.print(cell(f"B  {result.b}", "dim"))
    for reason in result.reasons:
        console.print(cell(f"• {reason.text}", "yellow"))
        if reason.option:
            console.print(cell(f"    {reason.option}", "cyan"))
    _draw_lists(console, "", result.weights, verbose=verbose)
    if verbose:
        _draw_lists(console, _OF_THE_RUN, result.optimizer, verbose=True)
    else:
        _draw_sums(console, result.optimizer)
    if result.moved:
        console.print(cell("moved most (change by size)", "bold"))
        for layer, amount in result.moved[:_MOVED_LAYERS]:
            console.print(cell(f"  {layer}  {_short(amount)}"))
    console.print(cell(_verdict(result), "bold green" if result.equal else "bold red"))


def _draw_lists(console: Any, heading: str, lists: Lists, *, verbose: bool) -> None:
    from ckpt_tools.cli.render import Column, cell, draw_table

    changes = [[row["name"], _value_text(row)] for row in lists.value]
    tables: list[tuple[str, list[str], list[list[object]]]] = [
        ("only in A", ["name", "what", ""], [[r["name"], _what(r), _nearest(r)] for r in lists.only_a]),
        ("only in B", ["name", "what", ""], [[r["name"], _what(r), _nearest(r)] for r in lists.only_b]),
        (
            "shape",
            ["name", "A", "B", ""],
            [[r["name"], shape_text(r["a"]), shape_text(r["b"]), r["note"] or ""] for r in lists.shape],
        ),
        ("dtype", ["name", "A", "B"], [[r["name"], r["a"], r["b"]] for r in lists.dtype]),
        ("value", ["name", "change"], changes),
        ("ambiguous", ["name", "shape", ""], [[r["name"], shape_text(r["shape"]), r["why"]] for r in lists.ambiguous]),
    ]
    for title, columns, rows in tables:
        if rows:
            console.print(cell(f"{title}{heading}: {len(rows)}", "bold"))
            shown = rows if verbose or title == "value" else _collapsed(rows)
            draw_table(console, [Column(column) for column in columns], shown)


def _draw_sums(console: Any, lists: Lists) -> None:
    """The classes of the optimizer and the run with how many there are, by the first part of their names."""
    from ckpt_tools.cli.render import Column, cell, draw_table

    counts: Counter[tuple[str, str, str]] = Counter()
    for title, rows in vars(lists).items():
        for row in rows:
            place = re.split(r"[./]", row["name"], maxsplit=1)[0]
            counts[title.replace("_a", " in A").replace("_b", " in B"), place, row.get("role", "")] += 1
    if counts:
        console.print(cell(f"differences{_OF_THE_RUN}: {sum(counts.values())} (all of them with -v)", "bold"))
        rows = [[title, f"{place}…", count, role] for (title, place, role), count in counts.items()]
        draw_table(console, [Column("class"), Column("names"), Column("count", right=True), Column("")], rows)


def _collapsed(rows: Sequence[Sequence[object]]) -> list[Sequence[object]]:
    """Rows that are alike but for the numbers in their names as one, with how many there are."""
    groups: dict[tuple[str, ...], list[Sequence[object]]] = {}
    for row in rows:
        name, *rest = map(str, row)
        alike = tuple("" if text.startswith("nearest: ") else text for text in rest)
        groups.setdefault((re.sub(r"\d+", "N", name), *alike), []).append(row)
    return [
        same[0] if len(same) == 1 else [f"{pattern}  ({len(same)}, from {same[0][0]} on)", *same[0][1:]]
        for (pattern, *_), same in groups.items()
    ]


def _verdict(result: Difference) -> str:
    pairs = count_text(result.paired, "weight")
    if result.equal:
        return f"nothing differs: {pairs} on both sides"
    counts = [
        (len(result.reasons), "systematic reason"),
        (len(result.weights.only_a), "name only in A"),
        (len(result.weights.only_b), "name only in B"),
        (len(result.weights.shape), "shape"),
        (len(result.weights.dtype), "dtype"),
        (len(result.weights.value), "value"),
        (len(result.weights.ambiguous), "ambiguous name"),
        (sum(map(len, vars(result.optimizer).values())), "difference in the optimizer or the run"),
    ]
    said = [_plural(count, word) for count, word in counts if count]
    same = " (weights are equal)" if not result.weights and not result.reasons else ""
    return f"differs{same}: {', '.join(said)}; {pairs} paired"


def _plural(count: int, word: str) -> str:
    first, _, rest = word.partition(" ")
    if word.startswith(("name ", "difference ")):
        return f"{count} {first}{'' if count == 1 else 's'} {rest}"
    return count_text(count, word)
