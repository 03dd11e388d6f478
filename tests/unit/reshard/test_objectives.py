"""The bound of all collectives: no price is below it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlosharding.cost import Machine, group_placement, machines, placement_time
from hlosharding.reshard.objectives import least_seconds

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
