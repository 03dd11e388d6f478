"""What an op costs by its plan: each value moves but once to each sharding, from the nearest place it lies in."""

from __future__ import annotations

import pytest

from hlosharding.cost import machines
from hlosharding.ir import Shape
from hlosharding.partitioner import Prices
from hlosharding.partitioner.choice import Moves
from hlosharding.partitioner.value import ValuePlace
from hlosharding.sharding import REPLICATED, HloSharding
from tests.support.split_programs import mark, split

ROWS, COLUMNS = (HloSharding.parse(f"{{devices={tiles}<=[8]}}") for tiles in ("[8,1]", "[1,8]"))
SHAPE = Shape.array("f32", (64, 64))
GATHERED = SHAPE.byte_size * 7 / 8
"""An all-gather: seven of eight parts."""


@pytest.fixture
def moves() -> Moves:
    return Moves(Prices(machines.h100(8), "bytes"))


def test_a_value_is_brought_once_to_each_place(moves: Moves) -> None:
    value = ValuePlace(SHAPE, ROWS)
    for _ in range(2):
        moves.bring(value, REPLICATED)
    assert moves.communication.mean_bytes == GATHERED
    assert moves.cost().moved == {value}


def test_two_values_that_lie_alike_are_two(moves: Moves) -> None:
    for value in (ValuePlace(SHAPE, ROWS), ValuePlace(SHAPE, ROWS)):
        moves.bring(value, REPLICATED)
    assert moves.communication.mean_bytes == 2 * GATHERED


def test_what_was_gathered_is_cut_for_nothing(moves: Moves) -> None:
    value = ValuePlace(SHAPE, ROWS)
    moves.bring(value, REPLICATED)
    moves.bring(value, COLUMNS)
    assert moves.communication.mean_bytes == GATHERED


def test_what_is_made_anew_or_lies_there_does_not_move(moves: Moves) -> None:
    moves.bring(ValuePlace(SHAPE, ROWS, is_free=True, is_remade=True), REPLICATED)
    moves.bring(ValuePlace(SHAPE, ROWS), ROWS)
    assert not moves.communication.mean_bytes
    assert not moves.cost().moved


def test_partial_sums_that_are_added_up_are_no_value_that_moves(moves: Moves) -> None:
    partial = HloSharding.parse("{devices=[1,1,8]<=[8] last_tile_dims={unreduced}}")
    result = ValuePlace(SHAPE, partial, "add")
    moves.bring(result, REPLICATED)
    assert moves.communication.mean_bytes == 2 * GATHERED  # an all-reduce
    assert not moves.cost(result=result).is_result_moved


def test_partial_sums_that_are_equal_along_a_dim_cost_what_moves(moves: Moves) -> None:
    """All sums of equal columns are the same, but each device has its own terms of them."""
    program = split(
        f"""
        x = f32[4096] parameter(0){mark("[8]<=[8]")}
        zero = f32[] constant(0)
        columns = f32[4096,64] broadcast(x), dimensions={{0}}{mark("[8,1]<=[8]")}
        ROOT sums = f32[64] reduce(columns, zero), dimensions={{0}}, to_apply=add_f32{mark("")}""",
        objective="bytes",
    )
    plan, sums = program.plans["sums"], Shape.array("f32", (64,))
    operands = [ValuePlace(Shape.array("f32", (4096, 64)), ROWS), ValuePlace(Shape.array("f32", ()), REPLICATED)]
    moved = plan.cost(moves.prices, operands, sums, REPLICATED).communication.mean_bytes
    assert moved == program.comm_bytes_per_device == 2 * sums.byte_size * 7 / 8
