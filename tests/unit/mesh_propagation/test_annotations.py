"""What annotations say and to whom (T4), in straight code and through control flow."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import AnnotationError
from hlosharding.mesh_propagation import AxisAnnotation, propagate_axes
from tests.support.mesh_programs import as_operands, as_results, for_users, program
from tests.support.program_check import one_device

THREE = """
  %x = f32[2,5] parameter(0)
  %op0 = f32[2,5] negate(%x)
  %op1 = f32[2,5] exponential(%op0)
  %op2 = f32[2,5] tanh(%op0)
  ROOT %both = (f32[2,5], f32[2,5]) tuple(%op1, %op2)
"""


def test_t4_each_annotation_applies_to_its_op() -> None:
    """The RFC's first example: one for op0's result, one for op1's operand, one for op2's."""
    notes = [AxisAnnotation("op0", "[[0],[1]]"), for_users("op0", "[[0]]", "op1"), for_users("op0", "[[1]]", "op2")]
    found = propagate_axes(program(THREE), "2x5", annotations=notes)
    assert as_results(found) == {"op0": "[[0], [1]]", "op1": "[[0]]", "op2": "[[1]]"}
    assert as_operands(found) == {("x", "op0"): "[[0], [1]]", ("op0", "op1"): "[[0]]", ("op0", "op2"): "[[1]]"}


def test_t4_as_result_is_the_default_and_a_hint_to_the_users() -> None:
    """The RFC's second example: op1's operand has no annotation, so it follows."""
    found = propagate_axes(program(THREE), "2x5", annotations={"op0": "[[0],[1]]"})
    assert as_operands(found)["op0", "op1"] == "[[0], [1]]"
    assert as_results(found)["op1"] == "[[0], [1]]"


def test_t4_for_all_users_and_the_output() -> None:
    found = propagate_axes(program(THREE), "2x5", annotations=[for_users("op0", "[[0]]"), for_users("op2", "[[1]]")])
    assert as_operands(found)["op0", "op1"] == "[[0]]"
    assert as_operands(found)["op2", "output"] == "[[1]]"
    # op2 may choose: its own operand is an order, the output's wish a hint.
    assert as_results(found)["op2"] == "[[0]]"


def test_t4_required_is_kept_and_a_hint_gives_way() -> None:
    strict = propagate_axes(
        program(THREE), "2x5", annotations=[AxisAnnotation("op1", "[[0]]"), for_users("op0", "[[1]]", "op1")]
    )
    assert [c.op for c in strict.conflicts] == ["op1"]
    gentle = propagate_axes(
        program(THREE),
        "2x5",
        annotations=[AxisAnnotation("op1", "[[0]]", required=False), for_users("op0", "[[1]]", "op1")],
    )
    assert (gentle.conflicts, as_results(gentle)["op1"]) == ((), "[[1]]")


def test_annotations_come_back_as_they_can_be_given() -> None:
    first = propagate_axes(program(THREE), "2x5", annotations={"op0": "[[0],[1]]"})
    again = propagate_axes(program(THREE), "2x5", annotations=first.annotations)
    assert (as_results(again), as_operands(again)) == (as_results(first), as_operands(first))


def test_shardings_of_the_module_are_orders() -> None:
    body = THREE.replace("negate(%x)", "negate(%x), sharding={devices=[1,5,2]<=[2,5]T(1,0) last_tile_dim_replicate}")
    found = propagate_axes(program(body), "a=2,b=5")
    assert as_results(found) == {"op0": "[[], [b]]", "op1": "[[], [b]]", "op2": "[[], [b]]"}
    assert str(found.hlo_sharding("op1")) == "{mesh['a'=2,'b'=5], [{}, {'b'}]}"
    with pytest.raises(AnnotationError, match=r"needs the size of axis b .* unknown; at %op0"):
        propagate_axes(program(body), "a=2,b=?")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"op9": "[[0]]"}, "no instruction or parameter path 'op9'; did you mean op"),
        ({"both": "[[0]]"}, r"%both is a tuple; annotate one leaf, as in both\{0\}"),
        ({"op0": "[[0],[],[],[1]]"}, r"4 entries for rank 2; at annotation of %op0 f32\[2,5\]"),
        ({"op0": "[[2]]"}, "no axis 2; at annotation of %op0 .*; its axes: 0, 1"),
        ({"op0": "0"}, "no list of lists"),
        ([for_users("op0", "[[0]]", "both")], "both does not use the value; .*; its users: op1, op2"),
        (
            [AxisAnnotation("op0", "[[0]]", annotate_for_users=True, operand=1)],
            "nowhere operand 1; .*; it is operand 0 of op1, operand 0 of op2",
        ),
        (
            [AxisAnnotation("op0", "[[0]]", annotate_for_users=True, users=("op2",), operand=1)],
            "nowhere operand 1; .*; it is operand 0 of op2",
        ),
    ],
)
def test_annotations_that_do_not_fit(given: object, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        propagate_axes(program(THREE), "2x5", annotations=given)  # pyright: ignore[reportArgumentType]


def test_an_element_of_a_tuple_is_the_value_that_went_in() -> None:
    body = """
      %x = f32[8] parameter(0)
      %pair = (f32[8], f32[8]) tuple(%x, %x)
      %first = f32[8] get-tuple-element(%pair), index=0
      ROOT %y = f32[8] negate(%first)
    """
    found = propagate_axes(program(body), "2", annotations={"first": "[[0]]"})
    assert (str(found.sharding("first")), as_results(found)["x"]) == ("[[0]]", "[[0]]")
    with pytest.raises(AnnotationError, match=r"annotated as \[\[0\]\] and as \[\], .*; at annotation of %x"):
        propagate_axes(program(body), "2", annotations={"first": "[[0]]", "x": "[]"})


LOOP = """
%body {
  %carried = (s32[], f32[8,4]) parameter(0)
  %i = s32[] get-tuple-element(%carried), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %state = f32[8,4] get-tuple-element(%carried), index=1
  %stepped = f32[8,4] tanh(%state)
  ROOT %again = (s32[], f32[8,4]) tuple(%next, %stepped)
}
%more {
  %seen = (s32[], f32[8,4]) parameter(0)
  %count = s32[] get-tuple-element(%seen), index=0
  %limit = s32[] constant(3)
  ROOT %go = pred[] compare(%count, %limit), direction=LT
}
"""
LOOPING = """
  %x = f32[8,4] parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,4]) tuple(%zero, %x)
  %loop = (s32[], f32[8,4]) while(%start), condition=%more, body=%body
  %end = f32[8,4] get-tuple-element(%loop), index=1
  ROOT %out = f32[8,4] negate(%end)
