"""A machine of a file is the machine that the same figures make; what is wrong names its key."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from hlosharding.cost import Link, Machine, Nccl, machine_presets, machine_text, machines, read_machine
from hlosharding.errors import CostError

WHOLE = """
name = "ours"
num_devices = 4
devices_per_node = 2
vector_flops = 1e12
memory_bandwidth = 1e11
memory_bytes = 1e10
launch = 1e-6
collective_launch = 2e-6
matrix_tile = [128, 128, 32]
[peak_flops]
f32 = 1e13
[inside]
bandwidth = 1e10
latency = 1e-6
[between]
bandwidth = 1e9
latency = 1e-5
"""


NCCL = """
[nccl]
ll_bandwidth = 1e9
ll128_bandwidth = 1e10
nvls_efficiency = 0.8
post = 1e-6
"""
TORUS = 'like = "tpu_v4p"\nnum_devices = 8\ntorus = [2, 4]'
MIXED = """
[between]
bandwidth = 1e9
latency = 2e-5
[[parts]]
like = "h100"
num_devices = 8
[[parts]]
like = "a100"
num_devices = 16
memory_bytes = 40e9
[parts.inside]
bandwidth = 1e11
latency = 1e-6
"""


def read(folder: Path, text: str):
    path = folder / "ours.toml"
    path.write_text(text)
    return read_machine(path)


def test_every_figure_of_a_file(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert (found.name, found.num_nodes, found.flops("f32"), found.matrix_tile) == ("ours", 2, 1e13, (128, 128, 32))
    assert found.between == Link(bandwidth=1e9, latency=1e-5)


def test_nccl(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE + NCCL)
    assert found.nccl == Nccl(ll_bandwidth=1e9, ll128_bandwidth=1e10, nvls_efficiency=0.8, post=1e-6)
    assert read(tmp_path, WHOLE).nccl is None


def test_like_a_preset(tmp_path: Path) -> None:
    found = read(tmp_path, 'like = "a100"\nnum_devices = 16\nmemory_bytes = 40e9')
    assert found == replace(machines.a100(16), name="ours", memory_bytes=40e9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_devices = ", "is no TOML"),
        ("num_devices = 4", "lacks devices_per_node, peak_flops"),
        ('like = "a100"', "num_devices None"),
        ('like = "abacus"\nnum_devices = 4', "no machine 'abacus'"),
        (WHOLE.replace("launch = 1e-6", "lunch = 1e-6", 1), "a machine has no 'lunch'"),
        (WHOLE.replace("num_devices = 4", 'num_devices = "4"'), "num_devices = '4' is no whole number"),
        (WHOLE.replace("vector_flops = 1e12", "vector_flops = true"), "vector_flops = True is no number"),
        (WHOLE.replace("latency = 1e-5", "delay = 1e-5"), "between is a table with bandwidth and latency"),
        (WHOLE.replace("f32 = 1e13", "f64 = 1e13"), "peak_flops lacks 'f32'"),
        (WHOLE.replace("[128, 128, 32]", "128"), "is no list of whole numbers"),
        (WHOLE.replace("memory_bytes = 1e10", "memory_bytes = -1"), "memory_bytes must be positive"),
        ("version = 2" + WHOLE, "is of version 2, this reads 1; calibrate anew"),
        ("measured_on = 3" + WHOLE, "measured_on is 3, no table"),
        ("cache_bytes = 1e6" + WHOLE, "cache_bandwidth must be positive"),
        (MIXED.replace('like = "a100"', ""), "parts[1] lacks name, devices_per_node"),
        (MIXED.replace("memory_bytes", "memory_bites"), "a machine has no 'parts[1].memory_bites'"),
        (MIXED.replace("40e9", "true"), "parts[1].memory_bytes = True is no number"),
        (MIXED.replace("1e-6", '"1"'), "parts[1].inside.latency = '1' is no number"),
        (MIXED.replace("num_devices = 8", ""), "parts[0]: like is 'h100', num_devices None"),
        ("launch = 1e-6" + MIXED, "says launch beside parts; say it of each part"),
        ("parts = [3]", "parts is [3], no list of tables"),
        ("parts = []", "parts of a machine are equal devices on switches, one part or more"),
        ("[[parts]]\n[[parts.parts]]", "a machine has no 'parts[0].parts'"),
        (WHOLE + "[collective_rates]\nall-reduce = 0.0", "collective_rates of all-reduce must be positive"),
        (WHOLE + NCCL.replace("post = 1e-6", ""), "nvls_efficiency and post, it lacks post"),
        (WHOLE + NCCL.replace("0.8", "1.8"), "nccl.nvls_efficiency must be"),
        (WHOLE + NCCL.replace("1e-6", "true"), "nccl.post = True is no number"),
        (WHOLE.replace("f32 = 1e13", "f32 = nan"), "peak_flops of f32 must be positive and finite"),
        (WHOLE.replace("vector_flops = 1e12", "vector_flops = inf"), "vector_flops must be"),
        (WHOLE.replace("launch = 1e-6", "launch = -1e-6", 1), "launch must be"),
        (WHOLE.replace("latency = 1e-5", "latency = nan"), "between.latency must be"),
        (WHOLE.replace("num_devices = 4", "num_devices = 999999999"), "999999999 devices are more than"),
        (WHOLE.replace("[128, 128, 32]", "[128, 0, 32]"), "matrix_tile must be"),
        (WHOLE.replace("[128, 128, 32]", "[128]"), "is not rows, columns and depth"),
        ("wrap_multiple = 0" + WHOLE, "wrap_multiple must be"),
        ('topology = "torus"' + WHOLE, "nodes of 2 devices are a torus ()"),
        (TORUS.replace("[2, 4]", "[2, 3]"), "nodes of 8 devices are a torus (2, 3); give up to 8 sizes"),
        (TORUS.replace("[2, 4]", f"[{'1, ' * 2000} 8]"), "nodes of 8 devices are a torus"),
        (TORUS.replace("[2, 4]", "[1048576, 1048576]"), "nodes of 8 devices are a torus"),
    ],
)
def test_what_is_no_machine(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CostError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value).replace("ours.toml ", "")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(CostError, match=r"cannot read nowhere\.toml"):
        read_machine("nowhere.toml")


def test_unlike_parts(tmp_path: Path) -> None:
    inside, between = Link(bandwidth=1e11, latency=1e-6), Link(bandwidth=1e9, latency=2e-5)
    old = replace(machines.a100(16), memory_bytes=40e9, inside=inside)
    assert read(tmp_path, MIXED) == Machine.of_parts(machines.h100(8), old, between=between, name="ours")


FULL = replace(
    machines.cpu(4),
    name='odd "name" \\ of é',
    launch=1e-07,
    program_launch=3,
    cache_bytes=1.5e6,
    cache_bandwidth=2e10,
    collective_rates=(("all-gather", 0.5), ("collective-permute", 1.25)),
)


@pytest.mark.parametrize("machine", [FULL, *(made(16) for made in machine_presets().values())], ids=lambda m: m.name)
def test_what_is_written_is_read_back(tmp_path: Path, machine: Machine) -> None:
    text = machine_text(machine, measured_on={"device_kind": "cpu", "devices": 4})
    assert read(tmp_path, text) == replace(machine, chip=None)


@pytest.mark.parametrize("between", [None, Link(bandwidth=3e9, latency=1e-4)])
def test_parts_are_read_back(tmp_path: Path, between: Link | None) -> None:
    parts = (
        FULL,
        replace(machines.h100(8), chip=None),
        replace(machines.cpu(12), collective_rates=FULL.collective_rates),
    )
    machine = Machine.of_parts(*parts, between=between, name="mixed")
    assert read(tmp_path, machine_text(machine, measured_on={"device_kind": "cpu"})) == machine


def test_a_file_says_its_version_and_what_it_is_of() -> None:
    found = tomllib.loads(machine_text(FULL, measured_on={"device_kind": "cpu", "devices": 4}))
    assert (found["version"], found["measured_on"]) == (1, {"device_kind": "cpu", "devices": 4})
    assert "measured_on" not in tomllib.loads(machine_text(FULL))
