"""What users write: `Sharding` calls, open dims, shard groups, metadata, and what is refused."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.errors import PropagationError
from hlosharding.ir import unspecified_dims
from tests.support.propagated_texts import module, printed, run

ROWS = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
COLUMNS = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"
CALL = 'custom-call(%n), custom_call_target="Sharding"'


def annotated(extra: str, *, x: str = "", root: str = "ROOT %sink = (f32[8,16]) tuple(%c)") -> str:
    return f"  %x = f32[8,16] parameter(0){x}\n  %n = f32[8,16] negate(%x)\n  %c = f32[8,16] {CALL}, {extra}\n  {root}"


def origins(result: hs.Propagation, name: str) -> list[str]:
    """The `op_name`s in the metadata of a value's sharding."""
    sharding = result.shardings[name]
    assert sharding is not None
    return [m.op_name for m in sharding.metadata]


def test_a_call_becomes_a_copy_and_annotates_its_operand() -> None:
    result = run(annotated(f"sharding={ROWS}"))
    assert result.module.by_name("c").opcode == "copy"
    assert str(result.shardings["n"]) == str(result.shardings["c"]) == ROWS
    assert result.changed


def test_the_input_module_stays_as_it_is() -> None:
    before = module(annotated(f"sharding={ROWS}"))
    text, table = before.to_hlo_text(), dict(before.shardings)
    from hlosharding.propagation import propagate

    assert propagate(before).module.by_name("c").opcode == "copy"
    assert (before.to_hlo_text(), before.shardings) == (text, table)


def test_open_dims_are_refined_and_others_are_not() -> None:
    open_columns = f'sharding={ROWS}, backend_config="unspecified_dims=[1]"'
    assert printed(annotated(open_columns, x=f", sharding={COLUMNS}"), "c") == "{devices=[2,2]<=[4]}"
    open_rows = f'sharding={ROWS}, backend_config="unspecified_dims=[0]"'
    assert printed(annotated(open_rows, x=f", sharding={COLUMNS}"), "c") == ROWS


@pytest.mark.parametrize("opaque", ["unspecified_dims=[a]", "open=[1]", "unspecified_dims=1"])
def test_opaque_text_that_says_nothing_is_refused(opaque: str) -> None:
    with pytest.raises(PropagationError, match="cannot read the sharding attributes"):
        unspecified_dims(opaque)


def test_a_call_without_sharding_is_refused_by_name() -> None:
    with pytest.raises(PropagationError, match="%c has no sharding"):
        run(f"  %x = f32[8,16] parameter(0)\n  %n = f32[8,16] negate(%x)\n  ROOT %c = f32[8,16] {CALL}")


def group(kind: str, first: str = "", second: str = "") -> str:
    mark = f'custom_call_target="Sharding", custom_call_has_side_effect=true, sharding={{unknown shard_{kind} 1}}'
    return (
        f"  %x = f32[8,16] parameter(0){first}\n  %y = f32[8,16] parameter(1){second}\n"
        "  %a = f32[8,16] negate(%x)\n  %b = f32[8,16] exponential(%y)\n"
        f"  %ga = f32[8,16] custom-call(%a), {mark}\n  %gb = f32[8,16] custom-call(%b), {mark}\n"
        "  ROOT %sink = (f32[8,16], f32[8,16]) tuple(%ga, %gb)"
    )


def test_members_of_a_group_share() -> None:
    assert printed(group("as", first=f", sharding={ROWS}"), "b") == ROWS
    assert printed(group("like", first=f", sharding={ROWS}"), "b") == ROWS


def test_only_shard_as_makes_members_equal() -> None:
    clash = {"first": ", sharding={devices=[4,1]<=[4]}", "second": ", sharding={devices=[1,4]<=[4]}"}
    assert printed(group("as", **clash), "a") == printed(group("as", **clash), "b")
    assert printed(group("like", **clash), "a") != printed(group("like", **clash), "b")


