"""Which numbers at the end of names say what a thing is, and which do not."""

from __future__ import annotations

import pytest

from ckpt_tools.mapping.numbering import candidate_lists, same_names, series


@pytest.mark.parametrize(
    ("ours", "theirs", "same", "barred"),
    [
        ("a b", "b c", "b", ""),
        ("0 1", "0 1", "0 1", ""),
        ("0 2 4", "0 1 2", "", "0 1 2 4"),
        ("1 2", "0 1", "", "0 1 2"),
        ("0 1", "0 1 2", "0 1", "2"),
        ("fc1 fc2", "fc0 fc1", "", "fc0 fc1 fc2"),
        ("fc1 out", "fc0 fc1", "fc1", "fc0"),
        ("dec1", "dec2", "", ""),
        ("dense dense_1", "dense_1 dense_2", "", "dense dense_1 dense_2"),
        ("conv1 fc1 fc2", "conv1 fc2 fc3", "conv1", "fc1 fc2 fc3"),
    ],
)
def test_numbers_of_which_the_other_side_has_others_name_nothing(
    ours: str, theirs: str, same: str, barred: str
) -> None:
    found = same_names(ours.split(), theirs.split())
    assert (set(found.same), found.barred) == (set(same.split()), set(barred.split()))
    mirrored = same_names(theirs.split(), ours.split())
    assert (set(mirrored.same), mirrored.barred) == (set(found.same), found.barred)


@pytest.mark.parametrize(
    ("ours", "theirs", "by_names", "by_order"),
    [
        ("0 2", "0 1", 0, 1),
        ("0 1", "dense dense_1", 1, 1),
        ("0 2", "dense dense_1", 0, 1),
        ("0 1", "fc0 fc1", 1, 1),
        ("0 1", "fc1 fc2", 0, 0),
        ("fc1 fc2", "fc0 fc1", 0, 0),
        ("fc0 fc1", "dense dense_1", 0, 0),
        ("block0 block1", "block block_1", 1, 1),
        ("0 1 2", "0 1", 0, 0),
        ("0 1 2 3", "0 1 block block_1", 0, 0),
    ],
)
def test_what_can_be_one_list(ours: str, theirs: str, by_names: int, by_order: int) -> None:
    for wanted, ordered in ((by_names, False), (by_order, True)):
        assert len(candidate_lists(ours.split(), theirs.split(), by_order=ordered)) == wanted


def test_series_are_ordered_by_number() -> None:
    assert [*series(["b10", "b9", "x", "b_1"])["b"].members.values()] == ["b_1", "b9", "b10"]
    assert series(["dense", "dense_1"])["dense"].counted
    assert not series(["dense", "dense_0"])["dense"].counted
    assert series(["fc1", "fc_1", "fc2"]) == {}
