"""A machine of a file is the machine that the same figures make; what is wrong names its key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hlosharding.cost import Link, machines, read_machine
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


def read(folder: Path, text: str):
    path = folder / "ours.toml"
    path.write_text(text)
    return read_machine(path)


def test_every_figure_of_a_file(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert (found.name, found.num_nodes, found.flops("f32"), found.matrix_tile) == ("ours", 2, 1e13, (128, 128, 32))
    assert found.between == Link(bandwidth=1e9, latency=1e-5)


def test_like_a_preset(tmp_path: Path) -> None:
    found = read(tmp_path, 'like = "a100"\nnum_devices = 16\nmemory_bytes = 40e9')
    assert found == replace(machines.a100(16), name="ours", memory_bytes=40e9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_devices = ", "cannot read"),
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
    ],
)
def test_what_is_no_machine(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CostError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value).replace("ours.toml ", "")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(CostError, match=r"cannot read nowhere\.toml"):
        read_machine("nowhere.toml")
