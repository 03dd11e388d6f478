"""Ops that carry whole values: tuple, get-tuple-element, while, parameter, custom call, outfeed.

Floor: propagation.
"""

from __future__ import annotations

from functools import partial

from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings
from hlosharding.propagation.handlers.user_functions import offer_results, operand_by_rule, results_by_rule
from hlosharding.propagation.improving import Receiver
from hlosharding.propagation.op_view import Edge, OpView, element_sharding, is_partitioned, leaf_range, same_dims
from hlosharding.propagation.policy import SHARD_BARRIER_FROM, is_pass_through_call
from hlosharding.rules import batch_dims, function_signature
from hlosharding.sharding import (
    HloSharding,
    add_shape_dims,
    find_common_sharding,
    is_more_specific,
    merge_sharding,
    remove_shape_dims,
    replicate_all_data_dims,
    replicate_on_dims,
)

_REPLICATED = HloSharding.replicate()


@FORWARD.register("tuple")
def _tuple(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    if not any(map(is_partitioned, operands)):
        return
    old = receiver.sharding
    # At least one: the sharding of an empty tuple has one leaf, too.
    leaves = list(old.tuple_elements) if old is not None else [HloSharding.replicate()] * max(1, len(op.shape.leaves))
    sources = []
    place = 0
    for n, (sharding, shape) in enumerate(zip(operands, op.operand_shapes, strict=True)):
        if sharding is not None:
            for k, leaf in enumerate(_leaves(sharding, shape.is_tuple), place):
                if old is None or (leaf is not leaves[k] and is_more_specific(leaf, leaves[k])):
                    leaves[k] = leaf
                    sources.append(n)
        place += len(shape.leaves)
    new = HloSharding.tuple(leaves)
    if old is None or new != old:
        receiver.set(new, sources[0] if sources else 0)
        receiver.sources[:] = dict.fromkeys(sources or [0])


def _leaves(sharding: HloSharding, is_tuple: bool) -> tuple[HloSharding, ...]:
    """The leaves of an operand; of an outfeed, whose sharding also lists what it sends, the token's, which is last."""
    return sharding.leaves if is_tuple else sharding.leaves[-1:]


@BACKWARD.register("tuple")
def _tuple_element(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding:
    """Of several places in the tuple the most specific one speaks."""
    best = element_sharding(user, edge.op.shape, edge.position)
    for position in edge.positions[1:]:
        other = element_sharding(user, edge.op.shape, position)
        if is_more_specific(other, best):
            best = other
    return best


@FORWARD.register("get-tuple-element")
def _get_tuple_element(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if source is None or not source.is_spatially_partitioned():
        return
    part = element_sharding(source, op.operand_shapes[0], op.instruction.tuple_index)
    if part.is_manual():
        receiver.set(part, 0)
    else:
        receiver.improve(part, 0, aggressive=op.aggressive)


@BACKWARD.register("get-tuple-element")
def _tuple_from_element(
    edge: Edge, own: HloSharding | None, user: HloSharding, others: object, level: int
) -> HloSharding | None:
    """The tuple as it is, with the user's sharding at its place; replicated elsewhere if there is none yet."""
    own_leaves = None if own is None else list(own.tuple_elements)
    offered = leaves_offered(edge, own_leaves, user)
    if offered is None or own_leaves is None:
        return offered and HloSharding.tuple(offered[1])
    start, leaves = offered
    if own_leaves[start : start + len(leaves)] == leaves:
        return own
    own_leaves[start : start + len(leaves)] = leaves
    return HloSharding.tuple(own_leaves)


def leaves_offered(
    edge: Edge, own: list[HloSharding] | None, user: HloSharding
) -> tuple[int, list[HloSharding]] | None:
    """What an element's reader would like a tuple with leaves `own` to have, from which leaf on; all, if it has none.

    None: the reader does not care.
    """
    if not user.leaves or not (user.is_tuple() or edge.op.shape.is_array):
        return None  # a token's sharding, say
    start, end = leaf_range(edge.shape, edge.op.instruction.tuple_index)
    if own is not None:
        return start, list(user.leaves)
    # Not plain replicated: manual subgroups stay.
    leaves = [replicate_all_data_dims(user.leaves[0], s.rank) for s in edge.shape.leaves]
    leaves[start:end] = user.leaves
    return 0, leaves


@FORWARD.register("while")
def _while(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if source is None:
        return
    if receiver.sharding is not None:
        source = merge_sharding(receiver.sharding, source, receiver.combine)[1]
    receiver.improve(source, 0)


@FORWARD.register("parameter")
def _parameter(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    """Of a branch or a callee: what the caller passes (the fix point hands it in as an operand)."""
    if operands and operands[0] is not None:
        receiver.improve(operands[0], 0)


@FORWARD.register("custom-call")
def _custom_call(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    count = batch_dims(op.instruction)
    if count and not is_pass_through_call(op.instruction, op.target):
        _batched_call(op, receiver, operands, count)
        return
    rule = function_signature(op.instruction)
    if rule is not None:
        offer_results(op, receiver, operands, level, partial(results_by_rule, rule))
        return
    source = operands[0] if operands else None
    if op.target == SHARD_BARRIER_FROM or source is None or not source.is_spatially_partitioned():
        return
    receiver.improve(source, 0, aggressive=op.aggressive)


def _batched_call(op: OpView, receiver: Receiver, operands: Shardings, count: int) -> None:
    """As jaxlib's CustomCallBatchPartitioner: the operands' common split of the leading dims, for every result."""
    given = [o for o in operands if o is not None]
    if not given or len(given) < len(operands):
        return
    parts = [_batch_part(o, count) for o in given]
    common = parts[0] if len(parts) == 1 else find_common_sharding(parts)
    leaves = [
        add_shape_dims(common, count, leaf.rank - count) if common.is_tiled() and leaf.rank >= count else _REPLICATED
        for leaf in op.shape.leaves
    ]
    receiver.improve(HloSharding.tuple(leaves) if op.shape.is_tuple else leaves[0], 0, aggressive=op.aggressive)


def _batch_part(sharding: HloSharding, count: int) -> HloSharding:
    rank = sharding.tiled_data_rank
    if not sharding.is_tiled() or count >= rank:
        return _REPLICATED
    part = replicate_on_dims(sharding, tuple(range(count, rank)))
    return remove_shape_dims(part, tuple(range(count, rank))) if part.is_tiled() else part


@BACKWARD.register("custom-call")
def _custom_call_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding | None:
    rule = function_signature(edge.op.instruction)
    if rule is not None:
        return operand_by_rule(edge, rule, user)
    return user if same_dims(edge.shape, edge.op.shape) else None


@BACKWARD.register("outfeed")
def _outfeed_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding | None:
    if 0 not in edge.positions:
        return None
    if not user.is_tuple():
        return user
    shape = edge.op.operand_shapes[0]
    if not shape.is_tuple:
        return user.leaf(0)
    return HloSharding.tuple(user.tuple_elements[: len(shape.leaves)])
