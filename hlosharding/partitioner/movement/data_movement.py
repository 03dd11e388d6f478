"""Moving elements along split dims: slices, pads, concatenations, reverses, updates at known places, chains of them.

Floor: partitioner.  One mechanism for all: every device gets exactly the elements it lacks, by the direct plan that
reshards use too.  Priced against moving onto the operand's tiles (or from the result's), and against the generic
lowering, which makes whole what is split.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.choice import MovePlan
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors import choice_of, lower_by_factors
from hlosharding.partitioner.movement.element_moves import Move, move_of, simple_move_of
from hlosharding.partitioner.prices import NOTHING, Cost
from hlosharding.partitioner.region_values import array_of
from hlosharding.partitioner.resharding import local_shape, replicate, reshard, to_wanted
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value
from hlosharding.reshard import layout_of, plan_transfer
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import REPLICATED, HloSharding, reverse_sharding

Dims = tuple[int, ...]


def move(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """The cheapest way for an op that only moves elements."""
    signature, wanted, simple = signature_of(inst), context.wanted_leaves(inst)[0], simple_move_of(inst)
    assert isinstance(signature, Signature)
    if simple is None or not _is_along_split_dims(context, simple, wanted):
        return lower_by_factors(context, inst, signature)
    worth, generic = context.prices.worth, _generic_cost(context, inst, [array_of(context, o) for o in inst.operands])
    best, chosen = generic, None
    way = _cheapest(context, simple, inst.shape, wanted)
    if way is not None and worth(way.cost) < worth(best):
        best, chosen = way.cost, (simple, way)
    chain = move_of(inst)
    if chain is not None and chain.between:
        way = _cheapest(context, chain, inst.shape, wanted)
        sunk = sum((context.paid.get(i, NOTHING) for i in chain.between), NOTHING)
        if way is not None and worth(way.cost) < worth(best + sunk):
            best, chosen = way.cost, (chain, way)
    context.paid[inst] = best
    if chosen is None or _is_better_whole(context, inst, wanted, worth(generic) - worth(best)):
        return lower_by_factors(context, inst, signature)
    return to_wanted(context, _moved(context, inst, *chosen), wanted)


def _is_better_whole(context: Context, inst: Instruction, wanted: HloSharding | None, more: float) -> bool:
    """Is having the whole at hand worth more than `more`?

    Asked where all users look up a place that is not known before: XLA, too, keeps such a concatenation whole
    (SpmdPartitioningVisitor::HandleConcatenate).
    """
    if wanted is None or not inst.users or any(u.opcode != "dynamic-slice" or simple_move_of(u) for u in inst.users):
        return False

    def worth(user: Instruction, sharding: HloSharding) -> float:
        values = [Value(inst, o.shape, REPLICATED if number else sharding) for number, o in enumerate(user.operands)]
        return context.prices.worth(_generic_cost(context, user, values))

    return sum(worth(user, wanted) - worth(user, REPLICATED) for user in inst.users) > more


def _is_along_split_dims(context: Context, move: Move, wanted: HloSharding | None) -> bool:
    shardings = [wanted, *(array_of(context, o).sharding for o in move.operands)]
    return any(s is not None and s.num_tiles_along(d) > 1 for s in shardings for d in move.touched())


def _generic_cost(context: Context, inst: Instruction, values: list[Value]) -> Cost:
    """What the generic lowering would move, operands being `values`."""
    signature, wanted = signature_of(inst), context.wanted_leaves(inst)[0]
    assert isinstance(signature, Signature)
    choice = choice_of(context, inst, signature, values)
    cost, [made] = _into_place(context, values, choice.operands), choice.results
    return cost + context.prices.way(inst.shape, made, wanted or made, choice.reduce_kind)


def _into_place(context: Context, values: list[Value], targets: tuple[HloSharding, ...]) -> Cost:
    """An operand that is needed twice moves once."""
    pairs = dict.fromkeys((v, t) for v, t in zip(values, targets, strict=True) if not v.is_at_hand)
    return sum((context.prices.way(v.shape, v.sharding, t, v.reduce_kind) for v, t in pairs), NOTHING)


def _cheapest(context: Context, move: Move, shape: Shape, wanted: HloSharding | None) -> MovePlan | None:
    """The best way of one move; remembered for equal moves of equally sharded operands."""
    values = [array_of(context, o) for o in (*move.operands, *([move.base] if move.base is not None else []))]
    if move.between:
        # What is at hand may be so only for the sake of what a chain skips.
        values = [
            v if v.rematerialize is not None else Value(v.local, v.shape, v.sharding, v.reduce_kind) for v in values
        ]
    given = ((v.shape, v.sharding, v.reduce_kind, v.is_at_hand) for v in values)
    key: Any = (move.regions, shape, move.base is None, wanted, *given)
    known = context.decisions.moves
    if key not in known:
        ways = (_way(context, move, values, shape, pair, wanted) for pair in _pairs(move, values, wanted))
        found = [way for way in ways if way is not None]
        known[key] = min(found, key=lambda way: context.prices.worth(way.cost), default=None)
    return known[key]


def _pairs(
    move: Move, values: list[Value], wanted: HloSharding | None
) -> Iterator[tuple[tuple[HloSharding, ...], HloSharding]]:
    """(shardings of operands and base, sharding of the result): straight on, by way of the operand's tiles, or by the
    result's.
    """
    turned = tuple(dict.fromkeys(region.turned for region in move.regions))
    mirrored = turned[0] if len(turned) == 1 else ()
    own = tuple(REPLICATED if v.is_at_hand else v.whole_sharding for v in values[: len(move.operands)])
    largest = max(zip(values, own, strict=False), key=lambda pair: pair[0].shape.byte_size)[1] if own else REPLICATED
    base = values[-1].whole_sharding if move.base is not None else None

    def pair(sources: tuple[HloSharding, ...], target: HloSharding) -> tuple[tuple[HloSharding, ...], HloSharding]:
        return (*sources, target) if base is not None else sources, target

    for target in dict.fromkeys(t for t in (wanted, base, _mirrored(largest, mirrored)) if t is not None):
        if _is_plain(target) and all(map(_is_plain, own)):
            yield pair(own, target)
    if wanted is not None and _is_plain(wanted):
        back = _mirrored(wanted, mirrored)
        yield pair(tuple(REPLICATED if s is REPLICATED else back for s in own), wanted)


def _is_plain(sharding: HloSharding) -> bool:
    return sharding.kind == "replicated" or (
        sharding.kind == "tiled" and not {"manual", "unreduced"} & set(sharding.subgroup_types)
    )


def _mirrored(sharding: HloSharding, dims: Dims) -> HloSharding:
    return reverse_sharding(sharding, dims).meaning if dims and sharding.kind == "tiled" else sharding


def _way(
    context: Context,
    move: Move,
    values: list[Value],
    shape: Shape,
    pair: tuple[tuple[HloSharding, ...], HloSharding],
    wanted: HloSharding | None,
) -> MovePlan | None:
    (sources, target), prices, n = pair, context.prices, context.num_partitions
    layouts = [layout_of(s, o.shape.dims, n) for s, o in zip(sources, move.operands, strict=False)]
    transfer = plan_transfer(
        move.regions,
        layouts,
        layout_of(target, shape.dims, n),
        shape,
        machine=prices.machine,
        objective=prices.objective,
    )
    if transfer is None:
        return None
    cost = _into_place(context, values, sources) + Cost(transfer.mean_bytes, transfer.seconds)
    return MovePlan(sources, target, transfer, cost + prices.way(shape, target, wanted or target, None))


def _moved(context: Context, inst: Instruction, move: Move, way: MovePlan) -> Value:
    """The move itself: operands into place, their pieces put together over what fills the rest."""
    operands = [*move.operands, *([move.base] if move.base is not None else [])]
    pairs = zip(operands, way.sources, strict=True)
    local = [reshard(context, array_of(context, o), s, f"operand of a {inst.opcode}").local for o, s in pairs]
    base = local.pop() if move.base is not None else None
    if move.fill is not None and not move.covers:
        base = replicate(context, array_of(context, move.fill)).local
    emitter = context.emitter
    turned = [
        emitter.op("reverse", local[number].shape, (local[number],), dimensions=dims) if dims else local[number]
        for number, dims in way.transfer.variants
    ]
    emitter.reason = f"elements moved by a {inst.opcode}"
    shape = local_shape(context, inst.shape, way.target)
    return Value(way.transfer.pieces.put_together(emitter, turned, shape, base), inst.shape, way.target)
