"""Recipes: their shapes, their text in rule files there and back, and what is refused."""

from __future__ import annotations

import pytest

from ckpt_tools.errors import UsageError
from ckpt_tools.mapping.recipes import Filling, Ingredient, Recipe
from ckpt_tools.mapping.rule_files import RuleFile, parse_rule_file, rules_text
from ckpt_tools.mapping.rules import Rule
from ckpt_tools.mapping.transforms import Add, Blocks, Permute, Reshape, RowNorms, Rows, Scale, Zeros

RECIPES = (
    Recipe("packed", (Ingredient("q", (Permute((1, 0)),)), Ingredient("k"), Ingredient("v")), "concat", why="as named"),
    Recipe(
        "bias",
        (Ingredient("one", (Rows(0, 4), Zeros())), Ingredient("two", (Blocks((1, 0)),))),
        "sum",
        (Reshape((2, 2)),),
    ),
    Recipe("scaled", (Ingredient("m", (Scale(-0.01), Add(1.0, 0, 2))),), alias="linear_0.w_0"),
    Recipe("norms", (Ingredient("w", (RowNorms(),)),)),
    Recipe("count", filling=Filling("int64", ())),
    Recipe("power", filling=Filling("float32", (1,), 0.729)),
)


def test_rule_files_say_recipes() -> None:
    file = RuleFile((Rule("a", "b"),), RECIPES)
    assert parse_rule_file(rules_text(file.rules, "heading", file.recipes), "map.toml") == file


@pytest.mark.parametrize(
    ("recipe", "shapes", "expected"),
    [
        (RECIPES[0], {"q": (3, 4), "k": (4, 3), "v": (2, 3)}, (10, 3)),
        (RECIPES[1], {"one": (6,), "two": (4,)}, (2, 2)),
        (RECIPES[3], {"w": (5, 2, 3)}, (5,)),
        (RECIPES[5], {}, (1,)),
        (Recipe("w", (Ingredient("g"), Ingredient("v")), "weight_norm"), {"g": (3,), "v": (3, 2)}, (3, 2)),
    ],
)
def test_shapes(recipe: Recipe, shapes: dict[str, tuple[int, ...]], expected: tuple[int, ...]) -> None:
    assert recipe.shape(shapes) == expected


@pytest.mark.parametrize(
    ("recipe", "shapes"),
    [
        (RECIPES[0], {"q": (3, 4), "k": (4, 2), "v": (2, 3)}),
        (RECIPES[1], {"one": (6,), "two": (3,)}),
        (Recipe("w", (Ingredient("g"), Ingredient("v")), "weight_norm"), {"g": (2,), "v": (3, 2)}),
        (Recipe("w", (Ingredient("g", (Rows(2, 5),)),)), {"g": (4,)}),
    ],
)
def test_what_does_not_fit(recipe: Recipe, shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(UsageError):
        recipe.shape(shapes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('to = "a"', "either 'from' or 'fill'"),
        ('to = "a"\nfrom = ["b", "c"]', "need one 'join'"),
        ('to = "a"\nfrom = ["b"]\njoin = "sum"', "need one 'join'"),
        ('to = "a"\nfrom = ["b", "c"]\njoin = "product"', "need one 'join'"),
        ('to = "a"\nfrom = ["b"]\ntransform = ["zeros()", ""]', "a text for each"),
        ('to = "a"\nfrom = ["b"]\ntransform = ["turn()"]', "is no transform"),
        ('to = "a"\nfrom = ["b"]\nthen = "zeros(1)"', "arguments that zeros does not take"),
        ('to = "a"\nfill = { value = 0.0, dtype = "string", shape = [] }', "fills with 'string'"),
        ('to = "a"\nfill = { value = 0.0, dtype = "int64", shape = [-1] }', "has value, dtype and shape"),
        ('to = "a"\nfill = { value = 0.0 }', "has value, dtype and shape"),
        ('to = "a"\nfrom = ["b"]\nof = 1', "has 'of'"),
    ],
)
def test_wrong_recipes(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        parse_rule_file(f"[[make]]\n{text}\n", "map.toml")
