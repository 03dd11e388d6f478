"""Values from submesh to submesh where the devices belong to several processes: collectives, which all of them call.

Floor: schedule.  Every process goes through the steps in the schedule's order and calls those in which its devices take
part; so whoever waits in one waits for processes that have but earlier steps to do, and none waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from hlosharding.executor import array_of_tiles, lay_out_checked, restack_tiles, tiles_by_device
from hlosharding.schedule.execution.array_ops import Call
from hlosharding.schedule.execution.moves import ArrayMoves, MovesInOneProcess
from hlosharding.schedule.execution.union_programs import UnionProgram, compile_collective, compile_sends
from hlosharding.schedule.tile_parts import tile_parts
from hlosharding.schedule.transfers import SubmeshCollective
from hlosharding.schedule.value_type import Types, ValueType, devices_of_all


class MovesBetweenProcesses(ArrayMoves):
    """By programs on all devices that take part; within one process as there.

    A send between submeshes of one size moves whole tiles: where the two lie in other ways, the value is brought into
    the other one ahead of the move or behind it, whichever has the smaller tiles to move.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        super().__init__(devices)
        self._inside = MovesInOneProcess(devices)
        self._sends = cache(partial(compile_sends, devices=devices))
        self._collectives = cache(partial(compile_collective, devices=devices))

    def make_send(self, departed: ValueType, arrived: ValueType) -> Call:
        if self._is_of_one_process([departed, arrived]):
            return self._inside.make_send(departed, arrived)
        if len(departed.devices) != len(arrived.devices):
            return self._make_permute(departed, arrived)
        leaves_as = min(arrived, departed, key=lambda kind: kind.tile_bytes).sharding
        leaving, arriving = replace(departed, sharding=leaves_as), replace(arrived, sharding=leaves_as)
        leave, arrive = self._make_layout_change(departed, leaving), self._make_layout_change(arriving, arrived)
        permute = self._make_permute(leaving, arriving)
        return lambda array: arrive(*permute(*leave(array)))

    def _is_of_one_process(self, kinds: Types) -> bool:
        return len({self.devices[device].process_index for device in devices_of_all(kinds)}) == 1

    def _make_layout_change(self, given: ValueType, wanted: ValueType) -> Call:
        """Into another layout on the same devices."""
        devices = self.devices_of(wanted)
        if given.sharding == wanted.sharding:
            return lambda array: [array]
        return lambda array: [None if array is None else lay_out_checked(array, wanted.sharding, devices)]

    def _make_permute(self, departed: ValueType, arrived: ValueType) -> Call:
        order = (*departed.devices, *arrived.devices)
        parts, tile = tile_parts(departed, arrived), arrived.tile.dims
        program = self._sends(tuple(parts), tile, order)
        return partial(self._run_together, program, [departed], [arrived], order)

    def make_exchange(self, op: SubmeshCollective, operands: Types, results: Types) -> Call:
        if self._is_of_one_process([*operands, *results]):
            return self._inside.make_exchange(op, operands, results)
        order = devices_of_all(operands)
        program = self._collectives(op, len(operands), order)
        return partial(self._run_together, program, operands, results, order)

    def _run_together(
        self, program: UnionProgram, operands: Types, results: Types, order: tuple[int, ...], *arrays: Any
    ) -> Sequence[Any]:
        """The operands' tiles, of this process those that are here, go through a program."""
        devices, tile = [self.devices[device] for device in order], operands[0].tile
        own = {device: data for array in arrays if array is not None for device, data in tiles_by_device(array).items()}
        # A program takes an array of each of its devices, of those that only receive, too.
        given = restack_tiles({**_zeros(tile, devices, own), **own}, devices, tile, program.sharding)
        made = tiles_by_device(program(given))
        return [self._result(kind, made) for kind in results]

    def _result(self, kind: ValueType, made: Mapping[Any, Any]) -> Any:
        devices = self.devices_of(kind)
        tiles = {device: made[device] for device in devices if device in made}
        return array_of_tiles(tiles, kind.shape, kind.sharding, devices) if tiles else None


def _zeros(tile: Any, devices: Sequence[Any], own: Mapping[Any, Any]) -> dict[Any, Any]:
    """What devices of this process bring that have nothing to send."""
    import jax
    import jax.numpy as jnp

    mine = jax.process_index()
    empty = [device for device in devices if device.process_index == mine and device not in own]
    with jax.enable_x64(True):
        return {device: jnp.zeros(tile.dims or (1,), tile.dtype, device=device) for device in empty}
