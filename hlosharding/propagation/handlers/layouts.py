"""Ops that only move elements: transpose, broadcast, reshape, reverse, concatenate, static and dynamic slices, pad.

Floor: propagation.
"""

from __future__ import annotations

from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings
from hlosharding.propagation.improving import Receiver, best_operand
from hlosharding.propagation.op import Edge, Links, Op, partitioned
from hlosharding.propagation.policy import BROADCAST_FORWARD_LEVEL
from hlosharding.sharding import HloSharding, TileAssignment, propagate_through_reshape, reverse_sharding
from hlosharding.sharding import replicate_on_dims


def _identity(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def _links(op: Op) -> Links:
    """Operand 0's dims and the result dims they become, for transpose and broadcast."""
    dims = op.instruction.dimensions
    if op.opcode == "transpose":
        return dims, _identity(op.rank)
    return _identity(len(dims)), dims


@FORWARD.register("transpose")
def _transpose(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if source is not None and source.is_spatially_partitioned():
        receiver.improve(op.pass_to_result(source, _links(op)), 0, aggressive=op.aggressive)


@FORWARD.register("broadcast")
def _broadcast(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if level < BROADCAST_FORWARD_LEVEL:
        return
    if source is not None and source.is_spatially_partitioned() and not source.is_replicated():
        receiver.improve(op.pass_to_result(source, _links(op)), 0, aggressive=op.aggressive)


@BACKWARD.register("transpose")
def _transpose_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding:
    return edge.op.pass_to_operand(user, 0, _links(edge.op))


@BACKWARD.register("broadcast")
def _broadcast_operand(
    edge: Edge, own: object, user: HloSharding, others: object, level: int
) -> HloSharding | None:
    links = _links(edge.op)
    if not edge.op.spmd and user.is_tiled():
        new_dims = (d for d in range(edge.op.rank) if d not in links[1])
        if any(user.num_tiles_along(d) > 1 for d in new_dims):
            return None
    return edge.op.pass_to_operand(user, 0, links)


@FORWARD.register("reshape")
def _reshape(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if source is not None and source.is_spatially_partitioned():
        moved = propagate_through_reshape(op.operand_shapes[0].dims, op.shape.dims, source)
        receiver.improve(moved, 0, aggressive=op.aggressive)


@BACKWARD.register("reshape")
def _reshape_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding:
    return propagate_through_reshape(edge.op.shape.dims, edge.shape.dims, user)


@FORWARD.register("reverse")
def _reverse(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if source is not None and source.is_spatially_partitioned():
        receiver.improve(reverse_sharding(source, op.instruction.dimensions), 0, aggressive=op.aggressive)


@BACKWARD.register("reverse")
def _reverse_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding:
    return reverse_sharding(user, edge.op.instruction.dimensions)


@FORWARD.register("concatenate")
def _concatenate(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    speaker = best_operand(operands)
    if speaker is None or not partitioned(operands[speaker]):
        return
    if level == 0 and not (op.level0_concatenate and all(_passes_at_level0(op, s) for s in operands)):
        return
    sharding = operands[speaker]
    assert sharding is not None
    receiver.improve(sharding, speaker, aggressive=op.aggressive)


def _passes_at_level0(op: Op, sharding: HloSharding | None) -> bool:
    """Tiled, but not along the concatenated dim."""
    if sharding is None or sharding.num_tiles <= 1:
        return False
    return sharding.num_tiles_along(op.instruction.dimensions[0]) == 1


@BACKWARD.register("concatenate")
def _concatenate_operand(
    edge: Edge, own: object, user: HloSharding, others: object, level: int
) -> HloSharding | None:
    if level == 0:
        return None
    dim = edge.op.instruction.dimensions[0]
    if edge.op.spmd or user.is_replicated() or not user.is_tiled() or user.num_tiles_along(dim) == 1:
        return user
    return _devices_that_hold(edge, user, dim)


def _devices_that_hold(edge: Edge, user: HloSharding, dim: int) -> HloSharding:
    """Without SPMD an operand may live on just the devices that hold its part of the result."""
    start = sum(s.dims[dim] for s in edge.op.operand_shapes[: edge.position])
    tile = -(-edge.op.shape.dims[dim] // user.num_tiles_along(dim))
    parts = [slice(None)] * len(user.tiles.dims)
    parts[dim] = slice(start // tile, -(-(start + edge.shape.dims[dim]) // tile))
    devices = user.tiles.array[tuple(parts)]
    if devices.size == 1:
        return HloSharding.maximal(int(devices.flat[0]), user.metadata)
    return HloSharding.tile(TileAssignment.from_array(devices), user.metadata)


def _sliced_dims(op: Op, operand: int) -> tuple[int, ...]:
    """Dims in which operand and result differ in size: these cannot stay split."""
    dims = op.operand_shapes[operand].dims
    return tuple(d for d, size in enumerate(op.shape.dims) if size != dims[d])


@FORWARD.register("dynamic-slice")
def _dynamic_slice(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    _from_unsliced_dims(op, receiver, operands, 0)


@FORWARD.register("dynamic-update-slice")
def _dynamic_update_slice(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    _from_unsliced_dims(op, receiver, operands, 1)
    whole = operands[0]
    if whole is not None and whole.is_spatially_partitioned():
        receiver.improve(whole, 0)


def _from_unsliced_dims(op: Op, receiver: Receiver, operands: Shardings, operand: int) -> None:
    source = operands[operand]
    if source is not None and source.is_spatially_partitioned():
        offered = replicate_on_dims(source, _sliced_dims(op, operand))
        receiver.improve(offered, operand, aggressive=op.aggressive)


@BACKWARD.register("dynamic-slice", "dynamic-update-slice")
def _dynamic_slice_operand(
    edge: Edge, own: object, user: HloSharding, others: object, level: int
) -> HloSharding | None:
    if level == 0:
        return None
    update = edge.op.opcode == "dynamic-update-slice"
    if user.is_replicated() or (update and 0 in edge.positions):
        return user
    operand = 1 if update else 0
    if operand not in edge.positions:
        return None
    return replicate_on_dims(user, _sliced_dims(edge.op, operand))


@BACKWARD.register("pad")
def _pad_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding | None:
    return user if 0 in edge.positions else None


@BACKWARD.register("slice")
def _slice_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding:
    return user
