"""The error bar is that of runs on the same chips, or none."""

from __future__ import annotations

import pytest

from hlosharding.cost import Machine, machines, nearest_set


@pytest.mark.parametrize(
    ("machine", "title"),
    [
        (machines.h100(64), "torchtitan, H100"),
        (machines.h100(8).with_runtime("eager"), "llm-foundry, A100 and H100"),
        (machines.a100_40gb(16).with_runtime("eager"), "llm-foundry, A100 and H100"),
        (machines.a100(4).with_runtime("eager"), "vTrain, one node"),  # more rows than its twin
        (machines.a100(1024).with_runtime("eager"), "Megatron, A100"),
        (machines.tpu_v7(256), "MaxText, TPU v7"),
    ],
    ids=lambda value: value.name if isinstance(value, Machine) else "",
)
def test_of_the_same_chips_the_nearest_in_runtime_and_size(machine: Machine, title: str) -> None:
    found = nearest_set(machine)
    assert found is not None
    assert found.title == title


@pytest.mark.parametrize(
    "machine",
    [machines.b200(8), machines.tpu_v5p(8), machines.cpu(8), Machine.of_parts(machines.a100(8), machines.h100(8))],
    ids=lambda machine: machine.name,
)
def test_what_was_never_measured_has_none(machine: Machine) -> None:
    assert nearest_set(machine) is None
