"""The common grid of two shardings, checked against their own tile assignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hlosharding.reshard.axis_plans.common_grid import AxisGrid, common_grid
from hlosharding.sharding import HloSharding

parse = HloSharding.parse


def grid_of(source: str, target: str, devices: int, rank: int = 2) -> AxisGrid | None:
    return common_grid(parse(source), parse(target), rank, devices)


def assert_says(grid: AxisGrid, sharding: HloSharding, dims: tuple[tuple[int, ...], ...]) -> None:
    """The axes of each dim number the tiles as the sharding does."""
    for dim, axes in enumerate(dims):
        position = grid.position(axes)
        for device in range(grid.num_devices):
            wanted = sharding.tile_index(device)[dim] if sharding.is_tiled() else 0
            assert position[device] == wanted


@pytest.mark.parametrize(
    ("source", "target", "ways"),
    [
        ("{devices=[2,4]<=[8]}", "{devices=[2,4]<=[8]}", (2, 4)),
        ("{devices=[2,4]<=[8]}", "{devices=[4,2]<=[8]}", (2, 2, 2)),
        ("{devices=[2,4]<=[8]}", "{devices=[4,2]<=[2,4]T(1,0)}", (2, 4)),
        ("{devices=[8,1]<=[8]}", "{devices=[1,2,4]<=[8] last_tile_dim_replicate}", (2, 4)),
        ("{devices=[2,1,4]<=[2,2,2]T(2,0,1) last_tile_dim_replicate}", "{devices=[2,4]<=[8]}", (2, 2, 2)),
        ("{replicated}", "{devices=[2,4]<=[4,2]T(1,0)}", (4, 2)),
        ("{devices=[4,2]3,1,7,5,2,0,6,4}", "{devices=[2,4]3,1,7,5,2,0,6,4}", (2, 2, 2)),
        ("{devices=[6,1]<=[6]}", "{devices=[3,2]<=[6]}", (3, 2)),
    ],
)
def test_common_grids(source: str, target: str, ways: tuple[int, ...]) -> None:
    grid = grid_of(source, target, 6 if "6" in source[:12] else 8)
    assert grid is not None
    assert sorted(grid.sizes) == sorted(ways)
    assert_says(grid, parse(source), grid.source)
    assert_says(grid, parse(target), grid.target)


def test_every_pair_of_nested_mesh_shardings_has_a_grid() -> None:
    mesh = np.arange(8).reshape(2, 2, 2)
    shardings = [
        HloSharding.partial_tile(mesh.transpose(order).reshape(*counts, 8 // (counts[0] * counts[1])))
        for order in itertools.permutations(range(3))
        for counts in itertools.product((1, 2, 4, 8), repeat=2)
        if counts[0] * counts[1] <= 8
    ]
    for source, target in itertools.product(shardings, repeat=2):
        grid = common_grid(source, target, 2, 8)
        assert grid is not None
        assert_says(grid, source, grid.source)
        assert_says(grid, target, grid.target)


@pytest.mark.parametrize(
    ("source", "target", "devices"),
    [
        ("{devices=[2,3]<=[6]}", "{devices=[3,2]<=[6]}", 6),
        ("{devices=[2,4]<=[8]}", "{devices=[8,1]0,1,2,3,4,6,5,7}", 8),
        ("{maximal device=0}", "{devices=[8,1]<=[8]}", 8),
        ("{devices=[2,1,4]<=[8] last_tile_dims={manual}}", "{devices=[2,4]<=[8]}", 8),
    ],
)
def test_no_common_grid(source: str, target: str, devices: int) -> None:
    assert grid_of(source, target, devices) is None


def test_groups_follow_the_order_of_the_axes() -> None:
    grid = grid_of("{devices=[2,4]<=[8]}", "{devices=[4,2]<=[8]}", 8)
    assert grid is not None
    assert grid.groups((1, 2)) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert grid.groups((2, 1)) == ((0, 2, 1, 3), (4, 6, 5, 7))
    assert grid.groups((0, 2)) == ((0, 1, 4, 5), (2, 3, 6, 7))


def test_partial_sums_and_manual_groups_are_axes_of_their_own() -> None:
    grid = grid_of(
        "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, unreduced}}",
        "{devices=[1,2,2,2]<=[2,2,2]T(2,1,0) last_tile_dims={manual, replicated}}",
        8,
    )
    assert grid is not None
    assert [grid.sizes[a] for a in grid.manual_axes] == [2]
    assert [grid.sizes[a] for a in grid.partial_axes] == [2]
    assert not set(grid.manual_axes) & {a for axes in (*grid.source, *grid.target) for a in axes}
