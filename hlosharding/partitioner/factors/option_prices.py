"""What an op costs at least for each way in which some of its values may lie, all at once.

Floor: partitioner.  By the bytes that must move, at the best rate: an op whose operand and result may lie
in a dozen ways each has 144 prices, and none of them needs a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import PlanContext
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, common_split
from hlosharding.partitioner.factors.factor_choice import most_work, splits_by_mesh
from hlosharding.partitioner.factors.least_seconds import compute_seconds, operand_bytes, result_bytes
from hlosharding.partitioner.factors.lowering_choice import Places, key_of_places, op_of, problems_of
from hlosharding.partitioner.factors.split_prices import work_per_device
from hlosharding.partitioner.factors.splits import Splits
from hlosharding.partitioner.prices import Numbers, Prices
from hlosharding.rules import Signature
from hlosharding.sharding import HloSharding, TileAssignment

Slots = tuple[int | None, ...]
"""Of the result and each operand: the number of the variable that says how it lies; None where that is given."""
Options = tuple[tuple[HloSharding, ...], ...]
"""Of each variable the shardings it may take; the first of each is the one it has."""


def prices_of_options(
    context: PlanContext,
    inst: Instruction,
    signature: Signature,
    operands: Places,
    wanted: HloSharding | None,
    slots: Slots,
    options: Options,
) -> Numbers | None:
    """[option of each variable]: least `comparable_seconds` of the op, of no more work than now; None for what is not
    split by axes.
    """
    decisions = context.decisions
    op, lie = op_of(decisions, inst, signature, operands), tuple([tuple([s.uid for s in one]) for one in options])
    key = (id(op), slots, lie, *key_of_places(operands, (wanted,)))
    known = decisions.option_prices
    if key not in known:
        known[key] = _prices_of_options(context, problems_of(inst, signature, operands, (wanted,)), slots, options)
    return known[key]


def _prices_of_options(
    context: PlanContext, problems: Sequence[ChoiceProblem], slots: Slots, options: Options
) -> Numbers | None:
    prices, mesh = context.prices, context.decisions.mesh
    limit = most_work(problems, prices, mesh)
    tables = [_table(problem, prices, mesh, limit, slots, options) for problem in problems]
    found = [table for table in tables if table is not None]
    # All signatures or none: the one that is not split by axes might be the cheaper one.
    return np.minimum.reduce(found) if len(found) == len(tables) else None


def _table(
    problem: ChoiceProblem,
    prices: Prices,
    mesh: TileAssignment | None,
    limit: float,
    slots: Slots,
    options: Options,
) -> Numbers | None:
    # All variables change at once, for what moves of a slot depends on its own alone: of two with a dozen options each,
    # a dozen problems are made, not 144.
    variants = [_variant(problem, slots, options, number) for number in range(max(map(len, options)))]
    splits = splits_by_mesh(problem, mesh, [claim.space for one in variants for claim in one.full_claims()])
    if splits is None:
        return None
    lean = work_per_device(problem, splits.num_tiles, problem.num_tiles(common_split(problem))) <= limit
    if not lean.any():
        return None
    total = compute_seconds(problem, splits, prices)[lean].reshape((*(1 for _ in options), -1))
    for slot, variable in enumerate(slots):
        choices = [problem] if variable is None else variants[: len(options[variable])]
        shape = [len(choices) if number == variable else 1 for number in range(len(options))]
        seconds = np.stack([_slot_seconds(choice, slot, splits, prices)[lean] for choice in choices])
        total = total + seconds.reshape((*shape, -1))
    return total.min(-1)


def _slot_seconds(problem: ChoiceProblem, slot: int, splits: Splits, prices: Prices) -> Numbers:
    if slot == 0:
        return prices.seconds_at_best_rate(result_bytes(problem, problem.results[0], splits, prices))
    operand = problem.operands[slot - 1]
    return prices.seconds_at_best_rate(operand_bytes(problem, operand, splits, prices), operand.lies.trips)


def _variant(problem: ChoiceProblem, slots: Slots, options: Options, number: int) -> ChoiceProblem:
    """The problem with every variable at its option of that number (or its last one)."""

    def lies(slot: int) -> HloSharding | None:
        variable = slots[slot]
        return None if variable is None else options[variable][min(number, len(options[variable]) - 1)]

    result, operands = problem.results[0], list(problem.operands)
    for slot, operand in enumerate(problem.operands, 1):
        sharding = lies(slot)
        if sharding is not None:
            other = replace(operand.lies, sharding=sharding, is_free=False, reduce_kind=None, copies=())
            operands[slot - 1] = replace(operand, lies=other)
    wanted = lies(0) or result.wanted
    return replace(problem, operands=tuple(operands), results=(replace(result, wanted=wanted),))
