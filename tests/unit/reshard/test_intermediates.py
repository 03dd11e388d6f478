"""By whatever sharding a plan goes, every device ends with its tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hlosharding.ir import Shape
from hlosharding.reshard import ReshardRequest, layout_of
from hlosharding.reshard.intermediates import (
    Intermediate,
    gather_source,
    keep_source_order,
    least_cost,
    make_where_held,
    merge_tiles,
    plan_via,
    reorder_source,
    split_copies,
)
from hlosharding.reshard.planner import reshard_of
from hlosharding.reshard.request import Reshard
from hlosharding.reshard.reshard_plan import local_tiles
from hlosharding.sharding import HloSharding

Generator = Callable[[Reshard], Iterator[Intermediate]]

# (generator, source, target of an array [12, 10], how many intermediate shardings: closed forms)
WAYS: list[tuple[Generator, str, str, int]] = [
    # Each dim that the source splits may become whole.
    (gather_source, "{devices=[4,2]<=[8]}", "{devices=[2,4]<=[8]}", 2),
    (gather_source, "{devices=[8,1]<=[8]}", "{devices=[1,8]<=[8]}", 1),
    # Two copies halve six rows; five columns they cannot.
    (split_copies, "{devices=[4,2]7,3,0,4,5,1,2,6}", "{devices=[2,2,2]<=[8] last_tile_dim_replicate}", 1),
    # [4,2] in the target's order is two reshapes of it, and there is no grid before.
    (reorder_source, "{devices=[4,2]7,3,0,4,5,1,2,6}", "{devices=[2,4]<=[8]}", 1),
    (reorder_source, "{devices=[4,2]<=[8]}", "{devices=[2,4]<=[8]}", 0),
    # One assignment of tiles to devices.
    (keep_source_order, "{devices=[4,2]7,3,0,4,5,1,2,6}", "{devices=[2,4]<=[8]}", 1),
    (make_where_held, "{devices=[4,2]<=[8]}", "{devices=[4,2]7,3,0,4,5,1,2,6}", 0),  # the source itself
    (make_where_held, "{devices=[4,2]7,3,0,4,5,1,2,6}", "{devices=[2,4]<=[8]}", 1),
    # Copies are cut after all else, along a dim that was whole.
    (merge_tiles, "{devices=[2,2,2]<=[8] last_tile_dim_replicate}", "{devices=[2,4]<=[8]}", 2),
]


@pytest.mark.parametrize(("generator", "source", "target", "count"), WAYS)
def test_plans_by_way_of_it_bring_every_device_its_tile(
    generator: Generator, source: str, target: str, count: int
) -> None:
    first, last, dims = HloSharding.parse(source), HloSharding.parse(target), (12, 10)
    request = ReshardRequest(Shape.array("s32", dims), first, last, objective="bytes", num_devices=8)
    reshard = reshard_of(request)
    ways = list(generator(reshard))
    assert len(ways) == count
    whole = np.arange(120, dtype=np.int32).reshape(dims)
    low, high = layout_of(last, dims, 8).bounds
    for way in ways:
        steps = plan_via(reshard, way)
        assert least_cost(reshard, way) <= reshard.price(steps).cost("bytes") * (1 + 1e-9)
        tiles = list(local_tiles([whole], layout_of(first, dims, 8)))
        for step in steps:
            tiles = step.apply(tiles)
        for device, tile in enumerate(tiles):
            wanted = whole[tuple(map(slice, low[device].tolist(), high[device].tolist()))]
            np.testing.assert_array_equal(tile[tuple(slice(0, n) for n in wanted.shape)], wanted)
