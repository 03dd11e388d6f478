"""Programs on two submeshes: every tile arrives, whatever the two layouts; nobody sends or receives twice at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import jax
import numpy as np
import pytest

from hlosharding.executor import restack_tiles, tiles_by_device
from hlosharding.schedule.execution.union_programs import (
    compile_collective,
    compile_sends,
    plan_rounds,
)
from hlosharding.schedule.tile_parts import tile_parts
from hlosharding.schedule.tiles import tiles_of, whole_of
from hlosharding.schedule.transfers import SubmeshAllGather, SubmeshAllReduce, SubmeshCollective, SubmeshReduceScatter
from hlosharding.schedule.value_type import ValueType, parse_type

LAYOUTS = (
    "{0}",
    "{0-1}",
    "{0-1} as {devices=[2,1]<=[2]}",
    "{0-1} as {devices=[1,2]1,0}",
    "{0-3} as {devices=[2,2]<=[4]}",
    "{0-3} as {devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
    "{0-3} as {maximal device=2}",
)


def there(kind: ValueType) -> ValueType:
    """On four other devices, in another order."""
    return ValueType(kind.shape, tuple(7 - device for device in kind.devices), kind.sharding)


@pytest.mark.parametrize(("here", "arrives"), list(product(LAYOUTS, LAYOUTS)))
def test_every_tile_arrives(here: str, arrives: str) -> None:
    departed, arrived = parse_type(f"f32[5,3] on {here}"), there(parse_type(f"f32[5,3] on {arrives}"))
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    order = (*departed.devices, *arrived.devices)
    devices = [jax.devices()[n] for n in order]
    program = compile_sends(tile_parts(departed, arrived), arrived.tile.dims, order, jax.devices())
    own = {jax.devices()[n]: tile for n, tile in tiles_of(x, departed).items()}
    tiles = {d: jax.device_put(own.get(d, np.zeros(departed.tile.dims, np.float32)), d) for d in devices}
    made = tiles_by_device(program(restack_tiles(tiles, devices, departed.tile, program.sharding)))
    found = {n: np.asarray(made[jax.devices()[n]]) for n in arrived.devices}
    assert np.array_equal(whole_of(found, arrived), x)
    for device, tile in tiles_of(x, arrived).items():
        assert np.array_equal(found[device], tile) or arrived.sharding.is_maximal()


@pytest.mark.parametrize(("here", "arrives"), list(product(LAYOUTS, LAYOUTS)))
def test_nobody_does_two_things_at_a_time(here: str, arrives: str) -> None:
    departed, arrived = parse_type(f"f32[5,3] on {here}"), there(parse_type(f"f32[5,3] on {arrives}"))
    parts, tile = tile_parts(departed, arrived), arrived.tile.dims
    found = plan_rounds(parts, tile)
    assert sorted(map(repr, parts)) == sorted(repr(part) for each in found for part in each)
    for each in found:
        assert len({part.dims(tile) for part in each}) == 1
        assert len({part.source for part in each}) == len({part.target for part in each}) == len(each)


A, B = np.arange(8.0, dtype=np.float32).reshape(4, 2), np.ones((4, 2), np.float32)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (SubmeshAllReduce(), (A + B, A + B)),
        (SubmeshAllGather(1), (np.concatenate([A, B], 1), np.concatenate([A, B], 1))),
        (SubmeshReduceScatter(0, "data"), ((A + B)[:2], (A + B)[2:])),
    ],
)
def test_tiles_of_submeshes_meet(op: SubmeshCollective, wanted: Sequence[np.ndarray]) -> None:
    order = 0, 1, 5, 4
    devices = [jax.devices()[n] for n in order]
    program = compile_collective(op, 2, order, jax.devices())
    kind = parse_type("f32[4,2] on {0}")
    tiles = {d: jax.device_put(tile, d) for d, tile in zip(devices, (A, 2 * A, B, 2 * B), strict=True)}
    made = tiles_by_device(program(restack_tiles(tiles, devices, kind.tile, program.sharding)))
    for number, device in enumerate(devices):
        assert np.array_equal(np.asarray(made[device]), wanted[number // 2] * (1 + number % 2))