def test_members_of_different_dims_are_refused() -> None:
    body = group("as").replace("%y = f32[8,16]", "%y = f32[4,16]").replace("%b = f32[8,16]", "%b = f32[4,16]")
    body = body.replace("%gb = f32[8,16]", "%gb = f32[4,16]").replace(
        "(f32[8,16], f32[8,16])", "(f32[8,16], f32[4,16])"
    )
    with pytest.raises(PropagationError, match="shard group 1, but have different dims"):
        run(body)


def test_metadata_is_stripped_or_assigned() -> None:
    x = f', sharding={ROWS}, metadata={{op_name="made here"}}'
    body = annotated(f"sharding={ROWS}", x=x)
    assert origins(run(body), "x") == []
    assert origins(run(body, propagate_metadata=True), "x") == ["made here"]


def test_cse_prevention_marks_scalar_broadcasts_alone() -> None:
    body = (
        f"  %x = f32[8,16] parameter(0), sharding={ROWS}\n  %z = f32[] constant(0)\n"
        "  %b = f32[8,16] broadcast(%z), dimensions={}\n  %a = f32[8,16] add(%x, %b)\n"
        "  ROOT %sink = (f32[8,16]) tuple(%a)"
    )
    found = run(body, cse_prevention_only=True)
    assert str(found.shardings["b"]) == ROWS
    assert origins(found, "b") == ["_sharding_propagation_cse_prevention"]
    assert found.shardings["a"] is None


def test_manual_regions_stay_manual() -> None:
    full = "{devices=[2,1]<=[2]}"
    body = (
        "  %x = f32[8,16] parameter(0)\n  %n = f32[8,16] negate(%x)\n"
        f"  %c = f32[8,16] {CALL}, sharding={full}\n"
        '  %m = f32[4,16] custom-call(%c), custom_call_target="SPMDFullToShardShape", sharding={manual}\n'
        "  %w = f32[4,16] negate(%m)\n"
        '  %k = f32[4,16] custom-call(%w), custom_call_target="Sharding", sharding={manual}\n'
        f'  %u = f32[8,16] custom-call(%k), custom_call_target="SPMDShardToFullShape", sharding={full}\n'
        "  %v = f32[8,16] negate(%u)\n  ROOT %sink = (f32[8,16]) tuple(%v)"
    )
    found = {name: str(s) for name, s in run(body).shardings.items()}
    assert found["w"] == found["k"] == "{manual}"
    assert found["n"] == found["v"] == full


def test_devices_that_conflict_within_a_loop_are_refused() -> None:
    regions = """
%body {
  %s = (f32[4], token[]) parameter(0)
  %v = f32[4] get-tuple-element(%s), index=0, sharding={maximal device=0}
  %k = token[] after-all()
  %r = (f32[4], u32[], token[]) recv(%k), channel_id=1, sharding={ONE, ONE, ONE}
  %d = (f32[4], token[]) recv-done(%r), channel_id=1, sharding={ONE, ONE}
  ROOT %o = (f32[4], token[]) tuple(%v, %k)
}

%going {
  %t = (f32[4], token[]) parameter(0)
  ROOT %yes = pred[] constant(true)
}
""".replace("ONE", "{maximal device=1}")
    body = (
        "  %x = f32[4] parameter(0)\n  %k2 = token[] after-all()\n  %i = (f32[4], token[]) tuple(%x, %k2)\n"
        "  ROOT %w = (f32[4], token[]) while(%i), condition=%going, body=%body"
    )
    with pytest.raises(PropagationError, match=r"v is on device: 0, which conflicts with device: 1 of channel.*: r"):
        run(body, regions)


def test_what_came_with_a_sharding_is_known_by_name() -> None:
    given = hs.load(
        """HloModule m
        ENTRY e {
          x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
          y = f32[8] negate(x)
          ROOT z = f32[8] abs(y)
        }""",
        format="hlo",
    )
    assert hs.propagate(given).annotated == {"x"}
