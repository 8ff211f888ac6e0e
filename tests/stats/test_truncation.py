"""Truncated statistics are what pickle would have given: every value, dtype, order and sharing, at the same protocol."""

from __future__ import annotations

import json
import math
import os
import pickle
import pickletools
import shutil
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy
import pytest
from fixture_cases import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_tools.errors import CkptError, CorruptFile, UnknownFormat, UnsafePickle, WriteRefused
from ckpt_tools.ops import statistics
from ckpt_tools.ops.statistics import Cut

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "files" / "pickle-other"


def truncated(path: Path, cut: Cut, output: Path | None = None, **options: Any) -> list[statistics.Outcome]:
    with statistics.read(path) as read:
        key = options.pop("key", None) or read.counter()
        outcomes = statistics.truncate(read, cut, key=key, **options)
        statistics.write(read, output, overwrite=True, keep_backup=False)
    return outcomes


def by_pickle(value: Any, cut: Cut, key: str = "iteration", done: dict[int, Any] | None = None) -> Any:
    """The reference: what a trainer's own code would do to the loaded object, in place."""
    done = {} if done is None else done
    if id(value) in done:
        return value
    done[id(value)] = value
    if isinstance(value, list) and (not value or any(isinstance(record, dict) for record in value)):
        value[:] = [record for record in value if cut.keeps(record[key])]
    elif isinstance(value, dict):
        for below in value.values():
            by_pickle(below, cut, key, done)
    return value


def protocol_of(data: bytes) -> int:
    return max(opcode.proto for opcode, _, _ in pickletools.genops(data))


