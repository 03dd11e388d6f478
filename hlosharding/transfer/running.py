"""A plan run on JAX's devices: pieces are put from device to device, and each device puts its tile together.

Floor: transfer.  One process, which sees all devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hlosharding.errors import ExecutionError
from hlosharding.frontends import divides
from hlosharding.transfer.pieces import Box, Demand
from hlosharding.transfer.placed_arrays import Dims, PlacedArrays, is_concrete
from hlosharding.transfer.rounds import PieceSend

Tile = tuple[Box, Any]
"""A box of the whole, and its elements on a device."""


def run_rounds(
    tree: Any, placed: PlacedArrays, demands: Sequence[Demand], rounds: Sequence[Sequence[PieceSend]]
) -> Any:
    """The arrays of a tree as the target has them.  Raises ExecutionError where they do not lie as the source says."""
    import jax

    arrays, structure = jax.tree.flatten(tree)
    _check(arrays, placed)
    leaves, devices = placed.leaves, {d.id: d for sharding in placed.targets for d in sharding.device_set}
    tiles = {
        (leaf, s.device.id): (_box(s.index, a.shape), s.data)
        for leaf, a in enumerate(arrays)
        for s in a.addressable_shards
    }
    arrived: dict[tuple[int, int], dict[Box, Any]] = {(leaf, d): {} for leaf in range(len(arrays)) for d in devices}
    for unit, (source, target, _) in (send for sends in rounds for send in sends):
        for kind, number, box in demands[unit.demand].boxes(unit.start, unit.end):
            leaf = leaves[kind][number]
            # A unit is the same boxes on its whole way: what is passed on is there under its box.
            given = arrived.get((leaf, source), {}).get(box)
            part = _cut(tiles[leaf, source], box) if given is None else given
            arrived[leaf, target][box] = jax.device_put(part, devices[target])
    made: list[Any] = []
    for leaf, (array, sharding) in enumerate(zip(arrays, placed.targets, strict=True)):
        parts = [
            _assemble(_box(index, array.shape), tiles.get((leaf, one.id)), arrived[leaf, one.id], array.dtype, one)
            for one, index in sharding.devices_indices_map(array.shape).items()
        ]
        made.append(jax.make_array_from_single_device_arrays(array.shape, sharding, parts))
    return jax.tree.unflatten(structure, made)


def _check(arrays: Sequence[Any], placed: PlacedArrays) -> None:
    """That the arrays are those of the plan."""
    given = [(a.shape, a.dtype) for a in arrays]
    planned = [(placed.kinds[kind].dims, placed.kinds[kind].dtype) for kind in placed.kind_of]
    if given != planned:
        raise ExecutionError(
            "these are not the arrays of the plan", remedy="give arrays of the planned shapes, in their order"
        )
    for name, array, source, target in zip(placed.names, arrays, placed.sources, placed.targets, strict=True):
        if not (is_concrete(source.mesh) and is_concrete(target.mesh)):
            raise ExecutionError(
                "the plan is for devices that are not there", remedy="plan with meshes of jax.devices()"
            )
        if not divides(target, array.shape):
            what = f"{target.spec} cuts {list(array.shape)} into uneven tiles, which a jax.Array cannot have"
            raise ExecutionError(what, where=name, remedy="choose a target of even tiles")
        if not (array.is_fully_addressable and target.is_fully_addressable):
            raise ExecutionError("other processes have devices of the plan", where=name, remedy="run it in one process")
        if not array.sharding.is_equivalent_to(source, array.ndim):
            what = f"the array lies as {array.sharding}, not as {source}"
            raise ExecutionError(what, where=name, remedy="plan from where it lies")


def _box(index: tuple[slice, ...], dims: Dims) -> Box:
    return tuple(side.indices(size)[:2] for side, size in zip(index, dims, strict=True))


def _cut(tile: Tile, box: Box) -> Any:
    from jax import lax

    whole, data = tile
    if whole == box:
        return data
    start = [low - first for (low, _), (first, _) in zip(box, whole, strict=True)]
    # Of equal sizes one program is compiled, wherever they begin; a static slice is one for each start.
    return lax.dynamic_slice(data, start, [high - low for low, high in box])


def _assemble(box: Box, own: Tile | None, arrived: dict[Box, Any], dtype: Any, device: Any) -> Any:
    """The tile of a device, of what it had and of what it was sent."""
    import jax

    parts = dict(arrived)
    if own is not None:
        both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(own[0], box, strict=True))
        if all(low < high for low, high in both):
            parts[both] = _cut(own, both)
    if box in parts:
        return parts[box]
    tile = jax.device_put(jax.numpy.zeros([high - low for low, high in box], dtype), device)
    for part, data in parts.items():
        tile = _write()(tile, data, [low - first for (low, _), (first, _) in zip(part, box, strict=True)])
    return tile


@lru_cache(maxsize=1)
def _write() -> Any:
    """A part written into a tile, in place."""
    import jax

    return jax.jit(jax.lax.dynamic_update_slice, donate_argnums=0)
