"""Resharding over tens of thousands of devices: nothing is made that grows with pairs of devices and tiles."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.ir import Shape
from hlosharding.reshard.intermediates import in_source_order, keep_source_order, plan_via
from hlosharding.reshard.layout import Layout, layout_of
from hlosharding.reshard.piecewise.regions import Region, count_of, pieces_of
from hlosharding.reshard.planner import reshard_of
from hlosharding.reshard.request import ReshardRequest
from hlosharding.reshard.reshard_plan import local_tiles
from hlosharding.sharding import HloSharding

MESHES = [
    ("{devices=[80,125]<=[10000]}", "{devices=[80,125]<=[125,80]T(1,0)}"),
    ("{devices=[10000,1]<=[10000]}", "{devices=[1,10000]<=[10000]}"),
    ("{devices=[80,1,125]<=[10000] last_tile_dim_replicate}", "{replicated}"),
    ("{devices=[16,625]<=[10000]}", "{devices=[625,16]<=[10000]}"),
]


@pytest.mark.parametrize(("source", "target"), MESHES)
def test_a_plan_takes_memory_for_devices_and_not_for_their_pairs(source: str, target: str) -> None:
    tracemalloc.start()
    plan = hs.plan_reshard((10_000, 10_000), "f32", source, target, machine=hs.machines.h100(10_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3000 * 10_000  # a byte for each pair of devices is three times as much
    assert plan.mean_received_bytes >= plan.lower_bound


def _by_pairs(region: Region, source: Layout, target: Layout) -> set[tuple[int, tuple[int, ...]]]:
    """(device, source tile) wherever the two have an element of the region in common, element by element."""
    found: set[tuple[int, tuple[int, ...]]] = set()
    low, high = target.bounds
    edges = [source.tiles_along(d) for d in range(len(source.dims))]
    for device in range(target.num_devices):
        for j in np.ndindex(*region.sizes):
            there = [t + i * step for t, i, step in zip(region.target, j, region.target_steps, strict=True)]
            here = [s + i * step for s, i, step in zip(region.source, j, region.source_steps, strict=True)]
            if all(a <= x < b for a, x, b in zip(low[device], there, high[device], strict=True)):
                tile = tuple(int(np.flatnonzero((a <= x) & (x < b))[0]) for x, (a, b) in zip(here, edges, strict=True))
                found.add((device, tile))
    return found


@pytest.mark.parametrize("region", [
    Region.whole((7, 10)),
    Region(0, (7, 10), (6, 0), (0, 0), (-1, 1), (1, 1)),
    Region(0, (3, 4), (1, 2), (2, 1), (2, 1), (1, 2)),
    Region(0, (3, 5), (6, 9), (0, 1), (-2, -1), (2, 1)),
])  # fmt: skip
@pytest.mark.parametrize(("source", "target"), [
    ("{devices=[2,3]<=[6]}", "{devices=[3,2]<=[6]}"),
    ("{devices=[6,1]5,3,1,0,2,4}", "{devices=[1,2,3]<=[6] last_tile_dim_replicate}"),
    ("{maximal device=4}", "{devices=[2,3]<=[3,2]T(1,0)}"),
    ("{devices=[3,1,2]<=[6] last_tile_dim_replicate}", "{replicated}"),
    ("{devices=[5,1]0,1,2,3,4}", "{devices=[1,5]<=[5]}"),
])  # fmt: skip
def test_pieces_are_where_tiles_meet(region: Region, source: str, target: str) -> None:
    count = 5 if "[5," in source else 6
    layouts = [layout_of(HloSharding.parse(text), (7, 10), count) for text in (source, target)]
    found, expected = pieces_of(region, *layouts), _by_pairs(region, *layouts)
    index = [tuple(layouts[0].index[found.holders[tile][0]].tolist()) for tile in found.tiles.tolist()]
    assert set(zip(found.receivers.tolist(), index, strict=True)) == expected
    assert len(index) == len(expected) == count_of(region, *layouts)
    assert found.receivers.tolist() == sorted(found.receivers.tolist())


@pytest.mark.parametrize(("source", "target"), [
    ("{devices=[8,3]<=[24]}", "{devices=[3,8]<=[24]}"),
    ("{devices=[4,6]<=[24]}", "{devices=[6,4]<=[4,6]T(1,0)}"),
    ("{devices=[12,1,2]<=[24] last_tile_dim_replicate}", "{devices=[3,8]<=[24]}"),
])  # fmt: skip
def test_tiles_made_in_the_sources_order_reach_the_target(source: str, target: str) -> None:
    first, last = map(HloSharding.parse, (source, target))
    dims = (24, 48)
    request = ReshardRequest(Shape.array("s32", dims), first, last, objective="bytes", num_devices=24)
    whole = np.arange(24 * 48, dtype=np.int32).reshape(dims)
    expected = list(local_tiles([whole], layout_of(last, dims, 24)))
    reshard = reshard_of(request)
    plans = [plan_via(reshard, way) for way in keep_source_order(reshard)]
    assert plans
    for steps in plans:
        tiles = list(local_tiles([whole], layout_of(first, dims, 24)))
        for step in steps:
            tiles = step.apply(tiles)
        assert all(np.array_equal(mine, wanted) for mine, wanted in zip(tiles, expected, strict=True))


def test_what_would_be_far_too_many_pieces_goes_in_few_steps() -> None:
    plan = hs.plan_reshard((98304, 98304), "f32", "{devices=[4096,6]<=[24576]}", "{devices=[6,4096]<=[24576]}")
    assert len(plan.steps) <= 5


def test_a_reshape_over_many_devices_takes_memory_for_devices() -> None:
    module = hs.load("""HloModule m
ENTRY e {
  p = bf16[4,12582912,16384] parameter(0), sharding={devices=[1,6144,1]<=[6144]}
  ROOT r = bf16[6144,8192,16384] reshape(p), sharding={devices=[6144,1,1]<=[6144]}
}
""")
    tracemalloc.start()
    local = hs.partition(module, num_partitions=6144)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000 * 6144  # half of it for what is imported on the way
    assert len(local.collectives) <= 4  # the rows that a device wants lie on four devices
    tile = 8192 * 16384 * 2
    assert local.comm_bytes_per_device < 2 * tile


def test_what_can_stay_stays_in_the_sources_order() -> None:
    devices = in_source_order(np.arange(24).reshape(8, 3), (8, 3, 1), (2, 12, 1))
    assert sorted(devices.ravel().tolist()) == list(range(24))
    assert devices[0, 0, 0] == 0
    assert set(devices[0].ravel().tolist()) == set(range(12))
