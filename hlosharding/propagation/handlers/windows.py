"""Ops that slide a window: reduce-window and select-and-scatter.  A split passes through, dilated windows refuse.

Floor: propagation.
"""

from __future__ import annotations

from hlosharding.propagation.handlers.reductions import input_count
from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings
from hlosharding.propagation.improving import Receiver
from hlosharding.propagation.op_view import Edge, OpView, element_sharding
from hlosharding.sharding import HloSharding


@FORWARD.register("reduce-window")
def _reduce_window(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    if any(d.base_dilation > 1 or d.window_dilation > 1 for d in op.instruction.window):
        return
    for n, source in enumerate(operands[: input_count(op)]):
        if source is not None and source.is_spatially_partitioned():
            receiver.improve(op.whole(source), n, aggressive=op.aggressive)


@BACKWARD.register("reduce-window")
def _reduce_window_input(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding | None:
    if edge.position >= input_count(edge.op):
        return None
    return element_sharding(user, edge.op.shape, edge.position) if edge.op.shape.is_tuple else user


@FORWARD.register("select-and-scatter")
def _select_and_scatter(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = operands[0]
    dilated = any(d.base_dilation > 1 for d in op.instruction.window)
    if source is not None and source.is_spatially_partitioned() and not dilated:
        receiver.improve(source, 0, aggressive=op.aggressive)
