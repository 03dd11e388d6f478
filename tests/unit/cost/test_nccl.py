"""NCCL's collectives against what was measured, what a model fitted to measurements says, and NCCL's own log.

The log (NCCL_DEBUG_SUBSYS=TUNING of 2.27.5 on nodes of eight H100s) and the bandwidths of 1 GB inside a node are those
that meta-pytorch/autoparallel records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.collectives import FOLDER, SOURCES, collectives, errors
from hlosharding.cost import LARGEST_FIGURE, Link, Machine, collective_time, group_placement, machines, placement_time
from hlosharding.cost.nccl import ALGORITHMS
from hlosharding.errors import CostError

US, GB = 1e-6, 1e9
SIZES = [2.0**power for power in range(8, 31)]


def priced(kind: str, nbytes: float, nodes: int, per_node: int, machine: Machine | None = None) -> tuple[float, str]:
    """On H100s: seconds, without the start, and the algorithm; of so many devices in each of so many nodes."""
    machine = replace(machine or machines.h100(8 * nodes), collective_launch=0.0)
    group = tuple(8 * node + place for node in range(nodes) for place in range(per_node))
    return placement_time(kind, nbytes, group_placement((group,), machine), machine)


@pytest.mark.parametrize("name", SOURCES)
def test_a_table_is_met(name: str) -> None:
    source = SOURCES[name]
    mean, worst = errors([row.ratio(source.machine) for row in collectives(FOLDER, name)])
    assert (mean <= source.mean, worst <= source.worst) == (True, True), (mean, worst)


@pytest.mark.parametrize(
    ("kind", "nodes", "per_node", "us", "algorithm"),
    [
        ("all-gather", 2, 8, 23.3, "ring LL"),
        ("all-gather", 8, 8, 81.5, "ring LL"),
        ("all-gather", 32, 8, 314.3, "ring LL"),
        ("reduce-scatter", 8, 4, 49.5, "ring LL"),
        ("all-gather", 8, 1, 41.6, "ring LL"),
        ("all-reduce", 2, 8, 25.2, "tree LL"),
        ("all-reduce", 8, 8, 45.2, "tree LL"),
        ("all-reduce", 32, 8, 65.2, "tree LL"),
        ("all-reduce", 8, 1, 36.8, "tree LL"),
    ],
)
def test_a_byte_takes_what_nccl_logs(kind: str, nodes: int, per_node: int, us: float, algorithm: str) -> None:
    seconds, name = priced(kind, 1, nodes, per_node)
    # Its tree waits for no posts of the network inside a node, ours does.
    waits = 2 * (per_node - 1) * 0.4 if name.startswith("tree") else 0
    assert (seconds / US, name) == (pytest.approx(us + waits, abs=0.1), algorithm)


@pytest.mark.parametrize(
    ("kind", "n", "rate"),
    [
        ("all-gather", 2, 537),
        ("all-gather", 4, 434),
        ("all-gather", 8, 394),
        ("all-reduce", 2, 324),
        ("all-reduce", 4, 236),
        ("all-reduce", 8, 267),
    ],
)
def test_a_gigabyte_inside_a_node(kind: str, n: int, rate: float) -> None:
    seconds, _ = priced(kind, 2**30, 1, n)
    assert 2**30 / seconds / GB == pytest.approx(rate, rel=0.08)


@pytest.mark.parametrize("kind", ALGORITHMS)
@pytest.mark.parametrize("preset", [machines.v100, machines.a100, machines.h100, machines.b200])
def test_more_bytes_and_more_nodes_take_longer(kind: str, preset: Callable[[int], Machine]) -> None:
    nodes = (1, 2) if kind == "collective-permute" else (1, 2, 3, 8, 32)
    per_node = 1 if kind == "collective-permute" else 8
    machine = preset(256)
    table = [[priced(kind, size, count, per_node, machine)[0] for size in SIZES] for count in nodes]
    assert all(row == sorted(row) for row in table)
    assert all(list(column) == sorted(column) for column in zip(*table, strict=True))


@pytest.mark.parametrize("preset", [machines.v100, machines.a100, machines.h100, machines.b200])
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_inside_a_node_a_sum_takes_no_less_than_a_gather(preset: Callable[[int], Machine], n: int) -> None:
    machine = preset(8)
    for size in SIZES:
        assert priced("all-reduce", size, 1, n, machine)[0] >= priced("all-gather", size, 1, n, machine)[0]


def test_only_switches_that_add_up_run_nvls() -> None:
    assert priced("all-reduce", 1e9, 1, 8)[1] == "NVLS"
    assert priced("all-reduce", 64e6, 2, 8)[1] == "NVLS tree"
    assert priced("all-reduce", 1e9, 1, 8, machines.a100(8))[1] == "ring Simple"


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-broadcast"])
def test_a_group_with_one_device_a_node_uses_the_network_alone(kind: str) -> None:
    slow = replace(machines.h100(64), inside=Link(bandwidth=1.0, latency=1.0))
    assert priced(kind, 1e9, 8, 1, slow) == priced(kind, 1e9, 8, 1)


def test_a_permute_is_one_message() -> None:
    assert priced("collective-permute", 37e6, 1, 2)[0] == pytest.approx(8.4 * US + 4 * US + 37e6 / (370 * GB))
    assert priced("collective-permute", 44e6, 2, 1)[0] == pytest.approx(8.4 * US + 14 * US + 1e-3)


def test_hops_are_as_long_as_the_latencies() -> None:
    far = replace(machines.h100(64), between=Link(bandwidth=44 * GB, latency=5.4 * US))
    # LL's seven hops of 2.7 us between nodes
    assert priced("all-gather", 1, 8, 8, far)[0] - priced("all-gather", 1, 8, 8)[0] == pytest.approx(7 * 2.7 * US)


def test_without_figures_of_nccl_the_best_algorithm_known_counts() -> None:
    plain = replace(machines.h100(8), nccl=None)
    assert placement_time("all-gather", 1e6, group_placement((), plain), plain)[1] == "doubling"


def test_of_unlike_nodes_the_slower_figures_count() -> None:
    mixed = Machine.of_parts(machines.h100(8), machines.a100(8))
    assert mixed.nccl == replace(machines.a100(8).nccl)  # pyright: ignore[reportArgumentType]
    assert Machine.of_parts(machines.h100(8), machines.cpu(8)).nccl is None


def test_a_torus_runs_no_nccl() -> None:
    with pytest.raises(CostError, match="NCCL on a torus"):
        replace(machines.tpu_v4p(8), nccl=machines.h100().nccl)


def test_endless_links_leave_the_hops() -> None:
    endless = Link(bandwidth=LARGEST_FIGURE, latency=0.6 * US)
    h100 = machines.h100(8)
    assert h100.nccl is not None
    nccl = replace(h100.nccl, ll_bandwidth=LARGEST_FIGURE, ll128_bandwidth=LARGEST_FIGURE)
    machine = replace(h100, inside=endless, nccl=nccl)
    large, small = (collective_time("all-reduce", nbytes, 8, None, machine) for nbytes in (1e9, 1))
    assert large == pytest.approx(small)
