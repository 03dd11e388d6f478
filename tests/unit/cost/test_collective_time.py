"""Closed forms of collectives: n ranks, S bytes of the full buffer, W bytes/s per direction, hop latency a.

Written out here by hand from the literature (Thakur, Rabenseifner and Gropp 2005; the scaling book for tori).
"""

from __future__ import annotations

import dataclasses
from math import log2

import pytest

from hlosharding.cost import Link, Machine, collective_time, group_placement, machines, op_time, placement_time
from hlosharding.cost.collective_time import ALGORITHMS
from hlosharding.errors import CostError

A, W = 2e-6, 100e9
A_OUT, W_OUT = 5e-6, 10e9


def machine(num_devices: int, per_node: int) -> Machine:
    return dataclasses.replace(
        machines.h100(num_devices),
        devices_per_node=per_node,
        inside=Link(bandwidth=W, latency=A),
        between=Link(bandwidth=W_OUT, latency=A_OUT),
        collective_launch=0.0,
        nccl=None,
    )


def torus(shape: tuple[int, ...], wrap: int) -> Machine:
    count = 1
    for size in shape:
        count *= size
    return dataclasses.replace(machine(count, count), topology="torus", torus=shape, wrap_multiple=wrap)


def row(start: int, count: int, step: int = 1) -> tuple[int, ...]:
    return tuple(range(start, start + count * step, step))


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_one_node_powers_of_two(n: int, size: float) -> None:
    m = machine(8, 8)
    share = (n - 1) / n
    groups = (row(0, n),)
    gather = log2(n) * A + share * size / W  # recursive doubling never loses to a ring by this model
    assert collective_time("all-gather", size, n, groups, m) == pytest.approx(gather)
    assert collective_time("reduce-scatter", size, n, groups, m) == pytest.approx(gather)
    assert collective_time("all-reduce", size, n, groups, m) == pytest.approx(2 * gather)
    exchange = min((n - 1) * A + share * size / W, log2(n) * (A + size / (2 * W)))
    assert collective_time("all-to-all", size, n, groups, m) == pytest.approx(exchange)
    assert collective_time("collective-broadcast", size, n, groups, m) == pytest.approx(log2(n) * A + size / W)
    assert collective_time("collective-permute", size, 2, ((0, 1),), m) == pytest.approx(A + size / W)


def test_the_formulas_of_the_table() -> None:
    n, size = 6, 6e6
    ring = (n - 1) * A + (n - 1) / n * size / W
    assert ALGORITHMS["all-gather"]["ring"](n, size, A, W) == pytest.approx(ring)
    assert ALGORITHMS["all-gather"]["doubling"](n, size, A, W) == pytest.approx(3 * A + 5 / 6 * size / W)
    assert ALGORITHMS["all-reduce"]["ring"](n, size, A, W) == pytest.approx(2 * ring)
    assert ALGORITHMS["all-reduce"]["tree"](n, size, A, W) == pytest.approx(6 * A + 2 * size / W)
    # Six ranks: four by halving and doubling, two of them carrying a partner's data in and out.
    folded = 2 * (2 * A + 3 / 4 * size / W) + 2 * (A + size / W)
    assert ALGORITHMS["all-reduce"]["halving-doubling"](n, size, A, W) == pytest.approx(folded)
    assert ALGORITHMS["all-to-all"]["bruck"](n, size, A, W) == pytest.approx(3 * (A + size / (2 * W)))
    assert ALGORITHMS["collective-broadcast"]["pipelined ring"](n, size, A, W) == pytest.approx(5 * A + size / W)


def test_a_ring_wins_large_odd_groups_and_a_tree_small_ones() -> None:
    m = machine(8, 8)
    groups = (row(0, 7),)
    assert placement_time("all-reduce", 1e9, group_placement(groups, m), m)[1] == "ring"
    assert placement_time("all-reduce", 1e2, group_placement(groups, m), m)[1] == "tree"
    assert placement_time("all-to-all", 1e2, group_placement((row(0, 8),), m), m)[1] == "bruck"
    assert placement_time("all-to-all", 1e9, group_placement((row(0, 8),), m), m)[1] == "pairwise"


def test_groups_across_nodes_one_member_each_use_the_network_alone() -> None:
    m = machine(8, 4)
    seconds = collective_time("all-gather", 1e6, 2, ((0, 4), (1, 5)), m)
    assert seconds == pytest.approx(A_OUT + 1 / 2 * 1e6 / W_OUT)


def test_hierarchical_all_reduce() -> None:
    g, nodes, size = 8, 2, 1e6
    m = dataclasses.replace(machine(16, 8), between=Link(bandwidth=0.2e9, latency=A_OUT))
    inside = 2 * (3 * A + (g - 1) / g * size / W)
    across = 2 * (A_OUT + (nodes - 1) / nodes * size / g / 0.2e9)
    flat = 2 * ((16 - 2) * A + A_OUT + 15 / 16 * size / (g * 0.2e9))
    assert inside + across < flat
    assert collective_time("all-reduce", size, 16, (row(0, 16),), m) == pytest.approx(inside + across)


