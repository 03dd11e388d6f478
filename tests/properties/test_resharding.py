"""Any reshard puts the right data on every device, whatever the padding holds, for bytes at the lower bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import example, given
from hypothesis import strategies as st

from hlosharding.cost import machines
from hlosharding.ir import Shape
from hlosharding.reshard import ReshardRequest, plan_steps
from hlosharding.reshard.layout import Layout, layout_of, least_mean_elements
from hlosharding.reshard.planner import candidates, reshard_of
from hlosharding.reshard.reshard_plan import local_tiles
from hlosharding.sharding import HloSharding

OBJECTIVES = st.sampled_from(["bytes", "time"])
SIZES = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 13, 24])
DEVICES = st.sampled_from([2, 4, 6, 8, 12])


@st.composite
def shardings(draw: st.DrawFn, rank: int, devices: int, *, partial: bool = False) -> HloSharding:
    """Any leaf sharding of `devices`: tiles, copies, one device; or with partial sums."""
    if not partial and draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([HloSharding.replicate(), HloSharding.maximal(devices - 1)]))
    order = draw(st.one_of(st.just(list(range(devices))), st.permutations(range(devices))))
    counts = [1] * (rank + 2)
    for prime in _primes(devices):
        counts[draw(st.integers(0, rank + partial))] *= prime
    return HloSharding.subgroup(np.array(order).reshape(counts), ["replicated", "unreduced"])


def _primes(number: int) -> list[int]:
    factor = next((f for f in range(2, number + 1) if number % f == 0), None)
    return [] if factor is None else [factor, *_primes(number // factor)]


@st.composite
def reshards(draw: st.DrawFn, *, partial: bool = False) -> tuple[tuple[int, ...], HloSharding, HloSharding, int]:
    """(dims, source, target, devices)"""
    devices = draw(DEVICES)
    dims = tuple(draw(st.lists(SIZES, min_size=1, max_size=3)))
    source = draw(shardings(len(dims), devices, partial=partial))
    return dims, source, draw(shardings(len(dims), devices)), devices


def outcome(
    dims: tuple[int, ...], source: HloSharding, target: HloSharding, devices: int, objective: str
) -> tuple[float, float]:
    """(mean bytes received, lower bound) of one byte an element; the data is checked."""
    shape = Shape.array("f64", dims)
    before, after = layout_of(source, dims, devices), layout_of(target, dims, devices)
    random = np.random.default_rng(1)
    partial_sums = [random.integers(-50, 50, dims).astype(np.float64) for _ in range(before.num_partial_sums)]
    tiles = list(local_tiles(partial_sums, before, padding=np.nan))
    received, local = 0.0, shape.with_dims(before.tile)
    steps = plan_steps(shape, source, target, reduce_kind="add", objective=objective, num_devices=devices)
    for step in steps:
        received += float(step.received_bytes(local, devices).mean()) / 8
        tiles, local = step.apply(tiles), step.result(local)
    assert [tile.shape for tile in tiles] == [after.tile] * devices
    check_tiles(tiles, np.sum(partial_sums, axis=0), after)
    return received, least_mean_elements(before, after)


def check_tiles(tiles: list[npt.NDArray[Any]], whole: npt.NDArray[Any], layout: Layout) -> None:
    """Every device has its part of the whole, padding apart."""
    low, high = layout.bounds
    for device in np.flatnonzero(layout.has_data()):
        wanted = whole[tuple(slice(a, b) for a, b in zip(low[device], high[device], strict=True))]
        np.testing.assert_array_equal(tiles[device][tuple(slice(0, size) for size in wanted.shape)], wanted)


@given(reshards(), OBJECTIVES)
@example(((13, 10), HloSharding.iota_tile((4, 2)), HloSharding.iota_tile((2, 4), (2, 4), (1, 0)), 8), "bytes")
@example(((5, 13), HloSharding.iota_tile((2, 3)), HloSharding.iota_tile((3, 2)), 6), "time")
def test_whole_values(case: tuple[tuple[int, ...], HloSharding, HloSharding, int], objective: str) -> None:
    received, bound = outcome(*case, objective)
    assert received >= bound - 1e-9
    if objective == "bytes":
        dims, *both, _ = case
        is_even = all(size % s.num_tiles_along(d) == 0 for s in both for d, size in enumerate(dims))
        assert received <= (1.0001 if is_even else 1.2) * bound + 1e-9


@given(reshards(partial=True), OBJECTIVES)
def test_partial_values(case: tuple[tuple[int, ...], HloSharding, HloSharding, int], objective: str) -> None:
    received, bound = outcome(*case, objective)
    assert received >= bound - 1e-9
    if objective == "bytes":
        dims, source, target, devices = case
        before = layout_of(source, dims, devices)
        size = before.num_partial_sums
        reduced = 2 * (size - 1) / size * math.prod(before.tile)
        whole = Layout(
            devices, dims, before.counts, before.index, None, before.manual_group, np.zeros(devices, np.int64)
        )
        assert received <= reduced + 1.2 * least_mean_elements(whole, layout_of(target, dims, devices)) + 1e-9


@given(reshards(), st.integers(0, 10**9))
def test_every_plan_that_is_looked_at(case: tuple[tuple[int, ...], HloSharding, HloSharding, int], seed: int) -> None:
    dims, source, target, devices = case
    shape, machine = Shape.array("s32", dims), machines.h100(devices)
    reshard = reshard_of(ReshardRequest(shape, source, target, objective="time", machine=machine, num_devices=devices))
    whole = np.random.default_rng(seed).integers(0, 1000, dims).astype(np.int32)
    before, after = reshard.layouts
    for steps in dict.fromkeys(candidates(reshard)):
        tiles = list(local_tiles([whole], before, padding=-1 - seed % 997))
        for step in steps:
            tiles = step.apply(tiles)
        check_tiles(tiles, whole, after)


@given(reshards(), st.integers(0, 10**9))
def test_padding_may_hold_anything(case: tuple[tuple[int, ...], HloSharding, HloSharding, int], seed: int) -> None:
    dims, source, target, devices = case
    shape = Shape.array("s32", dims)
    before, after = layout_of(source, dims, devices), layout_of(target, dims, devices)
    whole = np.random.default_rng(seed).integers(0, 1000, dims).astype(np.int32)
    tiles = list(local_tiles([whole], before, padding=-seed % 997))
    for step in plan_steps(shape, source, target, num_devices=devices):
        tiles = step.apply(tiles)
    check_tiles(tiles, whole, after)
