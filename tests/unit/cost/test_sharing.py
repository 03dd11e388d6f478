"""Tasks that share links: what they take together, and what they must never take."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.cost import LinkUse, Tasks, run_in_order, run_sharing_links
from hlosharding.cost.sharing import divide_fairly

RATE = 100.0


def alone(*links: int, latency: float = 0.0, speed: float = RATE) -> LinkUse:
    return LinkUse(latency, speed, links)


def run(seconds: list[float], uses: list[LinkUse], bandwidths: list[float]) -> list[float]:
    """When tasks end that may all begin at once."""
    tasks = Tasks(seconds, [(n,) for n in range(len(seconds))], [()] * len(seconds))
    return run_sharing_links(tasks, dict(enumerate(uses)), bandwidths).end


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_equal_transfers_over_one_link_divide_it(count: int) -> None:
    """Of 5 s alone 4 s are of bytes."""
    ends = run([5.0] * count, [alone(0, latency=1.0)] * count, [RATE])
    assert ends == [pytest.approx(1.0 + 4.0 * count)] * count


def test_who_comes_later_slows_down_what_is_left() -> None:
    """From 1 s on each has half: the first has 3 s of its 4 left, which take 6; then the second has 1 s left."""
    assert run([4.0, 5.0], [alone(0), alone(0, latency=1.0)], [RATE]) == [pytest.approx(7.0), pytest.approx(8.0)]


def test_a_way_out_and_a_way_in_are_links_of_their_own() -> None:
    assert run([2.0, 2.0], [alone(0, 1), alone(2, 3)], [RATE] * 4) == [2.0, 2.0]
    assert run([2.0, 2.0], [alone(0, 1), alone(2, 1)], [RATE] * 4) == [4.0, 4.0]


def test_what_is_slower_on_its_way_leaves_the_rest() -> None:
    """The second takes 10 of 100, the first goes on with 90."""
    assert run([9.0, 10.0], [alone(0), alone(0, 1, speed=10.0)], [RATE, 10.0]) == [pytest.approx(10.0), 10.0]


def test_the_textbook_example_of_fairness() -> None:
    """One over both links, one over the first, two over the second: a third of the second each, then what is left."""
    shares = divide_fairly({0: alone(0, 1), 1: alone(0), 2: alone(1), 3: alone(1)}, [RATE, RATE])
    assert [shares[n] for n in range(4)] == [pytest.approx(each) for each in (1 / 3, 2 / 3, 1 / 3, 1 / 3)]


def test_lanes_work_in_order() -> None:
    """The second waits for the first on its lane, the third for the second, each alone on the link."""
    tasks = Tasks([1.0, 2.0, 3.0], [(0,), (0, 1), (1,)], [(), (), ()])
    found = run_sharing_links(tasks, dict.fromkeys(range(3), alone(0)), [RATE])
    assert (found.start, found.cause) == ([0.0, 1.0, 3.0], [-1, 0, 1])


LINKS = 4
BANDWIDTHS = [100.0, 50.0, 30.0, 100.0]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Tasks, dict[int, LinkUse]]:
    tasks, uses = Tasks(), dict[int, LinkUse]()
    for number in range(draw(st.integers(1, 12))):
        seconds = draw(st.sampled_from([0.0, 0.1, 1.0, 1.7, 3.0]))
        lanes = draw(st.sets(st.integers(0, 5), max_size=2))
        waits = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set[int]()
        tasks.add(seconds, tuple(sorted(lanes)), tuple(sorted(waits)))
        if links := tuple(draw(st.sets(st.integers(0, LINKS - 1), max_size=3))):
            latency = seconds * draw(st.sampled_from([0.0, 0.25, 1.0]))
            speed = min(BANDWIDTHS[link] for link in links) * draw(st.sampled_from([1.0, 0.7]))
            uses[number] = LinkUse(latency, speed, links)
    return tasks, uses


@given(programs())
def test_nobody_is_faster_than_alone(program: tuple[Tasks, dict[int, LinkUse]]) -> None:
    tasks, uses = program
    slow, fast = run_sharing_links(tasks, uses, BANDWIDTHS), run_in_order(tasks)
    assert all(a >= b * (1 - 1e-12) for a, b in zip(slow.end, fast.end, strict=True))
    assert run_sharing_links(tasks, uses, BANDWIDTHS) == slow


@given(programs())
def test_who_meets_nobody_takes_what_it_takes_alone(program: tuple[Tasks, dict[int, LinkUse]]) -> None:
    tasks, uses = program
    fast = run_in_order(tasks)
    spans = [(use.links, fast.start[n] + use.latency, fast.end[n]) for n, use in uses.items()]
    meet = any(
        a is not b and set(a[0]) & set(b[0]) and max(a[1], b[1]) < min(a[2], b[2]) for a, b in product(spans, spans)
    )
    if not meet:
        assert run_sharing_links(tasks, uses, BANDWIDTHS) == fast
    links_of_their_own = {n: LinkUse(use.latency, RATE, (n,)) for n, use in uses.items()}
    assert run_sharing_links(tasks, links_of_their_own, [RATE] * len(tasks.seconds)) == fast


@given(programs())
def test_no_link_carries_more_than_it_can(program: tuple[Tasks, dict[int, LinkUse]]) -> None:
    """In every span of time, the bytes of those that are under way only then."""
    tasks, uses = program
    times = run_sharing_links(tasks, uses, BANDWIDTHS)
    spans = {
        n: (times.start[n] + use.latency, times.end[n], (tasks.seconds[n] - use.latency) * use.speed)
        for n, use in uses.items()
    }
    for link, bandwidth in enumerate(BANDWIDTHS):
        there = [spans[n] for n, use in uses.items() if link in use.links]
        for (first, _, _), (_, last, _) in product(there, there):
            carried = sum(nbytes for start, end, nbytes in there if first <= start and end <= last)
            assert carried <= bandwidth * max(0.0, last - first) * (1 + 1e-9) + 1e-9


@given(programs())
def test_no_link_is_promised_twice_and_nobody_waits_without_need(
    program: tuple[Tasks, dict[int, LinkUse]],
) -> None:
    """Max-min: who is slower than alone has a full link on which nobody is faster."""
    _, uses = program
    rates = {n: share * uses[n].speed for n, share in divide_fairly(uses, BANDWIDTHS).items()}
    loads = [sum(rates[n] for n, use in uses.items() if link in use.links) for link in range(LINKS)]
    assert all(load <= bandwidth * (1 + 1e-12) for load, bandwidth in zip(loads, BANDWIDTHS, strict=True))
    for number, use in uses.items():
        fastest = [
            max((rates[n] for n, other in uses.items() if link in other.links), default=0.0) for link in range(LINKS)
        ]
        held_back = [
            link
            for link in use.links
            if loads[link] >= BANDWIDTHS[link] * (1 - 1e-12) and rates[number] >= fastest[link] * (1 - 1e-12)
        ]
        assert rates[number] == use.speed or held_back
