"""All ways to put device axes on factors, and the lower bound on what each costs."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.cost import machines
from hlosharding.ir import Shape
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, Operand, Result
from hlosharding.partitioner.factors.factor_roles import splittable
from hlosharding.partitioner.factors.least_seconds import least_seconds
from hlosharding.partitioner.factors.split_prices import priced_split
from hlosharding.partitioner.factors.splits import Splits, axes_of, splits_by_axes
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Factor, Reduce, Signature
from hlosharding.sharding import HloSharding, TileAssignment
from tests.support.random_programs.shardings import random_sharding

MESH = TileAssignment.from_iota((2, 4))


def parsed(*texts: str) -> list[TileAssignment]:
    return [HloSharding.parse(f"{{devices={text}}}").tiles for text in texts]


@pytest.mark.parametrize(
    ("tilings", "sizes"),
    [
        (["[2,4]<=[8]"], (2, 4)),
        (["[8]<=[8]", "[4,2]<=[2,4]T(1,0)"], (2, 4)),
        (["[2,4]<=[8]", "[4,2]<=[8]"], (2, 2, 2)),
        (["[2,3]<=[6]", "[3,2]<=[6]"], None),
        (["[4]3,1,2,0", "[2,2]3,1,2,0"], (2, 2)),
        (["[4]3,1,2,0", "[2,2]0,1,2,3"], None),
    ],
)
def test_the_axes_that_tilings_have_in_common(tilings: list[str], sizes: tuple[int, ...] | None) -> None:
    found = axes_of(tuple(parsed(*tilings)))
    assert (None if found is None else found.sizes) == sizes


def test_a_mesh_in_another_order_of_devices() -> None:
    mesh = TileAssignment.from_flat((2, 2), (0, 3, 1, 2))
    found = axes_of((mesh, TileAssignment.from_flat((4,), (0, 3, 1, 2))))
    assert found is not None
    assert (found.devices, found.sizes) == ((0, 3, 1, 2), (2, 2))
    assert found.coordinates.tolist() == [[0, 0], [1, 0], [1, 1], [0, 1]]


def test_each_axis_goes_to_one_factor_or_to_none() -> None:
    rows = HloSharding.parse("{devices=[8,1]<=[8]}")
    found = splits_by_axes([rows], MESH, 2, lambda _factor, _tiles: True)
    assert found is not None
    # Two axes in one order: 3 places each.
    assert len(found) == 9
    counts = {(1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 4), (4, 1), (4, 2), (8, 1)}
    assert {tuple(n) for n in found.num_tiles.tolist()} == counts
    for number in range(len(found)):
        space, rank = found.space(number), 2
        again = Splits.of([space], rank, 8)
        np.testing.assert_array_equal(again.index[0], found.index[number])


def test_what_may_not_be_split_is_not() -> None:
    rows = HloSharding.parse("{devices=[8,1]<=[8]}")
    found = splits_by_axes([rows], MESH, 2, lambda factor, tiles: factor == 0 and tiles in (2, 8))
    assert found is not None
    assert sorted(map(tuple, found.num_tiles.tolist())) == [(1, 1), (2, 1), (8, 1)]


def test_tilings_that_are_no_axes_give_none() -> None:
    manual = HloSharding.parse("{devices=[2,4]<=[8] last_tile_dims={manual}}")
    assert splits_by_axes([manual], MESH, 1, lambda _factor, _tiles: True) is None
    assert splits_by_axes([HloSharding.replicate()], MESH, 1, lambda _factor, _tiles: True) is None


# ---- the bound

MATMUL = Signature(
    factors=(Factor("m", 24), Factor("k", 36, Reduce("add")), Factor("n", 40)),
    operands=(((0,), (1,)), ((1,), (2,))),
    results=(((0,), (2,)),),
)


@given(st.randoms(use_true_random=False), st.sampled_from(["bytes", "time"]))
def test_no_price_is_below_the_bound(random: Random, objective: str) -> None:
    problem, prices = _problem(random), Prices(machines.h100(8), objective)
    spaces = [claim.space for claim in problem.full_claims()]
    splits = splits_by_axes(spaces, MESH, 3, problem.is_possible) or Splits.of(spaces, 3, 8)
    least = least_seconds(problem, splits, prices)
    for number in Random(0).sample(range(len(splits)), min(6, len(splits))):
        space = splits.space(number)
        priced = priced_split(problem, space, prices)
        bound, price = least.seconds[number], priced.seconds
        assert bound <= price or math.isclose(bound, price)
        # What is not above the limit is priced to its end.
        assert priced_split(problem, space, prices, price, [float(part[number]) for part in least.parts]) == priced


def _problem(random: Random) -> ChoiceProblem:
    def operand(dims: tuple[int, ...], factors: tuple[tuple[int, ...], ...]) -> Operand:
        shape = Shape.array("f32", dims)
        lies = ValuePlace(
            shape,
            random_sharding(random, shape, 8).meaning,
            is_free=random.random() < 0.1,
            broadcast_dims=(0,) if random.random() < 0.2 else (),
        )
        return Operand(lies=lies, dims=factors)

    made = Shape.array("f32", (24, 40))
    wanted = random_sharding(random, made, 8).meaning if random.random() < 0.8 else None
    return ChoiceProblem(
        signature=MATMUL,
        operands=(operand((24, 36), ((0,), (1,))), operand((36, 40), ((1,), (2,)))),
        results=(Result(shape=made, wanted=wanted, dims=((0,), (2,)), broadcast_dims=random.choice([(), (1,)])),),
        allowed=splittable(MATMUL, halo=False, indexed=False, any_reducer=False),
        windows=(None, None, None),
    )
