"""The rule language: what patterns match, what plans say, and rule files there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.errors import UsageError
from ckpt_tools.mapping.rule_files import parse_rules, rules_text
from ckpt_tools.mapping.rules import Expectation, Rule, literal, plan_moves, rename, strip_prefix
from ckpt_tools.mapping.transforms import Permute, Reshape, describe, parse_transforms, shape_after

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("source", "target", "name", "expected"),
    [
        ("a.{x}.w", "b.{x}.w", "a.0.w", "b.0.w"),
        ("a.{x}.w", "b.{x}.w", "a.0.1.w", None),  # a piece is one segment
        ("a.{x:any}.w", "b.{x}.w", "a.0.1.w", "b.0.1.w"),
        ("a.{x:int}.w", "b.{x}.w", "a.x.w", None),
        ("{x}.{x}", "{x}", "a.a", "a"),
        ("{x}.{x}", "{x}", "a.b", None),
        ("module.{rest:any}", "{rest}", "module.", None),
        ("encoder*", "enc*", "encoder", "enc"),
        ("*.q.*", "*.query.*", "a.q.w", "a.query.w"),
        (r"a\*", "b", "a*", "b"),
        (r"a\{x\}", "b", "a{x}", "b"),
        (r"a\d", "b", r"a\d", "b"),  # a backslash before other characters is itself
        ("a.b", "c", "xa.b", None),  # anchored at both ends
        ("a.b", "c", "a.bx", None),
        ("a.b", "c", "a-b", None),  # a dot is a dot
        ("a{x:any}", "b{x}", "a\nb", "b\nb"),
    ],
)
def test_a_pattern_matches_whole_names(source: str, target: str, name: str, expected: str | None) -> None:
    assert Rule(source, target).match(name) == expected


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("", "x", "without a pattern"),
        ("a", "", "empty target"),
        ("a{", "b", "lone '{'"),
        ("a{1}", "b", "is no piece"),
        ("a{x:word}", "b", "is no piece"),
        ("a", "{x}", "does not have"),
        ("a*", "**", "more stars"),
    ],
)
def test_a_wrong_rule_is_refused_when_made(source: str, target: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("{", r"\{")):
        Rule(source, target)


def test_the_first_rule_that_matches_wins_so_names_can_swap() -> None:
    plan = plan_moves(["a", "b", "c"], [rename("a=b"), rename("b=a")])
    assert [(m.source, m.target) for m in plan.moves] == [("a", "b"), ("b", "a"), ("c", "c")]
    assert plan.unmapped == ("c",)
    assert not plan.collisions


def test_a_rule_can_hand_its_result_on() -> None:
    plan = plan_moves(["module.a", "module.module_b"], [strip_prefix("module."), rename("a=z")])
    assert [m.target for m in plan.moves] == ["z", "module_b"]


def test_only_a_leading_prefix_is_stripped() -> None:
    plan = plan_moves(["module_list.0.w", "x.module.w", "module.w"], [strip_prefix("module.")])
    assert [m.target for m in plan.moves] == ["module_list.0.w", "x.module.w", "w"]


def test_collisions_list_every_name_also_those_that_stay() -> None:
    plan = plan_moves(["module.a", "a", "b"], [strip_prefix("module.")])
    assert [(c.target, c.sources) for c in plan.collisions] == [("a", ("module.a", "a"))]
    with pytest.raises(UsageError, match=r"module\.a, a would all be called a"):
        plan.refuse_collisions()


def test_unused_rules_and_drops_are_told() -> None:
    plan = plan_moves(["a", "b"], [rename("a="), rename("zz=y")])
    assert [m.source for m in plan.drops] == ["a"]
    assert [rule.source for rule in plan.unused] == ["zz"]


def test_stages_follow_each_other() -> None:
    plan = plan_moves(["a"], [rename("a=b")], [rename("b=c")])
    assert plan.moves[0].target == "c"
    assert len(plan.moves[0].rules) == 2


def test_exact_rules_keep_their_place_among_patterns() -> None:
    plan = plan_moves(["a.w", "b.w"], [rename("a.w=first"), rename("{x}.w={x}.v"), rename("b.w=never")])
    assert [m.target for m in plan.moves] == ["first", "b.v"]
    assert [rule.source for rule in plan.unused] == ["b.w"]


def test_expectations_are_checked_against_tensors() -> None:
    plan = plan_moves(["a"], [Rule("a", "b", expect=Expectation(rank=2))])
    assert plan.broken_expectations({"a": ("float32", (2, 3))}) == []
    assert "has 1 dimensions, 2 are expected" in plan.broken_expectations({"a": ("float32", (2,))})[0]


@given(names, names)
def test_a_literal_rule_moves_exactly_its_name(name: str, other: str) -> None:
    rule = Rule(literal(name), literal(other))
    assert rule.match(name) == other
    assert rule.match(name + "x") is None


@given(st.lists(st.tuples(names, st.none() | names, st.booleans(), names), max_size=5))
def test_rule_files_read_back_as_written(rows: list[tuple[str, str | None, bool, str]]) -> None:
    rules = tuple(
        Rule(literal(source), None if target is None else literal(target), goes_on=goes_on, why=why)
        for source, target, goes_on, why in rows
    )
    assert parse_rules(rules_text(rules, "two\nlines"), "map.toml") == rules


def test_a_full_rule_reads_back() -> None:
    rules = (
        Rule(
            "{layer:any}.kernel",
            "{layer}.weight",
            (Reshape((4, 2, 3)), Permute((2, 0, 1))),
            Expectation("float32", (8, 3), 2),
            why='a "reason"',
        ),
    )
    assert parse_rules(rules_text(rules), "map.toml") == rules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]]\nfrom = 'a'\nto = 'b'\ndrpo = true", "drpo"),
        ("[[rule]]\nfrom = 'a'", "either 'to' or"),
        ("[[rule]]\nfrom = 'a'\nto = 'b'\ndrop = true", "either 'to' or"),
        ("[[rule]]\nto = 'a'", "no 'from'"),
        ("[[rule]]\nfrom = 1\nto = 'a'", "a str is expected"),
        ("rule = 3", r"\[\[rule\]\]"),
        ("[rules]\na = 1", "no rule file has"),
        ("schema = 'x'", "is expected"),
        ("[[rule]]\nfrom = 'a'\nto = 'b'\ntransform = 'flip'", "is no transform"),
        ("[[rule", "is no TOML"),
        ("[[rule]]\nfrom = 'a'\nto = 'b'\nexpect = {shape = ['x']}", "whole numbers"),
    ],
)
def test_a_wrong_rule_file_says_where_and_what(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_rules(text, "map.toml")
    assert str(caught.value).startswith("map.toml")


def test_transforms_read_back_and_follow_shapes() -> None:
    steps = parse_transforms("reshape(4, -1, 3) then permute(2, 0, 1)")
    assert describe(steps) == "reshape(4, -1, 3) then permute(2, 0, 1)"
    assert shape_after(steps, (8, 3)) == (3, 4, 2)
    with pytest.raises(UsageError, match="does not fit"):
        shape_after(steps, (7, 3))


@pytest.mark.parametrize("text", ["", "permute(0, 0)", "permute(1)", "reshape(-1, -1)", "reshape(-2)", "flip(1)"])
def test_a_wrong_transform_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_transforms(text)
