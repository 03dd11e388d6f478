"""How an op's option is inferred (T3): what wins, what settles a loop, what is refused and how that is told."""

from __future__ import annotations

import pytest

from hlosharding.errors import AnnotationError
from hlosharding.mesh_propagation import AxisAnnotation, AxisPropagation, propagate_axes
from tests.support.mesh_programs import as_operands, as_results, for_users, program

DOT = """
  %x = f32[8,4] parameter(0)
  %w = f32[4,16] parameter(1)
  ROOT %y = f32[8,16] dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""


def dot(*annotations: AxisAnnotation, option: str | None = None, cluster: str = "2x2x?") -> AxisPropagation:
    return propagate_axes(program(DOT), cluster, annotations=annotations, options={"y": option} if option else None)


def made(value: str, sharding: str, *, required: bool = True) -> AxisAnnotation:
    return AxisAnnotation(value, sharding, required)


def test_t3_an_option_on_the_op_wins() -> None:
    found = dot(made("x", "[[1]]"), made("y", "[[1]]"), option="[[0]]")
    assert str(found.options["y"]) == "[[0]]"
    assert [str(c) for c in found.conflicts] == [
        "%y (dot): result 0, annotated by the user, requires [1], but the annotation is [[1]], and the op's option"
        " makes [[0]]; the option stays"
    ]


def test_t3_an_option_on_an_iota_or_a_constant_wins() -> None:
    body = """
      %i = s32[8,4] iota(), iota_dimension=0
      %c = s32[4] constant({1, 2, 3, 4})
      %b = s32[8,4] broadcast(%c), dimensions={1}
      ROOT %y = s32[8,4] add(%i, %b)
    """
    found = propagate_axes(program(body), "2x2", options={"i": "[[0]]", "c": "[[1]]"})
    assert as_results(found) == {"i": "[[0]]", "c": "[[1]]", "b": "[[], [1]]", "y": "[[0], [1]]"}
    assert as_operands(found)["c", "b"] == "[[1]]"
    found = propagate_axes(program(body), "2x2", options={"i": "[[0]]"}, annotations={"i": "[[1]]"})
    assert "the annotation is [[1]], and the op's option makes [[0]]" in str(found.conflicts[0])


def test_t3_an_option_names_loops_too() -> None:
    found = propagate_axes(program(DOT), "a=2,b=4", options={"y": {"k0": "b", "m0": ["a"]}})
    assert found.options["y"].along("k0") == ("b",)
    assert as_results(found) == {"y": "[[a]] partial=sum[b]"}


def test_t3_a_reduction_option_makes_a_partial_result() -> None:
    found = dot(option="[[],[],[2]]")
    assert as_results(found) == {"y": "[] partial=sum[2]"}
    assert as_operands(found) == {("x", "y"): "[[], [2]]", ("w", "y"): "[[2]]"}


def test_t3_results_come_first_then_operands_for_reduction_loops() -> None:
    found = dot(for_users("y", "[[0]]"), made("x", "[[1], [2]]"))
    assert str(found.options["y"]) == "[[0], [], [2]]"
    assert as_results(found)["y"] == "[[0]] partial=sum[2]"
    assert [c.loop for c in found.yielded] == ["m0"]


def test_t3_operands_settle_parallel_loops_that_no_result_has() -> None:
    assert str(dot(made("x", "[[0]]"), made("w", "[[], [1]]")).options["y"]) == "[[0], [1]]"


def test_t3_an_empty_list_of_a_result_settles_its_loop() -> None:
    found = dot(made("y", "[[0]]"), made("w", "[[], [1]]"))
    assert str(found.options["y"]) == "[[0]]"
    assert found.operand("y", 1) is not None
    assert str(found.operand("y", 1)) == "[]"


def test_what_a_user_would_like_whole_may_be_split_where_it_is_made() -> None:
    found = dot(made("x", "[[0]]"), for_users("y", "[]"))
    assert (str(found.sharding("y")), str(found.operand("output", 0))) == ("[[0]]", "[]")


def test_t3_what_nobody_asks_for_is_replicated() -> None:
    found = dot(made("x", "[[0]]"))
    assert (str(found.options["y"]), str(found.operand("y", 1))) == ("[[0]]", "[]")


def test_nothing_is_said_about_ops_that_nothing_reaches() -> None:
    found = dot()
    assert (found.options, found.annotations) == ({}, ())
    assert found.sharding("y") is None


def test_t3_orders_that_contradict_each_other_are_a_failure_that_names_both() -> None:
    found = dot(made("y", "[[0]]"), for_users("x", "[[1]]", "y"))
    assert "y" not in found.options
    (conflict,) = found.conflicts
    assert str(conflict) == (
        "%y (dot), loop m0: operand 0 (%x), annotated by the user, requires [1], but result 0, annotated by the user,"
        " requires [0]; the op gets no option"
    )
    assert len(conflict.offers) == 2


def test_t3_one_axis_for_two_loops_is_a_failure() -> None:
    (conflict,) = dot(made("y", "[[0]]"), for_users("w", "[[], [0]]")).conflicts
    assert conflict.loop == "n0"
    assert "requires [0], but result 0, annotated by the user, requires []" in str(conflict)
    (conflict,) = dot(for_users("x", "[[0]]"), for_users("w", "[[], [0]]")).conflicts
    assert "axis 0 splits loop m0, as operand 0 (%x), annotated by the user, requires [0]" in str(conflict)


def test_a_result_that_must_be_whole_sums_keeps_its_reduction_loops_whole() -> None:
    found = dot(made("y", "[[0]]"), made("x", "[[], [1]]"))
    assert as_results(found)["y"] == "[[0]]"
    assert "the result would be partial=sum" in str(found.yielded[0])


def test_partial_axes_go_to_the_reduction_loop() -> None:
    found = dot(made("y", "[[], [], [2]]"))
    assert str(found.options["y"]) == "[[], [], [2]]"
    assert str(dot(made("y", "[[], [], [1, 2]]"), made("x", "[[], [1]]")).conflicts[0]) == (
        "%y (dot): result 0, annotated by the user, requires [2], but no loop is left that makes partial=sum;"
        " the op gets no option"
    )


def test_partial_values_of_another_kind_are_refused() -> None:
    assert "makes partial=max" in str(dot(made("y", "[] partial=max[0]")).conflicts[0])
    body = "  %x = f32[8] parameter(0)\n  ROOT %y = f32[8] negate(%x)"
    (conflict,) = propagate_axes(program(body), "2", annotations={"y": "[[], [0]]"}).conflicts
    assert "no loop is left that makes partial=sum" in str(conflict)


SORT = """
  %x = f32[8,4] parameter(0)
  ROOT %y = f32[8,4] sort(%x), dimensions={0}, to_apply=%less
