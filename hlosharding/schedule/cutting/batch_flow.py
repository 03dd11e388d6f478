"""Where a dim of parameters flows: the batch, sequences, the heads or experts of weights.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from hlosharding.ir import Instruction, Module
from hlosharding.rules import Nothing, Reduce, Signature, signature_of
from hlosharding.schedule.cutting.leaf_walk import LeafWalk

Dims = tuple[int | None, ...]
"""Of each leaf of a value the dim along which what flows lies, or None."""
NOWHERE: Mapping[Instruction, int] = MappingProxyType({})


def find_batch_flow(
    module: Module,
    batch: Mapping[int, int],
    activations: Collection[Instruction] = (),
    sorts: Mapping[Instruction, int] = NOWHERE,
) -> dict[Instruction, Dims]:
    """By instruction, also of computations that others call.  `batch`: of parameters by number, the dim that flows;
    `sorts`: of sorts likewise, where what they give begins to flow, up to products.

    `activations`: of a flow of weights what the batch reaches: of a product of two of these only what both have flows.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { x = f32[8,4] parameter(0)  w = f32[4,2] parameter(1)
    ...   ROOT y = f32[2,8] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={1} }''')
    >>> find_batch_flow(module, {0: 0})[module.by_name("y")]
    (1,)
    """
    flow = _FlowWalk(activations, sorts)
    dims = [(batch.get(p.parameter_number),) * len(p.shape.leaves) for p in module.entry.parameters]
    flow.walk(module.entry, tuple(dims))
    return flow.found


def flowing_dim(value: Instruction, flow: Mapping[Instruction, Dims]) -> int | None:
    """Along which something flows through an array; through what fusions and reducers compute nothing is followed."""
    return flow.get(value, (None,))[0]


class _FlowWalk(LeafWalk[int | None]):
    def __init__(self, activations: Collection[Instruction], sorts: Mapping[Instruction, int]) -> None:
        super().__init__()
        self.activations, self.sorts = activations, sorts

    def merge(self, inst: Instruction, left: int | None, right: int | None) -> int | None:
        """Zeros that a loop starts from have no batch, what its trips make of them has one."""
        return right if left is None else left

    def of_op(self, inst: Instruction, operands: Sequence[Dims]) -> Dims:
        match inst.opcode:
            case "sort" if inst in self.sorts:
                return (self.sorts[inst],) * len(inst.shape.leaves)
            case "dot" if self.sorts or self._ends_at(inst, operands):
                return (None,)
            case "slice" if _drops_one(inst, operands[0][0]):
                return operands[0]
            case _:
                return _dims_behind_op(inst, operands)

    def _ends_at(self, dot: Instruction, operands: Sequence[Dims]) -> bool:
        """Has one activation what flows, and the other one not?"""
        return (None,) in operands and all(operand in self.activations for operand in dot.operands)


def _drops_one(inst: Instruction, dim: int | None) -> bool:
    """Are these the inputs, or the labels, of sequences that are one longer?"""
    return dim is not None and inst.shape.dims[dim] + 1 == inst.operands[0].shape.dims[dim]


def _dims_behind_op(inst: Instruction, operands: Sequence[Dims]) -> Dims:
    """The factor that the batch is in an operand, where it leads the dim, and the dim of the result that it leads."""
    none: Dims = (None,) * len(inst.shape.leaves)
    # Most ops have none, and need not be asked for their signature.
    if operands.count((None,)) == len(operands) or not all(len(dims) == 1 for dims in operands):
        return none
    signature = signature_of(inst)
    if not isinstance(signature, Signature):
        return none
    for number, (dim,) in enumerate(operands):
        leading = signature.operands[number][dim][:1] if dim is not None else ()
        for factor in leading:
            places = {
                leaf: at for leaf, at in signature.result_dims(factor) if signature.results[leaf][at][0] == factor
            }
            if places and isinstance(signature.factors[factor].owes, Nothing | Reduce):
                return tuple(places.get(leaf) for leaf in range(len(none)))
    return none
