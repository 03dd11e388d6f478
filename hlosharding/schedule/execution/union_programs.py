"""Programs on the devices of several submeshes together, which all of their processes call: they move tiles.

Floor: schedule.  In and out go the tiles of all devices, stacked on dim 0; a scalar's tile is `[1]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from hlosharding import xla_bridge
from hlosharding.schedule.tile_parts import Dims, TilePart
from hlosharding.schedule.transfers import SubmeshAllGather, SubmeshCollective, SubmeshReduceScatter


class UnionProgram(NamedTuple):
    """A compiled program, and how its stacked tiles lie."""

    call: Callable[[Any], Any]
    sharding: Any

    def __call__(self, tiles: Any) -> Any:
        import jax

        with jax.enable_x64(True):  # tiles keep the width that they have
            return self.call(tiles)


def plan_rounds(parts: Sequence[TilePart], tile: Dims) -> list[list[TilePart]]:
    """Parts that go at once: they have one size, and no device sends two of them or receives two.

    >>> to_two = [TilePart(0, 2, None, None), TilePart(0, 3, None, None), TilePart(1, 4, None, None)]
    >>> [[(part.source, part.target) for part in each] for each in plan_rounds(to_two, (4,))]
    [[(0, 2), (1, 4)], [(0, 3)]]
    """
    found: dict[Dims, list[list[TilePart]]] = {}
    busy: set[tuple[str, int, Dims, int]] = set()
    for part in parts:
        dims = part.dims(tile)
        of_size = found.setdefault(dims, [])
        ends = [("sends", part.source), ("receives", part.target)]
        # A collective-permute has each device once as a source, and once as a target.
        number = next(n for n in count() if not any((*end, dims, n) in busy for end in ends))
        if number == len(of_size):
            of_size.append([])
        of_size[number].append(part)
        busy.update((*end, dims, number) for end in ends)
    return [each for of_size in found.values() for each in of_size]


def compile_sends(parts: Sequence[TilePart], tile: Dims, order: Sequence[int], devices: Sequence[Any]) -> UnionProgram:
    """Tiles of the departed value in, those of the arrived one, of these dims, out: a collective-permute a round.

    `order`: those that take part, by number as the parts name them.  Devices that receive nothing give zeros.
    """
    places = {device: place for place, device in enumerate(order)}
    numbered = [part._replace(source=places[part.source], target=places[part.target]) for part in parts]
    steps = [_Round(each, tile, len(order)) for each in plan_rounds(numbered, tile)]

    def local(given: Any) -> Any:
        import jax.numpy as jnp

        made = jnp.zeros(tile or (1,), given.dtype)
        for step in steps:
            made = step(given, made)
        return made

    return _compile(local, ("device",), (len(order),), [devices[device] for device in order])


class _Round:
    """One collective-permute of parts of one size."""

    def __init__(self, parts: Sequence[TilePart], tile: Dims, devices: int) -> None:
        self.pairs = [(part.source, part.target) for part in parts]
        self.dims = parts[0].dims(tile) or (1,)
        self.is_whole = all(part.cut is None and part.at is None for part in parts)
        rank = len(self.dims)
        self.cut, self.at = np.zeros((devices, rank), np.int32), np.zeros((devices, rank), np.int32)
        self.receives = np.zeros(devices, bool)
        for part in parts:
            if part.cut is not None:
                self.cut[part.source] = [start for start, _ in part.cut]
            self.at[part.target] = part.start(len(tile)) or (0,)
            self.receives[part.target] = True

    def __call__(self, given: Any, made: Any) -> Any:
        import jax
        import jax.numpy as jnp

        place = jax.lax.axis_index("device")
        part = given if self.is_whole else jax.lax.dynamic_slice(given, self._start(self.cut, place), self.dims)
        got = jax.lax.ppermute(part, "device", self.pairs)
        filled = got if self.is_whole else jax.lax.dynamic_update_slice(made, got, self._start(self.at, place))
        # Who receives nothing gets zeros of `ppermute`, which must not overwrite what came in rounds before.
        return jnp.where(jnp.asarray(self.receives)[place], filled, made)

    @staticmethod
    def _start(starts: np.ndarray, place: Any) -> list[Any]:
        import jax.numpy as jnp

        of_device = jnp.asarray(starts)[place]
        return [of_device[dim] for dim in range(starts.shape[1])]


def compile_collective(
    op: SubmeshCollective, submeshes: int, order: Sequence[int], devices: Sequence[Any]
) -> UnionProgram:
    """Tile i of each submesh meets tile i of the others; `order`: those that take part, submesh by submesh."""
    shape, own = (submeshes, len(order) // submeshes), [devices[device] for device in order]
    return _compile(partial(_run_collective, op), ("submesh", "place"), shape, own)


def _run_collective(op: SubmeshCollective, tile: Any) -> Any:
    import jax

    match op:
        case SubmeshAllGather():
            return jax.lax.all_gather(tile, "submesh", axis=op.dim, tiled=True)
        case SubmeshReduceScatter():
            return jax.lax.psum_scatter(tile, "submesh", scatter_dimension=op.dim, tiled=True).astype(tile.dtype)
        case _:
            # JAX sums booleans as s32.
            return jax.lax.psum(tile, "submesh").astype(tile.dtype)


def _compile(
    local: Callable[[Any], Any], names: tuple[str, ...], sizes: tuple[int, ...], devices: Sequence[Any]
) -> UnionProgram:
    import jax

    mesh = jax.sharding.Mesh(np.array(devices, dtype=object).reshape(sizes), names)
    spec = jax.sharding.PartitionSpec(names)
    program = xla_bridge.jit(jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    return UnionProgram(program, jax.sharding.NamedSharding(mesh, spec))
