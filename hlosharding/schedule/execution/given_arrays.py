"""The arrays that a schedule is called with, laid out where its parameters lie; and values brought to the host.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor import ShardedArray, check_same, is_own, is_shared, lay_out_checked
from hlosharding.schedule.value_type import Types, numbers_for


class GivenArrays:
    """What the parameters of a schedule are given.

    Of several processes each is given the same whole arrays, or arrays of all processes that lie where they belong.
    """

    def __init__(self, names: Sequence[str], parameters: Types, devices: Sequence[Any]) -> None:
        import jax

        self._names, self._parameters = names, parameters
        self._devices = [[devices[device] for device in kind.devices] for kind in parameters]
        self._is_shared = is_shared(devices)
        self._mine = jax.process_index()

    def lay_out_all(self, arrays: Sequence[Any]) -> dict[int, Any]:
        """By number the parameters of which this process has some tiles.  Raises ExecutionError, ScheduleError."""
        typed = [self._check_array(number, array) for number, array in enumerate(arrays)]
        named = zip(self._names, typed, strict=True)
        if self._is_shared and (own := {f"%{name}": array for name, array in named if is_own(array)}):
            check_same(own)
        return {
            number: self._lay_out(array, number)
            for number, array in enumerate(typed)
            if self._mine in _owners(self._devices[number])
        }

    def _check_array(self, number: int, array: Any) -> Any:
        """An array, of a number one; it has the right shape, and a way to where it must lie."""
        kind = self._parameters[number]
        if tuple(np.shape(array)) != kind.shape.dims:
            what = f"an array of shape {list(np.shape(array))} for a parameter {kind}"
            raise ExecutionError(what, where=f"%{self._names[number]}")
        array = numbers_for(array, kind.shape, where=f"%{self._names[number]}")
        if self._lies_in_other_processes(array, number) and not self._is_copied_there(array, number):
            raise ExecutionError(
                f"the array lies on other devices than the parameter {kind}, and these are of several processes",
                where=f"%{self._names[number]}",
                remedy="give each process the whole array as numpy has it, or lay it out there with hs.device_put",
            )
        return array

    def _lies_in_other_processes(self, array: Any, number: int) -> bool:
        """Is it on other devices than it must be, so that processes would have to send it?"""
        lies_on, wanted = _devices(array), set(self._devices[number])
        return bool(lies_on) and lies_on != wanted and len(_owners(lies_on | wanted)) > 1

    def _is_copied_there(self, array: Any, number: int) -> bool:
        """Has each process that must have some of it all of it?"""
        return getattr(array, "is_fully_replicated", False) and _owners(self._devices[number]) <= _owners(
            _devices(array)
        )

    def _lay_out(self, array: Any, number: int) -> Any:
        kind = self._parameters[number]
        if self._lies_in_other_processes(array, number):
            array = np.asarray(array)
        if array.dtype != kind.shape.dtype:
            array = array.astype(kind.shape.dtype)
        return lay_out_checked(array, kind.sharding, self._devices[number])


def _devices(array: Any) -> set[Any]:
    """Those to which a global array of JAX, or ShardedArray, is committed."""
    import jax

    tiles = array.tiles if isinstance(array, ShardedArray) else array
    # What is not committed JAX takes to wherever it is needed.
    return set(tiles.sharding.device_set) if isinstance(tiles, jax.Array) and tiles.committed else set[Any]()


def _owners(devices: Iterable[Any]) -> set[int]:
    return {device.process_index for device in devices}


def fetch_whole(array: Any) -> np.ndarray:
    """All of an array, where all processes that have some of it ask for it.

    >>> import jax.numpy as jnp
    >>> fetch_whole(jnp.ones(2))
    array([1., 1.], dtype=float32)
    """
    if isinstance(array, ShardedArray):
        return np.asarray(array if array.tiles.is_fully_addressable else array.as_jax())
    return np.asarray(array if array.is_fully_addressable else _jitted_copy(array.sharding.mesh)(array))


@cache
def _jitted_copy(mesh: Any) -> Any:
    """Jitted: an array whole on each device of the mesh."""
    import jax

    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return xla_bridge.jit(lambda array: array, out_shardings=whole)
