"""Stacked arrays whose parts go round the submeshes: runs of them are tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.execution import stacked_arrays
from hlosharding.schedule.execution.stacked_arrays import StackedArrays, chunks_of
from hlosharding.schedule.interface import ArrayParts, Interface
from hlosharding.schedule.value_type import ValueType
from hlosharding.sharding import HloSharding

DIMS, CHUNKS, SUBMESHES = (2, 4), 3, ((0, 1), (2, 3))
PARTS = CHUNKS * len(SUBMESHES)


def stacked(sharding: HloSharding, devices: list[Any]) -> StackedArrays:
    kinds = [ValueType(Shape.array("f32", DIMS), SUBMESHES[n % 2], sharding) for n in range(PARTS)]
    return StackedArrays(Interface((ArrayParts((2,) * PARTS),), (ArrayParts((2,) * PARTS),)), kinds, kinds, devices)


@pytest.mark.parametrize("sharding", ["{replicated}", "{devices=[1,2]0,1}", "{devices=[2,1]0,1}"])
def test_parts_come_to_their_devices_and_back(sharding: str, cpu_devices: list[Any]) -> None:
    """Along the rows a device has no run of parts, if they are split there: these go by way of the host."""
    import jax

    both = stacked(HloSharding.parse(sharding), cpu_devices[:4])
    given = np.arange(PARTS * 8, dtype=np.float32).reshape(PARTS * 2, 4)
    [kind] = both.arguments
    lying = stacked_arrays.lay_out_checked(given, kind.sharding, [cpu_devices[n] for n in kind.devices])
    parts = both.cut({0: lying})
    for number in range(PARTS):
        np.testing.assert_array_equal(parts[number], given[2 * number : 2 * number + 2])
        assert parts[number].devices() == {cpu_devices[n] for n in SUBMESHES[number % 2]}
    [again] = both.join([parts[number] for number in range(PARTS)])
    np.testing.assert_array_equal(again, given)
    assert isinstance(again, jax.Array)
    assert len(again.devices()) == (4 if sharding != "{devices=[2,1]0,1}" else 2)


def test_several_processes_do_not_send_parts(monkeypatch: pytest.MonkeyPatch, cpu_devices: list[Any]) -> None:
    monkeypatch.setattr(stacked_arrays, "is_shared", lambda _: True)
    with pytest.raises(ScheduleError, match="several processes; take one stage a device"):
        stacked(HloSharding.replicate(), cpu_devices)


def test_parts_that_do_not_go_round_are_no_chunks() -> None:
    kinds = [ValueType(Shape.array("f32", DIMS), SUBMESHES[n // 2 % 2]) for n in range(4)]
    assert chunks_of(kinds, 0) == 1
