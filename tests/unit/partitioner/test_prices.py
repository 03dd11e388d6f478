"""Prices of reshards against their bounds, which are found without a plan."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.cost import Machine, machines
from hlosharding.ir import Shape
from hlosharding.partitioner.prices import Prices, first_cheapest
from hlosharding.partitioner.value import ValuePlace
from hlosharding.sharding import copies_as_partials
from tests.support.random_programs.shardings import random_sharding

SHAPES = [Shape.parse(text) for text in ("f32[16,24]", "bf16[13,8,2]", "f32[4096,1024]", "f32[50257,768]", "f32[0,4]")]
MACHINES = [machines.h100(4), machines.h100(8), machines.h100(16), machines.tpu_v5p(8), machines.a100(12)]


@pytest.mark.parametrize("objective", ["bytes", "time"])
@given(random=st.randoms(use_true_random=False), shape=st.sampled_from(SHAPES), machine=st.sampled_from(MACHINES))
def test_no_move_takes_less_than_its_bound(random: Random, shape: Shape, machine: Machine, objective: str) -> None:
    prices = Prices(machine, objective)
    source, target = (random_sharding(random, shape, machine.num_devices).meaning for _ in range(2))
    partial = copies_as_partials(source).meaning if random.random() < 0.3 else source
    dims = (random.randrange(shape.rank),) if random.random() < 0.3 else ()
    kind = "add" if partial is not source else None
    value = ValuePlace(shape, partial, kind, is_free=random.random() < 0.1, broadcast_dims=dims)
    assert prices.least_move_seconds(value, target) <= prices.move_seconds(value, target)
    least = prices.least_reshard_seconds(shape, partial, target)
    assert least <= prices.reshard_seconds(shape, partial, target, kind)
    assert (least > 0) == (partial is not target and prices.reshard_seconds(shape, partial, target, kind) > 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1))
def test_of_the_cheapest_ways_the_first_is_taken(ways: list[tuple[int, int]]) -> None:
    """A way: its bound, and what its price is above that."""
    assert first_cheapest(ways, lambda way: way[0], sum) == min(ways, key=sum)
