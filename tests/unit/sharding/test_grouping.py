"""Devices in groups, and back.  Expected groups: XLA's own tests, and hand reasoning."""

from __future__ import annotations

import pytest

from hlosharding.errors import ShardingError
from hlosharding.sharding import (
    GroupedSharding,
    HloSharding,
    TileAssignment,
    device_groups_along,
    device_groups_match,
    group_sharding_on_all_dims_except,
    group_sharding_on_dims,
    grouped_replicated_sharding,
    manual_subgroup_sharding,
    ungroup_sharding,
)

parse = HloSharding.parse
PARTIAL = parse("{devices=[1,2,2]<=[4] last_tile_dim_replicate}")


def grouped(groups, dims, sizes, rank, inner, manual=False):
    return GroupedSharding(
        groups=TileAssignment.from_array(groups),
        group_dims=dims,
        group_dim_sizes=sizes,
        data_rank=rank,
        sharding=inner,
        subgroup_manual=manual,
    )


@pytest.mark.parametrize(
    ("types", "groups", "inner"),
    [
        (["manual"], ((0, 2), (1, 3)), "{devices=[1,2]<=[2]}"),
        (["replicated", "manual"], ((0, 2, 4, 6), (1, 3, 5, 7)), "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"),
        (["manual", "replicated"], ((0, 1, 4, 5), (2, 3, 6, 7)), "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"),
    ],
)
def test_groups_of_a_manual_subgroup(types, groups, inner):
    s = HloSharding.subgroup(TileAssignment.from_iota((1, 2, *(2 for _ in types))), types)
    group = manual_subgroup_sharding(s)
    assert group.device_groups == groups
    assert str(group.sharding) == inner
    assert ungroup_sharding(group) == s


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (grouped([[0, 2], [1, 3]], (2,), (2,), 2, HloSharding.iota_tile((1, 2)), True),
         "{devices=[1,2,2]0,1,2,3 last_tile_dims={manual}}"),
        (grouped([[0, 2, 4, 6], [1, 3, 5, 7]], (3,), (2,), 2, PARTIAL, True),
         "{devices=[1,2,2,2]0,2,1,3,4,6,5,7 last_tile_dims={manual, replicated}}"),
        (grouped([[0, 1, 4, 5], [2, 3, 6, 7]], (2,), (2,), 2, PARTIAL, True),
         "{devices=[1,2,2,2]0,1,2,3,4,5,6,7 last_tile_dims={manual, replicated}}"),
        (grouped([[0, 1], [2, 3]], (3,), (2,), 2, HloSharding.replicate(), True),
         "{devices=[1,1,2,2]0,1,2,3 last_tile_dims={manual, replicated}}"),
        (grouped([[0, 2], [1, 3]], (2,), (2,), 2, HloSharding.replicate(), True),
         "{devices=[1,1,2,2]0,2,1,3 last_tile_dims={manual, replicated}}"),
        (grouped_replicated_sharding(3, 12, 2), "{replicated}"),
        (grouped([range(6), range(6, 12)], (0,), (2,), 2, HloSharding.iota_tile((1, 2, 3), (2, 3), (1, 0))),
         "{devices=[2,2,3]<=[2,2,3]T(0,2,1)}"),
        (grouped([[0], [1], [2], [3]], (1, 0), (2, 2), 4, HloSharding.replicate()), "{devices=[2,2,1,1]<=[2,2]T(1,0)}"),
    ],
)  # fmt: skip
def test_ungrouped(group, expected):
    assert ungroup_sharding(group) == parse(expected)


def test_grouped_on_dims_and_back():
    s = HloSharding.iota_tile((4, 3, 5, 7))
    group = group_sharding_on_dims(s, (2, 0), (1, 2))
    assert group.sharding == HloSharding.iota_tile((2, 3, 1, 7))
    assert len(group.device_groups) == 10
    assert ungroup_sharding(group) == s
    partial = parse("{devices=[2,4,2]<=[16] last_tile_dim_replicate}")
    for dims in ((0,), (1,), (2,), (0, 1), (1, 2)):
        assert ungroup_sharding(group_sharding_on_dims(partial, dims)) == partial


def test_groups_along_dims():
    s = parse("{devices=[2,2,2]<=[8] last_tile_dim_replicate}")
    assert device_groups_along(s, (0,)) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert device_groups_along(s, (2,)) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert device_groups_along(s, (0, 1)) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert group_sharding_on_all_dims_except(s, (0,)).sharding == HloSharding.iota_tile((2, 1))
    with pytest.raises(ShardingError):
        device_groups_along(HloSharding.replicate(), (0,))


def test_replicated_groups_are_equal_in_size():
    with pytest.raises(ShardingError):
        grouped_replicated_sharding(3, 8, 1)


def test_matching_groups():
    inner = HloSharding.replicate()
    left = grouped([[0, 2, 4, 6], [1, 3, 5, 7]], (3,), (2,), 2, inner, True)
    right = grouped([[0, 1, 4, 5], [2, 3, 6, 7]], (2,), (2,), 2, inner, True)
    swapped = grouped([[7, 5, 3, 1], [6, 4, 2, 0]], (3,), (2,), 2, inner, True)
    assert device_groups_match(left, left)
    assert not device_groups_match(left, right)
    assert not device_groups_match(left, swapped)
    assert device_groups_match(left, swapped, ignore_order=True)
    assert not device_groups_match(left, grouped([[0, 1, 2, 3, 4, 5, 6, 7]], (0,), (1,), 1, inner))


def test_what_cannot_be_grouped():
    for bad in (
        lambda: group_sharding_on_dims(HloSharding.replicate(), (0,)),
        lambda: group_sharding_on_dims(HloSharding.iota_tile((3,)), (0,), (2,)),
        lambda: manual_subgroup_sharding(HloSharding.iota_tile((3,))),
    ):
        with pytest.raises(ShardingError):
            bad()
