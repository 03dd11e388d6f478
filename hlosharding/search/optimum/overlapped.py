"""Which values are there long before they are needed, or needed long after they are there: what moves of them runs
behind the computation.

Floor: search.  Weights (whatever is made of arguments but the batch by moving elements) may be fetched ahead; gradients
(what reaches results by ops on elements) may be summed up while the backward pass goes on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hlosharding.ir import CONTROL_FLOW, ELEMENTWISE, PACKS, REARRANGES, Instruction, Module
from hlosharding.search.optimum.value_classes import ValueClasses

_MOVES = (ELEMENTWISE | REARRANGES | {"bitcast", "opt-barrier"}) - {"gather"}
_HANDS_ON = PACKS | CONTROL_FLOW
"""Their arrays are those that they are given, or that their computations make."""


@dataclass(frozen=True)
class Overlapped:
    """Numbers of arrays, as `ValueClasses.leaves` has them."""

    early: frozenset[int]
    """Those that can be had before the step begins."""
    late: frozenset[int]
    """Those that only what the step gives back is made of."""

    @classmethod
    def of(cls, module: Module, classes: ValueClasses, batch: Collection[int]) -> Overlapped:
        """Of a step's values; `batch`: numbers of the arguments that are new to each step.

        >>> import hlosharding as hs
        >>> module = hs.load('''HloModule m
        ... ENTRY e {
        ...   w = f32[8,4] parameter(0)
        ...   x = f32[2,8] parameter(1)
        ...   v = f32[8,4] negate(w)
        ...   y = f32[2,4] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ...   ROOT z = f32[2,4] tanh(y)
        ... }''')
        >>> found = Overlapped.of(module, ValueClasses(module), {1})
        >>> sorted(found.early), sorted(found.late)
        ([0, 2], [3, 4])
        """
        fresh = {n for p in module.entry.parameters if p.parameter_number in batch for n in classes.leaves[p]}
        every = {number for leaves in classes.leaves.values() for number in leaves}
        return cls(frozenset(every - _computed(classes, fresh)), frozenset(every - _read_by_more_than_updates(classes)))


def _computed(classes: ValueClasses, fresh: set[int]) -> set[int]:
    """What is computed, and what is made of that, or of the batch."""
    found, before = set(fresh), -1
    while len(found) > before:  # once more for each loop in a loop
        before = len(found)
        for inst in classes.order:
            given = (number for operand in inst.operands for number in classes.leaves[operand])
            is_computed = bool(inst.operands) and not _only_moves(inst)
            if inst.opcode not in _HANDS_ON and (is_computed or any(number in found for number in given)):
                found.update(classes.leaves[inst])
        found.update(carry for made, carry in classes.handed_on if made in found)
    return found


def _read_by_more_than_updates(classes: ValueClasses) -> set[int]:
    """What products read, and whatever else is no movement; and what that is made of."""
    found, before = set[int](), -1
    while len(found) > before:
        before = len(found)
        for inst in reversed(classes.order):
            is_computed = not _only_moves(inst) and inst.shape.size > 1
            if inst.opcode not in _HANDS_ON and (is_computed or any(n in found for n in classes.leaves[inst])):
                found.update(number for operand in inst.operands for number in classes.leaves[operand])
        found.update(made for made, carry in classes.handed_on if carry in found)
    return found


def _only_moves(inst: Instruction) -> bool:
    """Elements, or changes them one by one; so does what reduces dims of size 1, as gradients of broadcasts do."""
    is_reshape = inst.opcode == "reduce" and inst.shape.is_array and inst.shape.size == inst.operands[0].shape.size
    return inst.opcode in _MOVES or is_reshape
