"""Ops that move elements, where tiles need more than shared dims: reshape, reverse, concatenate, dynamic-update-slice.

Floor: propagation.
"""

from __future__ import annotations

from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings
from hlosharding.propagation.improving import Receiver, best_operand
from hlosharding.propagation.op_view import Edge, OpView, is_partitioned
from hlosharding.sharding import HloSharding, TileAssignment, propagate_through_reshape, reverse_sharding


@FORWARD.register("reshape")
def _reshape(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if source is not None and source.is_spatially_partitioned():
        moved = propagate_through_reshape(op.operand_shapes[0].dims, op.shape.dims, source)
        receiver.improve(moved, 0, aggressive=op.aggressive)


@BACKWARD.register("reshape")
def _reshape_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding:
    return propagate_through_reshape(edge.op.shape.dims, edge.shape.dims, user)


@FORWARD.register("reverse")
def _reverse(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    if source is not None and source.is_spatially_partitioned():
        receiver.improve(reverse_sharding(source, op.instruction.dimensions), 0, aggressive=op.aggressive)


@BACKWARD.register("reverse")
def _reverse_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding:
    return reverse_sharding(user, edge.op.instruction.dimensions)


@FORWARD.register("concatenate")
def _concatenate(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    speaker = best_operand(operands)
    if speaker is None or not is_partitioned(operands[speaker]):
        return
    if level == 0 and not (op.level0_concatenate and all(_passes_at_level0(op, s) for s in operands)):
        return
    sharding = operands[speaker]
    assert sharding is not None
    receiver.improve(sharding, speaker, aggressive=op.aggressive)


def _passes_at_level0(op: OpView, sharding: HloSharding | None) -> bool:
    """Tiled, but not along the concatenated dim."""
    if sharding is None or sharding.num_tiles <= 1:
        return False
    return sharding.num_tiles_along(op.instruction.dimensions[0]) == 1


@BACKWARD.register("concatenate")
def _concatenate_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding | None:
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


@FORWARD.register("dynamic-update-slice")
def _dynamic_update_slice(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    whole, update = operands[:2]
    if update is not None and update.is_spatially_partitioned():
        receiver.improve(op.to_result(update, 1), 1, aggressive=op.aggressive)
    if whole is not None and whole.is_spatially_partitioned():
        receiver.improve(whole, 0)


@BACKWARD.register("dynamic-update-slice")
def _dynamic_update_slice_operand(
    edge: Edge, own: object, user: HloSharding, others: object, level: int
) -> HloSharding | None:
    if level == 0:
        return None
    if edge.position == 0 or user.is_replicated():
        return user
    return edge.op.to_operand(user, 1) if edge.position == 1 else None
