"""Where stages end in loops over layers: nearest to equal shares, what stands ahead and behind included."""

from __future__ import annotations

import pytest

from hlosharding.errors import ScheduleError
from hlosharding.ir import Builder, Instruction, Shape
from hlosharding.schedule.cutting.trip_stages import stages_of_trips


def ops(*names: str) -> list[Instruction]:
    main = Builder("m").computation("main")
    x = main.parameter(0, Shape.array("f32", (8,)))
    return [main.add("negate", x.shape, (x,), name=name) for name in names]


def layers_of(found: list[int]) -> list[int]:
    return [found.count(stage) for stage in dict.fromkeys(found)]


@pytest.mark.parametrize(("layers", "stages"), [(126, 8), (126, 40), (126, 16), (5, 2), (12, 4)])
def test_layers_that_do_not_divide_differ_by_one_at_most(layers: int, stages: int) -> None:
    [loop] = ops("loop")
    found = stages_of_trips([loop], {loop: 1.0}, {loop: layers}, (1,) * stages)["loop"]
    sizes = layers_of(found)
    assert (len(sizes), sum(sizes)) == (stages, layers)
    assert max(sizes) - min(sizes) <= 1
    assert found == sorted(found)


def test_what_stands_behind_the_loop_counts() -> None:
    """A head as long as two layers: eight layers and it in two stages are five, and three with it."""
    before, loop, head = ops("before", "loop", "head")
    found = stages_of_trips([before, loop, head], {loop: 8.0, head: 2.0}, {loop: 8}, (1, 1))["loop"]
    assert layers_of(found) == [5, 3]


def test_two_loops_are_cut_where_stages_end() -> None:
    first, second = ops("first", "second")
    found = stages_of_trips([first, second], {first: 4.0, second: 8.0}, {first: 4, second: 4}, (1, 1, 1))
    assert found == {"first": [0, 0, 0, 0], "second": [1, 1, 2, 2]}


@pytest.mark.parametrize("layers", [(5, 3), (1, 6, 1), (2, 2, 2, 2)])
def test_stages_have_the_trips_that_are_said(layers: tuple[int, ...]) -> None:
    before, loop, head = ops("before", "loop", "head")
    assert layers_of(stages_of_trips([before, loop, head], {loop: 8.0}, {loop: 8}, layers)["loop"]) == list(layers)


def test_fewer_layers_than_stages_are_refused() -> None:
    [loop] = ops("loop")
    with pytest.raises(ScheduleError, match=r"3 layers \(%loop\) for 4 stages; take stages, .*, up to 3"):
        stages_of_trips([loop], {loop: 1.0}, {loop: 3}, (1,) * 4)
