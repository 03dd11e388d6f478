"""Ops that hardly any program has, where differential runs found us to differ: expectations are live XLA's answers."""

from __future__ import annotations

import pytest

from hlosharding.frontends import load
from hlosharding.propagation import propagate

FUSION = """HloModule m

%flip {
  %w = f32[8,12] parameter(0)
  ROOT %v = f32[8,12] negate(%w)
}

ENTRY %main {
  %x = f32[8,12] parameter(0)
  %c = f32[8,12] copy(%x)
  %fused = f32[8,12] fusion(%c), kind=kLoop, calls=%flip
  %row = f32[8] iota(), iota_dimension=0, sharding={devices=[2,3]<=[6] last_tile_dim_replicate}
  %b = f32[8,12] broadcast(%row), dimensions={0}
  %sum = f32[8,12] add(%fused, %b)
  %after = f32[8,12] copy(%fused)
  %given = f32[8,12] copy(%x), sharding={replicated}
  %asked = f32[8,12] fusion(%given), kind=kLoop, calls=%flip
  ROOT %root = (f32[8,12]) tuple(%x)
}
"""

ASYNC = """HloModule m

%twice {
  %v = f32[8,16] parameter(0)
  ROOT %w = f32[8,16] add(%v, %v)
}

ENTRY %main {
  %x = f32[8,16] parameter(0)
  %q = ((f32[8,16]), f32[8,16], s32[]) call-start(%x), to_apply=%twice
  %done = f32[8,16] call-done(%q)
  %y = f32[8,16] parameter(1), sharding={devices=[4,1]<=[4]}
  %z = f32[8,16] negate(%y)
  ROOT %root = (f32[8,16], f32[8,16]) tuple(%done, %z)
}
"""

COLLECTIVES = """HloModule m, num_partitions=8

%sum {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main {
  %x = f32[8,4] parameter(0), sharding={replicated}
  %rows = f32[8,4] parameter(1), sharding={devices=[8,1]<=[8]}
  %gathered = f32[64,4] all-gather(%x), dimensions={0}, channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}},
    use_global_device_ids=true
  %kept = f32[64,4] all-gather(%x), dimensions={0}, channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}},
    use_global_device_ids=true, constrain_layout=true
  %split = f32[64,4] all-gather(%rows), dimensions={0}, channel_id=3, replica_groups={{0,1,2,3,4,5,6,7}},
    use_global_device_ids=true
  %turned = f32[8,4] all-to-all(%x), dimensions={0}, channel_id=4, replica_groups={{0,1,2,3,4,5,6,7}}
  %both = (f32[8,4], f32[8,4]) all-reduce(%x, %rows), channel_id=5, replica_groups={{0,1,2,3,4,5,6,7}},
    use_global_device_ids=true, to_apply=%sum
  ROOT %root = (f32[8,4]) tuple(%x)
}
"""

USERS_OF_SEVERAL = """HloModule m, num_partitions=4

%sum {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main {
  %x = f32[4,4] parameter(0)
  %y = f32[4,4,2] parameter(1)
  %negated = f32[4,4] negate(%x)
  %both = (f32[4,4], f32[4,4,2]) all-reduce(%negated, %y), replica_groups={}, to_apply=%sum
  %first = f32[4,4] get-tuple-element(%both), index=0
  %second = f32[4,4,2] get-tuple-element(%both), index=1
  %split = f32[4,4] negate(%first), sharding={devices=[2,2]<=[4]}
  %other = f32[4,4,2] negate(%second), sharding={devices=[2,1,2]<=[4]}
  ROOT %root = (f32[4,4], f32[4,4,2]) tuple(%split, %other)
}
"""

TOKENS = """HloModule m

ENTRY %main {
  %x = f32[8,16] parameter(0)
  %k = token[] after-all()
  %t = (f32[8,16], token[]) tuple(%x, %k)
  %c = (f32[8,16], token[]) copy(%t)
  %s = token[] get-tuple-element(%c), index=1
  %all = token[] after-all(%s), sharding={replicated}
  %o = token[] outfeed(%x, %k), outfeed_shape=f32[8,16], sharding={{replicated}, {replicated}}
  %after_o = token[] after-all(%o)
  %p = token[] outfeed(%x, %k), outfeed_shape=f32[8,16], sharding={{replicated}, {maximal device=2}}
  %after_p = token[] after-all(%p)
  ROOT %root = (f32[8,16]) tuple(%x)
}
"""

