"""What a movement's rival, the lowering by factors, sends at least: never more than its plans send."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.cost import machines
from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.context import PlanContext
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.factors import choice_of, least_sent
from hlosharding.partitioner.movement.data_movement import reshard_all_cost
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import REPLICATED, HloSharding, TileAssignment
from tests.support.random_programs.shardings import random_sharding
from tests.support.split_programs import module_of

OPS = [
    "f32[{n},24] slice(x), slice={{[1:{m}], [0:24]}}",
    "f32[{k},7] slice(x), slice={{[0:{k}], [3:24:3]}}",
    "f32[{k},30] pad(x, v), padding=0_0x2_4",
    "f32[{k},40] pad(x, v), padding=0_0x-4_-3_1",
    "f32[{k},24] reverse(x), dimensions={{0}}",
    "f32[{k},24] reverse(x), dimensions={{0,1}}",
    "f32[{k},48] concatenate(x, y), dimensions={{1}}",
    "f32[{k},48] concatenate(x, x), dimensions={{1}}",
    "f32[{k},24] copy(x)",
    "f32[{k},24] dynamic-update-slice(x, u, a, b)",
    "f32[{k},1] dynamic-slice(x, a, b), dynamic_slice_sizes={{{k},1}}",
]
MESHES = [TileAssignment.from_iota(dims) for dims in ((4,), (2, 3), (2, 4), (2, 2, 2))]


@pytest.mark.parametrize("objective", ["bytes", "time"])
@given(random=st.randoms(use_true_random=False), op=st.sampled_from(OPS), mesh=st.sampled_from(MESHES))
def test_no_lowering_by_factors_sends_less_than_the_bound(
    random: Random, op: str, mesh: TileAssignment, objective: str
) -> None:
    inst, devices = _op(op, random.choice([16, 13])), mesh.num_elements
    place_of = {operand: _place(random, operand, devices) for operand in inst.operands}
    wanted = random_sharding(random, inst.shape, devices).meaning if random.random() < 0.8 else None
    prices = Prices(machines.h100(devices), objective)
    bound, sent = _bound_and_sent(inst, [place_of[operand] for operand in inst.operands], wanted, prices, mesh)
    assert bound <= sent


def test_rows_that_are_cut_go_to_columns_and_back() -> None:
    # Of four rows of 24 three quarters, then of the 14 that are left (4, 4, 4 and 2 a device) three quarters again.
    rows = HloSharding.parse("{devices=[4,1]<=[4]}").meaning
    inst = module_of("x = f32[16,24] parameter(0) ROOT r = f32[14,24] slice(x), slice={[1:15], [0:24]}").entry.root
    prices = Prices(machines.h100(4), "bytes")
    bound, sent = _bound_and_sent(inst, [ValuePlace(inst.operands[0].shape, rows)], rows, prices, MESHES[0])
    assert bound * prices.machine.inside.bandwidth == pytest.approx(3 / 4 * (4 + 14 / 4) * 24 * 4)
    assert bound <= sent


def test_partial_results_that_nobody_wants_yet_are_not_sent() -> None:
    columns, scalar = HloSharding.parse("{devices=[1,4]<=[4]}").meaning, ValuePlace(Shape.array("s32", ()), REPLICATED)
    inst = _op("f32[{k},1] dynamic-slice(x, a, b), dynamic_slice_sizes={{{k},1}}", 16)
    places = [ValuePlace(inst.operands[0].shape, columns), scalar, replace(scalar)]
    assert _bound_and_sent(inst, places, None, Prices(machines.h100(4), "bytes"), MESHES[0]) == (0.0, 0.0)


def _bound_and_sent(
    inst: Instruction, places: list[ValuePlace], wanted: HloSharding | None, prices: Prices, mesh: TileAssignment
) -> tuple[float, float]:
    """`comparable_seconds` of what the lowering by factors sends: at least, and as it is planned."""
    signature, shardings = signature_of(inst), {} if wanted is None else {inst.id: wanted}
    assert isinstance(signature, Signature)
    context = PlanContext(shardings=shardings, decisions=Decisions(prices, mesh=mesh))
    choice = choice_of(context, inst, signature, places)
    cost, [made] = reshard_all_cost(prices, places, choice.operands), choice.results
    cost += prices.reshard_cost(inst.shape, made, wanted or made, choice.reduce_kind)
    return least_sent(context, inst, signature, places, (wanted,)), prices.comparable_seconds(cost)


def _op(text: str, size: int) -> Instruction:
    return module_of(f"""
        x = f32[{size},24] parameter(0)
        y = f32[{size},24] parameter(1)
        u = f32[{size},6] parameter(2)
        v = f32[] parameter(3)
        a = s32[] constant(0)
        b = s32[] constant(5)
        ROOT r = {text.format(k=size, m=size - 2, n=size - 3)}""").entry.root


def _place(random: Random, operand: Instruction, devices: int) -> ValuePlace:
    shape = operand.shape
    return ValuePlace(
        shape,
        random_sharding(random, shape, devices).meaning,
        is_free=random.random() < 0.1,
        copies=(random_sharding(random, shape, devices).meaning,) if random.random() < 0.2 else (),
        broadcast_dims=(random.randrange(shape.rank),) if shape.rank and random.random() < 0.2 else (),
        trips=random.choice([1, 1, 1, 5]),
    )
