"""Where time decides: no slower than XLA's own sequence, whatever plan that takes, and within the user's memory.

XLA's seconds are those of live XLA's steps (jaxlib 0.10.2), priced as ours by `benchmarks/reshards.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import PartitionError
from hlosharding.ir import Shape
from hlosharding.reshard import AllGather, plan_steps
from hlosharding.reshard.for_time.search import emitted_seconds, estimated_seconds
from hlosharding.reshard.layout import layout_of
from hlosharding.reshard.reshard_plan import local_tiles
from hlosharding.sharding import HloSharding

# (dims, source, target, microseconds of XLA's sequence on H100s)
LIVE = [
    # The whole, then a cut.
    (
        (87, 2995, 103),
        "{devices=[1,1,16]0,2,4,6,8,10,12,14,1,3,5,7,9,11,13,15}",
        "{devices=[1,4,1,4]8,10,12,14,4,5,11,15,0,6,7,13,1,2,3,9 last_tile_dim_replicate}",
        394.380,
    ),
    # An all-to-all in the source's order, then a permute.
    ((6, 8, 10), "{devices=[2,1,6]0,1,2,3,4,5,6,7,8,9,10,11}", "{devices=[2,2,3]4,1,8,0,10,11,7,5,9,2,6,3}", 33.220),
    # A gather, then an all-to-all.
    ((118, 18, 124), "{devices=[2,1,2]0,1,2,3}", "{devices=[1,2,1,2]0,1,2,3 last_tile_dim_replicate}", 34.383),
    # The same orders, one transposed.
    (
        (1264, 208),
        "{devices=[8,2]0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15}",
        "{devices=[4,4]0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}",
        50.429,
    ),
    # An all-to-all, then a cut.
    ((72, 124, 31), "{devices=[1,3,1,2]0,1,2,3,4,5 last_tile_dim_replicate}", "{devices=[3,1,2]0,1,2,3,4,5}", 22.076),
    # Tile edges move by some rows, then two gathers.
    (
        (642, 40904),
        "{devices=[8,2]0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}",
        "{devices=[2,1,8]0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 last_tile_dim_replicate}",
        233.563,
    ),
    # An all-to-all, tile edges, a permute.
    (
        (700, 37471),
        "{devices=[8,2]15,8,9,2,13,7,0,3,12,5,14,6,10,11,4,1}",
        "{devices=[2,8]15,3,14,0,9,1,8,2,13,7,11,12,5,6,10,4}",
        357.136,
    ),
    # Tile edges of two dims, a cut, a permute.
    (
        (5506, 4766),
        "{devices=[2,2,4]0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 last_tile_dim_replicate}",
        "{devices=[4,4]0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}",
        82.204,
    ),
    # Tile edges, an all-to-all, tile edges, a permute.
    ((26253, 1002), "{devices=[2,4]0,4,1,5,2,6,3,7}", "{devices=[4,2]6,4,0,7,1,5,3,2}", 152.600),
    # A permute, tile edges, gathers.
    (
        (186701, 142),
        "{devices=[4,4]10,15,9,6,12,11,4,3,0,13,2,7,14,8,5,1}",
        "{devices=[2,2,4]0,4,8,12,1,5,9,13,2,6,10,14,3,7,11,15 last_tile_dim_replicate}",
        605.660,
    ),
    # A cut, an all-to-all, a permute.
    (
        (202104, 128),
        "{devices=[1,8,2]0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 last_tile_dim_replicate}",
        "{devices=[8,2]9,2,6,1,7,15,0,10,5,8,4,14,3,11,12,13}",
        229.979,
    ),
]


@pytest.mark.parametrize(("dims", "source", "target", "xla"), LIVE)
def test_no_slower_than_xla(dims: tuple[int, ...], source: str, target: str, xla: float) -> None:
    plan = hs.plan_reshard(dims, "f32", source, target, objective="time")
    assert 1e6 * plan.predicted_s <= xla + 1e-3


@pytest.mark.parametrize(("dims", "source", "target", "xla"), LIVE)
def test_the_same_plans_bring_the_right_data(dims: tuple[int, ...], source: str, target: str, xla: float) -> None:
    small = tuple(size if size < 40 else 20 + size % 20 for size in dims)
    plan = hs.plan_reshard(small, "f32", source, target, objective="time")
    array = np.arange(np.prod(small), dtype=np.float32).reshape(small)
    low, high = layout_of(plan.target, small, plan.num_devices).bounds
    for device, tile in enumerate(plan.run(array)):
        wanted = array[tuple(slice(a, b) for a, b in zip(low[device], high[device], strict=True))]
        np.testing.assert_array_equal(tile[tuple(slice(0, size) for size in wanted.shape)], wanted)


def test_the_whole_array_is_gathered_where_only_time_counts_and_only_within_the_limit() -> None:
    dims, source, target, _ = LIVE[0]
    quick = hs.plan_reshard(dims, "f32", source, target, objective="time")
    gathers = [step for step in quick.steps if isinstance(step, AllGather)]
    assert [len(step.groups[0]) for step in gathers] == [16]
    whole = 4 * int(np.prod(dims))
    assert quick.peak_bytes > whole
    assert hs.plan_reshard(dims, "f32", source, target, objective="bytes").peak_bytes < whole
    capped = hs.plan_reshard(dims, "f32", source, target, objective="time", memory_limit=whole // 2)
    assert capped.peak_bytes <= whole // 2
    assert capped.predicted_s > quick.predicted_s
    with pytest.raises(PartitionError, match="the leanest needs"):
        hs.plan_reshard(dims, "f32", source, target, objective="time", memory_limit=whole // 100)


def test_an_estimate_is_near_what_the_program_takes() -> None:
    for dims, source, target, _ in LIVE:
        first, last = HloSharding.parse(source), HloSharding.parse(target)
        n = len(first.tiles.flat)
        steps = plan_steps(Shape.array("f32", dims), first, last)
        local, machine = Shape.array("f32", layout_of(first, dims, n).tile), machines.h100(n)
        exact = emitted_seconds(steps, local, n, machine)
        assert estimated_seconds(steps, local, machine) == pytest.approx(exact, rel=0.3)


def test_steps_of_renamed_devices_do_the_same_elsewhere() -> None:
    names = np.random.default_rng(0).permutation(16)
    for dims, source, target, _ in LIVE[-4:]:
        small = tuple(20 + size % 20 for size in dims)
        first = HloSharding.parse(source)
        n = len(first.tiles.flat)
        names = np.argsort(np.random.default_rng(0).random(n))
        layout = layout_of(first, small, n)
        ours = list(local_tiles([np.arange(np.prod(small)).reshape(small)], layout))
        theirs = [ours[d] for d in np.argsort(names)]
        for step in plan_steps(Shape.array("f32", small), first, HloSharding.parse(target)):
            ours, theirs = step.apply(ours), step.rename_devices(names).apply(theirs)
        for device in range(n):
            np.testing.assert_array_equal(ours[device], theirs[names[device]])