def sample() -> dict[str, Any]:
    shared = numpy.arange(4.0)
    records = [
        {
            "ap": numpy.arange(3.0) + n,
            "auc": numpy.float64(n / 3),
            "f": numpy.float32(n),
            "loss": math.nan if n == 2 else n / 7,
            "name": "é\n" * n,
            "classes": shared,
            "deep": {"a": [n, (n, None)], "b": numpy.asfortranarray(numpy.ones((2, 3)))},
            "iteration": n * 1000,
        }
        for n in range(5)
    ]
    return {
        "train": records,
        "test": records[1:3],
        "both": records,
        "empty": [],
        "note": "kept",
        "n": {"x": records[::2]},
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("cut", [Cut(2000), Cut(2000, inclusive=False), Cut(0), Cut(9999)])
def test_the_result_is_what_pickle_would_have_given(protocol: int, cut: Cut, tmp_path: Path) -> None:
    data = pickle.dumps(sample(), protocol)
    path = tmp_path / "statistics.pkl"
    path.write_bytes(data)
    outcomes = truncated(path, cut)
    result = path.read_bytes()
    expected = by_pickle(pickle.loads(data), cut)
    loaded = pickle.loads(result)
    assert pickle.dumps(loaded, protocol) == pickle.dumps(expected, protocol)
    assert protocol_of(result) == protocol_of(pickle.dumps(expected, protocol))
    assert loaded["train"] is loaded["both"]
    assert loaded["train"][0] is loaded["n"]["x"][0]
    assert [(o.name, o.kept) for o in outcomes] == [
        (name, len(kept))
        for name, kept in (*((n, expected[n]) for n in ("train", "test", "both", "empty")), ("n/x", expected["n"]["x"]))
    ]


values = (
    st.floats()
    | st.integers()
    | st.text(max_size=5)
    | st.none()
    | st.sampled_from(
        [numpy.float32(1.5), numpy.float64(-0.0), numpy.int64(7), numpy.arange(3), numpy.array(["a", None], object)]
    )
    | st.lists(st.floats(), max_size=3)
)
iterations = (
    st.integers(-5, 30) | st.floats(-5, 30) | st.integers(-5, 30).map(numpy.int64) | st.floats(0, 30).map(numpy.float32)
)
record = st.builds(
    lambda fields, n: {**fields, "iteration": n}, st.dictionaries(st.text(max_size=3), values, max_size=3), iterations
)
lists = st.lists(record, max_size=6)
roots = lists | st.dictionaries(
    st.text(max_size=4), lists | st.dictionaries(st.text(max_size=3), lists, max_size=2), max_size=3
)


@settings(max_examples=200, deadline=None)
@given(roots, st.integers(-6, 31), st.booleans(), st.sampled_from(list(PROTOCOLS)), st.booleans())
def test_random_records(root: Any, at: int, inclusive: bool, protocol: int, twice: bool) -> None:
    import tempfile

    root = {"x": root, "y": root} if twice else root
    cut = Cut(at, inclusive=inclusive)
    data = pickle.dumps(root, protocol)
    expected = by_pickle(pickle.loads(data), cut)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "s.pkl"
        path.write_bytes(data)
        try:
            truncated(path, cut, key="iteration", allow_empty=True)
        except UnknownFormat:
            assert not any(
                isinstance(v, list) for v in (root.values() if isinstance(root, dict) else [root])
            ) or root in ({}, [])
            return
        result = path.read_bytes()
    assert pickle.dumps(pickle.loads(result), protocol) == pickle.dumps(expected, protocol)


def test_mappings_of_other_kinds(tmp_path: Path) -> None:
    root = OrderedDict(train=[OrderedDict(iteration=n, loss=0.5) for n in range(3)])
    root["more"] = defaultdict(list, test=[defaultdict(float, {"iteration": 7})])
    path = tmp_path / "s.pkl"
    for protocol in PROTOCOLS:
        path.write_bytes(pickle.dumps(root, protocol))
        outcomes = truncated(path, Cut(1))
        assert [(o.name, o.kept, o.dropped) for o in outcomes] == [("train", 2, 1), ("more/test", 0, 1)]
        loaded = pickle.loads(path.read_bytes())
        assert loaded == OrderedDict(train=list(root["train"][:2]), more=defaultdict(list, test=[]))
        assert type(loaded["more"]) is defaultdict


def test_iterations_may_be_arrays_without_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "s.pkl"
    for protocol in PROTOCOLS:
        path.write_bytes(pickle.dumps([{"iteration": numpy.array(n)} for n in range(4)], protocol))
        assert truncated(path, Cut(1))[0].kept == 2


def test_python_2_statistics(tmp_path: Path) -> None:
    path = tmp_path / "s.pkl"
    path.write_bytes(b"(dp0\nS'train'\np1\n(lp2\n(dp3\nS'iteration'\np4\nI1\nsS'x'\nS'\\xff'\nsa(dp5\ng4\nI2\nsas.")
    assert [(o.name, o.kept) for o in truncated(path, Cut(1))] == [("train", 1)]
    assert pickle.loads(path.read_bytes(), encoding="bytes") == {b"train": [{b"iteration": 1, b"x": b"\xff"}]}


def test_numpy_1_spelling_stays(tmp_path: Path) -> None:
    data = pickle.dumps({"a": [{"iteration": n, "v": numpy.arange(2), "s": numpy.float64(n)} for n in range(3)]}, 2)
    path = tmp_path / "s.pkl"
    for spelling, other in ((b"numpy.core.", b"numpy._core."), (b"numpy._core.", b"numpy.core.")):
        path.write_bytes(data.replace(other, spelling))
        truncated(path, Cut(1))
        assert spelling in path.read_bytes()
        assert other not in path.read_bytes()
        assert len(pickle.loads(path.read_bytes())["a"]) == 2


def test_what_follows_the_pickle_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.pkl"
    path.write_bytes(pickle.dumps([{"iteration": n} for n in range(3)]) + b"and more")
    truncated(path, Cut(1))
    assert path.read_bytes().endswith(b".and more")
    assert len(pickle.loads(path.read_bytes())) == 2


def test_records_without_a_number_are_named(tmp_path: Path) -> None:
    path = tmp_path / "s.pkl"
    odd: list[Any] = [
        {"loss": 1},
        {"iteration": None},
        {"iteration": True},
        {"iteration": math.nan},
        {"iteration": "5"},
        7,
    ]
    data = pickle.dumps({"good": [{"iteration": 5}, {"iteration": 9}], "odd": odd})
    path.write_bytes(data)
    with pytest.raises(
        WriteRefused,
        match=r"no number under 'iteration' in odd\[0\], odd\[1\], odd\[2\], odd\[3\], odd\[4\] and 1 more",
    ):
        truncated(path, Cut(5))
    assert path.read_bytes() == data
    truncated(path, Cut(5), skip_unkeyed=True)
    assert len(pickle.loads(path.read_bytes())["odd"]) == 6


def test_all_lists_empty_needs_to_be_allowed(tmp_path: Path) -> None:
    path = tmp_path / "s.pkl"
    path.write_bytes(pickle.dumps({"a": [{"iteration": 5}], "b": []}))
    with pytest.raises(WriteRefused, match="all lists would be empty"):
        truncated(path, Cut(-1))
    truncated(path, Cut(-1), allow_empty=True)
    assert pickle.loads(path.read_bytes()) == {"a": [], "b": []}


def test_a_file_that_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.pkl"
    path.write_bytes(pickle.dumps([{"iteration": n} for n in range(9)]))
    with statistics.read(path) as read:
        statistics.truncate(read, Cut(1), key="iteration")
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(WriteRefused, match="changed while"):
            statistics.write(read, None)
    assert [p.name for p in tmp_path.iterdir()] == ["s.pkl"]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch PWNED",)


def test_a_pickle_that_runs_code_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.pkl"
    for protocol in PROTOCOLS:
        path.write_bytes(pickle.dumps({"a": [{"iteration": 1, "x": Evil()}, {"iteration": 2}]}, protocol))
        with pytest.raises(UnsafePickle, match=r"posix\.system"):
            statistics.read(path)
    assert [p.name for p in tmp_path.iterdir()] == ["s.pkl"]


def test_what_is_no_statistics_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.pkl"
    for data, said in (
        (pickle.dumps({"a": 1}), "no list of records"),
        (pickle.dumps({"a": [1, 2]}), "no list of records"),
        (b"", "ends at byte 0"),
        (b"\x1f\x8b\x08\x00", "no pickle opcode"),
    ):
        path.write_bytes(data)
        with pytest.raises(CkptError, match=said):
            statistics.read(path)
    with pytest.raises(UnknownFormat, match="is torch-zip, a statistics pickle was expected"):
        statistics.read(next((FIXTURES / "torch-zip").glob("*/input/*.pth")))


def test_of_a_torn_file_the_newest_good_twin_is_offered(tmp_path: Path) -> None:
    data = pickle.dumps([{"iteration": 1}])
    path = tmp_path / "my statistics.pkl"
    path.write_bytes(data[:-4])
    for day, content in ((1, data), (2, data), (3, data[:-1])):
        (tmp_path / f"my statistics_2024-05-0{day}_10-00-00.pkl").write_bytes(content)
    with pytest.raises(CorruptFile) as caught:
        statistics.read(path)
    assert caught.value.hint == f"cp -p '{tmp_path}/my statistics_2024-05-02_10-00-00.pkl' '{path}'"


def test_twins_are_pruned_oldest_first(tmp_path: Path) -> None:
    names = [f"s_2024-05-0{day}_10-00-00.{suffix}" for day, suffix in ((1, "pkl"), (2, "pickle"), (3, "pkl"))]
    for name in [*names, "s_best.pkl", "t_2024-05-01_10-00-00.pkl", "s_2024-05-01_10-00-00.txt"]:
        (tmp_path / name).write_bytes(b"")
    twins = statistics.twins_of(tmp_path / "s.pkl")
    assert [twin.name for twin in twins] == names
    assert [gone.name for gone in statistics.prune(twins, 2)] == names[:1]
    assert [gone.name for gone in statistics.prune(twins[1:], 0)] == names[1:]
    assert statistics.prune([], 3) == []
    assert len(list(tmp_path.iterdir())) == 3


# -- what the fixtures say ---------------------------------------------------------------------------------------------

CASES = [
    pytest.param(folder, truncation, id=f"{folder.name}-{truncation['at']}")
    for folder in sorted((FIXTURES / "stats").iterdir())
    for truncation in json.loads((folder / "expected.json").read_text(encoding="utf-8")).get("truncations", [])
]


@pytest.mark.parametrize(("folder", "truncation"), CASES)
def test_fixtures(folder: Path, truncation: dict[str, Any], tmp_path: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    shutil.copytree(folder / "input", tmp_path, dirs_exist_ok=True)
    path = tmp_path / expected["path"]
    data = path.read_bytes()
    codes = truncation["exit"] if isinstance(truncation["exit"], list) else [truncation["exit"]]
    if 0 not in codes:
        with pytest.raises(CkptError) as caught:
            truncated(path, Cut(truncation["at"]))
        assert caught.value.exit_code in codes
        for words in truncation.get("says", []):
            assert words in f"{caught.value} {caught.value.hint}"
        assert path.read_bytes() == data
        return
    with statistics.read(path) as read:
        assert read.counter() == expected["field"]
        keys = [list(each.key) for each in read.lists]
    outcomes = truncated(path, Cut(truncation["at"]))
    found = [{"key": key, "kept": o.kept, "dropped": o.dropped} for key, o in zip(keys, outcomes)]
    assert found == truncation["lists"]
    protocol = protocol_of(data)
    reference = by_pickle(pickle.loads(data), Cut(truncation["at"]), expected["field"])
    assert pickle.dumps(pickle.loads(path.read_bytes()), protocol) == pickle.dumps(reference, protocol)


@pytest.mark.parametrize("name", ["piano_mel_attention_statistics.pkl", "piano_original_mel_statistics.pkl"])
def test_real_files(name: str, tmp_path: Path) -> None:
    source = CORPUS / name
    if not source.exists():
        pytest.skip("the collection of real files is not here")
    for at in (0, 100_000, 250_000):
        truncated(source, Cut(at), tmp_path / name)
        reference = by_pickle(pickle.loads(source.read_bytes()), Cut(at))
        assert pickle.dumps(pickle.loads((tmp_path / name).read_bytes()), 3) == pickle.dumps(reference, 3)
