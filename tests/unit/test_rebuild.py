"""Trees taken apart and put together: kinds, keys and order survive where nothing was asked to change."""

from __future__ import annotations

from dataclasses import replace

from ckpt_tools.core.rebuild import Blueprint, is_plain
from ckpt_tools.core.tree import Dict, Opaque, SetNode


def tree() -> Dict:
    ordered = Dict({"w": 1, "b": 2}, type_name="collections.OrderedDict")
    ordered.attributes = "kept"
    return Dict({"m": ordered, 3: [10, [], (11, 12)], (1, 2): Dict({None: 5, 2.5: 6}), "s": SetNode([7]), "e": Dict()})


def test_all_leaves_give_the_tree_back() -> None:
    root = tree()
    blueprint = Blueprint(root)
    back = blueprint.assemble(blueprint.leaves())
    assert back == root
    assert list(back) == list(root)
    assert back["m"].type_name == "collections.OrderedDict"
    assert back["m"].attributes == "kept"
    assert type(back["s"]) is SetNode
    assert type(back[3][2]) is tuple


def test_what_is_left_of_a_list_keeps_its_numbers() -> None:
    blueprint = Blueprint(tree())
    back = blueprint.assemble(leaf for leaf in blueprint.leaves() if leaf.node in (11, 12, 6))
    assert back == {3: {2: (11, 12)}, (1, 2): {2.5: 6}}


def test_leaves_under_other_keys() -> None:
    blueprint = Blueprint(tree())
    moved = [replace(leaf, key=leaf.key[1:]) for leaf in blueprint.leaves() if leaf.key[0] == "m"]
    back = blueprint.assemble(moved)
    assert back == {"w": 1, "b": 2}
    deeper = [replace(leaf, key=("x", "y", *leaf.key)) for leaf in blueprint.leaves() if leaf.key[0] == "m"]
    back = blueprint.assemble(deeper)
    assert back["x"]["y"]["m"].type_name == "collections.OrderedDict"


def test_objects_become_mappings_of_their_attributes() -> None:
    root = Dict({"args": Opaque("pkg.Args", state={"lr": 0.1, "dims": [1, 2]})})
    blueprint = Blueprint(root)
    back = blueprint.assemble(leaf for leaf in blueprint.leaves() if not isinstance(leaf.node, Opaque))
    assert back == {"args": {"lr": 0.1, "dims": [1, 2]}}


def test_nothing_left() -> None:
    assert Blueprint(tree()).assemble([]) == {}


def test_plain_trees() -> None:
    assert is_plain({"a": [1, (None, b"x")]})
    assert not is_plain({"a": Opaque("x")})
    assert not is_plain(list(range(10)), most=5)
