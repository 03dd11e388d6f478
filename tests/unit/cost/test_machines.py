"""Machines are values: presets are complete, equal by content, and refuse nonsense."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from hlosharding.cost import Link, Machine, machines
from hlosharding.errors import CostError

PRESETS = [
    machines.v100,
    machines.dgx2_v100,
    machines.a100,
    machines.a100_40gb,
    machines.h100,
    machines.h100_96gb,
    machines.h200,
    machines.b200,
    machines.gb200_nvl72,
    machines.tpu_v4p,
    machines.tpu_v5p,
    machines.tpu_v5e,
    machines.tpu_v6e,
    machines.tpu_v7,
    machines.cpu,
]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.__name__)
def test_a_preset_takes_any_device_count_and_is_the_same_value_each_time(preset) -> None:
    for count in (1, 6, 8, 72):
        machine = preset(count)
        assert machine.num_devices == count
        assert machine is preset(count)
        assert machine.inside.bandwidth > machine.between.bandwidth


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.__name__)
def test_figures_are_such_as_hardware_has(preset) -> None:
    """Wide of what there is by ten: a unit that is off by a thousand is not."""
    machine = preset(16)
    for link in (machine.inside, machine.between):
        assert 1e-7 <= link.latency <= 1e-3
        assert 1e8 <= link.bandwidth <= 1e13
    assert 1e9 <= machine.memory_bandwidth <= 1e14
    assert 1e9 <= machine.memory_bytes <= 1e13
    assert 1e9 <= machine.vector_flops <= min(rate for name, rate in machine.peak_flops if name == "f32") * 10
    assert all(1e9 <= rate <= 1e17 for _, rate in machine.peak_flops)
    assert 0 <= machine.collective_launch <= 1e-3
    assert 0 <= machine.launch <= 1e-3


def test_nodes_are_filled_before_the_next_begins() -> None:
    machine = machines.h100(12)
    assert machine.num_nodes == 2
    assert [machine.node_of(device) for device in (0, 7, 8, 11)] == [0, 0, 1, 1]


def test_equal_content_is_an_equal_machine() -> None:
    machine = machines.h100(16)
    copy = dataclasses.replace(machine)
    assert copy == machine
    assert hash(copy) == hash(machine)
    assert dataclasses.replace(machine, launch=1.0) != machine
    assert machine != "h100"
    assert pickle.loads(pickle.dumps(machine)) == machine


def test_with_devices_renames_and_keeps_the_rates() -> None:
    machine = machines.a100(8).with_devices(32)
    assert machine.name == "a100(32)"
    assert machine == machines.a100(32)
    assert machine.with_devices(32) is machine
    assert machines.tpu_v4p(64).with_devices(8) == machines.tpu_v4p(8)


@pytest.mark.parametrize(
    ("dtype", "as_dtype"),
    [
        ("bf16", "bf16"),
        ("f8e4m3fn", "f8"),
        ("f4e2m1fn", "f8"),
        ("s4", "s8"),
        ("c64", "f32"),
        ("c128", "f64"),
        ("pred", "f32"),
    ],
)
def test_a_type_without_a_unit_of_its_own_runs_on_its_kin_s(dtype: str, as_dtype: str) -> None:
    machine = machines.h100()
    assert machine.flops(dtype) == dict(machine.peak_flops)[as_dtype]


def test_tpu_slices_are_as_near_to_a_cube_as_they_can_be() -> None:
    assert machines.tpu_v4p(64).torus == (4, 4, 4)
    assert machines.tpu_v4p(16).torus == (2, 2, 4)
    assert machines.tpu_v5e(8).torus == (2, 4)
    assert machines.tpu_v5e(7).torus == (1, 7)


def test_the_data_sheet_figures() -> None:
    # bf16 dense TFLOP/s, memory GB and TB/s, as the vendors print them.
    sheet = {
        machines.a100(): (312, 80, 2.0),
        machines.a100_40gb(): (312, 40, 1.555),
        machines.h100(): (990, 80, 3.35),
        machines.h100_96gb(): (990, 96, 2.4),
        machines.h200(): (990, 141, 4.8),
        machines.b200(): (2250, 180, 8.0),
        machines.tpu_v5p(): (459, 96, 2.8),
        machines.tpu_v5e(): (197, 16, 0.81),
        machines.tpu_v7(): (2307 / 2, 192 * 2**30 / 2e9, 7.38 / 2),  # one of a chip's two cores
    }
    for machine, (tflops, gigabytes, terabytes) in sheet.items():
        assert machine.flops("bf16") == tflops * 1e12
        assert machine.memory_bytes == pytest.approx(gigabytes * 1e9)
        assert machine.memory_bandwidth == pytest.approx(terabytes * 1e12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_devices": 0}, "num_devices must be positive"),
        ({"spread": 1.0}, "a spread of 1 leaves nothing of the rate of the slowest of 8 devices"),
        ({"memory_bandwidth": -1.0}, "memory_bandwidth must be positive"),
        ({"compute_efficiency": 1.5}, "compute_efficiency"),
        ({"inside": Link(bandwidth=0.0, latency=0.0)}, "inside.bandwidth must be positive"),
        ({"peak_flops": (("bf16", 1.0),)}, "lacks 'f32'"),
        ({"topology": "tree"}, "use 'switch' or 'torus'"),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused(change: dict, message: str) -> None:
    with pytest.raises(CostError, match=message):
        dataclasses.replace(machines.h100(), **change)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.__name__)
def test_a_machine_without_devices_is_refused(preset) -> None:
    with pytest.raises(CostError, match="at least one device"):
        preset(0)


def test_one_message_over_one_link() -> None:
    assert Link(bandwidth=1e9, latency=1e-6).seconds(1000) == pytest.approx(2e-6)


def test_a_machine_can_be_written_by_hand() -> None:
    machine = Machine(
        name="two boxes",
        num_devices=4,
        devices_per_node=2,
        peak_flops=(("f32", 1e12),),
        vector_flops=1e11,
        memory_bandwidth=1e11,
        memory_bytes=1e10,
        inside=Link(bandwidth=1e10, latency=1e-6),
        between=Link(bandwidth=1e9, latency=1e-5),
        launch=0.0,
        collective_launch=0.0,
    )
    assert machine.num_nodes == 2
    assert machine.flops("bf16") == 1e12
