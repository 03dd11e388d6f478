"""Moving elements along split dims: slices, pads, concatenations, reverses, updates at known places, chains of them.

Floor: partitioner.  One mechanism for all: every device gets exactly the elements it lacks, by the direct plan that
reshards use too.  Priced against the lowering by factors, which makes whole what is split.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import Instruction
from hlosharding.partitioner.choice import MovementPlan
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.factors import choice_of, lower_by_factors
from hlosharding.partitioner.movement.chained_movements import chained_movement
from hlosharding.partitioner.movement.movement_plans import cheapest_plan, reshard_all_cost
from hlosharding.partitioner.movement.op_movements import MOVEMENTS, DataMovement, op_movement
from hlosharding.partitioner.prices import NOTHING, Cost
from hlosharding.partitioner.region_values import array_of
from hlosharding.partitioner.resharding import local_shape, replicate, reshard, to_wanted
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, ValuePlace, places_of
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import REPLICATED, HloSharding

# Where the start is known only at run time, this op reads anywhere.
_LOOK_UP = "dynamic-slice"


def move(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """The cheapest of: the lowering by factors, a data movement of the op, one of the chain of ops that it ends."""
    signature, wanted, single = signature_of(inst), context.wanted_leaves(inst)[0], op_movement(inst)
    assert isinstance(signature, Signature)
    if single is None or not _is_along_split_dims(context, single, wanted):
        return lower_by_factors(context, inst, signature)
    value_of = context.prices.objective_value
    by_factors = _factors_cost(context, inst, _places_of(context, inst.operands))
    cost, chosen = _cheaper_movement(context, inst, single, by_factors)
    context.paid[inst] = cost
    if chosen is None or _is_better_whole(context, inst, wanted, value_of(by_factors) - value_of(cost)):
        return lower_by_factors(context, inst, signature)
    context.plans[inst] = chosen[1]
    return to_wanted(context, _moved(context, inst, *chosen), wanted)


def _cheaper_movement(
    context: Context, inst: Instruction, single: DataMovement, limit: Cost
) -> tuple[Cost, tuple[DataMovement, MovementPlan] | None]:
    """The cheapest movement below the limit, and its cost; the limit where there is none.

    The ops that a chain skips become dead code: what was paid for them counts as saved.  Of several readers each
    counts all of it: what one passes over the others pass over, too.
    """
    value_of, wanted = context.prices.objective_value, context.wanted_leaves(inst)[0]
    best, chosen = limit, None
    plan = cheapest_plan(context, single, _places_of(context, single.arrays), inst.shape, wanted)
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


def _factors_cost(context: PlanContext, inst: Instruction, operands: Sequence[ValuePlace]) -> Cost:
    """What the lowering by factors would send, operands lying so."""
    signature, wanted = signature_of(inst), context.wanted_leaves(inst)[0]
    assert isinstance(signature, Signature)
    choice = choice_of(context, inst, signature, operands)
    cost, [made] = reshard_all_cost(context.prices, operands, choice.operands), choice.results
    return cost + context.prices.reshard_cost(inst.shape, made, wanted or made, choice.reduce_kind)


def _is_better_whole(context: PlanContext, inst: Instruction, wanted: HloSharding | None, more: float) -> bool:
    """Do users save more than `more` if they find the result replicated?

    Asked where all users look up a place that is not known before: XLA, too, keeps such a concatenation whole
    (SpmdPartitioningVisitor::HandleConcatenate).
    """
    if wanted is None or not inst.users or any(u.opcode != _LOOK_UP or op_movement(u) for u in inst.users):
        return False

    def objective_of(user: Instruction, sharding: HloSharding) -> float:
        places = [ValuePlace(o.shape, REPLICATED if number else sharding) for number, o in enumerate(user.operands)]
        return context.prices.objective_value(_factors_cost(context, user, places))

    return sum(objective_of(user, wanted) - objective_of(user, REPLICATED) for user in inst.users) > more


def _moved(context: Context, inst: Instruction, movement: DataMovement, plan: MovementPlan) -> Value:
    """The movement itself: operands into place, their regions put together over what fills the rest."""
    pairs = zip(movement.arrays, plan.sources, strict=True)
    local = [reshard(context, array_of(context, o), s, f"operand of a {inst.opcode}").local for o, s in pairs]
    base = local.pop() if movement.base is not None else None
    if movement.fill is not None and not movement.covers:
        base = replicate(context, array_of(context, movement.fill)).local
    emitter = context.emitter
    operands = [
        emitter.op("reverse", local[number].shape, (local[number],), dimensions=dims) if dims else local[number]
        for number, dims in plan.transfer.variants
    ]
    shape = local_shape(context, inst.shape, plan.target)
    with emitter.because(f"elements moved by a {inst.opcode}"):
        made = plan.transfer.pieces.put_together(emitter, operands, shape, base)
    return Value(made, inst.shape, plan.target)
