"""`explain` leads from any value back to the annotation, and says what kept a split out."""

from __future__ import annotations

import pytest

from hlosharding.errors import ModuleError
from tests.unit.propagation.texts import SUM, run

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
    assert why.stopped[0].startswith(f"operand 0, %n {ROWS}: none of its split dims [0] lives on")
    assert "%s (reduce) loses the split of %n" in str(run(BODY, SUM).explain("b"))


def test_what_may_not_change_says_so() -> None:
    why = run(BODY, SUM).explain("r")
    assert "may not be given a sharding (to_outputs is off)" in str(why)


def test_a_conflict_is_named() -> None:
    body = (
        f"  %x = f32[4,4] parameter(0), sharding={ROWS}\n  %y = f32[4,4] parameter(1), sharding={{replicated}}\n"
        "  %a = f32[4,4] add(%x, %y)\n  ROOT %r = (f32[4,4]) tuple(%a)"
    )
    assert "its sharding was given and may not change" not in str(run(body).explain("a"))
    assert run(body).explain("y").annotation is not None


def test_an_unknown_name_is_refused_with_near_misses() -> None:
    with pytest.raises(ModuleError, match="no instruction %tt"):
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
