"""Shardings across computations: loops, branches and calls share one value."""

from __future__ import annotations

from tests.support.propagated_texts import printed, run

ROWS = "{devices=[2,1]<=[2]}"
LOOP = """
%body {
  %s = (f32[4,4], f32[4,4]) parameter(0)
  %s_a = f32[4,4] get-tuple-element(%s), index=0
  %s_b = f32[4,4] get-tuple-element(%s), index=1
  %next = f32[4,4] add(%s_a, %s_b)
  ROOT %out = (f32[4,4], f32[4,4]) tuple(%next, %s_b)
}

%going {
  %t = (f32[4,4], f32[4,4]) parameter(0)
  ROOT %yes = pred[] constant(true)
}
"""
TWICE = """
%twice {
  %v = f32[4,4] parameter(0)
  ROOT %w = f32[4,4] add(%v, %v)
}

%flip {
  %f = f32[4,4] parameter(0)
  ROOT %g = f32[4,4] negate(%f)
}
"""


def loop(sharding: str = "", root: str = "ROOT %sink = (f32[4,4]) tuple(%first)") -> str:
    return (
        f"  %x = f32[4,4] parameter(0){sharding}\n  %y = f32[4,4] parameter(1)\n"
        "  %start = (f32[4,4], f32[4,4]) tuple(%x, %y)\n"
        "  %loop = (f32[4,4], f32[4,4]) while(%start), condition=%going, body=%body\n"
        f"  %first = f32[4,4] get-tuple-element(%loop), index=0\n  {root}"
    )


def test_a_loop_its_body_and_its_condition_agree() -> None:
    found = run(loop(f", sharding={ROWS}"), LOOP).shardings
    for name in ("loop", "s", "t", "out"):
        assert str(found[name]) == f"{{{ROWS}, {ROWS}}}"
    assert str(found["next"]) == str(found["first"]) == ROWS


def test_a_loop_as_result_gets_a_copy_behind_it() -> None:
    body = loop(f", sharding={ROWS}").rsplit("\n", 2)[0].replace("%loop =", "ROOT %loop =")
    result = run(body, LOOP)
    assert result.changed
    assert result.module.entry.root.opcode == "copy"
    assert result.module.sharding(result.module.entry.root) is None
    assert str(result.shardings["loop"]) == f"{{{ROWS}, {ROWS}}}"


def test_a_call_shares_with_its_callee_both_ways() -> None:
    body = f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %c = f32[4,4] call(%x), to_apply=%twice\n"
    body += "  ROOT %sink = (f32[4,4]) tuple(%c)"
    found = run(body, TWICE).shardings
    assert str(found["v"]) == str(found["w"]) == str(found["c"]) == ROWS


def test_branches_take_from_their_operands_and_agree_on_the_result() -> None:
    body = (
        f"  %p = pred[] parameter(0)\n  %x = f32[4,4] parameter(1), sharding={ROWS}\n  %y = f32[4,4] parameter(2)\n"
        "  %c = f32[4,4] conditional(%p, %x, %y), true_computation=%twice, false_computation=%flip\n"
        "  ROOT %sink = (f32[4,4]) tuple(%c)"
    )
    found = run(body, TWICE).shardings
    assert str(found["c"]) == str(found["w"]) == str(found["g"]) == str(found["f"]) == ROWS


def test_an_annotation_on_one_is_an_annotation_on_all() -> None:
    body = f"  %x = f32[4,4] parameter(0)\n  %c = f32[4,4] call(%x), to_apply=%twice, sharding={ROWS}\n"
    assert printed(body + "  ROOT %sink = (f32[4,4]) tuple(%c)", "w", TWICE) == ROWS
