"""The bound against the optimum over all ways to pass pieces on, found by another linear program.

There a demand may use each pair of devices; by Edmonds's theorem it is a mix of trees where into each set of wanters
goes at least as much as one of them wants.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from hlosharding.cost import Link, Machine, machines
from hlosharding.transfer.links import DeviceLinks, least_busiest
from hlosharding.transfer.pieces import Demand, TilePiece
from hlosharding.transfer.routes import routes_of

ROWS = 10_080
"""Of each demand, so that it can be cut finely."""


def demand(holders: tuple[int, ...], wanters: tuple[int, ...], row_bytes: int = 1) -> Demand:
    """One piece of `ROWS` rows."""
    return Demand(holders, wanters, [TilePiece(0, 1, ((0, ROWS),), ROWS * row_bytes)])


def machine(per_node: int, inside: float, between: float) -> Machine:
    """Twelve devices."""
    links = {"inside": Link(bandwidth=inside, latency=0.0), "between": Link(bandwidth=between, latency=0.0)}
    return replace(machines.h100(12), devices_per_node=per_node, **links)


def least_by_trees(demands: list[Demand], links: DeviceLinks) -> float:
    """The optimum, with a row for each set of wanters."""
    columns = [(n, u, v) for n, d in enumerate(demands) for u in (*d.holders, *d.wanters) for v in d.wanters if u != v]
    upper: list[tuple[dict[int, float], float]] = []
    for number, d in enumerate(demands):
        for size in range(1, len(d.wanters) + 1):
            for inner in combinations(d.wanters, size):
                entering = [k for k, (n, u, v) in enumerate(columns) if n == number and v in inner and u not in inner]
                upper.append((dict.fromkeys(entering, -1.0), -float(d.nbytes)))
    carried: dict[int, dict[int, float]] = {}
    for k, (_, u, v) in enumerate(columns):
        level = int(links.node[u] != links.node[v])
        for link in (links.number(u, level, 0), links.number(v, level, 1)):
            carried.setdefault(link, {})[k] = 1 / float(links.rate[link])
    upper += [({**row, len(columns): -1.0}, 0.0) for row in carried.values()]
    table = np.zeros((len(upper), len(columns) + 1))
    for number, (row, _) in enumerate(upper):
        table[number, list(row)] = list(row.values())
    received = np.zeros((sum(len(d.wanters) for d in demands), len(columns) + 1))
    wanted = [(n, v) for n, d in enumerate(demands) for v in d.wanters]
    for row, pair in enumerate(wanted):
        received[row, [k for k, (n, _, v) in enumerate(columns) if (n, v) == pair]] = 1.0
    found = linprog(
        np.eye(len(columns) + 1)[-1],
        A_ub=table,
        b_ub=[bound for _, bound in upper],
        A_eq=received,
        b_eq=[demands[n].nbytes for n, _ in wanted],
    )
    return float(found.fun)


@st.composite
def demand_lists(draw: st.DrawFn) -> list[Demand]:
    """Some demands among twelve devices."""
    found: list[Demand] = []
    for _ in range(draw(st.integers(1, 4))):
        order = draw(st.permutations(range(12)))
        holders, wanters = draw(st.integers(1, 3)), draw(st.integers(1, 4))
        members = tuple(sorted(order[:holders])), tuple(sorted(order[holders : holders + wanters]))
        found.append(demand(*members, row_bytes=draw(st.sampled_from([1, 1, 3]))))
    return found


MACHINES = st.sampled_from([None, machine(4, 9.0, 1.0), machine(3, 2.0, 1.0), machine(2, 1.0, 1.0)])


@settings(max_examples=60, derandomize=True)  # in rare cases they are further apart
@given(demand_lists(), MACHINES)
def test_bound_optimum_and_routes_meet(demands: list[Demand], of: Machine | None) -> None:
    links = DeviceLinks.of(of, 12)
    bound, optimum = least_busiest(demands, links), least_by_trees(demands, links)
    assert bound <= optimum * (1 + 1e-6)
    assert bound >= optimum * 0.98
    busiest = routes_of(demands, links, bound).busiest
    assert optimum * (1 - 1e-6) <= busiest <= 1.02 * optimum


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_broadcast_is_passed_on(count: int) -> None:
    """The sender sends everything once, however many want it."""
    wanted = [demand((0,), tuple(range(1, 1 + count)))]
    assert least_busiest(wanted, DeviceLinks.of(None, 8)) == pytest.approx(ROWS)


def test_holders_share_the_sending() -> None:
    """Three holders serve two that lack different pieces; each of these receives all of one."""
    links = DeviceLinks.of(None, 8)
    assert least_busiest([demand((0, 1, 2), (3,)), demand((0, 1, 2), (4,))], links) == pytest.approx(ROWS)
    assert least_busiest([demand((0, 1), (d,)) for d in (3, 4, 5, 6)], links) == pytest.approx(2 * ROWS)


def test_what_a_node_lacks_enters_it_once() -> None:
    """Four devices of a node want the same: each takes a quarter from outside, and the rest from the others."""
    links = DeviceLinks.of(machine(4, 9.0, 1.0), 12)
    assert least_busiest([demand((0,), (4, 5, 6, 7))], links) == pytest.approx(ROWS)  # the sender's way out of its node
    assert least_busiest([demand((0, 1, 2, 3), (4, 5, 6, 7))], links) == pytest.approx(ROWS / 4)
