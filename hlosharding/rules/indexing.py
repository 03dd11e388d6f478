"""Ops that address elements by index values: gather, scatter, dynamic-slice, dynamic-update-slice.

Floor: rules.  One instruction only: dims that an iota among the indices makes parallel are not seen here.
"""

from __future__ import annotations

from hlosharding.ir import Instruction, reducer_kind
from hlosharding.rules.signature import Debt, Reduce, Signature, SignatureMaker, Whole


def gather(inst: Instruction) -> Signature:
    """Batch dims of the indices and windows that span an operand dim pass to the result; addressed dims are whole."""
    make, dims = SignatureMaker(inst), inst.gather_dims
    operand, indices = inst.operands[0].shape.dims, inst.operands[1].shape.dims
    out_batch = [d for d in range(inst.shape.rank) if d not in dims.offset_dims]
    index_dims = [d for d in range(len(indices)) if d != dims.index_vector_dim]
    of_index = dict(zip(dims.start_indices_batching_dims, dims.operand_batching_dims, strict=True))
    for dim, out in zip(index_dims, out_batch, strict=True):
        shared = [(0, of_index[dim])] if dim in of_index else []
        make.factor(f"b{dim}", indices[dim], [*shared, (1, dim)], [(0, out)])
    gone = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    offsets = iter(dims.offset_dims)
    for dim, size in enumerate(operand):
        out = None if dim in gone else next(offsets)
        slice_size = inst.gather_slice_sizes[dim]
        if out is not None and slice_size == size:
            make.factor(f"o{dim}", size, [(0, dim)], [(0, out)])
        elif dim not in dims.operand_batching_dims:
            make.factor(f"x{dim}", size, [(0, dim)], owes=Whole(indexed=dim in dims.start_index_map))
    return make.build()


def scatter(inst: Instruction) -> Signature:
    """Operands, indices, updates -> results.  Scattered rows combine by the reducer, each operand entering once."""
    make, dims = SignatureMaker(inst), inst.scatter_dims
    count = len(inst.operands) // 2
    operand, indices = inst.operands[0].shape.dims, inst.operands[count].shape.dims
    update = inst.operands[count + 1].shape.dims
    operands, updates = range(count), range(count + 1, 2 * count + 1)
    index_dims = [d for d in range(len(indices)) if d != dims.index_vector_dim]
    update_scatter = [d for d in range(len(update)) if d not in dims.update_window_dims]
    of_index = dict(zip(dims.scatter_indices_batching_dims, dims.input_batching_dims, strict=True))
    owes = _scattered(inst, count)
    for dim, at in zip(index_dims, update_scatter, strict=True):
        places = [(count, dim), *((u, at) for u in updates)]
        if dim in of_index:
            shared = [(i, of_index[dim]) for i in operands]
            make.factor(f"b{dim}", indices[dim], [*shared, *places], [(i, of_index[dim]) for i in operands])
        else:
            make.factor(f"s{dim}", indices[dim], places, owes=owes)
    gone = {*dims.inserted_window_dims, *dims.input_batching_dims}
    windows = iter(dims.update_window_dims)
    for dim, size in enumerate(operand):
        if dim in dims.input_batching_dims:
            continue
        at = None if dim in gone else next(windows)
        both = [(i, dim) for i in operands], [(i, dim) for i in operands]
        if at is not None and update[at] == size:
            make.factor(f"o{dim}", size, [*both[0], *((u, at) for u in updates)], both[1])
        else:
            make.factor(f"x{dim}", size, *both, owes=Whole(indexed=dim in dims.scatter_dims_to_operand_dims))
    return make.build()


def _scattered(inst: Instruction, count: int) -> Debt:
    kind = reducer_kind(inst.called[0])
    # Without an identity the operand cannot stay out of the other pieces; and an assignment depends on order.
    return Whole() if kind in ("assign", "other") else Reduce(kind, once=tuple(range(count)))


def dynamic_slice(inst: Instruction) -> Signature:
    """Dims taken in full pass; of the others a block is addressed by a scalar."""
    make = SignatureMaker(inst)
    for dim, size in enumerate(inst.operands[0].shape.dims):
        taken = inst.shape.dims[dim]
        if taken == size:
            make.factor(f"d{dim}", size, [(0, dim)], [(0, dim)])
        else:
            make.factor(f"x{dim}", size, [(0, dim)], owes=Whole(indexed=True))
    return make.build()


def dynamic_update_slice(inst: Instruction) -> Signature:
    """Operand and result share each dim; the update has those it overwrites in full."""
    make, update = SignatureMaker(inst), inst.operands[1].shape.dims
    for dim, size in enumerate(inst.shape.dims):
        if update[dim] == size:
            make.factor(f"d{dim}", size, [(0, dim), (1, dim)], [(0, dim)])
        else:
            make.factor(f"x{dim}", size, [(0, dim)], [(0, dim)], owes=Whole(indexed=True))
    return make.build()
