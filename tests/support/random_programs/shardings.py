"""Random shardings of an array over some devices: tiled any way, partly replicated, in any device order, uneven."""

from __future__ import annotations

from math import prod
from random import Random

import numpy as np

from hlosharding.ir import Shape
from hlosharding.sharding import HloSharding


def random_sharding(random: Random, shape: Shape, devices: int) -> HloSharding:
    """A sharding an array of this shape can have."""
    if not shape.dims or random.random() < 0.1:
        return HloSharding.replicate()
    tiles, left = [1] * shape.rank, devices
    for dim in random.sample(range(shape.rank), shape.rank):
        ways = random.choice([w for w in range(1, left + 1) if left % w == 0])
        # Now and then more tiles than elements.
        if ways <= shape.dims[dim] or random.random() < 0.05:
            tiles[dim], left = ways, left // ways
    if prod(tiles) == 1:
        return HloSharding.replicate()
    order = device_order(random, (*tiles, left))
    return HloSharding.partial_tile(order) if left > 1 else HloSharding.tile(order.reshape(tiles))


def device_order(random: Random, dims: tuple[int, ...]) -> np.ndarray:
    """Mostly row-major, as XLA and JAX number them; else transposed, or any order."""
    count, kind = prod(dims), random.random()
    if kind < 0.6:
        return np.arange(count).reshape(dims)
    if kind < 0.85:
        axes = random.sample(range(len(dims)), len(dims))
        return np.arange(count).reshape([dims[a] for a in axes]).transpose(np.argsort(axes))
    return np.array(random.sample(range(count), count)).reshape(dims)


def kinds(sharding: HloSharding | None, shape: Shape) -> list[str]:
    """What a coverage table counts: the kind of a sharding and what is special about it."""
    if sharding is None:
        return ["none"]
    if sharding.is_tuple():
        return ["tuple"]
    if not sharding.is_tiled() or sharding.tile_assignment is None:
        return [sharding.kind]
    found = ["partial" if sharding.has_partial_replication() else "tiled"]
    if any(size % ways for size, ways in zip(shape.dims, sharding.data_dims, strict=False)):
        found.append("uneven")
    flat = sharding.tile_assignment.flat
    if list(flat) != sorted(flat):
        found.append("odd order")
    return found


KINDS = ("none", "replicated", "tiled", "partial", "uneven", "odd order", "tuple")
