"""The algebra against what each device holds, element by element."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from hypothesis import assume, given
from hypothesis import strategies as st

from hlosharding.sharding import (
    HloSharding,
    device_groups_along,
    group_sharding_on_dims,
    is_subtiling_or_equal,
    merge_if_compatible,
    replicate_on_dims,
    reshape_sharding,
    reverse_sharding,
    transpose_sharding,
    ungroup_sharding,
)
from tests.support.sharding_strategies import REPLICATED_ONLY, even_sizes_for, factors, sizes_for, tiled

Held = npt.NDArray[np.bool_]


def held(sharding: HloSharding, dims: tuple[int, ...], device: int) -> Held:
    """Which elements `device` has."""
    mask = np.zeros(dims, bool)
    start, end = sharding.tile_offset(dims, device), sharding.tile_limit(dims, device)
    mask[tuple(slice(a, b) for a, b in zip(start, end, strict=True))] = True
    return mask


def devices_of(sharding: HloSharding) -> range:
    return range(sharding.total_num_tiles)


@given(tiled(), st.data())
def test_transposed_tiles_hold_transposed_elements(sharding: HloSharding, data: st.DataObject) -> None:
    dims = data.draw(sizes_for(sharding))
    perm = data.draw(st.permutations(range(len(dims))))
    moved, new_dims = transpose_sharding(sharding, perm), tuple(dims[p] for p in perm)
    for device in devices_of(sharding):
        assert np.array_equal(held(moved, new_dims, device), held(sharding, dims, device).transpose(perm))
    assert transpose_sharding(moved, np.argsort(perm).tolist()) == sharding


@given(tiled(), st.data())
def test_reversed_tiles_hold_reversed_elements(sharding: HloSharding, data: st.DataObject) -> None:
    dims = data.draw(even_sizes_for(sharding))
    along = data.draw(st.sets(st.integers(0, len(dims) - 1)))
    moved = reverse_sharding(sharding, sorted(along))
    for device in devices_of(sharding):
        assert np.array_equal(held(moved, dims, device), np.flip(held(sharding, dims, device), tuple(along)))


@given(tiled(), st.data())
def test_replicating_only_adds_elements(sharding: HloSharding, data: st.DataObject) -> None:
    dims = data.draw(sizes_for(sharding))
    on = data.draw(st.sets(st.integers(0, len(dims) - 1)))
    coarse = replicate_on_dims(sharding, sorted(on))
    assume(coarse.kind == "tiled")
    assert all(coarse.num_tiles_along(d) == 1 for d in on)
    for device in devices_of(sharding):
        assert (held(coarse, dims, device) >= held(sharding, dims, device)).all()
    assert is_subtiling_or_equal(dims, sharding, coarse)


@given(tiled(rank=2, count=12), st.booleans(), st.booleans(), st.data())
def test_merged_tiles_are_what_both_hold(fine: HloSharding, left: bool, right: bool, data: st.DataObject) -> None:
    source = replicate_on_dims(fine, (0,)) if left else fine
    target = replicate_on_dims(fine, (1,)) if right else data.draw(tiled(rank=2, count=12))
    merged = merge_if_compatible(source, target, 1)
    if merged is None or not target.kind == source.kind == "tiled":
        return
    dims = data.draw(even_sizes_for(merged))
    for device in devices_of(merged):
        both = held(source, dims, device) & held(target, dims, device)
        assert np.array_equal(held(merged, dims, device), both)


@given(tiled(rank=2, count=12), st.data())
def test_coarser_forms_of_one_merge_back(fine: HloSharding, data: st.DataObject) -> None:
    left, right = (replicate_on_dims(fine, (d,)) for d in (0, 1))
    merged = merge_if_compatible(left, right, 1)
    if left.has_partial_replication() and right.has_partial_replication() and merged is not None:
        assert merged == fine


@given(tiled(), st.data())
def test_a_reshape_moves_no_element(sharding: HloSharding, data: st.DataObject) -> None:
    dims = data.draw(even_sizes_for(sharding))
    target = data.draw(factors(math.prod(dims), data.draw(st.integers(1, 3))))
    reshaped = reshape_sharding(dims, target, sharding)
    assume(reshaped is not None)
    assert reshaped is not None
    if any(size % ways for size, ways in zip(target, reshaped.data_dims, strict=True)):
        return
    for device in devices_of(sharding):
        before = held(sharding, dims, device).ravel()
        after = held(reshaped, target, device).ravel() if reshaped.kind == "tiled" else np.ones_like(before)
        assert (after >= before).all()


@given(tiled(subgroups=REPLICATED_ONLY), st.data())
def test_sub_tiling_means_within(sharding: HloSharding, data: st.DataObject) -> None:
    like = tiled(rank=sharding.tiled_data_rank, count=sharding.total_num_tiles, subgroups=REPLICATED_ONLY)
    other = data.draw(like)
    dims = tuple(a * b for a, b in zip(sharding.data_dims, other.data_dims, strict=True))
    within = all((held(sharding, dims, d) <= held(other, dims, d)).all() for d in devices_of(sharding))
    assert is_subtiling_or_equal(dims, sharding, other) == within


@given(tiled(subgroups=REPLICATED_ONLY), st.data())
def test_grouping_is_undone(sharding: HloSharding, data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(0, sharding.tiled_data_rank - 1), min_size=1, unique=True))
    group = group_sharding_on_dims(sharding, dims)
    assert ungroup_sharding(group) == sharding
    assert sorted(d for members in group.device_groups for d in members) == list(devices_of(sharding))


@given(tiled(), st.data())
def test_groups_along_a_dim_differ_only_there(sharding: HloSharding, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, sharding.tiled_data_rank - 1))
    for members in device_groups_along(sharding, (dim,)):
        places = [sharding.tile_index(device) for device in members]
        assert [p[dim] for p in places] == list(range(sharding.data_dims[dim]))
        assert len({p[:dim] + p[dim + 1 :] for p in places}) == 1
