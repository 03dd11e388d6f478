"""Moving elements along split dims: slices, pads, concatenations, reverses, updates at known places, chains of them.

Floor: partitioner.  One mechanism for all: every device gets exactly the elements it lacks, by the direct plan that
reshards use too.  A plan says from which shardings of the operands to which one of the result; it is priced against the
lowering by factors, which makes whole what is split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.choice import MovementPlan, OpPlan
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.factors import Places, choice_of, least_sent, lower_by_factors, plan_by_signature
from hlosharding.partitioner.iteration_space import mirror
from hlosharding.partitioner.movement.op_movements import MOVEMENTS, DataMovement, chained_movement, op_movement
from hlosharding.partitioner.prices import NOTHING, Cost, Prices
from hlosharding.partitioner.resharding import array_of, local_shape, replicate, reshard, to_wanted
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, ValuePlace, places_of
from hlosharding.reshard import layout_of, plan_batched_transfer
from hlosharding.rules import Signature, signature_of
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
    # Regions that are turned along different dims have no mirrored sharding in common.
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
    cost += prices.reshard_cost(shape, target, wanted or target, None)
    return MovementPlan(sources, (target,), cost.seconds, transfer, cost)


def reshard_all_cost(prices: Prices, values: Sequence[ValuePlace], targets: Sequence[HloSharding]) -> Cost:
    """What it costs to bring operands into their target shardings; one that is needed twice moves once."""
    pairs = dict.fromkeys((v, t) for v, t in zip(values, targets, strict=True) if not v.is_free)
    costs = (prices.reshard_cost(v.shape, v.sharding, target, v.reduce_kind) for v, target in pairs)
    return sum(costs, NOTHING)


# Where the start is known only at run time, this op reads anywhere.
_LOOK_UP = "dynamic-slice"


def move(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """The cheapest of: the lowering by factors, a data movement of the op, one of the chain of ops that it ends."""
    signature, wanted, single = signature_of(inst), context.wanted_leaves(inst)[0], op_movement(inst)
    assert isinstance(signature, Signature)
    # Along whole dims each device moves only what it has: that is the op itself on tiles.
    if single is None or not _is_along_split_dims(context, single, wanted):
        return lower_by_factors(context, inst, signature)
    cost, chosen = _cheaper_movement(context, inst, single)
    context.paid[inst] = cost
    if chosen is None or _is_better_whole(context, inst, wanted, cost):
        return lower_by_factors(context, inst, signature)
    context.plans[inst] = chosen[1]
    return to_wanted(context, _moved(context, inst, *chosen), wanted)


def _cheaper_movement(
    context: Context, inst: Instruction, single: DataMovement
) -> tuple[Cost, tuple[DataMovement, MovementPlan] | None]:
    """The cheapest movement below the lowering by factors, and its cost; the cost of that where there is none.

    The ops that a chain skips become dead code: what was paid for them counts as saved.  Of several readers each
    counts all of it: what one passes over the others pass over, too.
    """
    value_of, wanted = context.prices.objective_value, context.wanted_leaves(inst)[0]
    plan = cheapest_plan(context, single, _places_of(context, single.arrays), inst.shape, wanted)
    best, chosen = _factors_cost(context, inst, _places_of(context, inst.operands), plan), None
    if plan is not None and (
        value_of(plan.communication) < value_of(best) or (best.mean_bytes and _is_passed_over(inst))
    ):
        best, chosen = plan.communication, (single, plan)
    chain = chained_movement(inst)
    if chain is not None and chain.skipped:
        plan = cheapest_plan(context, chain, _places_of(context, chain.arrays), inst.shape, wanted)
        saved = sum((context.paid.get(i, NOTHING) for i in chain.skipped), NOTHING)
        if plan is not None and value_of(plan.communication) < value_of(best + saved):
            best, chosen = plan.communication, (chain, plan)
    return best, chosen


def _is_passed_over(inst: Instruction) -> bool:
    """May all that reads an op be one movement with it?  Then nobody may need it, and it should not make its operand
    whole: others would take from that what is there, as if it were free.
    """
    if inst.is_root or not inst.users or any(user.opcode not in MOVEMENTS for user in inst.users):
        return False
    chains = (chained_movement(user) for user in inst.users)
    return all(chain is not None and inst in chain.skipped for chain in chains)


def _is_along_split_dims(context: Context, movement: DataMovement, wanted: HloSharding | None) -> bool:
    shardings = [wanted, *(array_of(context, o).sharding for o in movement.operands)]
    return any(s is not None and s.num_tiles_along(d) > 1 for s in shardings for d in movement.changed_dims())


def _places_of(context: Context, operands: Sequence[Instruction]) -> list[ValuePlace]:
    return places_of([array_of(context, o) for o in operands])


_MORE = Cost(math.inf, math.inf)


def _factors_cost(
    context: PlanContext, inst: Instruction, operands: Sequence[ValuePlace], rival: MovementPlan | None = None
) -> Cost:
    """What the lowering by factors would send, operands lying so; `_MORE` where a bound says that its rival sends less.

    Then none of its reshards is planned: of ResNet, cold, that took 50 of 310 ms.
    """
    signature, wanted = signature_of(inst), context.wanted_leaves(inst)[0]
    assert isinstance(signature, Signature)
    if rival is not None:
        sent = context.prices.comparable_seconds(rival.communication)
        if sent < least_sent(context, inst, signature, operands, (wanted,)):
            return _MORE
    choice = choice_of(context, inst, signature, operands)
    cost, [made] = reshard_all_cost(context.prices, operands, choice.operands), choice.results
    return cost + context.prices.reshard_cost(inst.shape, made, wanted or made, choice.reduce_kind)


def _is_better_whole(context: Context, inst: Instruction, wanted: HloSharding | None, cost: Cost) -> bool:
    """Do users save more if they find the result replicated than a movement of this cost saves?

    Asked where all users look up a place that is not known before: XLA, too, keeps such a concatenation whole
    (SpmdPartitioningVisitor::HandleConcatenate).
    """
    if wanted is None or not inst.users or any(u.opcode != _LOOK_UP or op_movement(u) for u in inst.users):
        return False

    value_of = context.prices.objective_value

    def objective_of(user: Instruction, sharding: HloSharding) -> float:
        places = [ValuePlace(o.shape, REPLICATED if number else sharding) for number, o in enumerate(user.operands)]
        return value_of(_factors_cost(context, user, places))

    # Without its rival: here the price itself counts, not that it is more.
    more = value_of(_factors_cost(context, inst, _places_of(context, inst.operands))) - value_of(cost)
    return sum(objective_of(user, wanted) - objective_of(user, REPLICATED) for user in inst.users) > more


def _moved(context: Context, inst: Instruction, movement: DataMovement, plan: MovementPlan) -> Value:
    """The movement itself: operands into place, their regions put together over what fills the rest."""
    pairs = zip(movement.arrays, plan.operands, strict=True)
    local = [reshard(context, array_of(context, o), s, f"operand of a {inst.opcode}").local for o, s in pairs]
    base = local.pop() if movement.base is not None else None
    if movement.fill is not None and not movement.covers:
        base = replicate(context, array_of(context, movement.fill)).local
    emitter = context.emitter
    operands = [
        emitter.op("reverse", local[number].shape, (local[number],), dimensions=dims) if dims else local[number]
        for number, dims in plan.transfer.variants
    ]
    [target] = plan.results
    shape = local_shape(context, inst.shape, target)
    with emitter.because(f"elements moved by a {inst.opcode}"):
        made = plan.transfer.pieces.put_together(emitter, operands, shape, base)
    return Value(made, inst.shape, target)
