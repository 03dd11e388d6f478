"""Which values lie alike, and which ops stand at their borders."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.partitioner.global_choice.value_groups import Group, groups_of
from tests.support.split_programs import mark

ROWS = mark("[8,1]<=[8]")
CHAIN = f"""
    x = f32[64,32] parameter(0){ROWS}
    w = f32[32,16] parameter(1), sharding={{replicated}}
    u = f32[16,8] parameter(2), sharding={{replicated}}
    h = f32[64,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{ROWS}
    g = f32[64,16] tanh(h){ROWS}
    m = f32[64,16] multiply(g, h){ROWS}
    d = f32[64,8] dot(m, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{ROWS}
    ROOT y = f32[64,8] negate(d){ROWS}"""


def groups(body: str, *bound: str) -> list[Group]:
    module = hs.load("HloModule m, num_partitions=8\nENTRY e {" + body + "\n}")
    return groups_of(module.entry, module.shardings, frozenset(bound))


def names(group: Group) -> tuple[list[str], list[str]]:
    return [m.name for m in group.members], [b.name for b in group.borders]


def test_elementwise_ops_join_values_and_other_ops_bound_them() -> None:
    assert [names(group) for group in groups(CHAIN)] == [(["h", "g", "m"], ["h", "d"]), (["d"], ["d", "y"])]


def test_what_is_annotated_belongs_to_no_group() -> None:
    assert [names(group) for group in groups(CHAIN, "g")] == [
        (["h", "m"], ["h", "g", "m", "d"]),
        (["d"], ["d", "y"]),
    ]


def test_where_a_result_is_wanted_is_known() -> None:
    given_back = f"""
    x = f32[64,32] parameter(0){ROWS}
    y = f32[64,32] negate(x){ROWS}
    ROOT t = (f32[64,32]) tuple(y), sharding={{{{replicated}}}}"""
    [group] = groups(given_back)
    assert [(value.name, str(place)) for value, place in group.asked] == [("y", "{replicated}")]


def test_what_nobody_reads_asks_for_nothing() -> None:
    unread = CHAIN.replace("ROOT y", f"n = f32[16,64] transpose(h), dimensions={{1,0}}{ROWS}\n    ROOT y")
    assert next(names(group) for group in groups(unread)) == (["h", "g", "m"], ["h", "d"])


def test_places_of_a_nested_tuple_are_those_of_its_arrays() -> None:
    nested = f"""
    x = f32[64,32] parameter(0){ROWS}
    y = f32[64,32] negate(x){ROWS}
    p = (f32[64,32], f32[64,32]) tuple(x, x), sharding={{{{replicated}}, {{replicated}}}}
    ROOT t = ((f32[64,32], f32[64,32]), f32[64,32]) tuple(p, y),
      sharding={{{{replicated}}, {{replicated}}, {{devices=[1,8]<=[8]}}}}"""
    [group] = groups(nested)
    assert [(value.name, str(place)) for value, place in group.asked] == [("y", "{devices=[1,8]<=[8]}")]


def test_a_parameter_that_several_ops_read_may_be_copied_for_them() -> None:
    twice = f"""
    x = f32[64,32] parameter(0){ROWS}
    w = f32[32,16] parameter(1), sharding={{replicated}}
    h = f32[64,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{ROWS}
    e = f32[64,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{ROWS}
    s = f32[8,32] slice(x), slice={{[0:8], [0:32]}}{ROWS}
    ROOT t = (f32[64,16], f32[64,16], f32[8,32]) tuple(h, e, s)"""
    assert [names(group) for group in groups(twice) if group.is_copy] == [(["x"], ["h", "e"])]
