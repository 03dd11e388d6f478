"""Our counterparts of XLA's tests of its sharding utilities.

Where live XLA can be asked, its recorded answers are expected (`utilities.py` has the questions); the rest follows from
what the operation means, worked out with numpy or by hand beside each test.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hlosharding.sharding import (
    GroupedSharding,
    HloSharding,
    TileAssignment,
    device_groups_match,
    first_target_dim,
    group_sharding_on_dims,
    grouped_replicated_sharding,
    manual_subgroup_sharding,
    reshape_to_tile_dimension,
    ungroup_sharding,
    untile_shape,
)
from tests.oracle.sharding_cases import OURS
from tests.xla_mirror.cases import RECORDED
from tests.xla_mirror.mirroring import mirrors
from tests.xla_mirror.utilities import Questions, all_questions

parse = HloSharding.parse
ANSWERS = json.loads((RECORDED / "sharding_utilities.json").read_text())["answers"]


@pytest.mark.parametrize("questions", all_questions(), ids=lambda questions: questions.name)
def test_as_live_xla_answered(questions: Questions) -> None:
    for (utility, args), live in zip(questions.calls, ANSWERS[questions.name], strict=True):
        ours = OURS[utility](*args)
        assert (list(ours) if isinstance(ours, tuple) else ours) == live, (utility, args)


def both_forms(dims: tuple[int, ...]) -> list[HloSharding]:
    """The same tiles as iota and as a list of devices: XLA takes different branches for them."""
    by_iota = HloSharding.iota_tile(dims)
    return [by_iota, HloSharding.tile(by_iota.tiles.array)]


def tiles_moved_to(array: np.ndarray, dim: int, dims: tuple[int, ...]) -> np.ndarray:
    """All tiles of `dims` along `dim`; in memory order: the other dims, then `dim`, then the rest of `dims`."""
    others = [d for d in range(array.ndim) if d not in dims]
    merged = [dim, *(d for d in dims if d != dim)]
    sizes = [1 if d in dims else n for d, n in enumerate(array.shape)]
    sizes[dim] = int(np.prod([array.shape[d] for d in dims]))
    return array.transpose([*others, *merged]).reshape(sizes)


def check_moves(sharding: HloSharding, dim: int, dims: tuple[int, ...]) -> None:
    found = reshape_to_tile_dimension(sharding, dim, dims)
    assert np.array_equal(found.tiles.array, tiles_moved_to(sharding.tiles.array, dim, dims)), (dim, dims)


@mirrors("ReshapeToTileDimension2D")
def test_tiles_of_a_matrix_along_one_dim() -> None:
    for sharding in both_forms((3, 2)):
        assert reshape_to_tile_dimension(sharding, 0, (0, 1)).tiles.flat == (0, 1, 2, 3, 4, 5)
        assert reshape_to_tile_dimension(sharding, 1, (0, 1)).tiles.flat == (0, 2, 4, 1, 3, 5)


@mirrors("ReshapeToTileDimension3D_Case1")
@pytest.mark.parametrize(
    ("dim", "dims"), [(0, (0, 1, 2)), (1, (0, 1, 2)), (2, (0, 1, 2)), (2, (1, 2)), (0, (0, 2)), (2, (0, 2))]
)
def test_tiles_of_a_cube_along_one_dim(dim: int, dims: tuple[int, ...]) -> None:
    for sharding in both_forms((2, 3, 2)):
        check_moves(sharding, dim, dims)


@mirrors("ReshapeToTileDimension3D_Case2")
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_tiles_of_a_cube_with_another_device_order(dim: int) -> None:
    by_iota = parse("{devices=[2,3,2]<=[4,3]T(1,0)}")
    for sharding in (by_iota, HloSharding.tile(by_iota.tiles.array)):
        check_moves(sharding, dim, (0, 1, 2))


@mirrors("ReshapeToTileDimension4D")
@pytest.mark.parametrize("dims", [(0, 2), (1, 2), (2, 3), (0, 1, 2), (0, 2, 3), (1, 2, 3), (0, 1, 2, 3)])
def test_tiles_of_four_dims_along_one(dims: tuple[int, ...]) -> None:
    for sharding in both_forms((2, 3, 4, 5)):
        check_moves(sharding, 2, dims)


def manual_groups(types: list[Any], *sizes: int) -> GroupedSharding:
    return manual_subgroup_sharding(HloSharding.subgroup(TileAssignment.from_iota((1, 3, *sizes)), types))


# Six, or twelve, devices in row-major order over [1, 3, subgroup dims]: a group takes those with one manual coordinate.
@mirrors("GetManualSubgroupSharding_ManualOnly")
def test_groups_of_a_manual_dim() -> None:
    group = manual_groups(["manual"], 2)
    assert group.device_groups == ((0, 2, 4), (1, 3, 5))
    assert group.sharding == parse("{devices=[1,3]<=[3]}")


@mirrors("GetManualSubgroupSharding_ManualAndReplicted")
def test_groups_of_a_manual_dim_behind_copies() -> None:
    group = manual_groups(["replicated", "manual"], 2, 2)
    assert group.device_groups == ((0, 2, 4, 6, 8, 10), (1, 3, 5, 7, 9, 11))
    assert str(group.sharding) == "{devices=[1,3,2]<=[6] last_tile_dim_replicate}"


@mirrors("GetManualSubgroupSharding_ReplicatedAndManual")
def test_groups_of_a_manual_dim_before_copies() -> None:
    group = manual_groups(["manual", "replicated"], 2, 2)
    assert group.device_groups == ((0, 1, 4, 5, 8, 9), (2, 3, 6, 7, 10, 11))
    assert str(group.sharding) == "{devices=[1,3,2]<=[6] last_tile_dim_replicate}"


def grouped(
    groups: list[list[int]], dims: tuple[int, ...], sizes: tuple[int, ...], rank: int, inner: HloSharding, manual: bool
) -> GroupedSharding:
    return GroupedSharding(
        groups=TileAssignment.from_array(np.array(groups)),
        group_dims=dims,
        group_dim_sizes=sizes,
        data_rank=rank,
        sharding=inner,
        subgroup_manual=manual,
    )


EVENS_AND_ODDS = [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]
THREE_ROWS_TWICE = parse("{devices=[1,3,2]<=[6] last_tile_dim_replicate}")


@mirrors("UngroupSharding_ManualOnly")
def test_manual_groups_become_a_subgroup() -> None:
    group = grouped([[0, 2, 4], [1, 3, 5]], (2,), (2,), 2, parse("{devices=[1,3]<=[3]}"), True)
    assert str(ungroup_sharding(group)) == "{devices=[1,3,2]0,1,2,3,4,5 last_tile_dims={manual}}"


@mirrors("UngroupSharding_ReplicatedAndManual")
def test_manual_groups_behind_copies_are_put_before_them() -> None:
    group = grouped(EVENS_AND_ODDS, (3,), (2,), 2, THREE_ROWS_TWICE, True)
    # Row r holds devices 4r..4r+3: its evens are the copies of one group, its odds those of the other.
    expected = "{devices=[1,3,2,2]0,2,1,3,4,6,5,7,8,10,9,11 last_tile_dims={manual, replicated}}"
    assert str(ungroup_sharding(group)) == expected


@mirrors("UngroupSharding_ManualAndReplicated")
def test_manual_groups_before_copies_stay_there() -> None:
    group = grouped([[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]], (2,), (2,), 2, THREE_ROWS_TWICE, True)
    expected = "{devices=[1,3,2,2]0,1,2,3,4,5,6,7,8,9,10,11 last_tile_dims={manual, replicated}}"
    assert str(ungroup_sharding(group)) == expected


@mirrors("UngroupSharding_Replicated")
def test_manual_groups_of_whole_arrays() -> None:
    group = grouped([[0, 1, 2], [3, 4, 5]], (3,), (2,), 2, HloSharding.replicate(), True)
    assert str(ungroup_sharding(group)) == "{devices=[1,1,2,3]0,1,2,3,4,5 last_tile_dims={manual, replicated}}"


@mirrors("UngroupSharding_Replicated2")
def test_manual_groups_of_whole_arrays_interleaved() -> None:
    group = grouped([[0, 2, 4], [1, 3, 5]], (2,), (2,), 2, HloSharding.replicate(), True)
    assert str(ungroup_sharding(group)) == "{devices=[1,1,2,3]0,2,4,1,3,5 last_tile_dims={manual, replicated}}"


@mirrors("GroupedAndUngroupedReplicatedSharding")
def test_groups_of_a_whole_array_and_back() -> None:
    assert ungroup_sharding(grouped_replicated_sharding(4, 20, 3)) == HloSharding.replicate()


@mirrors("GroupedAndUngroupedIotaSharding")
def test_groups_with_a_turned_sharding_inside() -> None:
    inner = parse("{devices=[1,3,2]<=[2,3]T(1,0)}")
    group = grouped([[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]], (0,), (2,), 2, inner, False)
    assert ungroup_sharding(group) == parse("{devices=[2,3,2]<=[2,2,3]T(0,2,1)}")


@mirrors("GroupedAndUngroupedShardingWithUnsortedGroupDims")
def test_groups_of_dims_out_of_order_and_back() -> None:
    sharding = parse("{devices=[6,2,5,3]<=[180]}")
    group = group_sharding_on_dims(sharding, (2, 0), (1, 3))
    assert group.sharding == parse("{devices=[3,2,1,3]<=[18]}")
    assert ungroup_sharding(group) == sharding


@mirrors("UngroupShardingWithUnsortedGroupDims")
def test_groups_of_single_devices_out_of_order() -> None:
    group = grouped([[n] for n in range(6)], (1, 0), (2, 3), 4, HloSharding.replicate(), False)
    # Group g lies at place (g // 3, g % 3) of dims (1, 0).
    assert ungroup_sharding(group) == parse("{devices=[3,2,1,1]0,3,1,4,2,5}")


@mirrors("DeviceGroupsDoesNotMatch")
def test_other_groups_do_not_match() -> None:
    inner = parse("{devices=[3,2]<=[6] last_tile_dim_replicate}")
    left = grouped(EVENS_AND_ODDS, (3,), (2,), 2, inner, True)
    right = grouped([[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]], (2,), (2,), 2, inner, True)
    assert not device_groups_match(left, right)


@mirrors("DeviceGroupsMatch")
def test_same_groups_match_whatever_is_inside() -> None:
    left = grouped(EVENS_AND_ODDS, (2,), (2,), 2, HloSharding.replicate(), True)
    right = grouped(EVENS_AND_ODDS, (2,), (2,), 2, parse("{devices=[3,2]<=[6] last_tile_dim_replicate}"), True)
    assert device_groups_match(left, right)


# A dim takes another's tiles if its size is a multiple of both counts' product; the source must split evenly itself.
@mirrors("GetFirstTargetDimToMoveShardingTiles1")
def test_target_dim_with_a_source_that_is_too_short() -> None:
    sharding = parse("{devices=[6,1,3,9]<=[162]}")
    targets = [first_target_dim((1, 6, 54, 54), sharding, source) for source in range(4)]
    # 6 does not divide 1; nothing is to be moved; 6 is a multiple of 1 * 3; only 54 is a multiple of 3 * 9.
    assert targets == [None, None, 1, 2]


@mirrors("GetFirstTargetDimToMoveShardingTiles2")
def test_first_target_dim_is_taken() -> None:
    sharding = parse("{devices=[3,3,2,27]<=[486]}")
    # 18 takes 3 * 3; 9 takes 3 * 3; 18 takes 3 * 2 (9 does not); 54 takes 2 * 27.
    assert [first_target_dim((9, 18, 54, 54), sharding, source) for source in range(4)] == [1, 0, 1, 2]


@mirrors("GetFirstTargetDimToMoveShardingTiles3")
def test_no_target_dim_is_long_enough() -> None:
    sharding = parse("{devices=[1,3]<=[3]}")
    assert [first_target_dim((1, 60), sharding, source) for source in (0, 1)] == [None, None]


@mirrors("GetFirstTargetDimToMoveShardingTilesRankOne")
def test_no_other_dim_to_take_the_tiles() -> None:
    assert first_target_dim((60,), parse("{devices=[3]<=[3]}"), 0) is None


@mirrors("GetFirstTargetDimToMoveShardingTilesReplicated")
def test_no_tiles_to_move() -> None:
    assert [first_target_dim((9, 60), HloSharding.replicate(), source) for source in (0, 1)] == [None, None]


SHAPES = ((90, 7), (40, 11))


@mirrors("TileShape")
def test_shape_of_a_tile_of_arrays_and_of_tuples() -> None:
    sharding = parse("{devices=[5,1]<=[5]}")
    assert [sharding.tile_shape(dims) for dims in SHAPES] == [(18, 7), (8, 11)]
    pair = HloSharding.tuple([sharding, sharding])
    assert [leaf.tile_shape(dims) for leaf, dims in zip(pair.leaves, SHAPES, strict=True)] == [(18, 7), (8, 11)]


@mirrors("UntileShape")
def test_shape_of_the_array_that_has_such_tiles() -> None:
    sharding = parse("{devices=[5,1]<=[5]}")
    assert [untile_shape(sharding, dims) for dims in SHAPES] == [(450, 7), (200, 11)]
    pair = HloSharding.tuple([sharding, sharding])
    assert [untile_shape(leaf, dims) for leaf, dims in zip(pair.leaves, SHAPES, strict=True)] == [(450, 7), (200, 11)]
