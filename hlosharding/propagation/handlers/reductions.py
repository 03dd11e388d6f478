"""Ops that mix elements along dims, reduce and sort, and those that slide a window.

Floor: propagation.
"""

from __future__ import annotations

from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings, wants_others
from hlosharding.propagation.improving import Receiver, best_operand, partitioned
from hlosharding.propagation.op_view import Edge, OpView, element_sharding
from hlosharding.sharding import HloSharding, first_target_dim, merge_if_compatible, replicate_all_data_dims


def input_count(op: OpView) -> int:
    """Inputs of a variadic reduction: the first half of its operands."""
    return len(op.operand_shapes) // 2


@FORWARD.register("reduce")
def _reduce(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    for n, source in partitioned(operands[: input_count(op)]):
        if source.is_manual():
            receiver.improve_leaf(source, n, n, aggressive=op.aggressive)
            continue
        split = source.is_tiled() and any(source.num_tiles_along(d) > 1 for d in op.instruction.dimensions)
        # As XLA, which supports a reduction along a split dim in SPMD alone.
        if source.is_replicated() or (split and not op.spmd):
            offered = replicate_all_data_dims(source)
        else:
            offered = op.to_result(source, n)
        # The elements of a variadic reduction are computed together: one sharding for all.
        receiver.improve(op.whole(offered), n, aggressive=op.aggressive)


@wants_others("reduce")
def _other_inputs(op: OpView, positions: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in range(input_count(op)) if n not in positions)


@BACKWARD.register("reduce")
def _reduce_input(edge: Edge, own: object, user: HloSharding, others: Shardings, level: int) -> HloSharding | None:
    if edge.shape.rank == 0:
        return None
    leaf = element_sharding(user, edge.op.shape, edge.position) if edge.op.shape.is_tuple else user
    if leaf.is_manual():
        return None  # a wholly manual user was dealt with before; of a single manual leaf XLA makes nothing
    offered = edge.op.to_operand(leaf, edge.position)
    for other in others:
        if other is not None and not other.is_manual():
            offered = merge_if_compatible(other, offered) or offered
    return offered


@FORWARD.register("sort")
def _sort(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    speaker = best_operand(operands)
    source = None if speaker is None else operands[speaker]
    if speaker is None or source is None or not source.is_spatially_partitioned():
        return
    dim = op.instruction.dimensions[0]
    if not source.is_tile_maximal() and not _sortable(op.operand_shapes[speaker].dims, source, dim):
        return
    receiver.improve(op.whole(source), speaker, aggressive=op.aggressive)


def _sortable(dims: tuple[int, ...], source: HloSharding, dim: int) -> bool:
    """A split sort dim is worth passing on only if the partitioner can move the split elsewhere; manual never is."""
    if not source.is_tiled():
        return False
    if source.tiled_data_rank == len(dims) and source.data_dims[dim] != 1:
        return first_target_dim(dims, source, dim) is not None
    # A scalar's subgroups may have come here through a clamp: XLA then takes them for dims.
    return source.tiles.dims[dim] == 1 if dim < len(source.tiles.dims) else True


@BACKWARD.register("sort", "scan")
def _sort_operand(edge: Edge, own: object, user: HloSharding, others: object, level: int) -> HloSharding | None:
    """The element of the operand's number, a scan's too (which may have fewer)."""
    if not user.is_tuple():
        return user
    is_there = edge.position < len(edge.op.shape.tuple_shapes)
    return element_sharding(user, edge.op.shape, edge.position) if is_there else None


# ---- ops that slide a window: reduce-window and select-and-scatter.  A split passes through, dilated windows refuse


@FORWARD.register("reduce-window")
def _reduce_window(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    if any(d.base_dilation > 1 or d.window_dilation > 1 for d in op.instruction.window):
        return
    for n, source in partitioned(operands[: input_count(op)]):
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