"""


def test_a_loop_carries_one_sharding_and_takes_copies() -> None:
    found = propagate_axes(program(LOOPING, LOOP), "2", annotations={"out": "[[0]]"})
    results = as_results(found)
    assert (results["loop{1}"], results["stepped"]) == ("[[0]]", "[[0]]")
    assert as_operands(found)["x", "loop{1} enter"] == "[[0]]"
    assert found.conflicts == ()


def test_what_a_body_cannot_keep_is_resharded_at_the_back_edge() -> None:
    found = propagate_axes(program(LOOPING, LOOP), "2x2", annotations={"x": "[[0]]", "stepped": "[[1]]"})
    assert as_operands(found)["stepped", "loop{1} repeat"] == as_results(found)["loop{1}"]
    assert as_results(found)["stepped"] == "[[1]]"
    assert found.conflicts == ()


def test_values_inside_a_loop_are_annotated_by_their_element() -> None:
    found = propagate_axes(program(LOOPING, LOOP), "2", annotations={"state": "[[], [0]]"})
    assert as_results(found)["out"] == "[[], [0]]"


def test_what_each_of_two_loops_carries_enters_the_body_that_they_share() -> None:
    body = (
        LOOPING.replace("ROOT %out", "%out")
        + """
      %w = f32[8,4] parameter(1)
      %begin = (s32[], f32[8,4]) tuple(%zero, %w)
      %second = (s32[], f32[8,4]) while(%begin), condition=%more, body=%body
      %last = f32[8,4] get-tuple-element(%second), index=1
      ROOT %both = f32[8,4] add(%out, %last)
    """
    )
    found = propagate_axes(program(body, LOOP), "2", annotations={"w": "[[0]]"})
    results = as_results(found)
    assert {name: results.get(name) for name in ("loop{1}", "stepped", "second{1}")} == dict.fromkeys(
        ("loop{1}", "stepped", "second{1}"), "[[0]]"
    )
    x, w = np.random.default_rng(0).standard_normal((2, 8, 4), np.float32)
    back = propagate_axes(program(body, LOOP), "2", annotations={"state": "[[0]]"})
    assert as_operands(back)["w", "loop{1} from second"] == "[[0]]"
    for each in (found, back):
        got = hs.partition(each.to_module()).run(x, w)
        np.testing.assert_allclose(got, one_device(program(body, LOOP), [x, w])[0], rtol=1e-6)


BRANCHES = """
%up {
  %a = f32[8] parameter(0)
  ROOT %raised = f32[8] exponential(%a)
}
%down {
  %b = f32[8] parameter(0)
  ROOT %lowered = f32[8] log(%b)
}
"""


def test_branches_and_callees_pass_copies() -> None:
    body = """
      %p = pred[] parameter(0)
      %x = f32[8] parameter(1)
      %chosen = f32[8] conditional(%p, %x, %x), true_computation=%up, false_computation=%down
      %more = f32[8] call(%chosen), to_apply=%up
      ROOT %out = f32[8] negate(%more)
    """
    found = propagate_axes(program(body, BRANCHES), "2", annotations={"x": "[[0]]"})
    results = as_results(found)
    assert {name: results[name] for name in ("raised", "lowered", "chosen", "more", "out")} == dict.fromkeys(
        ("raised", "lowered", "chosen", "more", "out"), "[[0]]"
    )
    assert found.conflicts == ()
