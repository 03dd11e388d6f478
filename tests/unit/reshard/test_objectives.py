"""The bound of all collectives: no price is below it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hlosharding.cost import Machine, group_placement, machines, placement_time
from hlosharding.reshard.objectives import least_seconds, least_seconds_of_each

RECEIVED = {"all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "all-reduce": 2}
"""Of (n-1)/n of the buffer; sums count twice."""


@pytest.mark.parametrize("kind", RECEIVED)
@pytest.mark.parametrize("preset", [machines.v100, machines.h100, machines.gb200_nvl72, machines.tpu_v5p, machines.cpu])
@pytest.mark.parametrize("devices", [2, 8, 64])
def test_no_collective_is_faster(kind: str, preset: Callable[[int], Machine], devices: int) -> None:
    machine = preset(devices)
    for n in {2, devices // 2, devices} - {1}:
        where = group_placement((tuple(range(n)),), machine)
        for size in (1.0, 1e4, 1e6, 1e8, 1e10):
            received = RECEIVED[kind] * (n - 1) / n * size
            assert least_seconds(received, machine, n) <= placement_time(kind, size, where, machine)[0] * (1 + 1e-9)


@pytest.mark.parametrize("preset", [machines.v100, machines.h100, machines.gb200_nvl72, machines.tpu_v5p, machines.cpu])
@pytest.mark.parametrize("devices", [2, 8, 64, 48])
def test_no_collective_of_any_size_or_group_is_faster(preset: Callable[[int], Machine], devices: int) -> None:
    machine, sizes = preset(devices), np.geomspace(1.0, 1e13, 300)
    groups = [n for n in range(2, devices + 1) if devices % n == 0]
    fastest = np.full(len(sizes), np.inf)
    for kind, times in RECEIVED.items():
        for n in groups:
            for stride in {1, devices // n}:
                where = group_placement((tuple(range(0, n * stride, stride)),), machine)
                buffers = (sizes * n / (n - 1) / times).tolist()
                fastest = np.minimum(fastest, [placement_time(kind, size, where, machine)[0] for size in buffers])
    assert (least_seconds_of_each(sizes, machine) <= fastest * (1 + 1e-9)).all()


@pytest.mark.parametrize("preset", [machines.v100, machines.h100, machines.gb200_nvl72, machines.tpu_v5p, machines.cpu])
def test_what_two_collectives_bring_takes_no_less_than_the_bound(preset: Callable[[int], Machine]) -> None:
    machine, sizes = preset(64), np.geomspace(1.0, 1e12, 60)
    one = least_seconds_of_each(sizes, machine)
    both = least_seconds_of_each(np.add.outer(sizes, sizes).ravel(), machine).reshape(60, 60)
    assert (both <= np.add.outer(one, one) * (1 + 1e-9)).all()


def test_nothing_takes_no_time() -> None:
    for devices in (1, 8):
        assert least_seconds_of_each(np.zeros(2), machines.h100(devices)).tolist() == [0.0, 0.0]
