"""A machine of unlike nodes is as slow as the slowest of the devices that take part."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from scipy.integrate import quad
from scipy.stats import norm

import hlosharding as hs
from hlosharding.cost import Link, Machine, cost, group_placement, machines, permute_placement
from hlosharding.errors import CostError

FAST, OLD = machines.h100(8), machines.a100(8)
MIXED = Machine.of_parts(FAST, OLD)
SLOW_CARD = Link(bandwidth=1e9, latency=2e-5)
PROGRAM = """
HloModule m, num_partitions=16
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[512,512] parameter(0)
  y = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[512,512] all-reduce(y), to_apply=sum, channel_id=1, use_global_device_ids=true
}
"""


def test_devices_of_one_part_are_those_of_that_part() -> None:
    assert MIXED.among(range(8)) is FAST
    assert MIXED.among(range(8, 16)) is OLD
    assert MIXED.among((9, 12)) == replace(machines.a100(2), job=8)  # they wait for the other six
    assert [MIXED.kind_of((device,)) for device in (0, 7, 8, 15)] == [FAST, FAST, OLD, OLD]


def test_of_equal_devices_it_is_the_machine_of_so_many() -> None:
    assert FAST.among(range(8)) == FAST
    assert FAST.among((3, 5)) == replace(FAST.with_devices(2), job=8)
    assert FAST.kind_of((3, 5)) == FAST


@pytest.mark.parametrize("count", [2, 8, 64, 512])
def test_the_slowest_of_many_is_the_least_of_so_many_normal_numbers(count: int) -> None:
    machine = machines.h100(count)
    mean_most, _ = quad(lambda x: x * count * norm.pdf(x) * norm.cdf(x) ** (count - 1), -8, 8, limit=200)
    assert machine.slowest == pytest.approx(1 - machine.spread * mean_most, abs=5e-4)
    assert machine.among((0,)).slowest == machine.slowest


def test_a_program_on_all_devices_takes_as_long_as_on_the_slower_ones() -> None:
    """An A100 is slower in everything."""
    module = hs.load(PROGRAM)
    assert cost(module, MIXED).time_s == cost(module, machines.a100(16)).time_s
    assert cost(module, Machine.of_parts(OLD, FAST)).time_s == cost(module, machines.a100(16)).time_s
    assert cost(module, Machine.of_parts(FAST, FAST)).time_s == cost(module, machines.h100(16)).time_s


@pytest.mark.parametrize("devices", [range(16), (7, 8), (0, 1, 14)])
def test_every_figure_is_the_worst(devices: range | tuple[int, ...]) -> None:
    slower = replace(OLD, launch=0.0, vector_flops=1e20, inside=Link(bandwidth=1e9, latency=0.0))
    found = Machine.of_parts(FAST, slower).among(devices)
    assert (found.num_devices, found.parts, found.chip) == (len(devices), (), None)
    assert (found.launch, found.vector_flops) == (FAST.launch, FAST.vector_flops)
    assert found.inside == Link(bandwidth=1e9, latency=FAST.inside.latency)
    assert found.flops("bf16") * found.compute_efficiency == OLD.flops("bf16") * OLD.compute_efficiency
    assert found.memory_bandwidth * found.memory_efficiency == OLD.memory_bandwidth * OLD.memory_efficiency


def test_rates_are_compared_as_they_are_reached() -> None:
    """490 of 1000 are less than 400 of 400, and neither's efficiency belongs to the other's rate."""
    lazy = replace(FAST, peak_flops=(("f32", 1000.0),), compute_efficiency=0.49)
    eager = replace(FAST, peak_flops=(("f32", 400.0), ("bf16", 800.0)), compute_efficiency=1.0)
    found = Machine.of_parts(lazy, eager)
    assert found.flops("f32") * found.compute_efficiency == 400.0
    assert found.flops("bf16") * found.compute_efficiency == pytest.approx(490.0)


def test_a_node_with_a_slower_card_slows_only_what_goes_through_it() -> None:
    machine = Machine.of_parts(machines.h100(16), replace(FAST, between=SLOW_CARD))
    assert machine.among((0, 8)).between == FAST.between
    assert machine.among((8, 16)).between == SLOW_CARD
    assert machine.among((16, 17)).inside == FAST.inside


def test_links_among_parts() -> None:
    machine = Machine.of_parts(machines.h100(16), machines.a100(16), between=SLOW_CARD)
    assert machine.among((0, 16)).between == machine.between == SLOW_CARD
    assert machine.among((0, 8)).between == FAST.between


def test_nodes_are_those_of_the_parts() -> None:
    machine = Machine.of_parts(machines.h100(12), machines.dgx2_v100(16), machines.h100(2))
    assert machine.num_nodes == 4
    assert [machine.node_of(device) for device in (0, 8, 11, 12, 27, 28, 29)] == [0, 1, 1, 2, 2, 3, 3]
    assert group_placement(((11, 12, 13),), machine)[:3] == (3, 1, 2)
    assert permute_placement(((12, 27),), machine).nodes == 1
    assert permute_placement(((27, 28),), machine).nodes == 2


def test_where_unlike_devices_stand() -> None:
    machine = Machine.of_parts(machines.h100(8), machines.dgx2_v100(16))
    found = machine.among((9, 0, 8, 1, 2, *range(10, 24)))
    assert [found.node_of(device) for device in range(6)] == [0, 1, 0, 1, 1, 0]
    assert (found.num_nodes, found.num_devices) == (2, 19)
    assert machine.among((20, 3)) == machine.among((3, 20))


def test_with_another_number_of_devices_nobody_says_which() -> None:
    found = MIXED.with_devices(8)
    assert found.parts == ()
    assert found.flops("f32") == OLD.flops("f32")
    assert MIXED.with_devices(16) is MIXED


def test_it_is_a_value() -> None:
    assert Machine.of_parts(FAST, OLD) == MIXED
    assert Machine.of_parts(FAST, replace(OLD, memory_bytes=79e9)) != MIXED
    assert pickle.loads(pickle.dumps(MIXED)) == MIXED


@pytest.mark.parametrize("parts", [(), (MIXED, FAST), (machines.tpu_v4p(8), FAST)], ids=["none", "nested", "torus"])
def test_what_no_part_is(parts: tuple[Machine, ...]) -> None:
    with pytest.raises(CostError, match="equal devices on switches"):
        Machine.of_parts(*parts)


def test_the_parts_make_up_the_number() -> None:
    with pytest.raises(CostError, match="num_devices is 32, its parts have other numbers"):
        replace(MIXED, num_devices=32)
