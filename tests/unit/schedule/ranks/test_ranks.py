"""A schedule projected to each of its devices."""

from __future__ import annotations

import pytest

from hlosharding.errors import ScheduleError
from hlosharding.schedule import Schedule, parse_schedule
from hlosharding.schedule.tile_parts import tile_parts
from hlosharding.schedule.tiles import tile_box
from hlosharding.schedule.value_type import parse_type
from tests.support import mlp_ops


def figure(name: str, rows: int) -> Schedule:
    return parse_schedule((mlp_ops.FIGURES / f"{name}.txt").read_text(), mlp_ops.ops(rows))


def test_a_rank_has_its_steps_in_the_schedules_order_with_calls_inlined() -> None:
    assert str(figure("pipeline", 4).rank(0)) == (
        "rank 0(%w1: f32[16,16], %x: f32[8,16]) {\n"
        "  %x_1, %x_2 = split(%x) dim=0 parts=2 axis=micro : f32[4,16]; f32[4,16]\n"
        "  %as_1 = @dense(%w1, %x_1) : f32[4,16]\n"
        "  send(%as_1) to=1 as=%ar_1\n"
        "  %as_2 = @dense(%w1, %x_2) : f32[4,16]\n"
        "  send(%as_2) to=1 as=%ar_2\n"
        "  %dar_1 = receive() from=1 : f32[4,16]\n"
        "  %dw1_1, %dx_1 = @dense_grad(%w1, %x_1, %dar_1) : f32[16,16]; f32[4,16]\n"
        "  %dar_2 = receive() from=1 : f32[4,16]\n"
        "  %dw1_2, %dx_2 = @dense_grad(%w1, %x_2, %dar_2) : f32[16,16]; f32[4,16]\n"
        "  %dw1 = add(%dw1_1, %dw1_2) : f32[16,16]\n"
        "  %w1_new = @update(%w1, %dw1) : f32[16,16]\n"
        "  return %w1_new\n"
        "}"
    )


def test_who_only_gives_to_a_reduction_gets_nothing_and_frees_only_what_it_has() -> None:
    lines = str(figure("zero", 4).rank(1)).splitlines()
    assert "  reduce(%dw1_2) to={0} member=1 of={0,1} as=%dw1" in lines
    assert "  %dw2 = reduce(%dw2_2) to={1} member=1 of={0,1} : f32[16,16]" in lines
    assert [line for line in lines if "free" in line] == ["  free %w1_2_f"]


def test_one_rank_is_what_it_is_among_all() -> None:
    schedule = figure("zero", 4)
    assert schedule.ranks() == {device: schedule.rank(device) for device in (0, 1)}
    assert str(schedule.rank(0)) == str(schedule.ranks()[0])


def test_a_device_that_takes_no_part_has_no_program() -> None:
    with pytest.raises(ScheduleError, match=r"device 7 takes no part; these do: \{0,1\}"):
        figure("zero", 4).rank(7)


NESTED = """
func @main(%x: f32[2] on {0}) {
  %y = call @there_and_back(%x)
  %z = call @there_and_back(%y)
  return %z
}
func @there_and_back(%x) {
  %there = call @over(%x)
  %back = send(%there) to={0}
  return %back
}
func @over(%x) {
  %over = send(%x) to={1}
  return %over
}
"""


def test_what_a_call_makes_has_the_callers_name_and_what_it_makes_again_one_of_its_own() -> None:
    assert str(parse_schedule(NESTED).rank(1)).splitlines()[1:-1] == [
        "  %there_and_back.there = receive() from=0 : f32[2]",
        "  send(%there_and_back.there) to=0 as=%y",
        "  %there_and_back.there.2 = receive() from=0 : f32[2]",
        "  send(%there_and_back.there.2) to=0 as=%z",
        "  return",
    ]


TYPES = [
    "f32[7,6] on {0}",
    "f32[7,6] on {0-3}",
    "f32[7,6] on {0-3} as {devices=[4,1]<=[4]}",
    "f32[7,6] on {0-3} as {devices=[2,2]<=[2,2]T(1,0)}",
    "f32[7,6] on {0-5} as {devices=[2,3]<=[6]}",
    "f32[7,6] on {0-5} as {devices=[1,3,2]<=[6] last_tile_dim_replicate}",
    "f32[7,6] on {0-1} as {maximal device=1}",
]


@pytest.mark.parametrize("departed", TYPES)
@pytest.mark.parametrize("arrived", TYPES)
def test_every_element_of_a_tile_comes_once_from_one_that_holds_it(departed: str, arrived: str) -> None:
    source, there = parse_type(departed), parse_type(arrived)
    target = parse_type(arrived.replace(arrived.split("{")[1].split("}")[0], f"10-{9 + len(there.devices)}", 1))
    got: dict[int, list[tuple[int, int]]] = {device: [] for device in target.devices}
    is_straight = len(source.devices) == len(target.devices) and source.sharding == target.sharding
    for part in tile_parts(source, target):
        if source.sharding.is_maximal() and not is_straight:
            assert part.source == 1
        origin = tile_box(source, source.devices.index(part.source))
        mine = tile_box(target, target.devices.index(part.target))
        cut = part.cut or tuple((0, end - start) for start, end in origin)
        at = part.at or tuple((0, end - start) for start, end in mine)
        of_source = [(start + a, start + b) for (start, _), (a, b) in zip(origin, cut, strict=True)]
        of_target = [(start + a, start + b) for (start, _), (a, b) in zip(mine, at, strict=True)]
        assert of_source == of_target
        got[part.target] += [(r, c) for r in range(*of_source[0]) for c in range(*of_source[1])]
    for place, device in enumerate(target.devices):
        rows, columns = tile_box(target, place)
        assert sorted(got[device]) == [(r, c) for r in range(*rows) for c in range(*columns)]


def test_receivers_are_served_by_different_holders() -> None:
    replicas, more = (
        parse_type("f32[4] on {0-3}"),
        parse_type("f32[4] on {4-7} as {devices=[2,2]<=[4] last_tile_dim_replicate}"),
    )
    assert [part.source for part in tile_parts(replicas, more)] == [0, 1, 2, 3]


def test_terms_of_a_sum_do_not_change_their_tiling_on_the_way() -> None:
    terms = parse_type("f32[4] on {0-1} as {unreduced}")
    with pytest.raises(ScheduleError, match="terms of a sum"):
        tile_parts(terms, parse_type("f32[4] on {2}"))
