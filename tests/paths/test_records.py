"""Records files: what is in them, edits that leave the rest alone, and what each path is."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonlines
import pytest
from fixture_cases import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st
from training_runs import OLD, line, snapshot, written

from ckpt_tools.errors import CorruptFile, WriteRefused
from ckpt_tools.ops import records
from ckpt_tools.ops.finding import Finder, Move
from ckpt_tools.ops.repairs import Policy, Repair, State


def examined(path: Path, *, moves: Sequence[str] = (), search: Sequence[Path] = (), **policy: bool) -> Repair:
    return records.examine(path, Finder([Move.parse(m) for m in moves], search), Policy(**policy))


def states(repair: Repair) -> list[str]:
    return [entry.state.value for entry in repair.entries]


def repaired(path: Path, **options: Any) -> Repair:
    repair = examined(path, **options)
    repair.apply(keep_backup=True)
    return repair


# -- the file ----------------------------------------------------------------------------------------------------------


def test_what_jsonlines_takes_is_no_damage() -> None:
    data = b'\xef\xbb\xbf{"path": "/a"}\r\n\x1e{"path":"/b" , "x" : NaN}  \n \t{"path": "/\\u00e9", "path": "/c"}\r{"path": "/d"}'
    parsed = records.parse(data)
    assert not parsed.damaged
    assert [record.path for record in parsed.records] == ["/a", "/b", "/c", "/d"]
    assert parsed.edited({1: "/é", 3: '/"q"', 4: "/D"}) == data.replace(b'"/a"', '"/é"'.encode()).replace(
        b'"/c"', b'"/\\"q\\""'
    ).replace(b'"/d"', b'"/D"')


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\n", "an empty line"),
        (b"   \n", "an empty line"),
        (b"null\n", "no JSON object"),
        (b"[1]\n", "no JSON object"),
        (b'{"path": "/a', "invalid JSON (truncated)"),
        (b'{"path": "/a"', "invalid JSON (truncated)"),
        (b'{"path": "/a"} {"path": "/b"}\n', "something follows"),
        (b'{"path" "/a"}\n', "invalid JSON at character 9"),
        (b'{"path": "/a",}\n', "invalid JSON"),
        (b'{"path": 5}\n', 'no "path"'),
        (b"{}\n", 'no "path"'),
        (b'{"path": "\xff"}\n', "not UTF-8"),
        (b'{"path": ' + b"[" * 100_000 + b"\n", "invalid JSON"),
        (b'{"path": "/a", "iteration": ' + b"9" * 5000 + b"}\n", "digits"),
    ],
)
def test_what_the_trainer_would_fail_on_is_damage(raw: bytes, message: str) -> None:
    parsed = records.parse(b'{"path": "/a"}\n' + raw)
    assert len(parsed.records) == 1
    assert message in parsed.damaged[0].message
    assert parsed.damaged[0].line == 2
    assert parsed.edited({}, {2}) == b'{"path": "/a"}\n'


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.text(),
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
            max_size=3,
        ),
        max_size=5,
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([(", ", ": "), (",", ":"), (" ,  ", " : ")]),
)
def test_only_the_paths_change(
    rows: list[dict[str, Any]], ends: str, ascii_only: bool, separators: tuple[str, str]
) -> None:
    rows = [{**row, "path": f"/old/{i}é", "iteration": i} for i, row in enumerate(rows)]
    text = ends.join(json.dumps(row, ensure_ascii=ascii_only, separators=separators) for row in rows)
    data = text.encode("utf-8")
    parsed = records.parse(data)
    assert not parsed.damaged
    assert parsed.edited({}) == data
    edited = parsed.edited({record.line: record.path.replace("old", "new") for record in parsed.records})
    assert edited == data.replace(b"/old/", b"/new/")
    read = list(jsonlines.Reader(io.StringIO(edited.decode("utf-8"), newline="")))
    assert repr(read) == repr([{**row, "path": row["path"].replace("old", "new")} for row in rows])


@given(st.binary(max_size=80))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    parsed = records.parse(data)
    assert b"".join(parsed.lines) == parsed.edited({}) == data
    assert len(parsed.records) + len(parsed.damaged) == len(parsed.lines)


# -- the states --------------------------------------------------------------------------------------------------------


def test_moved_paths_lead_beside_the_file(tmp_path: Path) -> None:
    for n in (30, 60):
        snapshot(tmp_path / f"snapshot_iter_{n}.pdz", n)
    path = written(tmp_path, *(line(f"{OLD}/snapshot_iter_{n}.pdz", n) for n in (30, 60)))
    path.chmod(0o640)
    before = path.read_bytes()
    repair = repaired(path)
    assert states(repair) == ["moved", "moved"]
    assert path.read_bytes() == before.replace(OLD.encode(), os.fsencode(tmp_path))
    assert path.stat().st_mode & 0o777 == 0o640
    assert repair.backup is not None
    assert repair.backup.read_bytes() == before
    again = examined(path)
    assert states(again) == ["ok", "ok"]
    assert again.content is None
    assert not again.needed


def test_a_copy_that_points_to_the_original_is_the_dangerous_one(tmp_path: Path) -> None:
    for run in ("old", "new"):
        snapshot(tmp_path / run / "snapshot_iter_30.pdz", 30)
    path = written(tmp_path / "new", line(tmp_path / "old" / "snapshot_iter_30.pdz", 30))
    repair = repaired(path)
    assert states(repair) == ["elsewhere"]
    assert str(tmp_path / "new" / "snapshot_iter_30.pdz").encode() in path.read_bytes()


def test_hard_links_of_the_original_are_a_copy_too(tmp_path: Path) -> None:
    original = snapshot(tmp_path / "old" / "snapshot_iter_30.pdz", 30)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "snapshot_iter_30.pdz").hardlink_to(original)
    assert states(examined(written(tmp_path / "new", line(original, 30)))) == ["elsewhere"]


def test_the_same_directory_by_another_name_is_right(tmp_path: Path) -> None:
    snapshot(tmp_path / "real" / "snapshot_iter_30.pdz", 30)
    (tmp_path / "link").symlink_to("real")
    path = written(tmp_path / "real", line(tmp_path / "link" / "snapshot_iter_30.pdz", 30))
    assert states(examined(path)) == states(examined(tmp_path / "link" / "records.jsonl")) == ["ok"]


def test_a_snapshot_kept_elsewhere_on_purpose_stays(tmp_path: Path) -> None:
    kept = snapshot(tmp_path / "archive" / "snapshot_iter_30.pdz", 30)
    repair = examined(written(tmp_path / "run", line(kept, 30)))
    assert states(repair) == ["ok"]
    assert repair.entries[0].reason == "outside this directory"
    assert repair.content is None


def test_names_of_windows_are_understood(tmp_path: Path) -> None:
    snapshot(tmp_path / "snapshot_iter_30.pdz", 30)
    for old in (
        r"C:\exp\default\snapshot_iter_30.pdz",
        r"\\server\share\snapshot_iter_30.pdz",
        r"D:/a\b/snapshot_iter_30.pdz",
    ):
        assert states(examined(written(tmp_path, line(old, 30)))) == ["moved"]


def test_an_end_of_the_old_path_below_the_file_is_found(tmp_path: Path) -> None:
    snapshot(tmp_path / "a" / "s_iter_1.pdz", 1)
    snapshot(tmp_path / "b" / "s_iter_1.pdz", 1)
    repair = examined(written(tmp_path, line("/gone/run/b/s_iter_1.pdz", 1)))
    assert repair.entries[0].new == str(tmp_path / "b" / "s_iter_1.pdz")


def test_parents_in_a_path_are_not_followed(tmp_path: Path) -> None:
    snapshot(tmp_path / "secret_iter_1.pdz", 1)
    (tmp_path / "run" / "x").mkdir(parents=True)
    assert states(examined(written(tmp_path / "run", line("/gone/x/../../secret_iter_1.pdz", 1)))) == ["missing"]


def test_move_and_search(tmp_path: Path) -> None:
    moved = snapshot(tmp_path / "function=train" / "deep" / "snapshot_iter_1.pdz", 1)
    archived = snapshot(tmp_path / "archive" / "x" / "snapshot_iter_2.pdz", 2)
    path = written(tmp_path / "run", line("/old/root/deep/snapshot_iter_1.pdz", 1), line("/old/snapshot_iter_2.pdz", 2))
    assert states(examined(path)) == ["missing", "missing"]
    repair = repaired(
        path, moves=["/nothing=/x", f"/old/root={tmp_path}/function=train"], search=[tmp_path / "archive"]
    )
    assert states(repair) == ["moved", "moved"]
    assert [entry.new for entry in repair.entries] == [str(moved), str(archived)]
    assert states(examined(path)) == ["ok", "ok"]


def test_the_searched_path_that_ends_most_alike_is_taken_and_a_tie_is_ambiguous(tmp_path: Path) -> None:
    for run in ("run1", "run2"):
        snapshot(tmp_path / "archive" / run / "snapshot_iter_1.pdz", 1)
    path = written(tmp_path / "here", line("/old/run2/snapshot_iter_1.pdz", 1))
    repair = examined(path, search=[tmp_path / "archive"])
    assert repair.entries[0].new == str(tmp_path / "archive" / "run2" / "snapshot_iter_1.pdz")
    path = written(tmp_path / "here", line("/old/run3/snapshot_iter_1.pdz", 1))
    repair = examined(path, search=[tmp_path / "archive"])
    assert states(repair) == ["ambiguous"]
    assert repair.incomplete
    assert "run1" in repair.entries[0].reason


def test_missing_paths_stay_until_they_are_dropped(tmp_path: Path) -> None:
    snapshot(tmp_path / "snapshot_iter_60.pdz", 60)
    path = written(tmp_path, line(f"{OLD}/snapshot_iter_30.pdz", 30), line(f"{OLD}/snapshot_iter_60.pdz", 60))
    repair = repaired(path)
    assert repair.incomplete
    assert path.read_bytes().startswith(line(f"{OLD}/snapshot_iter_30.pdz", 30).encode())
    repair = repaired(path, drop_missing=True)
    assert not repair.incomplete
    assert path.read_bytes() == line(tmp_path / "snapshot_iter_60.pdz", 60).encode()


def test_a_mark_at_the_beginning_survives_its_line(tmp_path: Path) -> None:
    snapshot(tmp_path / "snapshot_iter_60.pdz", 60)
    kept = line(tmp_path / "snapshot_iter_60.pdz", 60)
    path = written(tmp_path, "\ufeff" + line(f"{OLD}/snapshot_iter_30.pdz", 30), kept)
    repaired(path, drop_missing=True)
    assert path.read_bytes() == ("\ufeff" + kept).encode("utf-8")


def test_records_that_would_be_empty_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, line(f"{OLD}/snapshot_iter_30.pdz", 30))
    repair = examined(path, drop_missing=True)
    assert isinstance(repair.error, WriteRefused)
    assert repair.content is None
    assert isinstance(examined(written(tmp_path, "")).error, CorruptFile)


def test_duplicates_and_mismatches_are_told(tmp_path: Path) -> None:
    one, two = snapshot(tmp_path / "snapshot_iter_30.pdz", 30), snapshot(tmp_path / "snapshot_iter_60.pdz", 61)
    repair = examined(written(tmp_path, line(one, 30), line(f"{OLD}/{one.name}", 30), line(two, 60), line(one, 31)))
    assert states(repair) == ["ok", "duplicate", "mismatch", "mismatch"]
    assert repair.entries[1].new == str(one)
    assert repair.entries[2].reason == "the record says 60, the name says 60, the file says 61"


def test_a_snapshot_without_its_iteration_agrees_with_everything(tmp_path: Path) -> None:
    snapshot(tmp_path / "pwg_snapshot_iter_400000.pdz")
    (tmp_path / "snapshot_iter_5.pdz").write_bytes(b"torn")
    path = written(
        tmp_path,
        *(line(tmp_path / n, i) for n, i in (("pwg_snapshot_iter_400000.pdz", 400000), ("snapshot_iter_5.pdz", 5))),
    )
    assert states(examined(path)) == ["ok", "ok"]


def test_a_last_record_that_is_not_the_newest_is_told_for_its_own_series(tmp_path: Path) -> None:
    names = {"a_snapshot_iter_9.pdz": 9, "snapshot_iter_3.pdz": 3, "snapshot_iter_2.pdz": 2}
    for name, iteration in names.items():
        snapshot(tmp_path / name, iteration)
    path = written(tmp_path, *(line(tmp_path / name, iteration) for name, iteration in names.items()))
    assert examined(path).notes == ["the last record, from which training resumes, is of iteration 2; the newest is 3"]
    path = written(tmp_path, *(line(tmp_path / name, names[name]) for name in list(names)[:2]))
    assert examined(path).notes == []


def test_a_damaged_line_leaves_the_file_alone(tmp_path: Path) -> None:
    snapshot(tmp_path / "snapshot_iter_30.pdz", 30)
    path = written(tmp_path, line(f"{OLD}/snapshot_iter_30.pdz", 30), "\n", '{"time": "2024')
    repair = examined(path)
    assert isinstance(repair.error, CorruptFile)
    assert "line 2: an empty line; line 3: invalid JSON (truncated)" in str(repair.error)
    assert repair.content is None
    repaired(path, drop_damaged=True)
    assert path.read_bytes() == line(tmp_path / "snapshot_iter_30.pdz", 30).encode()


def test_a_linked_file_is_rewritten_where_it_is(tmp_path: Path) -> None:
    snapshot(tmp_path / "real" / "snapshot_iter_30.pdz", 30)
    real = written(tmp_path / "real", line(f"{OLD}/snapshot_iter_30.pdz", 30))
    link = tmp_path / "link.jsonl"
    link.symlink_to(real)
    repaired(link)
    assert link.is_symlink()
    assert str(tmp_path / "real" / "snapshot_iter_30.pdz").encode() in real.read_bytes()


def test_names_that_are_no_text_are_written_so_that_they_open(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"run-\xff")
    snapshot(directory / "snapshot_iter_30.pdz", 30)
    path = written(directory, line(f"{OLD}/snapshot_iter_30.pdz", 30))
    repaired(path)
    with jsonlines.open(path) as reader:
        assert Path(next(iter(reader))["path"]).exists()


def test_a_file_that_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    snapshot(tmp_path / "snapshot_iter_30.pdz", 30)
    path = written(tmp_path, line(f"{OLD}/snapshot_iter_30.pdz", 30))
    repair = examined(path)
    written(tmp_path, line(f"{OLD}/snapshot_iter_30.pdz", 30), line(f"{OLD}/snapshot_iter_60.pdz", 60))
    before = path.read_bytes()
    with pytest.raises(WriteRefused, match="changed while it was looked at"):
        repair.apply(keep_backup=True)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["records.jsonl", "snapshot_iter_30.pdz"]


def test_odd_paths_break_nothing(tmp_path: Path) -> None:
    odd = ["", "/", "a\0b", "/" + "x" * 5000, "/" + "/".join("y" * 300), "..", ".", "\\", "C:", "//", "\ud800"]
    repair = examined(written(tmp_path, *(line(path, 1) for path in odd)))
    assert set(states(repair)) == {"missing"}


# -- made anew ---------------------------------------------------------------------------------------------------------


def test_records_made_anew_are_what_the_trainer_writes(tmp_path: Path) -> None:
    for name, iteration, seconds in (
        ("pwg_snapshot_iter_5.pdz", 5, 1714557600),
        ("snapshot_iter_100.pdz", 100, 1714557601.25),
        ("snapshot_iter_20.pdz", 21, 1714557602),
    ):
        file = snapshot(tmp_path / name, iteration)
        os.utime(file, (seconds, seconds))
    (tmp_path / "snapshot_iter_7.pdz").write_bytes(b"torn")
    (tmp_path / "other.pdz").write_bytes(b"x")
    repair = records.rebuild(tmp_path)
    assert repair is not None
    repair.apply(keep_backup=True)
    assert repair.backup is None
    with jsonlines.open(tmp_path / "records.jsonl") as reader:
        read = list(reader)
    assert [list(record) for record in read] == [["time", "path", "iteration"]] * 3
    assert [(Path(r["path"]).name, r["iteration"]) for r in read] == [
        ("pwg_snapshot_iter_5.pdz", 5),
        ("snapshot_iter_20.pdz", 21),
        ("snapshot_iter_100.pdz", 100),
    ]
    assert [len(r["time"]) for r in read] == [19, 19, 26]
    assert [entry.old for entry in repair.entries if entry.state is State.DAMAGED] == [
        str(tmp_path / "snapshot_iter_7.pdz")
    ]
    again = records.rebuild(tmp_path)
    assert again is not None
    assert again.content is None


def test_nothing_is_made_anew_from_nothing(tmp_path: Path) -> None:
    assert records.rebuild(tmp_path) is None


# -- what the frameworks wrote -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["records-copied", "records-odd-bytes", "records-torn"])
def test_fixtures(name: str, tmp_path: Path) -> None:
    folder = FIXTURES / "workspaces" / name
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    for source in (folder / "input").rglob("*"):
        if source.is_file():
            target = tmp_path / source.relative_to(folder / "input")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes().replace(b"@INPUT@", os.fsencode(tmp_path)))
    repair = examined(tmp_path / expected["path"])
    assert [{"line": e.line, "state": e.state.value} for e in repair.entries] == expected["entries"]
