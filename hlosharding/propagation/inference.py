"""What an op's sharding could be, seen from its operands (forward) or from one of its users (backward).

Floor: propagation.  For most ops tiles follow the dims that operand and result share, or pass as they are; the rest is
replicated.  Which dims are shared comes from the op's rule; `handlers` stand in where XLA does something else.
When inference runs, and what becomes of its answer, is the fix point's business.
"""

from __future__ import annotations

from hlosharding.ir import custom_call_targets as targets
from hlosharding.propagation import policy
from hlosharding.propagation.handlers import BACKWARD, FORWARD
from hlosharding.propagation.improving import LookAhead, Receiver, best_operand, improve, partitioned
from hlosharding.propagation.op_view import Edge, OpView, carry, is_partitioned, same_dims
from hlosharding.sharding import HloSharding, replicate_all_data_dims

Shardings = list[HloSharding | None]
Outcome = tuple[HloSharding, tuple[int, ...]] | None
"""A new sharding, and the operand positions that it came from; None: no change."""


def infer_forward(
    op: OpView, own: HloSharding | None, operands: Shardings, level: int, look_ahead: LookAhead = lambda: None
) -> Outcome:
    """What the op's sharding becomes by what its operands have (XLA's InferShardingFromOperands)."""
    if own is not None and own.is_manual():
        return None
    receiver = Receiver(op.shape, own, combine=op.spmd and level > 0, look_ahead=look_ahead)
    if own is None or own.is_tile_maximal():
        source = _manual_operand(op, operands)
        if source is not None:
            return _manual(op, operands, source, level)
    if op.receives:
        _offer_operands(op, receiver, operands, level)
    elif op.takes_replicated:
        _take_replicated(receiver, operands)
    if not receiver.sources or receiver.sharding is None:
        return None
    return receiver.sharding, tuple(receiver.sources)


def _manual_operand(op: OpView, operands: Shardings) -> int | None:
    if not (op.shape.is_array or op.opcode in policy.CORRELATED_TUPLES or op.is_foreign_async):
        return None
    return next((n for n, s in enumerate(operands) if s is not None and s.is_manual()), None)


def _manual(op: OpView, operands: Shardings, source: int, level: int) -> Outcome:
    sharding = operands[source]
    if op.target == targets.SHARD_TO_FULL or sharding is None:
        return None
    if level == 0 and op.opcode in policy.NOT_MANUAL_AT_LEVEL_0:
        return None
    # A tuple's own metadata, as XLA takes it, is none; its leaves' is not looked at.
    return op.whole(HloSharding.manual(sharding.metadata)), (source,)


def _take_replicated(receiver: Receiver, operands: Shardings) -> None:
    """What may not be tiled may still be known to be replicated."""
    for n, sharding in enumerate(operands):
        if sharding is not None and sharding.is_replicated():
            return receiver.improve(sharding, n)
    return None


