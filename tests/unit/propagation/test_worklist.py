"""What is tried, and when: levels, skipping, and what a change calls back."""

from __future__ import annotations

from hlosharding.propagation.policy import NEVER
from hlosharding.propagation.worklist import DONE, LATER, REFINABLE, SKIPPED, TODO, Worklist


def worklist(*states: int, levels: tuple[int, ...] | None = None) -> Worklist:
    made = Worklist(bytearray(levels or [0] * len(states)))
    made.state[:] = bytes(states)
    return made


def test_a_level_opens_what_saw_a_change_and_skips_the_rest() -> None:
    one = worklist(LATER, DONE, TODO)
    one.start_level(0)
    assert list(one.state) == [TODO, SKIPPED, TODO]


def test_what_belongs_to_a_later_level_waits_and_what_is_never_tried_stays_closed() -> None:
    one = worklist(LATER, LATER, LATER, DONE, levels=(2, NEVER, REFINABLE, 2))
    one.start_level(1)
    assert list(one.state) == [LATER, LATER, TODO, DONE]
    one.start_level(2)
    assert list(one.state) == [TODO, LATER, TODO, SKIPPED]


def test_a_skipped_place_is_tried_after_all_if_a_change_comes_before_its_turn() -> None:
    one = worklist(SKIPPED, SKIPPED, DONE, TODO)
    one.first, one.last = 0, 0
    for place in range(4):
        one.touch(place)
    assert list(one.state) == [LATER, TODO, LATER, TODO]


def test_after_the_first_round_nothing_is_skipped() -> None:
    one = worklist(SKIPPED, TODO, LATER, SKIPPED)
    one.end_round(0, 3)
    assert list(one.state) == [DONE, TODO, LATER, SKIPPED]
