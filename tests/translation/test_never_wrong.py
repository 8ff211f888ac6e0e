"""Whatever is hidden, a translation is right or refused: names made meaningless, square shapes, no kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from translation.reference import ALIKE, LAYERS, Arrays, Layer, convolution, cook, embedding, linear, told

from ckpt_tools.mapping.kinds import LayerPart
from ckpt_tools.mapping.spellings import Certainty, Stored
from ckpt_tools.mapping.translation import Side, Translation, translate

FAMILIES = ("torch", "paddle", "keras")
#: Names that say nothing of what they belong to, and such as people give.
MEANINGLESS = st.sampled_from(["name {}", "{}", "v{}", "block.{}", "a{}.b", "x/{}/y", "blobs.{}.data"])


def networks(layers: Sequence[Callable[[int, int, int], Layer]] = LAYERS) -> st.SearchStrategy[list[Layer]]:
    size = st.sampled_from([2, 3, 4])
    layer = st.tuples(st.sampled_from(layers), size, size, st.integers(0, 10_000)).map(lambda t: t[0](*t[1:]))
    return st.lists(layer, min_size=1, max_size=5)


class Stage:
    """A network as it lies in a source and a target, with the truth beside."""

    def __init__(self, network: list[Layer], source: str, target: str) -> None:
        self.source, self.target = source, target
        self.ours: list[tuple[str, str, Layer, np.ndarray]] = []
        self.theirs: list[tuple[str, str, Layer, np.ndarray]] = []
        separator = {"keras": "/"}
        for index, layer in enumerate(network):
            for family, found in ((source, self.ours), (target, self.theirs)):
                for leaf, array in layer.tensors[family].items():
                    found.append((f"m{index}{separator.get(family, '.')}{leaf}", leaf, layer, array))

    def side(self, which: str, names: dict[str, str], *, knows: bool, order: list[int]) -> Side:
        rows = self.ours if which == "source" else self.theirs
        family = self.source if which == "source" else self.target
        stored = [
            Stored(
                names.get(name, name),
                array.shape,
                known=told(layer, leaf) if knows else None,
                certainty=Certainty.TOLD if knows else Certainty.NONE,
                why="the model" if knows else "",
            )
            for name, leaf, layer, array in rows
        ]
        return Side(family, [stored[at % len(stored)] for at in _permuted(order, len(stored))])

    def check(self, found: Translation, ours: dict[str, str], theirs: dict[str, str]) -> bool:
        """Whether it was translated; asserts that then everything is right."""
        if found.ambiguous or found.unplaced or found.unfilled or found.conflicts:
            return False
        arrays: Arrays = {ours.get(name, name): array for name, _, _, array in self.ours}
        made = {recipe.target: cook(recipe, arrays) for recipe in found.recipes}
        for name, _, _, array in self.theirs:
            result = made[theirs.get(name, name)]
            assert result.shape == array.shape, name
            np.testing.assert_array_equal(result, array, err_msg=name)
        return True

    def check_named(self, found: Translation) -> None:
        """Assert that everything is right, and has the target's own names."""
        arrays = {name: array for name, _, _, array in self.ours}
        made = {recipe.target: cook(recipe, arrays) for recipe in found.recipes}
        for name, _, _, array in self.theirs:
            assert name in made
            assert made[name].shape == array.shape, name
            np.testing.assert_array_equal(made[name], array, err_msg=name)


def _permuted(order: list[int], count: int) -> list[int]:
    return sorted(range(count), key=lambda at: (order[at % len(order)], at))


def _meaningless(rows: list[tuple[str, str, Layer, np.ndarray]], pattern: str, start: int) -> dict[str, str]:
    return {name: pattern.format(start + index * 7) for index, (name, *_) in enumerate(rows)}


