"""Which names are found to be the same, and that nothing is claimed that does not hold."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ckpt_tools.mapping.correspondence import Correspondence, LeadingChange, Named, SegmentChange, correspond
from ckpt_tools.mapping.reasons import mapping_rules, name_reasons
from ckpt_tools.mapping.rules import plan_moves
from ckpt_tools.mapping.transforms import Permute

LAYERS = [f"enc.layers.{n}.{s}.{w}" for n in range(4) for s in ("q", "k", "v", "ffn") for w in ("weight", "bias")]


def named(names: Sequence[str], shape: tuple[int, ...] = (2,), *, weighs: bool = True) -> list[Named]:
    return [Named(name, shape, None, weighs) for name in names]


def found(a: Sequence[str], b: Sequence[str], **levels: Sequence[str]) -> Correspondence:
    return correspond(named(a), named(b), **levels)


def paired(a: Sequence[str], b: Sequence[str], **levels: Sequence[str]) -> dict[str, str]:
    return {a[i]: b[j] for i, j in found(a, b, **levels).pairs}


def texts(a: Sequence[str], b: Sequence[str], **levels: Sequence[str]) -> list[str]:
    result = found(a, b, **levels)
    return [reason.text for reason in name_reasons(result, named(a), named(b), **levels)]


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "_layers.", "Student.", "foo.bar.", "a/b.c."])
def test_any_leading_prefix_is_found_on_either_side(prefix: str) -> None:
    wrapped = [prefix + name for name in LAYERS]
    assert paired(wrapped, LAYERS) == dict(zip(wrapped, LAYERS))
    assert paired(LAYERS, wrapped) == dict(zip(LAYERS, wrapped))
    assert texts(wrapped, LAYERS) == [f"all 32 names match after removing prefix {prefix!r} from A"]


def test_a_root_is_told_from_a_prefix() -> None:
    inside = [f"model/_orig_mod.module.{name}" for name in LAYERS]
    result = found(inside, LAYERS, a_levels=["model/"])
    (reason,) = name_reasons(result, named(inside), named(LAYERS), a_levels=["model/"])
    assert reason.option == "--root model --strip-prefix _orig_mod.module."
    (root,) = texts([*(f"main_params/{n}" for n in LAYERS), "other/x"], LAYERS, a_levels=["main_params/", "other/"])
    assert root == "all 32 names of B are found in A under 'main_params'"


def test_a_prefix_on_one_name_is_no_reason() -> None:
    plain = ["layer.0.weight", "layer.0.bias", "module_list.0.w"]
    mixed = ["module.layer.0.weight", "layer.0.bias", "module_list.0.w"]
    assert found(plain, mixed).changes == []
    assert paired(plain, mixed) == {"layer.0.bias": "layer.0.bias", "module_list.0.w": "module_list.0.w"}


def test_more_names_than_match_are_not_counted() -> None:
    wrapped = [f"module.{name}" for name in [*LAYERS, "extra.weight"]]
    assert texts(wrapped, LAYERS) == ["32 names match after removing prefix 'module.' from A"]


def test_segments_are_found_wherever_they_stand() -> None:
    renamed = [
        n.replace(".q.", ".query.").replace(".k.", ".key.").replace(".v.", ".value.").replace("enc.", "encoder.")
        for n in LAYERS
    ]
    assert paired(LAYERS, renamed) == dict(zip(LAYERS, renamed))
    assert paired([f"net.{n}" for n in LAYERS], renamed) == {f"net.{n}": m for n, m in zip(LAYERS, renamed)}


def test_numbers_in_segments_stay_what_they_are() -> None:
    a, b = [f"linear{n}.w" for n in range(3)], [f"fc{n}.w" for n in range(3)]
    assert paired(a, b) == dict(zip(a, b))
    assert texts(a, b) == ["'linearN' in A is 'fcN' in B (3 names)"]


def test_a_segment_that_means_two_things_is_narrowed() -> None:
    a = [f"{side}.{n}.norm.w" for side in ("enc", "dec") for n in range(3)]
    b = [f"enc.{n}.ln.w" for n in range(3)] + [f"dec.{n}.layernorm.w" for n in range(3)]
    result = found(a, b)
    assert len(result.pairs) == 6
    assert {change.scope for change in result.changes if isinstance(change, SegmentChange)} == {
        ("below", "enc"),
        ("below", "dec"),
    }


def test_several_segments_of_every_name_are_found_by_their_order() -> None:
    a = [f"x.{n}.conv.y.kernel1" for n in range(4)] + [f"x.{n}.norm.y.kernel1" for n in range(4)]
    b = [f"s.{n}.conv.t.kernel_a" for n in range(4)] + [f"s.{n}.norm.t.kernel_a" for n in range(4)]
    a = [n.replace("kernel1", "p") for n in a]
    assert paired(a, b) == dict(zip(a, b))


def test_a_segment_that_is_only_there_on_one_side() -> None:
    a, b = [f"enc.{n}.w" for n in range(3)], [f"enc.{n}.module.w" for n in range(3)]
    assert paired(a, b) == dict(zip(a, b))
    assert paired(b, a) == dict(zip(b, a))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("bn._mean", "bn.running_mean"),
        ("bn.running_var", "bn/moving_variance"),
        ("conv.weight_g", "conv.parametrizations.weight.original0"),
        ("fc/kernel", "fc.weight"),
        ("rnn/forward_lstm/lstm_cell/recurrent_kernel", "rnn.weight_hh_l0"),
        ("rnn/backward_gru/gru_cell/kernel", "rnn.weight_ih_l0_reverse"),
        ("a/kernel/.ATTRIBUTES/VARIABLE_VALUE", "a.weight"),
        ("a/kernel:0", "a/kernel"),
    ],
)
def test_spellings_of_one_part_are_one(a: str, b: str) -> None:
    assert paired([a], [b]) == {a: b}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (["gone"], ["added"]),
        (["a.gone"], ["a.added"]),
        (["q.w", "k.w", "v.w"], ["x.w", "y.w", "z.w"]),  # any of them could be any other
        (["a.0.w", "a.1.w"], ["a.1.w", "a.2.w"]),
        (["x.weight", "y.bias"], ["x.bias", "y.weight"]),
    ],
)
def test_what_names_do_not_bear_out_is_not_claimed(a: list[str], b: list[str]) -> None:
    assert found(a, b).changes == []


def test_two_places_that_fit_equally_well_are_left_to_the_reader() -> None:
    a = ["net1/a.w", "net1/b.w", "net2/a.w", "net2/b.w"]
    for one, other in ((a, ["a.w", "b.w"]), (["a.w", "b.w"], a)):
        result = found(one, other)
        assert result.changes == []
        assert result.undecided == ("net1.", "net2.")


def test_weights_are_preferred_to_their_averages() -> None:
    a = [*named(["model/a.w", "model/b.w"]), *named(["ema/a.w", "ema/b.w"], weighs=False)]
    (change,) = correspond(a, named(["a.w", "b.w"])).changes
    assert isinstance(change, LeadingChange)
    assert (change.old, change.rivals) == ("model.", ("ema.",))


def test_a_layer_of_another_size_is_not_a_renamed_one() -> None:
    a = [*named(["x.w"], (3,)), *named(["fc.weight", "fc.bias"], (4,))]
    b = [*named(["x.w"], (3,)), *named(["head.weight", "head.bias"], (5,))]
    assert correspond(a, b).changes == []


def test_that_scalars_are_alike_says_nothing() -> None:
    a = [*named(["x.conv.n", "y.conv.n"], ()), *named(["w"])]
    b = [*named(["x.norm.n", "y.norm.n"], ()), *named(["w"])]
    assert correspond(a, b).changes == []


def test_two_layers_with_the_same_names_of_parts_are_not_the_same_layer() -> None:
    a = [*named(["conv.weight"], (4, 3)), *named(["conv.bias"], (4,)), *named(["z"])]
    b = [*named(["fc.weight"], (4, 9)), *named(["fc.bias"], (4,)), *named(["z"])]
    assert correspond(a, b).changes == []
    bare = [*named(["weight"], (4, 9)), *named(["bias"], (4,))]
    assert correspond(bare, a).changes == []


def test_other_names_below_a_prefix_that_all_have_may_have_another_size() -> None:
    sizes = [(3,)] * 5 + [(10,), (10, 3)]
    a = [Named(f"module.l{n}.w", shape) for n, shape in enumerate(sizes)]
    b = [Named(f"l{n}.w", shape) for n, shape in enumerate([*sizes[:5], (12,), (12, 3)])]
    assert len(correspond([*a, Named("optimizer/x", (9,))], b, a_levels=["optimizer/"]).pairs) == 7


# ---- properties

SEGMENT = st.sampled_from(
    ["alpha", "beta", "gamma1", "delta", "eps", "zeta2", "eta", "theta", "iota", "kappa", "lam", "mu", "nu", "xi"]
)
NAMES = st.lists(
    st.lists(SEGMENT | st.integers(0, 12).map(str), min_size=2, max_size=5).map(lambda p: ".".join([*p, "weight"])),
    min_size=6,
    max_size=40,
    unique=True,
)


@settings(deadline=None)
@given(NAMES, st.lists(st.sampled_from(["wrap", "outer", "foo3"]), min_size=1, max_size=3))
def test_a_prefix_on_all_names_is_always_found(names: list[str], prefix: list[str]) -> None:
    wrapped = [".".join([*prefix, name]) for name in names]
    assert paired(wrapped, names) == dict(zip(wrapped, names))
    assert paired(names, wrapped) == dict(zip(names, wrapped))


@settings(deadline=None)
@given(NAMES, st.sampled_from(["alpha", "beta", "delta", "eps"]))
def test_a_renamed_segment_is_found_when_two_names_have_it(names: list[str], old: str) -> None:
    renamed = [re.sub(rf"(?<![^.]){old}(?![^.])", "completely_new", name) for name in names]
    assume(len(set(renamed)) == len(renamed))
    result = found(names, renamed)
    pairs = {names[i]: renamed[j] for i, j in result.pairs}
    right = dict(zip(names, renamed))
    concerned = [name for name in names if old in name.split(".")]
    if len(concerned) >= 2 and all(name.split(".").count(old) == 1 for name in concerned):
        assert pairs == right


@settings(deadline=None)
@given(NAMES, st.randoms(use_true_random=False), st.booleans())
def test_rules_do_to_every_pair_what_was_found(names: list[str], random: object, wrap: bool) -> None:
    vocabulary = sorted({part for name in names for part in name.split(".") if not part.isdecimal()})
    new = {part: (f"new_{part}" if random.random() < 0.4 else part) for part in vocabulary}
    other = [".".join(new.get(part, part) for part in name.split(".")) for name in names]
    other = [f"wrapper.{name}" for name in other] if wrap else other
    result = found(names, other)
    steps = {pair: (Permute((0,)),) for pair in result.pairs[::3]}
    rules = mapping_rules(result, named(names), named(other), steps)
    plan = plan_moves(names, rules)
    moved = {move.source: move for move in plan.moves}
    for i, j in result.pairs:
        assert moved[names[i]].target == other[j]
        assert moved[names[i]].transforms == steps.get((i, j), ())
    assert not plan.collisions
