"""Ops declared as loops: which maps are allowed, and what they say about splits."""

from __future__ import annotations

import pytest

from hlosharding.errors import RuleError
from hlosharding.ir import Builder, Instruction, Shape
from hlosharding.rules import Halo, Nothing, Reduce, Whole, register_interface, rule_of_maps, signature_of

DOT = ("(d0, d1, d2, d3) -> (d0, d1, d3)", "(d0, d1, d2, d3) -> (d3, d2)", "(d0, d1, d2, d3) -> (d0, d1, d2)")
DOT_KINDS = ("parallel", "parallel", "parallel", "reduction_sum")


def call(target: str, operands: list[str], result: str) -> Instruction:
    main = Builder("m").computation("main")
    parameters = [main.parameter(n, Shape.parse(text)) for n, text in enumerate(operands)]
    return main.add("custom-call", Shape.parse(result), parameters, custom_call_target=target)


def test_the_loops_of_a_dot_are_its_factors_in_order() -> None:
    register_interface("interface_test_dot", DOT_KINDS, DOT)
    signature = signature_of(call("interface_test_dot", ["f32[2,4,8]", "f32[8,32]"], "f32[2,4,32]"))
    assert str(signature) == "d0 d1 d3, d3 d2 -> d0 d1 d2"
    assert [(f.size, f.owes) for f in signature.factors] == [
        (2, Nothing()), (4, Nothing()), (32, Nothing()), (8, Reduce("add")),
    ]  # fmt: skip


@pytest.mark.parametrize("dims", ["(d1, d0)", "(d2, d0, d1)"])
def test_results_may_be_projected_permutations(dims: str) -> None:
    loops = "(d0, d1, d2) -> "
    assert rule_of_maps([loops + "(d0, d1, d2)", loops + dims], ["parallel"] * 3).loops == ("d0", "d1", "d2")


@pytest.mark.parametrize("dims", ["(d0 + d1)", "(2 * d0)", "(d0, d0)", "(0)"])
def test_no_other_results(dims: str) -> None:
    with pytest.raises(RuleError, match="no projected permutation"):
        rule_of_maps(["(d0, d1) -> (d0, d1)", f"(d0, d1) -> {dims}"], ["parallel"] * 2)


def test_a_sum_whose_loops_are_digits_is_a_dim_of_several_factors() -> None:
    maps = ["(d0, d1) -> (4 * d0 + d1)", "(d0, d1) -> (d0, d1)"]
    bound = rule_of_maps(maps, ["parallel", "parallel"]).bind(call("t", ["f32[12]"], "f32[3,4]"))
    assert str(bound) == "(d0 d1) -> d0 d1"
    assert {f.owes for f in bound.factors} == {Nothing()}


def test_of_overlapping_loops_only_the_striding_one_may_be_split() -> None:
    maps = ["(d0, d1) -> (2 * d0 + d1)", "(d0, d1) -> (d1)", "(d0, d1) -> (d0)"]
    bound = rule_of_maps(maps, ["parallel", "reduction_sum"]).bind(call("t", ["f32[17]", "f32[3]"], "f32[8]"))
    assert str(bound) == "(d0 d1), d1 -> d0"
    assert [f.owes for f in bound.factors] == [Halo(0), Whole()]


def test_a_stride_leaves_a_part_that_is_whole() -> None:
    bound = rule_of_maps(["(i) -> (3 * i)", "(i) -> (i)"], ["parallel"]).bind(call("t", ["f32[12]"], "f32[4]"))
    assert str(bound) == "(i rest1) -> i"
    assert [f.owes for f in bound.factors] == [Nothing(), Whole()]


def test_invalid_loops_and_loops_of_one_side_are_whole() -> None:
    maps = ["(a, b, c) -> (a, b)", "(a, b, c) -> (a, b, c)"]
    bound = rule_of_maps(maps, ["parallel", "invalid", "parallel"]).bind(call("t", ["f32[2,3]"], "f32[2,3,4]"))
    assert [f.owes for f in bound.factors] == [Nothing(), Whole(), Whole()]


def test_a_size_that_no_dim_gives() -> None:
    maps, kinds = ["(a, b) -> (a + b)", "(a, b) -> (a)"], ["parallel", "reduction_max"]
    inst = call("t", ["f32[10]"], "f32[8]")
    with pytest.raises(RuleError, match=r"no dim gives the size of loop 'b': pass b=\.\.\."):
        rule_of_maps(maps, kinds).bind(inst)
    assert rule_of_maps(maps, kinds, b=3).bind(inst).factors[1].size == 3


@pytest.mark.parametrize(
    ("maps", "kinds", "message"),
    [
        (["(i) -> (i)", "(i) -> (i)"], ["sideways"], "no iterator kind 'sideways'; parallel, invalid"),
        (["(i) -> (i)", "(i) -> (i)"], ["reduction_average"], "reduction_average"),
        (["(i) -> (i)", "(i) -> (i)"], ["parallel"] * 2, "2 iterator kinds for 1 loops"),
        (["(i) -> (i)", "(j) -> (j)"], ["parallel"], r"not over the loops \(i\)"),
        (["(i) -> (i)", "i -> i"], ["parallel"], "no indexing map"),
        (["(i) -> (i * i)", "(i) -> (i)"], ["parallel"], r"no c \* loop"),
        (["(i) -> (i + i)", "(i) -> (i)"], ["parallel"], "repeats a loop"),
        (["(i) -> (i)", "(i) -> (i)"], ["reduction_sum"], "has 'i', which is reduced"),
        ([], [], "0 indexing maps"),
    ],
)
def test_malformed_interfaces_are_refused(maps: list[str], kinds: list[str], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        rule_of_maps(maps, kinds)


def test_shapes_are_checked_at_use() -> None:
    rule = rule_of_maps(DOT, DOT_KINDS)
    with pytest.raises(RuleError, match=r"operands of ranks \[3, 2\], but the op's are \[2, 2\]"):
        rule.bind(call("t", ["f32[4,8]", "f32[8,32]"], "f32[4,32]"))
    with pytest.raises(RuleError, match="dim 0 is 9"):
        rule.bind(call("t", ["f32[2,4,8]", "f32[9,32]"], "f32[2,4,32]"))
