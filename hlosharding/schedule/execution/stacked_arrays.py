"""The caller's stacked arrays on JAX's devices: parts that lie on submeshes of their own are tiles of one global array.

Floor: schedule.  Nothing is copied then, neither where such an array enters nor where it leaves.  Where parts go round
the submeshes, for schedules with chunks, tiles are runs of parts, which are sent to where they are computed, and back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.executor import array_of_tiles, is_shared, lay_out_checked, tiles_by_device
from hlosharding.schedule.execution.given_arrays import fetch_whole
from hlosharding.schedule.interface import ArrayParts, Interface, cut_part, group_by_array, join_parts
from hlosharding.schedule.value_type import Types, ValueType
from hlosharding.sharding import HloSharding


class _Array(NamedTuple):
    """One of the caller's arrays."""

    kinds: Types
    """Of its parts."""
    stack: ArrayParts
    lies_as: ValueType
    is_copied: bool
    """Else its tiles are those of its parts."""
    chunks: int
    """How many parts a tile is."""

    def home(self, part: int) -> ValueType:
        """With what type a part lies in the array."""
        return self.kinds[part // self.chunks]


class StackedArrays:
    """Arrays as the caller has them made to arrays as @main has them, and back.

    Raises ScheduleError where devices of several processes would have to copy parts.
    """

    def __init__(
        self,
        interface: Interface,
        parameters: Types,
        results: Types,
        devices: Sequence[Any],
    ) -> None:
        self._devices, self._is_shared = devices, is_shared(devices)
        self._parameters = self._arrays(interface.parameters, parameters)
        self._results = self._arrays(interface.results, results)
        self.arguments = [array.lies_as for array in self._parameters]
        """How each of the caller's arrays is to lie."""

    def _arrays(self, stacks: Sequence[ArrayParts], kinds: Types) -> list[_Array]:
        return [self._array(own, stack) for own, stack in zip(group_by_array(stacks, kinds), stacks, strict=True)]

    def _array(self, kinds: Types, stack: ArrayParts) -> _Array:
        are_tiles = len({kind.shape for kind in kinds}) == 1
        chunks = chunks_of(kinds, stack.dim) if are_tiles else 1
        found = stacked_type(_types_of_runs(kinds, stack.dim, chunks), stack.dim) if are_tiles else None
        if self._is_shared and (found is None or chunks > 1):
            raise ScheduleError(
                f"the parts of one array ({kinds[0]}, ...) do not lie on a submesh each, and the devices are of several"
                " processes",
                remedy="take one stage a device, and stages that divide the layers; or one process",
            )
        lies_as = found or ValueType(_shape(kinds, stack.dim), kinds[0].devices)
        return _Array(kinds, stack, lies_as, found is None, chunks)

    def cut(self, given: Mapping[int, Any]) -> dict[int, Any]:
        """Arrays for @main's parameters, by number, from those of the caller that are here."""
        found: dict[int, Any] = {}
        first = 0
        for number, array in enumerate(self._parameters):
            if number in given:
                found.update((first + n, part) for n, part in self._cut_array(given[number], array).items())
            first += len(array.kinds)
        return found

    def _cut_array(self, given: Any, array: _Array) -> dict[int, Any]:
        if len(array.kinds) == 1:
            return {0: given}
        if array.is_copied:
            whole = fetch_whole(given)
            parts = [cut_part(whole, array.stack, n) for n in range(array.stack.parts)]
            return {n: lay_out_checked(parts[n], kind.sharding, self._on(kind)) for n, kind in enumerate(array.kinds)}
        tiles = tiles_by_device(given)
        own = [self._tiles_of_part(tiles, array, n) for n in range(len(array.kinds))]
        pairs = enumerate(zip(own, array.kinds, strict=True))
        return {n: array_of_tiles(here, kind.shape, kind.sharding, self._on(kind)) for n, (here, kind) in pairs if here}

    def _tiles_of_part(self, tiles: Mapping[Any, Any], array: _Array, part: int) -> dict[Any, Any]:
        ways = zip(self._on(array.home(part)), self._on(array.kinds[part]), strict=True)
        return {
            there: _send_tile(_rows_of_part(tiles[here], array, part), here, there)
            for here, there in ways
            if here in tiles
        }

    def join(self, made: Sequence[Any]) -> list[Any]:
        """The caller's arrays from @main's results."""
        taken = group_by_array([array.stack for array in self._results], made)
        return [self._join_parts(parts, array) for parts, array in zip(taken, self._results, strict=True)]

    def _join_parts(self, parts: Sequence[Any], array: _Array) -> Any:
        if len(parts) == 1:
            return parts[0]
        whole = array.lies_as
        if array.is_copied:
            host = join_parts([fetch_whole(part) for part in parts], array.stack)
            return lay_out_checked(host, whole.sharding, self._on(whole))
        found: defaultdict[Any, list[Any]] = defaultdict(list)
        for n, part in enumerate(parts):
            tiles = tiles_by_device(part)
            for here, there in zip(self._on(array.kinds[n]), self._on(array.home(n)), strict=True):
                if here in tiles:
                    found[there].append(_send_tile(tiles[here], here, there))
        joined = {device: _concat_tiles(own, array.stack.dim) for device, own in found.items()}
        return array_of_tiles(joined, whole.shape, whole.sharding, self._on(whole))

    def _on(self, kind: ValueType) -> list[Any]:
        return [self._devices[device] for device in kind.devices]


def _rows_of_part(tile: Any, array: _Array, part: int) -> Any:
    """Of a tile of the array."""
    import jax

    place, rows = part % array.chunks, tile.shape[array.stack.dim] // array.chunks
    whole = array.chunks == 1
    return tile if whole else jax.lax.slice_in_dim(tile, place * rows, (place + 1) * rows, axis=array.stack.dim)


def _send_tile(tile: Any, here: Any, there: Any) -> Any:
    import jax

    return tile if here == there else jax.device_put(tile, there)


def _concat_tiles(tiles: Sequence[Any], dim: int) -> Any:
    import jax

    return tiles[0] if len(tiles) == 1 else jax.lax.concatenate(tiles, dim)


def chunks_of(kinds: Types, dim: int) -> int:
    """How many parts each submesh has, where they go round the submeshes; 1 where they do not.

    >>> from hlosharding.ir import Shape
    >>> chunks_of([ValueType(Shape.array("f32", (2, 8)), (n % 3,)) for n in range(6)], 0)
    2
    """
    lying = [(kind.devices, kind.sharding) for kind in kinds]
    submeshes = len({kind.devices for kind in kinds})
    chunks = len(kinds) // submeshes
    # Where rows are split over devices, a device has no run of the array's rows: such parts go by way of the host.
    goes_round = lying == lying[:submeshes] * chunks and kinds[0].sharding.num_tiles_along(dim) == 1
    return chunks if goes_round else 1


def _types_of_runs(kinds: Types, dim: int, chunks: int) -> list[ValueType]:
    """The submeshes with as many parts each, next to each other."""
    shape = _shape(kinds[:chunks], dim)
    return [ValueType(shape, kind.devices, kind.sharding) for kind in kinds[: len(kinds) // chunks]]


def _shape(kinds: Types, dim: int) -> Any:
    first = kinds[0].shape
    return first.with_dim(dim, sum(kind.shape.dims[dim] for kind in kinds)) if len(kinds) > 1 else first


def stacked_type(kinds: Types, dim: int) -> ValueType | None:
    """The type of the array whose tiles are those of its parts along a dim, in order; None where there is none.

    >>> from hlosharding.ir import Shape
    >>> parts = [ValueType(Shape.array("f32", (2, 8)), (2 * n, 2 * n + 1)) for n in range(3)]
    >>> print(stacked_type(parts, 0))
    f32[6,8] on {0-5} as {devices=[3,1,2]0,1,2,3,4,5 last_tile_dim_replicate}
    """
    if len(kinds) == 1:
        return kinds[0]
    first, devices = kinds[0].sharding, [device for kind in kinds for device in kind.devices]
    tiles = _tiles(kinds[0])
    # The last of uneven tiles ends with padding, which would lie in the midst of the stack.
    if tiles is None or kinds[0].shape.dims[dim] % tiles.shape[dim]:
        return None
    if len(set(devices)) < len(devices) or any(kind.sharding != first for kind in kinds):
        return None
    size = len(kinds[0].devices)
    stacked = np.concatenate([tiles + n * size for n in range(len(kinds))], axis=dim)
    return ValueType(_shape(kinds, dim), tuple(devices), HloSharding.partial_tile(stacked))


def _tiles(kind: ValueType) -> np.ndarray | None:
    """Devices by tile, those with copies along the last dim; None where tiles are no plain ones."""
    count, sharding = len(kind.devices), kind.sharding
    if sharding.is_replicated():
        return np.arange(count).reshape((1,) * kind.shape.rank + (count,))
    if not sharding.is_tiled() or set(sharding.subgroup_types) - {"replicated"}:
        return None
    return sharding.tiles.array.reshape((*sharding.data_dims, -1))
