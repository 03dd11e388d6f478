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
from hlosharding.schedule.execution.array_ops import Call, add, concat, split
from hlosharding.schedule.transfers import AllGather, Collective, ReduceScatter
from hlosharding.schedule.value_type import ValueType

Types = Sequence[ValueType]


class Moves(ABC):
    """How values get to other devices; of each move a function of arrays, made once and called as often as it runs."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self.devices = devices
        """Device n of the schedule is the n-th."""

    def on(self, kind: ValueType) -> list[Any]:
        """The devices of a value, in the order of its tiles."""
        return [self.devices[device] for device in kind.devices]

    @abstractmethod
    def send(self, departed: ValueType, arrived: ValueType) -> Call:
        """One value to other devices, where it may lie in another way."""

    @abstractmethod
    def exchange(self, op: Collective, operands: Types, results: Types) -> Call:
        """A collective between submeshes."""


class MovesInOneProcess(Moves):
    """By `jax.device_put`, which goes on while the host does."""

    def send(self, departed: ValueType, arrived: ValueType) -> Call:
        return partial(self._sent, departed, arrived)

    def _sent(self, departed: ValueType, arrived: ValueType, array: Any) -> Sequence[Any]:
        return [self._moved(array, departed, arrived)]

    def _moved(self, array: Any, departed: ValueType, arrived: ValueType) -> Any:
        """Tile by tile, where it lies there as it lay here."""
        if departed.devices == arrived.devices:
            return array
        if departed.sharding != arrived.sharding or len(departed.devices) != len(arrived.devices):
            return lay_out_checked(array, arrived.sharding, self.on(arrived))
        there = dict(zip(self.on(departed), self.on(arrived), strict=True))
        if isinstance(array, ShardedArray):
            return ShardedArray(_on_other_devices(array.tiles, there), array.sharding, array.shape)
        return _on_other_devices(array, there)

    def exchange(self, op: Collective, operands: Types, results: Types) -> Call:
        return partial(self._exchanged, op, operands, results)

    def _exchanged(self, op: Collective, operands: Types, results: Types, *arrays: Any) -> Sequence[Any]:
        """All operands meet on the first result's submesh, and results go where they belong."""
        root = results[0].devices
        here = [
            self._moved(array, kind, replace(kind, devices=root)) for array, kind in zip(arrays, operands, strict=True)
        ]
        made = self._joined(op, here, operands[0], self.on(results[0]))
        pieces = split(made, operands[0], op.dim, len(results)) if isinstance(op, ReduceScatter) else [made]
        given = pieces if len(pieces) == len(results) else pieces * len(results)
        return [
            self._moved(array, replace(kind, devices=root), kind) for array, kind in zip(given, results, strict=True)
        ]

    @staticmethod
    def _joined(op: Collective, arrays: Sequence[Any], kind: ValueType, devices: Sequence[Any]) -> Any:
        if isinstance(op, AllGather):
            return concat(arrays, kind, op.dim, devices)
        return add(arrays, kind, devices) if len(arrays) > 1 else arrays[0]


def _on_other_devices(array: Any, there: Mapping[Any, Any]) -> Any:
    import jax

    mesh = array.sharding.mesh
    devices = np.array([there[device] for device in mesh.devices.flat], dtype=object).reshape(mesh.devices.shape)
    other = jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)
    return jax.device_put(array, jax.sharding.NamedSharding(other, array.sharding.spec))