SCAN = """HloModule m

%step {
  %e = f32[16] parameter(0)
  %f = f32[16] parameter(1)
  %g = f32[16] add(%e, %f)
  ROOT %h = (f32[16], f32[16]) tuple(%g, %g)
}

ENTRY %main {
  %x = f32[8,16] parameter(0)
  %xs = f32[8,16] copy(%x)
  %y = f32[16] parameter(1)
  %carry = f32[16] copy(%y)
  %op = (f32[8,16], f32[16]) scan(%xs, %carry), dimensions={0}, num_carries=1, to_apply=%step,
    sharding={{devices=[2,2]<=[4]}, {devices=[4]<=[4]}}
  %out = f32[8,16] get-tuple-element(%op), index=0
  ROOT %root = (f32[8,16]) tuple(%out)
}
"""


def shardings(hlo: str, **options: bool) -> dict[str, str | None]:
    found = propagate(load(hlo, format="hlo"), **options).shardings
    return {name: None if s is None else str(s) for name, s in found.items()}


def test_outside_spmd_no_operand_speaks_for_a_fusion_and_others_are_not_taken_for_one() -> None:
    found = shardings(FUSION, is_spmd=False)
    tiled = "{devices=[2,1,3]<=[6] last_tile_dim_replicate}"
    assert (found["fused"], found["after"], found["asked"]) == (tiled, tiled, None)


def test_the_callee_of_an_async_op_takes_nothing_from_elsewhere() -> None:
    found = shardings(ASYNC, to_outputs=True)
    assert found["root"] is not None
    assert (found["v"], found["w"], found["q"], found["done"]) == (None, None, None, None)


def test_a_token_element_leaves_its_tuple_alone() -> None:
    found = shardings(TOKENS)
    assert (found["s"], found["c"], found["t"]) == ("{replicated}", None, None)


def test_only_what_is_replicated_in_all_its_elements_makes_its_user_replicated() -> None:
    found = shardings(TOKENS)
    assert (found["after_o"], found["after_p"]) == ("{{replicated}, {replicated}}", None)


def test_a_scan_gives_each_operand_the_element_of_its_number() -> None:
    found = shardings(SCAN)
    assert (found["xs"], found["carry"]) == ("{devices=[2,2]<=[4]}", "{devices=[4]<=[4]}")


def test_collectives_of_replicated_values_are_replicated_but_for_those_that_bind_their_layout() -> None:
    found = shardings(COLLECTIVES)
    assert found["gathered"] == found["turned"] == "{replicated}"
    assert found["kept"] is found["split"] is None


def test_a_collective_of_several_arrays_takes_nothing_from_operands() -> None:
    # XLA dies of it.
    assert shardings(COLLECTIVES)["both"] is None


def test_a_collective_of_several_arrays_takes_from_its_users_and_gives_its_operands_nothing() -> None:
    found = shardings(USERS_OF_SEVERAL)
    assert (found["both"], found["negated"]) == ("{{devices=[2,2]<=[4]}, {devices=[2,1,2]<=[4]}}", None)


def turned(given: str, wanted: str) -> str | None:
    """What one end of a transposing broadcast gets from the other."""
    text = f"""HloModule m
    ENTRY %main {{
      %x = f32[8,8] parameter(0){given}
      %y = f32[8,8] broadcast(%x), dimensions={{1,0}}{wanted}
      ROOT %r = f32[8,8] negate(%y)
    }}"""
    found = shardings(text, to_outputs=True, to_parameters=True)
    return found["x" if wanted else "y"]


def test_a_broadcast_whose_dims_do_not_ascend_turns_its_cuts_but_not_its_devices() -> None:
    assert turned(", sharding={devices=[2,4]<=[8]}", "") == "{devices=[4,2]<=[8]}"


def test_and_what_its_users_have_is_taken_as_if_they_ascended() -> None:
    assert turned("", ", sharding={devices=[2,4]<=[8]}") == "{devices=[2,4]<=[8]}"


@pytest.mark.parametrize(
    ("inmost", "found"), [("negate(p)", "{devices=[4,1]<=[4]}"), ("reverse(p), dimensions={0}", None)]
)
def test_fusions_that_double_with_each_level_are_followed_once(inmost: str, found: str | None) -> None:
    """A fusion of elementwise ops is elementwise, however deep they are; 40 levels are a million million ops."""
    levels = [f"level0 {{\n  p = f32[8,8] parameter(0)  ROOT r = f32[8,8] {inmost}\n}}"]
    for n in range(40):
        once, twice = (f"f32[8,8] fusion({x}), kind=kLoop, calls=level{n}" for x in "pq")
        levels.append(f"level{n + 1} {{\n  p = f32[8,8] parameter(0)  q = {once}  ROOT r = {twice}\n}}")
    entry = (
        "x = f32[8,8] parameter(0), sharding={devices=[4,1]<=[4]}  y = f32[8,8] fusion(x), kind=kLoop, calls=level40"
    )
    text = "\n".join(["HloModule m", *levels, f"ENTRY e {{ {entry}  ROOT t = (f32[8,8]) tuple(y) }}"])
    assert shardings(text)["y"] == found
