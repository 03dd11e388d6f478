"""`explain` leads from any value back to the annotation, and says what kept a split out."""

from __future__ import annotations

from typing import Any

import pytest

from hlosharding.errors import ModuleError
from tests.support.propagated_texts import SUM, run

ROWS = "{devices=[2,1]<=[2]}"
BODY = (
    f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %z = f32[] constant(0)\n"
    "  %n = f32[4,4] negate(%x)\n  %t = f32[4,4] transpose(%n), dimensions={1,0}\n"
    "  %s = f32[4] reduce(%n, %z), dimensions={0}, to_apply=%sum\n  %b = f32[4] negate(%s)\n"
    "  ROOT %r = (f32[4,4], f32[4]) tuple(%t, %b)"
)


def test_the_chain_ends_at_the_annotation() -> None:
    why = run(BODY, SUM).explain("t")
    assert [link.name for link in why.links] == ["t", "n", "x"]
    assert [link.direction for link in why.links] == ["operands", "operands", None]
    assert why.annotation is not None
    assert why.annotation.name == "x"
    assert "given by the user on %x" in str(why)


def test_every_changed_value_has_a_chain() -> None:
    found = run(BODY, SUM)
    for name, sharding in found.shardings.items():
        why = found.explain(name)
        assert why.links[0].name == name
        assert sharding is None or why.links[0].sharding == sharding
        assert str(why)


def test_a_lost_split_is_named() -> None:
    why = run(BODY, SUM).explain("s")
    lost = "none of its split dims lives on in the result: dim 0 is summed over"
    assert why.stopped == (f"operand 0, %n {ROWS}: {lost}",)
    assert f"%s (reduce) loses the split of %n: {lost}" in str(run(BODY, SUM).explain("b"))


def test_what_may_not_change_says_so() -> None:
    why = run(BODY, SUM).explain("r")
    assert "may not be given a sharding (to_outputs is off)" in str(why)


COLUMNS = "{devices=[1,2]<=[2]}"
CLASH = (
    f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %y = f32[4,4] parameter(1), sharding={COLUMNS}\n"
    "  %u = f32[4,4] negate(%y)\n  %a = f32[4,4] add(%x, %u)\n  ROOT %r = (f32[4,4]) tuple(%a)"
)


def test_a_conflict_names_both_sides_and_why_one_lost() -> None:
    (lost,) = run(CLASH).explain("a").conflicts
    assert (lost.winner.name, lost.loser.name, lost.role) == ("a", "u", "operand 1")
    assert (str(lost.offered), str(lost.winner.sharding)) == (COLUMNS, ROWS)
    assert (lost.offered_since.name, lost.held_since.name) == ("y", "x")
    assert lost.reason == "both have 2 tiles and they do not merge, so what came first stays"
    assert f"conflict: operand 1, %u (negate) {COLUMNS}, offers {COLUMNS}; it lost" in str(run(CLASH).explain("a"))


def test_the_loser_sees_the_same_conflict_from_its_side_and_the_program_counts_it_once() -> None:
    found = run(CLASH)
    (lost,) = found.explain("u").conflicts
    assert (lost.winner.name, lost.loser.name, lost.role) == ("u", "a", "user")
    assert [{one.winner.name, one.loser.name} for one in found.conflicts] == [{"u", "a"}]


def test_what_was_given_wins_and_says_so() -> None:
    body = CLASH.replace("%a = f32[4,4] add(%x, %u)", f"%a = f32[4,4] add(%x, %u), sharding={COLUMNS}")
    (lost,) = run(body).explain("a").conflicts
    assert (lost.loser.name, lost.reason) == ("x", "its sharding was given and may not change")


@pytest.mark.parametrize("finer", ["{devices=[2,2]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"])
def test_a_finer_user_is_no_conflict(finer: str) -> None:
    body = (
        "  %x = f32[4,4] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}\n"
        f"  %a = f32[4,4] negate(%x), sharding={finer}\n  ROOT %r = (f32[4,4]) tuple(%a)"
    )
    assert run(body).conflicts == ()


def test_elements_of_a_tuple_have_answers_of_their_own() -> None:
    body = (
        f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %y = f32[4] parameter(1)\n"
        "  %t = (f32[4,4], f32[4]) tuple(%x, %y)\n  %b = (f32[4,4], f32[4]) opt-barrier(%t)\n"
        "  %e = f32[4] get-tuple-element(%b), index=1\n  %n = f32[4] negate(%e)\n  ROOT %r = (f32[4]) tuple(%n)"
    )
    found = run(body)
    assert [link.title for link in found.explain("b{0}").links] == ["%b{0}", "%t{0}", "%x"]
    assert found.explain("b{0}").links[-1].is_given
    why = found.explain("n")
    assert not why.links[-1].is_given
    assert "it is whole because the tuple got a sharding for another element" in str(why)
    with pytest.raises(ModuleError, match=r"%b .* has no element '2'; it has elements 0 to 1"):
        found.explain("b{2}")
    with pytest.raises(ModuleError, match="it is no tuple"):
        found.explain("x{0}")


def test_a_scalar_and_a_reducer_have_nothing_to_split() -> None:
    found = run(BODY, SUM)
    assert found.explain("z").stopped == ("it is a scalar: there is nothing to split",)
    inside = next(i.name for i in found.module.instructions if not i.computation.is_entry)
    assert "works on single elements" in found.explain(inside).stopped[0]


def test_an_unknown_name_is_refused_with_near_misses() -> None:
    with pytest.raises(ModuleError, match=r"no instruction %tt; did you mean t\?"):
        run(BODY, SUM).explain("tt")


