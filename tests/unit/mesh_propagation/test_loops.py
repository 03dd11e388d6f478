"""Ops that users declare as loops, ops that nobody knows, and dims of several loops (T3)."""

from __future__ import annotations

import pytest

from hlosharding.errors import RuleError
from hlosharding.mesh_propagation import AxisPropagation, propagate_axes
from hlosharding.rules import register_interface
from tests.support.mesh_programs import as_operands, program

REGISTERED = """
  %x = f32[{size}] parameter(0)
  ROOT %y = f32[{shape}] custom-call(%x), custom_call_target="{target}"
"""


def test_ops_that_nobody_knows_are_computed_whole() -> None:
    body = REGISTERED.format(size="8", shape="8", target="nobody_knows")
    found = propagate_axes(program(body), "2", annotations={"x": "[[0]]"})
    assert as_operands(found) == {("x", "y"): "[]"}
    assert "no loop runs over dim 0 (no rule for custom call 'nobody_knows'" in str(found.yielded[0])


def test_a_users_op_is_propagated_through_by_its_interface() -> None:
    maps = ["(i, j, k) -> (k, i)", "(i, j, k) -> (k, j)", "(i, j, k) -> (i, j)"]
    register_interface("axes_test_gram", ["parallel", "parallel", "reduction_sum"], maps)
    body = """
      %x = f32[4,8] parameter(0)
      ROOT %y = f32[8,8] custom-call(%x, %x), custom_call_target="axes_test_gram"
    """
    found = propagate_axes(program(body), "?x?", annotations={"y": "[[1], [], [0]]"})
    assert (str(found.operand("y", 0)), str(found.operand("y", 1))) == ("[[0], [1]]", "[[0]]")


def test_t3_of_the_loops_of_one_operand_dim_at_most_one_is_split() -> None:
    maps = ["(d0, d1) -> (4 * d0 + d1)", "(d0, d1) -> (d0, d1)"]
    register_interface("axes_test_digits", ["parallel", "parallel"], maps)
    module = program(REGISTERED.format(size="16", shape="4,4", target="axes_test_digits"))

    def found(sharding: str) -> AxisPropagation:
        return propagate_axes(module, "2x2", annotations={"y": sharding})

    assert str(found("[[0]]").operand("y", 0)) == "[[0]]"
    # A split of the minor loop is no split of the operand: every device needs all of it.
    assert str(found("[[], [0]]").operand("y", 0)) == "[]"
    assert "loop d0 of the same dim is split already" in str(found("[[0], [1]]").conflicts[0])


def test_t3_of_overlapping_loops_the_striding_one_may_be_split() -> None:
    maps = ["(d0, d1) -> (2 * d0 + d1)", "(d0, d1) -> (d0)"]
    register_interface("axes_test_windows", ["parallel", "reduction_max"], maps)
    body = REGISTERED.format(size="17", shape="8", target="axes_test_windows")
    with pytest.raises(RuleError, match="pass d1="):
        propagate_axes(program(body), "2", annotations={"y": "[[0]]"})
    register_interface("axes_test_windows_of_3", ["parallel", "reduction_max"], maps, d1=3)
    body = REGISTERED.format(size="17", shape="8", target="axes_test_windows_of_3")
    assert str(propagate_axes(program(body), "2", annotations={"y": "[[0]]"}).operand("y", 0)) == "[[0]]"


@pytest.mark.parametrize(
    ("cluster", "given", "result"),
    [("4", "[[0]]", "[[0]]"), ("2x2", "[[0, 1]]", "[[0, 1]]"), ("3", "[[0]]", "[]"), ("?", "[[0]]", "[[0]]")],
)
def test_a_reshape_splits_the_major_loop_unless_it_is_known_not_to_divide(
    cluster: str, given: str, result: str
) -> None:
    """The RFC: a split gives each device an equal part; so an axis of unknown size divides."""
    body = "  %x = f32[32] parameter(0)\n  ROOT %y = f32[4,8] reshape(%x)"
    found = propagate_axes(program(body), cluster, annotations={"x": given})
    assert str(found.sharding("y")) == result
    assert len(found.yielded) == (result == "[]")


def test_a_split_that_would_scatter_the_result_is_refused() -> None:
    body = "  %x = f32[4,8] parameter(0)\n  ROOT %y = f32[32] reshape(%x)"
    found = propagate_axes(program(body), "2", annotations={"x": "[[], [0]]"})
    assert str(found.sharding("y")) == "[]"
    assert "scattered in a dim of the result" in str(found.yielded[0])
