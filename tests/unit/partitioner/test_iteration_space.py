"""Iteration spaces: from an operand's tiling and back."""

from __future__ import annotations

from hlosharding.partitioner.iteration_space import as_compared, lift, project, project_result
from hlosharding.sharding import REPLICATED, HloSharding, member_numbers, partial_sum_groups, without_partials

parse = HloSharding.parse
# A dot m k, k n -> m n: factors m = 0, k = 1, n = 2.
LEFT, RIGHT, OUT = ((0,), (1,)), ((1,), (2,)), ((0,), (2,))


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


def test_leaves_have_one_spelling() -> None:
    assert as_compared(None) is REPLICATED
    assert as_compared(HloSharding.unknown()) is REPLICATED
    assert as_compared(parse("{devices=[2,2]0,1,2,3}")) is as_compared(parse("{devices=[2,2]<=[4]}"))
