"""Rules as text: what parses, and what does not."""

from __future__ import annotations

import pytest

from hlosharding.errors import RuleError
from hlosharding.rules import Halo, Nothing, Reduce, Whole, parse_rule, parse_shardy_rule
from tests.support.custom_calls import call


def test_leading_dims_are_shared() -> None:
    inst = call("t", ["f32[2,3,4,5]", "f32[5,6]"], "f32[2,3,4,6]")
    bound = parse_rule("... i j, j k -> ... i k", reduction_factors=("j",)).bind(inst)
    assert str(bound) == "...0_0 ...0_1 i j, j k -> ...0_0 ...0_1 i k"
    assert [f.size for f in bound.factors] == [2, 3, 4, 5, 6]
    assert bound.factors[3].owes == Reduce("add")


def test_dims_of_several_factors_take_given_sizes() -> None:
    inst = call("t", ["f32[6,4]"], "f32[2,12]")
    bound = parse_rule("(a b) c -> a (b c)", a=2).bind(inst)
    assert [(f.name, f.size, f.owes) for f in bound.factors] == [
        (n, s, Nothing()) for n, s in zip("abc", (2, 3, 4), strict=True)
    ]


def test_factors_of_one_side_are_whole() -> None:
    bound = parse_rule("a b -> a c").bind(call("t", ["f32[2,3]"], "f32[2,5]"))
    assert [f.owes for f in bound.factors] == [Nothing(), Whole(), Whole()]


def test_what_factors_owe() -> None:
    rule = parse_rule(
        "a b c -> a b c", need_replication_factors=("a",), permutation_factors=("b",), reduction_factors=("c",),
        reducer="maximum",
    )  # fmt: skip
    assert [rule.owes[n] for n in "abc"] == [Whole(), Halo(0), Reduce("maximum")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i j", "no '->'"),
        ("i -> j -> k", "more than one '->'"),
        ("i (j) -> i", r"'\)' cannot stand at position 4"),
        ("i ((j k) -> i", "cannot stand"),
        ("(i j -> i", "not closed"),
        ("i ... -> i", r"'\.\.\.' cannot stand"),
        ("i+j -> i", r"'\+' cannot stand at position 1"),
    ],
)
def test_malformed_rules_are_refused(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        parse_rule(text)


def test_unknown_factors_are_refused() -> None:
    with pytest.raises(RuleError, match="'z' is not in it"):
        parse_rule("i -> i", reduction_factors=("z",))
    with pytest.raises(RuleError, match="listed twice"):
        parse_rule("i -> i", reduction_factors=("i",), need_replication_factors=("i",))
    with pytest.raises(RuleError, match="no factor 'z'"):
        parse_rule("i -> i", z=3)


@pytest.mark.parametrize(
    ("rule", "operands", "result", "message"),
    [
        ("i j -> i j", ["f32[2]"], "f32[2]", "2 dims"),
        ("i j -> i", ["f32[2,3]", "f32[2]"], "f32[2]", "1 operands"),
        ("i i -> i", ["f32[2,2]"], "f32[2]", "unknown or repeated"),
        ("i j -> j i", ["f32[2,3]"], "f32[2,3]", "does not fit"),
        ("(a b) -> a b", ["f32[6]"], "f32[4,2]", "part of 4|make 8"),
        ("(a b) -> (a b)", ["f32[6]"], "f32[6]", "no size for"),
        ("... a b c -> a", ["f32[6]"], "f32[6]", "3 dims after"),
        ("(a b) (b a) -> a b", ["f32[6,6]"], "f32[2,3]", "major and minor"),
    ],
)
def test_rules_that_do_not_fit_name_the_instruction(rule: str, operands: list[str], result: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        parse_rule(rule).bind(call("t", operands, result))


def test_shardys_spelling() -> None:
    rule = parse_shardy_rule(
        "#sdy.op_sharding_rule<([ij, k], [k, z_1])->([i, j, z_1]) {i=2, j=3, k=4, z_1=5} reduction={k}, custom>"
    )
    bound = rule.bind(call("t", ["f32[6,4]", "f32[4,5]"], "f32[2,3,5]"))
    assert str(bound) == "(i j) k, k z_1 -> i j z_1"
    assert bound.factors[bound.index["k"]].owes == Reduce("add")
    with pytest.raises(RuleError, match="no sharding rule"):
        parse_shardy_rule("nonsense")