def test_the_chain_through_a_user_and_a_loop() -> None:
    regions = """
%body {
  %q = (f32[4,4]) parameter(0)
  %e = f32[4,4] get-tuple-element(%q), index=0
  ROOT %o = (f32[4,4]) tuple(%e)
}

%going {
  %g = (f32[4,4]) parameter(0)
  ROOT %yes = pred[] constant(true)
}
"""
    body = (
        f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %i = (f32[4,4]) tuple(%x)\n"
        "  %w = (f32[4,4]) while(%i), condition=%going, body=%body\n"
        "  %f = f32[4,4] get-tuple-element(%w), index=0\n  ROOT %r = (f32[4,4]) tuple(%f)"
    )
    why = run(body, regions).explain("e")
    assert [link.name for link in why.links][-1] == "x"
    assert "computation" in [link.direction for link in why.links]


def test_the_nearest_split_is_found_behind_a_loop_and_through_a_call() -> None:
    regions = """
%twice {
  %c = f32[4,4] parameter(0)
  ROOT %d = f32[4,4] add(%c, %c)
}
"""
    body = (
        f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n"
        '  %s = f32[4,4] custom-call(%x), custom_call_target="mystery"\n'
        "  %k = f32[4,4] call(%s), to_apply=%twice\n  %o = f32[4,4] negate(%k)\n  ROOT %r = (f32[4,4]) tuple(%o)"
    )
    (reason,) = run(body, regions).explain("o").stopped
    assert reason == (
        f"nothing reached it: the split of %x {ROWS} stopped at %s (custom-call):"
        " GSPMD gives custom-call mystery no tiled sharding"
    )


def test_values_of_branches_lead_through_the_conditional() -> None:
    regions = """
%left {
  %l = (f32[4,4]) parameter(0)
  %m = f32[4,4] get-tuple-element(%l), index=0
  ROOT %lo = (f32[4,4]) tuple(%m)
}

%right {
  %g = (f32[4,4]) parameter(0)
  %h = f32[4,4] get-tuple-element(%g), index=0
  ROOT %ro = (f32[4,4]) tuple(%h)
}
"""
    body = (
        f"  %p = pred[] parameter(0)\n  %x = f32[4,4] parameter(1), sharding={ROWS}\n  %i = (f32[4,4]) tuple(%x)\n"
        "  %w = (f32[4,4]) conditional(%p, %i, %i), true_computation=%left, false_computation=%right\n"
        "  %f = f32[4,4] get-tuple-element(%w), index=0\n  ROOT %r = (f32[4,4]) tuple(%f)"
    )
    found = run(body, regions)
    for name in ("m", "h", "f", "w{0}"):
        why = found.explain(name)
        assert (why.links[-1].name, why.links[-1].is_given) == ("x", True)
        assert all(str(link.sharding) == ROWS for link in why.links)


def test_one_of_several_results_is_explained_by_its_own_operand() -> None:
    less = (
        "%less {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  %c = f32[] parameter(2)\n"
        "  %d = f32[] parameter(3)\n  ROOT %e = pred[] compare(%a, %b), direction=LT\n}"
    )
    body = (
        f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %y = f32[4,4] parameter(1), sharding={ROWS}\n"
        "  %s = (f32[4,4], f32[4,4]) sort(%x, %y), dimensions={1}, to_apply=%less,"
        " sharding={{replicated}, {replicated}}\n"
        "  %e = f32[4,4] get-tuple-element(%s), index=1\n  ROOT %r = (f32[4,4]) tuple(%e)"
    )
    (reason,) = run(body, less).explain("s{1}").stopped
    assert reason == f"operand 1, %y {ROWS}: its sharding was given and may not change"


EDGE = (
    "  %x = f32[5,4] parameter(0), sharding={devices=[2,1]<=[2]}\n  %y = f32[5,4] parameter(1){given}\n"
    "  %s = f32[5,4] add(%x, %y)\n  %n = f32[5,4] negate(%s)\n  ROOT %r = (f32[5,4], f32[5,4]) tuple(%n, %s)"
)


@pytest.mark.parametrize(
    ("name", "given", "options", "reason"),
    [
        ("r{0}", "", {"to_outputs": (True, True)}, "at the edge of the program a split must divide f32[5,4] evenly"),
        ("y", "", {"to_parameters": (True, False)}, "may not be given a sharding (to_parameters is off for it)"),
        (
            "y",
            ", sharding={replicated}",
            {"to_parameters": (True, False)},
            "its sharding was given and may not change",
        ),
    ],
)
def test_what_is_taken_back_at_the_edge_says_so(name: str, given: str, options: dict[str, Any], reason: str) -> None:
    why = run(EDGE.replace("{given}", given), **options).explain(name)
    (stopped,) = why.stopped
    assert stopped.endswith(f" {ROWS}: it had taken {ROWS}, but {reason}")
    assert [link.is_given for link in why.links] == [bool(given)]


def test_an_element_names_its_own_operand_and_a_call_none() -> None:
    regions = "%same {\n  %p = f32[4,4] parameter(0)\n  ROOT %q = f32[4,4] negate(%p)\n}"
    body = f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %z = f32[4] parameter(1)\n"
    fixed = "the result of the program may not be given a sharding (to_outputs is off)"
    (reason,) = run(f"{body}  ROOT %r = (f32[4], f32[4,4]) tuple(%z, %x)").explain("r{1}").stopped
    assert reason == f"operand 1, %x {ROWS}: {fixed}"
    (reason,) = run(f"{body}  ROOT %r = f32[4,4] call(%x), to_apply=%same", regions).explain("r").stopped
    assert reason == f"the same value, %q {ROWS}: {fixed}"