def test_a_flat_ring_that_uses_all_cards_of_a_node_at_once() -> None:
    g, size = 8, 1e9
    m = machine(16, 8)
    flat = 2 * ((16 - 2) * A + A_OUT + 15 / 16 * size / min(W, g * W_OUT))
    assert collective_time("all-reduce", size, 16, (row(0, 16),), m) == pytest.approx(flat)


def test_all_to_all_across_nodes_is_bound_by_the_slower_class_of_links() -> None:
    size, n, g = 1e9, 16, 8
    m = machine(16, 8)
    seconds = collective_time("all-to-all", size, n, (row(0, 16),), m)
    assert seconds == pytest.approx(size * (n - g) / n / W_OUT, rel=1e-2)


def test_a_permute_is_as_slow_as_its_worst_pair() -> None:
    m = machine(8, 4)
    inside = collective_time("collective-permute", 1e6, 2, ((0, 1), (1, 0)), m)
    across = collective_time("collective-permute", 1e6, 2, ((0, 1), (3, 4)), m)
    assert inside == pytest.approx(A + 1e6 / W)
    assert across == pytest.approx(A_OUT + 1e6 / W_OUT)
    assert collective_time("collective-permute", 1e6, 2, ((0, 0), (3, 3)), m) == 0.0


def test_a_closed_ring_of_a_torus_runs_both_ways() -> None:
    m = torus((4, 4, 4), wrap=4)
    seconds = collective_time("all-gather", 1e9, 4, (row(0, 4),), m)
    assert seconds == pytest.approx(2 * A + 3 / 4 * 1e9 / (2 * W))
    along_two = collective_time("all-reduce", 1e9, 16, (row(0, 16),), m)
    assert along_two == pytest.approx(2 * (4 * A + 15 / 16 * 1e9 / (4 * W)))


def test_an_open_chain_of_a_torus_has_half_the_width() -> None:
    m = torus((4, 4), wrap=16)
    seconds = collective_time("all-gather", 1e9, 4, (row(0, 4),), m)
    assert seconds == pytest.approx(3 * A + 3 / 4 * 1e9 / W)


def test_all_to_all_on_a_ring_costs_a_quarter_of_the_gather_of_all_its_data() -> None:
    # The scaling book: V / (4 W_bidirectional), V the bytes of the whole array.
    m, local = torus((16,), wrap=16), 1e9
    seconds = collective_time("all-to-all", local, 16, (row(0, 16),), m)
    assert seconds == pytest.approx(8 * A + 16 * local / (4 * 2 * W))


def test_a_strided_axis_of_a_torus_shares_its_links() -> None:
    m = torus((16,), wrap=16)
    near = collective_time("all-gather", 1e9, 4, (row(0, 4),), m)
    spread = collective_time("all-gather", 1e9, 4, (row(0, 4, 4),), m)
    assert near == pytest.approx(3 * A + 3 / 4 * 1e9 / W)
    assert spread == pytest.approx(8 * A + 3 / 4 * 1e9 / (2 * W / 4))


def test_nothing_to_send_costs_nothing() -> None:
    m = machines.h100(8)
    assert collective_time("all-reduce", 1e6, 1, ((0,), (1,)), m) == 0.0
    assert collective_time("all-reduce", 0, 8, None, m) == 0.0


def test_without_groups_neighbours_are_meant() -> None:
    m = machine(16, 8)
    assert collective_time("all-reduce", 1e6, 4, None, m) == collective_time("all-reduce", 1e6, 4, (row(0, 4),), m)
    assert collective_time("collective-permute", 1e6, 2, None, m) == pytest.approx(A + 1e6 / W)


def test_lists_are_as_good_as_tuples() -> None:
    m = machine(16, 8)
    assert collective_time("all-reduce", 1e6, 2, [[0, 1]], m) == collective_time("all-reduce", 1e6, 2, ((0, 1),), m)


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(CostError, match="no price for collective 'gossip'"):
        collective_time("gossip", 1e6, 2, None, machines.h100())


def test_the_roofline() -> None:
    m = dataclasses.replace(
        machines.h100(), launch=1e-6, compute_efficiency=0.5, memory_efficiency=0.5, vector_flops=1e12
    )
    assert op_time(1e15, 0, "bf16", m) == pytest.approx(1e-6 + 1e15 / (990e12 * 0.5))
    assert op_time(0, 3.35e9, "bf16", m) == pytest.approx(1e-6 + 2e-3)
    assert op_time(1e12, 0, "f32", m, matrix=False) == pytest.approx(1e-6 + 1.0)
    # The slower of the two, not their sum.
    assert op_time(1e15, 3.35e9, "bf16", m) == op_time(1e15, 0, "bf16", m)
