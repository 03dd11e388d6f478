"""Ops that fold or order a dim: reduce, sort, topk.

Floor: rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlosharding.errors import RuleError
from hlosharding.ir import Instruction, reducer_kind
from hlosharding.ir import custom_call_targets as targets
from hlosharding.rules.signature import Reduce, Signature, SignatureMaker, Whole, same_dims


def reduce(inst: Instruction) -> Signature:
    """Kept dims pass; reduced ones leave partial results.  An initial value that is no identity enters once."""
    make, count = SignatureMaker(inst), len(inst.operands) // 2
    dims = inst.operands[0].shape.dims
    inits = tuple(range(count, 2 * count))
    owes = Reduce(reducer_kind(inst.called[0]), once=inits)
    kept = [d for d in range(len(dims)) if d not in inst.dimensions]
    for out, dim in enumerate(kept):
        places = [(i, dim) for i in range(count)]
        make.factor(f"d{dim}", dims[dim], places, [(i, out) for i in range(count)])
    for dim in inst.dimensions:
        make.factor(f"r{dim}", dims[dim], [(i, dim) for i in range(count)], owes=owes)
    return make.build()


def sort(inst: Instruction) -> Signature:
    """All operands and results pointwise; the sorted dim whole."""
    return same_dims(inst, whole=inst.dimensions)


@dataclass(frozen=True, slots=True)
class TopK:
    """A choice of the k largest (or smallest) of the last dim, with their places."""

    k: int
    largest: bool


def top_k(inst: Instruction) -> TopK | None:
    """What a `topk` op or JAX's custom call for it chooses; None for any other op."""
    choice = _CHOICES.get((inst.opcode, inst.custom_call_target))
    return None if choice is None else choice(inst)


_CHOICES: dict[tuple[str, str], Callable[[Instruction], TopK]] = {
    ("topk", ""): lambda inst: TopK(inst.proto.k, inst.proto.largest),
    ("custom-call", targets.TOP_K): lambda inst: TopK(inst.shape.leaves[0].dims[-1], largest=True),
}


def topk(inst: Instruction) -> Signature:
    """Values and indices of the last dim's largest: that dim whole, all others pass."""
    make = SignatureMaker(inst)
    shape = inst.operands[0].shape
    if any(leaf.rank != shape.rank for leaf in inst.shape.leaves):
        raise RuleError(f"the largest of {shape} are no {inst.shape}", where=repr(inst))
    leaves = range(len(inst.shape.leaves))
    for dim, size in enumerate(shape.dims[:-1]):
        make.factor(f"d{dim}", size, [(0, dim)], [(i, dim) for i in leaves])
    make.factor("s", shape.dims[-1], [(0, shape.rank - 1)], owes=Whole())
    return make.build()
