"""Ops with a meaning of their own along some dims: linear algebra, fft, random bits, batch norm, collectives.

Floor: rules.
"""

from __future__ import annotations

from hlosharding.ir import Instruction
from hlosharding.rules.signature import Nothing, Signature, SignatureMaker, Whole, same_dims


def cholesky(inst: Instruction) -> Signature:
    """The last two dims are one matrix."""
    rank = inst.shape.rank
    return same_dims(inst, whole=(rank - 2, rank - 1))


def triangular_solve(inst: Instruction) -> Signature:
    """One matrix per batch; right-hand sides are independent of each other."""
    make, rank = SignatureMaker(inst), inst.shape.rank
    left = bool(inst.proto.triangular_solve_options.left_side)
    solved, free = (rank - 2, rank - 1) if left else (rank - 1, rank - 2)
    for dim, size in enumerate(inst.shape.dims[:-2]):
        make.factor(f"b{dim}", size, [(0, dim), (1, dim)], [(0, dim)])
    make.factor("n", inst.shape.dims[free], [(1, free)], [(0, free)])
    make.factor("s", inst.shape.dims[solved], [(1, solved)], [(0, solved)], owes=Whole())
    return make.build()


def fft(inst: Instruction) -> Signature:
    """The transformed (last) dims are whole; a real transform changes the last one's size."""
    make = SignatureMaker(inst)
    before, after = inst.operands[0].shape.dims, inst.shape.dims
    first = len(after) - len(inst.fft_length)
    for dim, size in enumerate(after):
        if before[dim] == size:
            make.factor(f"d{dim}", size, [(0, dim)], [(0, dim)], owes=Whole() if dim >= first else Nothing())
    return make.build()


def random_bits(inst: Instruction) -> Signature:
    """Bits follow from the state and the place in the whole result: state in, state out, all whole."""
    make = SignatureMaker(inst)
    for leaf, shape in enumerate(inst.shape.leaves):
        for dim, size in enumerate(shape.dims):
            make.factor(f"r{leaf}d{dim}", size, (), [(leaf, dim)], owes=Whole(), spreads=False)
    return make.build()


def batch_norm(inst: Instruction) -> Signature:
    """Features pass; statistics are over all other dims, except in inference, where they are given."""
    make, shape = SignatureMaker(inst), inst.operands[0].shape
    given = inst.opcode == "batch-norm-inference"
    feature = int(inst.proto.feature_index)
    leaves = inst.shape.leaves
    for dim, size in enumerate(shape.dims):
        at = [(i, dim) for i, o in enumerate(inst.operands) if o.shape.rank == shape.rank]
        out = [(i, dim) for i, leaf in enumerate(leaves) if leaf.rank == shape.rank]
        if dim == feature and shape.rank > 1:
            at += [(i, 0) for i, o in enumerate(inst.operands) if o.shape.rank == 1]
            out += [(i, 0) for i, leaf in enumerate(leaves) if leaf.rank == 1]
        owes = Nothing() if given or dim == feature else Whole()
        make.factor(f"d{dim}", size, at, out, owes=owes)
    return make.build()


def resizing(inst: Instruction) -> Signature:
    """Collectives that resize a dim (all-gather, reduce-scatter): that dim whole, others pass."""
    return same_dims(inst, whole=inst.dimensions)


def all_to_all(inst: Instruction) -> Signature:
    """The exchanged dim whole, others pass.  (Its form with a tuple of operands exchanges whole operands.)"""
    if inst.shape.is_tuple:
        return same_dims(inst)
    before, after = inst.operands[0].shape.dims, inst.shape.dims
    resized = [d for d, size in enumerate(after) if before[d] != size]
    return same_dims(inst, whole=(*inst.dimensions, *resized))


def get_dimension_size(inst: Instruction) -> Signature:
    """A scalar that depends on no element."""
    return SignatureMaker(inst).build()