"""
LESS = (
    "%less {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  ROOT %c = pred[] compare(%a, %b), direction=LT\n}"
)


def test_t2_invalid_loops_are_never_split() -> None:
    found = propagate_axes(program(SORT, LESS), "2x2", annotations={"x": "[[0], [1]]"})
    assert str(found.options["y"]) == "[[], [1]]"
    assert "loop d0: operand 0 (%x), annotated by the user, offers [0], but the loop is invalid" in str(
        found.yielded[0]
    )
    found = propagate_axes(program(SORT, LESS), "2x2", annotations={"y": "[[0]]"})
    assert (found.options, len(found.conflicts)) == ({}, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"z": "[[0]]"}, "no op %z"),
        ({"x": "[[0]]"}, "no op %x to give an option to"),
        ({"y": "[[0], [], [], [1]]"}, "no partial axes"),
        ({"y": "[[9]]"}, "has no axis 9; at option of %y"),
        ({"y": {"q": 0}}, "no loop 'q'; at option of %y .*, loops m0 n0 k0"),
        ({"y": [0]}, "no list of lists"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        propagate_axes(program(DOT), "2x2", options=options)


def test_an_option_for_an_invalid_loop() -> None:
    with pytest.raises(AnnotationError, match=r"invalid: it cannot be split; at option of %y .*; choose other axes"):
        propagate_axes(program(SORT, LESS), "2", options={"y": "[[0]]"})
