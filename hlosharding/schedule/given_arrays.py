"""The arrays that a schedule is called with, laid out where its parameters lie; and values brought to the host.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor import ShardedArray, check_same, is_own, is_shared, lay_out_checked
from hlosharding.schedule.value_type import ValueType


class GivenArrays:
    """What the parameters of a schedule are given.

    Of several processes each is given the same whole arrays, or arrays of all processes that lie where they belong.
    """

    def __init__(self, names: Sequence[str], parameters: Sequence[ValueType], devices: Sequence[Any]) -> None:
        import jax

        self._names, self._parameters = names, parameters
        self._devices = [[devices[device] for device in kind.devices] for kind in parameters]
        self._is_shared = is_shared(devices)
        self._mine = jax.process_index()

    def laid_out(self, arrays: Sequence[Any]) -> dict[int, Any]:
        """By number the parameters of which this process has some tiles.  Raises ExecutionError."""
        found = [self._checked(number, array) for number, array in enumerate(arrays)]
        if self._is_shared:
            self._check_same(found)
        return {
            number: self._laid_out(array, number)
            for number, array in enumerate(found)
            if any(device.process_index == self._mine for device in self._devices[number])
        }

    def _checked(self, number: int, array: Any) -> Any:
        """An array, or of numbers one; of the right shape, and within reach."""
        kind = self._parameters[number]
        if tuple(np.shape(array)) != kind.shape.dims:
            what = f"an array of shape {list(np.shape(array))} for a parameter {kind}"
            raise ExecutionError(what, where=f"%{self._names[number]}")
        if not hasattr(array, "dtype"):
            return np.asarray(array, kind.shape.dtype)
        return self._within_reach(number, array)

    def _within_reach(self, number: int, array: Any) -> Any:
        """Brought to the host, or refused, where it lies on other devices and several processes have them."""
        lies_on = _devices(array)
        wanted = set(self._devices[number])
        if not lies_on or lies_on == wanted or len(_owners(lies_on | wanted)) == 1:
            return array
        if getattr(array, "is_fully_replicated", False) and _owners(wanted) <= _owners(lies_on):
            return np.asarray(array) if self._mine in _owners(wanted) else array
        raise ExecutionError(
            f"the array lies on other devices than the parameter {self._parameters[number]}, and these are of several"
            " processes",
            where=f"%{self._names[number]}",
            remedy="give each process the whole array as numpy has it, or lay it out there with hs.device_put",
        )

    def _check_same(self, arrays: Sequence[Any]) -> None:
        own = {f"%{name}": array for name, array in zip(self._names, arrays, strict=True) if is_own(array)}
        if own:
            check_same(own)

    def _laid_out(self, array: Any, number: int) -> Any:
        kind = self._parameters[number]
        if array.dtype != kind.shape.dtype:
            array = array.astype(kind.shape.dtype)
        return lay_out_checked(array, kind.sharding, self._devices[number])


def _devices(array: Any) -> set[Any]:
    """Those to which a global array of JAX, or ShardedArray, is committed."""
    import jax

    tiles = array.tiles if isinstance(array, ShardedArray) else array
    return set(tiles.sharding.device_set) if isinstance(tiles, jax.Array) and tiles.committed else set[Any]()


def _owners(devices: set[Any]) -> set[int]:
    return {device.process_index for device in devices}


def whole_on_host(array: Any) -> np.ndarray:
    """All of an array, where all processes that have some of it ask for it.

    >>> import jax.numpy as jnp
    >>> whole_on_host(jnp.ones(2))
    array([1., 1.], dtype=float32)
    """
    if isinstance(array, ShardedArray):
        return np.asarray(array if array.tiles.is_fully_addressable else array.as_jax())
    return np.asarray(array if array.is_fully_addressable else _copying(array.sharding.mesh)(array))


@cache
def _copying(mesh: Any) -> Any:
    """Jitted: an array whole on each device of the mesh."""
    import jax

    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.jit(lambda array: array, out_shardings=whole)
