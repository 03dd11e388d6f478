"""Plans for ops that only move elements: from which shardings of the operands to which one of the result, at what cost.

Floor: partitioner.  The transfer itself is the reshard room's: every device gets exactly the elements it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.choice import MovementPlan, OpPlan
from hlosharding.partitioner.context import PlanContext
from hlosharding.partitioner.factors import Places, plan_by_signature
from hlosharding.partitioner.iteration_space import mirror
from hlosharding.partitioner.movement.op_movements import DataMovement, op_movement
from hlosharding.partitioner.prices import NOTHING, Cost, Prices
from hlosharding.partitioner.value import ValuePlace
from hlosharding.reshard import layout_of, plan_batched_transfer
from hlosharding.sharding import REPLICATED, HloSharding

Ends = tuple[tuple[HloSharding, ...], HloSharding]
"""The shardings of operands and base, and that of the result."""


def cheapest_plan(
    context: PlanContext,
    movement: DataMovement,
    arrays: Sequence[ValuePlace],
    shape: Shape,
    wanted: HloSharding | None,
) -> MovementPlan | None:
    """The best plan of one movement of `movement.arrays`; remembered for equal ones of equally sharded operands."""
    values = [_as_found(movement, array) for array in arrays]
    given = ((v.shape, v.sharding, v.reduce_kind, v.is_free) for v in values)
    key: Any = (movement.regions, shape, movement.base is None, wanted, *given)
    known = context.decisions.moves
    if key not in known:
        ends = _ends(movement, values, wanted)
        plans = (_plan(context.prices, movement, values, shape, pair, wanted) for pair in ends)
        found = [plan for plan in plans if plan is not None]
        known[key] = min(found, key=lambda plan: context.prices.objective_value(plan.communication), default=None)
    return known[key]


def plan_movement(
    context: PlanContext, inst: Instruction, operands: Places, wanted: HloSharding | None
) -> OpPlan | None:
    """The op as a movement of its own, whose operands lie so; by its factors where it is none."""
    movement, lie = op_movement(inst), dict(zip(inst.operands, operands, strict=True))
    found = None
    if movement is not None:
        found = cheapest_plan(context, movement, [lie[o] for o in movement.arrays], inst.shape, wanted)
    return found or plan_by_signature(context, inst, operands, wanted)


def _as_found(movement: DataMovement, value: ValuePlace) -> ValuePlace:
    """A chain does not count on an operand's replicated copy: that may be there only for the ops that it skips."""
    if not movement.skipped or value.is_remade:
        return value
    return ValuePlace(value.shape, value.sharding, value.reduce_kind)


def _ends(movement: DataMovement, values: Sequence[ValuePlace], wanted: HloSharding | None) -> Iterator[Ends]:
    """The shardings that are tried: from the operands' own to the one wanted, to the base's or to the largest
    operand's; or from that wanted of the result, so that nothing but the reshard before it moves.
    """
    operands, base = values[: len(movement.operands)], values[-1].whole_sharding if movement.base is not None else None
    reversals = tuple(dict.fromkeys(region.turned for region in movement.regions))
    reversed_dims = reversals[0] if len(reversals) == 1 else ()
    own = tuple(REPLICATED if v.is_free else v.whole_sharding for v in operands)
    sizes = [v.shape.byte_size for v in operands]
    largest = own[sizes.index(max(sizes))] if own else REPLICATED

    def ends(sources: tuple[HloSharding, ...], target: HloSharding) -> Ends:
        return (*sources, target) if base is not None else sources, target

    for target in dict.fromkeys(t for t in (wanted, base, mirror(largest, reversed_dims)) if t is not None):
        if all(map(_has_plain_tiles, (target, *own))):
            yield ends(own, target)
    if wanted is not None and _has_plain_tiles(wanted):
        back = mirror(wanted, reversed_dims)
        yield ends(tuple(REPLICATED if s is REPLICATED else back for s in own), wanted)


def _has_plain_tiles(sharding: HloSharding) -> bool:
    """Whole arrays or tiles of them, with no manual or unreduced subgroup."""
    return sharding.kind == "replicated" or (
        sharding.kind == "tiled" and not {"manual", "unreduced"} & set(sharding.subgroup_types)
    )


def _plan(
    prices: Prices,
    movement: DataMovement,
    values: Sequence[ValuePlace],
    shape: Shape,
    ends: Ends,
    wanted: HloSharding | None,
) -> MovementPlan | None:
    (sources, target), n = ends, prices.machine.num_devices
    operands = zip(sources, movement.operands, strict=False)  # the base behind them stays where it is
    transfer = plan_batched_transfer(
        movement.regions,
        [layout_of(sharding, operand.shape.dims, n) for sharding, operand in operands],
        layout_of(target, shape.dims, n),
        shape,
        machine=prices.machine,
        objective=prices.objective,
    )
    if transfer is None:
        return None
    cost = reshard_all_cost(prices, values, sources) + Cost(transfer.mean_bytes, transfer.seconds)
    return MovementPlan(sources, target, transfer, cost + prices.reshard_cost(shape, target, wanted or target, None))


def reshard_all_cost(prices: Prices, values: Sequence[ValuePlace], targets: Sequence[HloSharding]) -> Cost:
    """What it costs to bring operands into their target shardings; one that is needed twice moves once."""
    pairs = dict.fromkeys((v, t) for v, t in zip(values, targets, strict=True) if not v.is_free)
    costs = (prices.reshard_cost(v.shape, v.sharding, target, v.reduce_kind) for v, target in pairs)
    return sum(costs, NOTHING)
