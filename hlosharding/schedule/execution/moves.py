"""Values from submesh to submesh: what moves them, and how it is done where one process has all devices.

Floor: schedule.  Where the devices belong to several processes: `moves_between_processes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hlosharding.executor import ShardedArray, lay_out_checked
from hlosharding.schedule.execution.array_ops import Call, add_arrays, concat_arrays, split_array
from hlosharding.schedule.transfers import SubmeshAllGather, SubmeshCollective, SubmeshReduceScatter
from hlosharding.schedule.value_type import Types, ValueType


class ArrayMoves(ABC):
    """How values get to other devices; of each move a function of arrays, made once and called as often as it runs."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self.devices = devices
        """Device n of the schedule is the n-th."""

    def devices_of(self, kind: ValueType) -> list[Any]:
        """The devices of a value, in the order of its tiles."""
        return [self.devices[device] for device in kind.devices]

    @abstractmethod
    def make_send(self, departed: ValueType, arrived: ValueType) -> Call:
        """One value to other devices, where it may lie in another way."""

    @abstractmethod
    def make_exchange(self, op: SubmeshCollective, operands: Types, results: Types) -> Call:
        """A collective between submeshes."""


class MovesInOneProcess(ArrayMoves):
    """By `jax.device_put`, which goes on while the host does."""

    def make_send(self, departed: ValueType, arrived: ValueType) -> Call:
        return lambda array: [self._move(array, departed, arrived)]

    def _move(self, array: Any, departed: ValueType, arrived: ValueType) -> Any:
        """Tile by tile, where it lies there as it lay here."""
        if departed.devices == arrived.devices:
            return array
        if departed.sharding != arrived.sharding or len(departed.devices) != len(arrived.devices):
            return lay_out_checked(array, arrived.sharding, self.devices_of(arrived))
        there = dict(zip(self.devices_of(departed), self.devices_of(arrived), strict=True))
        if isinstance(array, ShardedArray):
            return ShardedArray(_put_on_others(array.tiles, there), array.sharding, array.shape)
        return _put_on_others(array, there)

    def make_exchange(self, op: SubmeshCollective, operands: Types, results: Types) -> Call:
        return partial(self._exchange, op, operands, results)

    def _exchange(self, op: SubmeshCollective, operands: Types, results: Types, *arrays: Any) -> Sequence[Any]:
        """All operands meet on the first result's submesh, and results go where they belong."""
        root = results[0].devices
        here = [
            self._move(array, kind, replace(kind, devices=root)) for array, kind in zip(arrays, operands, strict=True)
        ]
        made = self._combine(op, here, operands[0], self.devices_of(results[0]))
        given = [made] * len(results)
        if isinstance(op, SubmeshReduceScatter):
            given = split_array(made, operands[0], op.dim, len(results))
        return [
            self._move(array, replace(kind, devices=root), kind) for array, kind in zip(given, results, strict=True)
        ]

    @staticmethod
    def _combine(op: SubmeshCollective, arrays: Sequence[Any], kind: ValueType, devices: Sequence[Any]) -> Any:
        if isinstance(op, SubmeshAllGather):
            return concat_arrays(arrays, kind, op.dim, devices)
        return add_arrays(arrays, kind, devices) if len(arrays) > 1 else arrays[0]


def _put_on_others(array: Any, there: Mapping[Any, Any]) -> Any:
    import jax

    mesh = array.sharding.mesh
    devices = np.array([there[device] for device in mesh.devices.flat], dtype=object).reshape(mesh.devices.shape)
    other = jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)
    # With the same spec on the other mesh each tile goes to one device, as it is.
    return jax.device_put(array, jax.sharding.NamedSharding(other, array.sharding.spec))
