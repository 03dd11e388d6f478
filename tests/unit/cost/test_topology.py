"""Descriptions of chips for XLA's GPU compiler: every number from the machine, none for machines without a chip."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import hlosharding as hs
from hlosharding.cost import Machine, machines, node_topology, target_config
from hlosharding.errors import CostError

PRESETS = {"a100": machines.a100, "h100": machines.h100, "h200": machines.h200, "b200": machines.b200}
# NVIDIA's data sheets and the CUDA programming guide: SMs, f32 lanes of one, boost clock in GHz, capability,
# shared memory of one SM in KiB, of one block at most.
SHEETS = {
    "a100": (108, 64, 1.41, (8, 0), 164, 163),
    "h100": (132, 128, 1.98, (9, 0), 228, 227),
    "h200": (132, 128, 1.98, (9, 0), 228, 227),
    "b200": (148, 128, 2.1, (10, 0), 228, 227),
}


def number(text: str, field: str) -> float:
    found = re.search(rf"\b{field}: ([\d.]+)", text)
    assert found is not None, field
    return float(found[1])


@pytest.mark.parametrize("name", PRESETS)
def test_the_description_is_that_of_the_data_sheet(name: str) -> None:
    text = target_config(PRESETS[name](8))
    cores, lanes, clock, (major, minor), shared, of_a_block = SHEETS[name]
    assert (number(text, "core_count"), number(text, "fpus_per_core")) == (cores, lanes)
    assert number(text, "clock_rate_ghz") == pytest.approx(clock, rel=0.01)
    assert f"cuda_compute_capability {{ major: {major} minor: {minor} " in text
    assert number(text, "shared_memory_per_core") == shared * 1024
    assert number(text, "shared_memory_per_block_optin") == of_a_block * 1024
    assert f'device_description_str: "{PRESETS[name](8).chip.kind}"' in text


def test_rates_are_the_machines_own() -> None:
    machine = replace(machines.h100(8), memory_bandwidth=1.5e12, memory_bytes=64e9)
    text = target_config(machine)
    assert number(text, "memory_bandwidth") == 1.5e12
    assert number(text, "device_memory_size") == 64e9


def test_instructions_of_one_generation_are_named() -> None:
    assert "feature_extension: ACCELERATED_FEATURES" in target_config(machines.h100())
    assert "feature_extension: NONE" in target_config(machines.a100())


@pytest.mark.parametrize(
    ("machine", "nodes"),
    [
        (machines.h100(1), "1x1x1"),
        (machines.h100(8), "1x1x8"),
        (machines.h100(16), "1x2x8"),
        (machines.h100(512), "1x64x8"),
        (machines.gb200_nvl72(144), "1x2x72"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_nodes_as_xla_writes_them(machine: Machine, nodes: str) -> None:
    assert node_topology(machine) == nodes


def test_what_cannot_be_described_is_refused() -> None:
    with pytest.raises(CostError, match=r"cpu\(8\).* says nothing of its chip; take a100, h100"):
        hs.topology("cpu", 8)
    with pytest.raises(CostError, match=r"12 devices do not fill nodes of 8.*take a multiple of 8"):
        hs.topology("h100", 12)
    with pytest.raises(CostError, match="no machine 'h1000'; there are v100"):
        hs.topology("h1000", 8)
    with pytest.raises(CostError, match="0 devices; give at least one device"):
        hs.topology("h100", 0)
    with pytest.raises(CostError, match="says nothing of its chip"):
        _ = machines.cpu().clock


def test_every_price_may_be_that_of_a_topology() -> None:
    module = hs.load("HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}")
    described = hs.Topology(machines.a100(8), ())
    assert hs.cost(module, machine=described) == hs.cost(module, machine=machines.a100(8))
    assert hs.partition(module, machine=described).machine is machines.a100(8)
    assert hs.simulate(module, described).machine is machines.a100(8)


@pytest.mark.gpu_compiler
@pytest.mark.parametrize("name", PRESETS)
def test_xla_takes_the_description(name: str) -> None:
    found = hs.topology(name, 16)
    assert len(found.devices) == 16
    assert {device.process_index for device in found.devices} == {0, 1}
    assert found.devices[0].device_kind == PRESETS[name](8).chip.kind
    assert found is hs.topology(PRESETS[name](16))
    assert found.mesh((2, 8), ("data", "model")).shape == {"data": 2, "model": 8}
    with pytest.raises(CostError, match=r"a mesh \(2, 4\) with axes \('data', 'model'\) of 16 devices"):
        found.mesh((2, 4), ("data", "model"))