@settings(max_examples=300, deadline=None)
@given(
    networks(),
    st.sampled_from(FAMILIES),
    st.sampled_from(FAMILIES),
    MEANINGLESS,
    MEANINGLESS,
    st.lists(st.integers(0, 50), min_size=4, max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_meaningless_names_are_translated_rightly_or_not_at_all(
    network: list[Layer],
    source: str,
    target: str,
    ours: str,
    theirs: str,
    order: list[int],
    source_knows: bool,
    target_knows: bool,
) -> None:
    if source == target:
        return
    stage = Stage(network, source, target)
    our_names, their_names = _meaningless(stage.ours, ours, 1000), _meaningless(stage.theirs, theirs, 5000)
    found = translate(
        stage.side("source", our_names, knows=source_knows, order=order),
        target,
        stage.side("target", their_names, knows=target_knows, order=order[::-1]),
    )
    stage.check(found, our_names, their_names)


@settings(max_examples=300, deadline=None)
@given(
    networks(),
    st.sampled_from(FAMILIES),
    st.sampled_from(FAMILIES),
    st.lists(st.integers(0, 50), min_size=4, max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_the_same_names_are_translated_rightly_or_not_at_all(
    network: list[Layer], source: str, target: str, order: list[int], source_knows: bool, target_knows: bool
) -> None:
    if source == target:
        return
    stage = Stage(network, source, target)
    found = translate(
        stage.side("source", {}, knows=source_knows, order=order),
        target,
        stage.side("target", {}, knows=target_knows, order=order[::-1]),
    )
    translated = stage.check(found, {}, {})
    assert translated or not target_knows


@settings(max_examples=100, deadline=None)
@given(networks(), st.sampled_from(FAMILIES), st.sampled_from(FAMILIES))
def test_without_a_target_what_is_written_is_right(network: list[Layer], source: str, target: str) -> None:
    if source == target or (target == "keras" and any(layer.kind.startswith("depthwise") for layer in network)):
        return  # the multiplier of a depthwise kernel is Keras' alone
    stage = Stage(network, source, target)
    found = translate(stage.side("source", {}, knows=True, order=[0]), target)
    assert not found.ambiguous and not found.conflicts and not found.unplaced
    arrays = {name: array for name, _, _, array in stage.ours}
    made = {recipe.target: cook(recipe, arrays) for recipe in found.recipes}
    for name, _, _, array in stage.theirs:
        np.testing.assert_array_equal(made[name], array, err_msg=name)


@settings(max_examples=400, deadline=None)
@given(networks(ALIKE), st.sampled_from(FAMILIES), st.sampled_from(FAMILIES))
def test_without_a_target_and_kinds_it_is_right_or_settled_by_what_it_offers(
    network: list[Layer], source: str, target: str
) -> None:
    if source == "paddle":
        network = [
            layer for layer in network if layer.kind != "layer_norm" or len(layer.tensors["keras"]["gamma"].shape) < 2
        ]
    network = [layer for layer in network if {source, target} <= set(layer.tensors)]
    if source == target or not network:
        return
    stage = Stage(network, source, target)
    truth = {name: layer.kind for name, _, layer, _ in stage.ours}
    side = stage.side("source", {}, knows=False, order=[0])
    found = translate(side, target)
    assert not found.conflicts and not found.unplaced
    answers: dict[str, str] = {}
    for each in found.ambiguous:
        offered = {kind: alike[0] for alike in each.choices for kind in alike}
        answers.update({name: offered[truth[name]] for name in each.names})  # a user finds what he has
    assumed = {name for name in found.assumed if truth[name] == "bilinear"}
    answers.update(dict.fromkeys(assumed, "bilinear"))
    if answers:
        found = translate(
            Side(
                source,
                [
                    replace(each, known=LayerPart(answers[each.name], ""), certainty=Certainty.ASKED)
                    if each.name in answers
                    else each
                    for each in side.tensors
                ],
            ),
            target,
        )
        if target == "keras" and any(kind.startswith("depthwise") for kind in answers.values()):
            assert found.conflicts  # the multiplier of a depthwise kernel is Keras' alone
            return
    assert not found.ambiguous and not found.conflicts and not found.unplaced
    stage.check_named(found)


def test_meaningless_names_are_translated_where_shapes_leave_one_possibility() -> None:
    network = [linear(2, 5, 1), embedding(7, 3, 2), convolution(4, 6, 3)]
    stage = Stage(network, "torch", "paddle")
    ours, theirs = _meaningless(stage.ours, "v{}", 100), _meaningless(stage.theirs, "w{}", 900)
    source = stage.side("source", ours, knows=False, order=[3, 1, 2])
    target = stage.side("target", theirs, knows=True, order=[1, 0])
    assert stage.check(translate(source, "paddle", target), ours, theirs)


@settings(max_examples=300, deadline=None)
@given(
    networks(),
    st.sampled_from([("torch", "paddle"), ("paddle", "torch"), ("keras", "torch"), ("torch", "keras")]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=5, max_size=5),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=5, max_size=5),
    st.booleans(),
)
def test_renamed_parts_of_a_model_are_found_rightly_or_not_at_all(
    network: list[Layer],
    families: tuple[str, str],
    places: list[tuple[int, int]],
    renamed: list[tuple[bool, bool]],
    target_knows: bool,
) -> None:
    """Layers lie in blocks; in the target some blocks and some layers have names that the source has nowhere."""
    stage = Stage(network, *families)
    fresh = {block: renamed[block][0] for block, _ in places}
    ours, theirs = {}, {}
    for index, ((block, _), (_, renames)) in enumerate(zip(places, renamed)):
        here = f"block{block}.layer{index}"
        there = (
            f"{f'part{block}x' if fresh[block] else f'block{block}'}.{f'piece{index}x' if renames else f'layer{index}'}"
        )
        for rows, names, path in ((stage.ours, ours, here), (stage.theirs, theirs, there)):
            names.update({name: name.replace(f"m{index}", path, 1) for name, *_ in rows if _index(name) == index})
    found = translate(
        stage.side("source", ours, knows=True, order=[0]),
        families[1],
        stage.side("target", theirs, knows=target_knows, order=[3, 1, 2]),
    )
    translated = stage.check(found, ours, theirs)
    assert translated or any(fresh.values()) or any(renames for _, renames in renamed[: len(network)])


def _index(name: str) -> int:
    return int(name.replace("/", ".").split(".")[0][1:])


def test_tensors_of_one_name_are_not_one_tensor() -> None:
    kernel, vector = Stored("a", (4, 4), spoken="net/kernel"), Stored("b", (4,), spoken="net/gamma")
    found = translate(Side("keras", [kernel, vector]), "torch")
    assert found.conflicts == ["a and b would be one tensor, net.weight"]


def test_a_part_of_a_tensor_that_becomes_nothing_is_unplaced() -> None:
    packed = Stored("attn.in_proj_weight", (12, 4))
    target = [Stored(f"attn.{name}_proj.weight", (4, 4)) for name in ("q", "k")]
    found = translate(Side("torch", [packed]), "paddle", Side("paddle", target))
    assert found.unplaced == ["attn.in_proj_weight"]


def test_weights_are_unplaced_whatever_else_has_their_neutral_name() -> None:
    """Paddle has the weights of recurrent layers under two names, and only these are one tensor."""
    tensors = [Stored(name, (12, 4)) for name in ("lstm.weight_ih_l0", "lstm.0.cell.weight_ih")]
    tensors += [Stored(name, (12, 3)) for name in ("lstm.weight_hh_l0", "lstm.0.cell.weight_hh")]
    found = translate(Side("paddle", tensors), "torch")
    assert not found.conflicts and not found.unplaced
    assert [recipe.target for recipe in found.recipes] == ["lstm.weight_ih_l0", "lstm.weight_hh_l0"]
