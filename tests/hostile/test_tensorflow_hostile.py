"""TensorFlow files that lie with good checksums: an error or a listing, in bounded time and memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
from bundles import FLOAT, HEADER, STRING, entry, field, shape_of, slice_of, table_of, varint, write_bundle
from fixture_cases import Case, cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt_tools import CkptError, open_checkpoint
from ckpt_tools.formats._object_graph import ObjectGraph
from ckpt_tools.formats._ordered_code import WHOLE, Span, slice_key

SIX = bytes(range(24))
MUTATING = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


def exercise(path: Path) -> None:
    """Open, list, and read what is small; only :class:`CkptError` may come out."""
    try:
        with open_checkpoint(path) as checkpoint:
            for name, tensor in checkpoint.tensors.items():
                assert isinstance(name, str)
                if tensor.nbytes < 1 << 16:
                    try:
                        tensor.tobytes()
                    except CkptError:
                        pass
    except CkptError as error:
        assert str(error)


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """``data`` with a few bytes changed, left out or put in."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        what = draw(st.sampled_from("xid"))
        if what == "i":
            out[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif at < len(out):
            if what == "x":
                out[at] = draw(st.integers(0, 255))
            else:
                del out[at : at + draw(st.integers(1, 5))]
    return bytes(out)


PARTITIONED = entry(b"", shape=(6,), crc=0, slices=[slice_of((0, 4)), slice_of((4, 2))])


@MUTATING
@given(st.data())
def test_entries(tmp_path: Path, data: st.DataObject) -> None:
    entries = {
        b"a": data.draw(changed(entry(SIX, shape=(2, 3)))),
        b"s": data.draw(changed(entry(SIX, dtype=STRING, shape=(2, 3)))),
        b"v": data.draw(changed(PARTITIONED)),
        slice_key("v", [Span(0, 4)]): data.draw(changed(entry(SIX[:16], shape=(4,)))),
        slice_key("v", [Span(4, 2)]): entry(SIX[16:], shape=(2,), offset=16),
    }
    exercise(write_bundle(tmp_path, entries, SIX, header=data.draw(st.just(HEADER) | changed(HEADER))))


@MUTATING
@given(st.data())
def test_v1_values(tmp_path: Path, data: st.DataObject) -> None:
    meta = field(1, b"a") + field(2, shape_of((6,))) + field(3, FLOAT) + field(4, field(1, b""))
    value = field(2, field(1, b"a") + field(2, field(1, b"")) + field(3, field(5, SIX)))
    pairs = [
        (b"", field(1, data.draw(st.just(field(1, meta)) | changed(field(1, meta))))),
        (slice_key("a", [WHOLE]), data.draw(st.just(value) | changed(value))),
    ]
    (tmp_path / "model").write_bytes(table_of(pairs, entries_per_block=9, compressed=False))
    exercise(tmp_path / "model")


def test_the_v1_file_that_is_changed_there_reads(tmp_path: Path) -> None:
    meta = field(1, b"a") + field(2, shape_of((6,))) + field(3, FLOAT) + field(4, field(1, b""))
    value = field(2, field(1, b"a") + field(2, field(1, b"")) + field(3, field(5, SIX)))
    pairs = [(b"", field(1, field(1, meta))), (slice_key("a", [WHOLE]), value)]
    (tmp_path / "model").write_bytes(table_of(pairs, entries_per_block=9, compressed=False))
    with open_checkpoint(tmp_path / "model") as checkpoint:
        assert checkpoint.tensors["a"].tobytes() == SIX


@settings(deadline=None)
@given(st.data())
def test_graphs(data: st.DataObject) -> None:
    key = b"a/.ATTRIBUTES/VARIABLE_VALUE"
    good = (
        field(1, field(1, field(1, 1) + field(2, b"a")) + field(1, field(1, 0) + field(2, b"optimizer")))
        + field(1, field(2, field(1, b"VARIABLE_VALUE") + field(3, key)))
        + field(1, field(3, field(1, 1) + field(2, b"m") + field(3, 1)))
    )
    try:
        graph = ObjectGraph(data.draw(changed(good)))
    except CkptError:
        return
    graph.aliases()
    graph.purposes({})


@pytest.mark.parametrize(
    "one",
    [
        entry(SIX, dtype=STRING, shape=(1 << 40,)),
        entry(SIX, shape=(1 << 40, 0, 1 << 40)),
        entry(SIX, shape=[1] * 5000),
        entry(SIX, shape=(6,), offset=1 << 62),
        entry(SIX, shape=(6,), nbytes=1 << 62),
        entry(SIX, shape=(6,), shard=(1 << 31) - 1),
        entry(b"", shape=(6,), slices=[slice_of((0, 1 << 62))] * 1000),
    ],
)
def test_sizes_beyond_the_file(tmp_path: Path, one: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    exercise(write_bundle(tmp_path, {b"a": one}, SIX))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_chain_of_objects_as_long_as_there_are_objects() -> None:
    """Paths would take 50,000² / 2 names."""
    count = 50_000
    nodes = [
        field(1, field(1, field(1, n + 1) + field(2, b"child")) + field(2, field(1, b"V") + field(3, b"k%d" % n)))
        for n in range(count - 1)
    ]
    began = time.process_time()
    graph = ObjectGraph(b"".join(nodes) + field(1, b""))
    graph.aliases()
    graph.purposes({})
    assert time.process_time() - began < 20


def test_optimizers_that_share_their_lists() -> None:
    """2000 optimizers that all refer to one list of 20,000 variables: described once each, 40 million."""
    variables, optimizers = 20_000, 2_000
    names = [b"_variables", b"_iterations", b"_momentums"]
    optimizer = b"".join(field(1, field(1, 1) + field(2, name)) for name in names)
    root = b"".join(field(1, field(1, 2 + n) + field(2, b"o%d" % n)) for n in range(optimizers))
    first = 2 + optimizers
    items = b"".join(field(1, field(1, first + n) + field(2, b"%d" % n)) for n in range(variables))
    nodes = [root, items, *[optimizer] * optimizers, *[b""] * variables]
    began = time.process_time()
    graph = ObjectGraph(b"".join(field(1, node) for node in nodes))
    graph.purposes({})
    graph.aliases()
    assert time.process_time() - began < 20


def test_an_object_that_is_everywhere() -> None:
    """Names of 64 KiB on the way to 5000 variables without names of their own: 320 MB of aliases."""
    leaves = 5_000
    root = field(1, field(1, 1) + field(2, b"n" * (1 << 16)))
    middle = b"".join(field(1, field(1, 2 + n) + field(2, b"%d" % n)) for n in range(leaves))
    nodes = [root, middle, *(field(2, field(1, b"VARIABLE_VALUE") + field(3, b"k%d" % n)) for n in range(leaves))]
    aliases = ObjectGraph(b"".join(field(1, node) for node in nodes)).aliases()
    assert sum(map(len, aliases.values())) < 4 << 20


def test_graphs_beside_a_checkpoint_are_hardly_looked_at(tmp_path: Path) -> None:
    index = write_bundle(tmp_path, {b"a": entry(SIX, shape=(6,))}, SIX)
    (tmp_path / "p.meta").write_bytes(field(7, 1) * 4_000_000)
    began = time.process_time()
    with open_checkpoint(index) as checkpoint:
        assert checkpoint.producer == "bundle version 1"
    assert time.process_time() - began < 2


def test_a_graph_whose_version_is_an_escape_sequence(tmp_path: Path) -> None:
    index = write_bundle(tmp_path, {b"a": entry(SIX, shape=(6,))}, SIX)
    (tmp_path / "p.meta").write_bytes(field(1, field(5, b"\x1b[31m2.0")))
    with open_checkpoint(index) as checkpoint:
        assert checkpoint.producer == "bundle version 1"


def test_a_value_that_announces_more_than_its_block(tmp_path: Path) -> None:
    meta = field(1, b"a") + field(2, shape_of((1 << 40,))) + field(3, FLOAT) + field(4, field(1, b""))
    value = field(2, field(1, b"a") + field(3, varint(5 << 3 | 2) + varint(1 << 42)))
    pairs = [(b"", field(1, field(1, meta))), (slice_key("a", [WHOLE]), value)]
    (tmp_path / "model").write_bytes(table_of(pairs, entries_per_block=9, compressed=False))
    with open_checkpoint(tmp_path / "model") as checkpoint:
        assert [issue.code for issue in checkpoint.issues] == ["integrity-slices"]


TENSORFLOW = [case for case in cases("hostile") if case.name.startswith("tf-")]


@pytest.mark.parametrize("case", TENSORFLOW, ids=lambda case: case.id)
def test_fixtures(case: Case) -> None:
    exercise(case.path)
