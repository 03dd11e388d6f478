"""Iteration spaces: from an operand's tiling and back."""

from __future__ import annotations

import pytest

from hlosharding.partitioner.iteration_space import leaf, lift, project, project_result
from hlosharding.sharding import HloSharding
from hlosharding.sharding.tiles import (
    REPLICATED,
    local_shape_dims,
    member_numbers,
    offsets,
    partial_sum_groups,
    tile_table,
    uneven_dims,
    without_partials,
)

parse = HloSharding.parse
# A dot m k, k n -> m n: factors m = 0, k = 1, n = 2.
LEFT, RIGHT, OUT = ((0,), (1,)), ((1,), (2,)), ((0,), (2,))


def test_the_tile_table_follows_the_device_order() -> None:
    assert tile_table(parse("{devices=[2,2]3,1,2,0}"), 2, 4) == ((1, 1), (0, 1), (1, 0), (0, 0))
    assert tile_table(REPLICATED, 2, 3) == ((0, 0),) * 3


def test_offsets_count_in_rounded_tiles() -> None:
    assert offsets(parse("{devices=[4]<=[4]}"), (10,), 0, 4) == (0, 3, 6, 9)
    assert offsets(parse("{devices=[2,2]<=[2,2]T(1,0)}"), (5, 4), 0, 4) == (0, 3, 0, 3)


def test_an_operand_lifts_to_its_factors() -> None:
    space = lift(parse("{devices=[2,4]<=[8]}"), LEFT, 3)
    assert space == parse("{devices=[2,4,1]<=[8]}")
    assert lift(parse("{devices=[2,4]<=[8]}"), RIGHT, 3) == parse("{devices=[1,2,4]<=[8]}")
    assert lift(REPLICATED, LEFT, 3) is REPLICATED
    assert lift(HloSharding.manual(), LEFT, 3) is REPLICATED


def test_a_dim_of_no_factor_is_copied() -> None:
    assert lift(parse("{devices=[2,4]<=[8]}"), ((0,), ()), 1) == parse("{devices=[2,4]<=[8] last_tile_dim_replicate}")


def test_a_space_projects_to_operands() -> None:
    space = parse("{devices=[2,4,1]<=[8]}")
    assert project(space, LEFT) == parse("{devices=[2,4]<=[8]}")
    assert project(space, RIGHT) == parse("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    assert project(REPLICATED, LEFT) is REPLICATED


def test_a_split_that_is_owed_is_unreduced_in_the_result() -> None:
    result = project_result(parse("{devices=[2,4,1]<=[8]}"), OUT, (1,))
    assert result.data_dims == (2, 1)
    assert "unreduced" in result.subgroup_types
    assert partial_sum_groups(result, 8) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert member_numbers(result, 8) == (0, 1, 2, 3, 0, 1, 2, 3)
    assert without_partials(result) == parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}")


def test_partials_of_all_devices() -> None:
    result = project_result(parse("{devices=[1,8,1]<=[8]}"), OUT, (1,))
    assert without_partials(result).is_replicated()
    assert sorted(member_numbers(result, 8)) == list(range(8))
    assert [sorted(g) for g in partial_sum_groups(result, 8)] == [list(range(8))]


def test_nothing_owed_is_a_plain_projection() -> None:
    assert project_result(parse("{devices=[2,1,4]<=[8]}"), OUT, (1,)) == parse("{devices=[2,4]<=[8]}")


@pytest.mark.parametrize(
    ("text", "dims", "local", "uneven"),
    [
        ("{devices=[2,4]<=[8]}", (6, 10), (3, 3), (1,)),
        ("{devices=[8,1]<=[8]}", (3, 5), (1, 5), (0,)),
        ("{replicated}", (3, 5), (3, 5), ()),
    ],
)
def test_tiles_round_up(text: str, dims: tuple[int, ...], local: tuple[int, ...], uneven: tuple[int, ...]) -> None:
    assert local_shape_dims(parse(text), dims) == local
    assert uneven_dims(parse(text), dims) == uneven


def test_leaves_have_one_spelling() -> None:
    assert leaf(None) is REPLICATED
    assert leaf(HloSharding.unknown()) is REPLICATED
    assert leaf(parse("{devices=[2,2]0,1,2,3}")) is leaf(parse("{devices=[2,2]<=[4]}"))
