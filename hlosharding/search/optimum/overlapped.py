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
        import networkx as nx

        fresh = {n for p in module.entry.parameters if p.parameter_number in batch for n in classes.leaves[p]}
        steps = [
            (inst, [number for operand in inst.operands for number in classes.leaves[operand]])
            for inst in classes.order
            if inst.opcode not in _HANDS_ON
        ]
        made_of: nx.DiGraph[int] = nx.DiGraph()
        made_of.add_nodes_from(number for leaves in classes.leaves.values() for number in leaves)
        made_of.add_edges_from((read, made) for inst, given in steps for read in given for made in classes.leaves[inst])
        made_of.add_edges_from(classes.handed_on)
        computing = [(inst, given) for inst, given in steps if inst.operands and not _only_moves(inst)]
        # What is computed, and what is made of that, or of the batch.
        computed = fresh.union(*(classes.leaves[inst] for inst, _ in computing))
        early = set(made_of).difference(*nx.bfs_layers(made_of, computed))
        # What products read, and whatever else is no movement; and what that is made of.
        read_by_more = set[int]().union(*(given for inst, given in computing if inst.shape.size > 1))
        late = set(made_of).difference(*nx.bfs_layers(made_of.reverse(), read_by_more))
        return cls(frozenset(early), frozenset(late))


def _only_moves(inst: Instruction) -> bool:
    """Elements, or changes them one by one; so does what reduces dims of size 1, as gradients of broadcasts do."""
    is_reshape = inst.opcode == "reduce" and inst.shape.is_array and inst.shape.size == inst.operands[0].shape.size
    return inst.opcode in _MOVES or is_reshape