def _offer_operands(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    handler = FORWARD.get(op.opcode)
    if handler is not None:
        handler(op, receiver, operands, level)
    elif op.opcode in policy.FOLLOWS_SHARED_DIMS:
        _along_shared_dims(op, receiver, operands[0], level)
    elif not _takes_nothing(op):
        _pass_on(op, receiver, operands)


def _takes_nothing(op: OpView) -> bool:
    combined = op.opcode in policy.COMBINED_COLLECTIVES and op.shape.is_tuple
    return combined or op.opcode in policy.TAKES_NOTHING_FORWARD


def _along_shared_dims(op: OpView, receiver: Receiver, source: HloSharding | None, level: int) -> None:
    """What operand 0 shares with the result."""
    if source is None or not source.is_spatially_partitioned():
        return
    if op.opcode in policy.BROADCASTS and (level < policy.BROADCAST_FORWARD_LEVEL or source.is_replicated()):
        return
    turns = source.is_tiled() and _turns_dims(op)
    offered = _through_turned_dims(op, source) if turns else op.to_result(source, 0)
    receiver.improve(offered, 0, aggressive=op.aggressive)


def _pass_on(op: OpView, receiver: Receiver, operands: Shardings) -> None:
    """The operands' shardings as they are."""
    if op.elementwise and receiver.combine:
        aggressive = op.aggressive and len(operands) == 1
        for n, sharding in partitioned(operands):
            alone = op.opcode in policy.REPLICATES_ITSELF
            offered = replicate_all_data_dims(sharding, op.rank) if alone else sharding
            receiver.improve(offered, n, aggressive=op.aggressive if alone else aggressive)
        return
    speaker = representative(op, operands)
    if speaker is None:
        return
    sharding = operands[speaker]
    if sharding is not None and sharding.is_spatially_partitioned():
        receiver.improve(sharding, speaker, aggressive=op.aggressive)


def representative(op: OpView, operands: Shardings) -> int | None:
    """The operand that speaks for an op (XLA's PickRepresentativeOperand), by position."""
    if op.opcode in policy.FIRST_OPERAND_SPEAKS:
        return 0 if operands[0] is not None else None
    return best_operand(operands) if op.opcode in policy.BEST_OPERAND_SPEAKS else None


def infer_backward(
    edge: Edge, own: HloSharding | None, user: HloSharding, others: Shardings, level: int
) -> HloSharding | None:
    """What a value's sharding becomes by what one user has; None: it stays."""
    offered = offer_to_operand(edge, own, user, others, level)
    if offered is None:
        return None
    return improve(own, offered, edge.shape, combine=edge.op.spmd and level > 0)


def offer_to_operand(
    edge: Edge, own: HloSharding | None, user: HloSharding, others: Shardings, level: int
) -> HloSharding | None:
    """The sharding that a user would like a value to have (XLA's GetShardingFromUser); None: it does not care.

    The caller has checked that the user lets shardings pass at this level.  `others` are the shardings of the operands
    that `other_operands` names.
    """
    if not is_partitioned(user):
        return None
    handler = BACKWARD.get(edge.op.opcode)
    if handler is not None:
        return handler(edge, own, user, others, level)
    if edge.op.opcode in policy.FOLLOWS_SHARED_DIMS:
        return _along_shared_dims_back(edge, user, level)
    if edge.op.opcode in policy.AS_IS_TO_FIRST_OPERAND:
        return user if edge.position == 0 else None
    return user if same_dims(edge.shape, edge.op.shape) else None


def _along_shared_dims_back(edge: Edge, user: HloSharding, level: int) -> HloSharding | None:
    """What the result shares with operand 0."""
    op = edge.op
    if edge.position != 0 or (op.opcode in policy.NOT_BACKWARD_AT_LEVEL_0 and level == 0):
        return user if user.is_replicated() and level > 0 else None
    # Outside SPMD XLA supports this only where none of the dims is split that the operand lacks.
    if op.opcode in policy.BROADCASTS and not op.spmd and user.is_tiled():
        shared = op.links(0)[1]
        if any(ways > 1 for d, ways in enumerate(user.data_dims) if d not in shared):
            return None
    if _turns_dims(op):
        rank = op.operand_shapes[0].rank
        return carry(user, (tuple(sorted(op.instruction.dimensions)), tuple(range(rank))), op.rank, rank)
    return op.to_operand(user, 0)


def _turns_dims(op: OpView) -> bool:
    """A broadcast whose dims do not ascend: XLA, which expects that they do, turns its tiles but not their devices."""
    return op.opcode in policy.BROADCASTS and tuple(sorted(op.instruction.dimensions)) != op.instruction.dimensions


def _through_turned_dims(op: OpView, source: HloSharding) -> HloSharding:
    """As XLA: each dim is cut as often as the operand's, and the tiles are dealt out in the operand's order."""
    cuts = {dim: source.num_tiles_along(n) for n, dim in enumerate(op.instruction.dimensions)}
    dims = [cuts.get(dim, 1) for dim in range(op.rank)]
    tiles = source.tiles.reshape((*dims, *source.tiles.dims[op.operand_shapes[0].rank :]))
    return HloSharding.subgroup(tiles, source.subgroup_types, source.metadata)
