"""Which values of a stage's forward pass are kept for its backward pass; the others are computed again from those.

Floor: schedule.  A minimum cut: of all sets of values from which the backward pass can be computed without repeating
more than elementwise ops and what only moves elements, the one with the fewest bytes (as PyTorch's AOTAutograd does).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hlosharding.ir import ELEMENTWISE, Instruction
from hlosharding.schedule.cutting.microbatched import reads_of

CHEAP = ELEMENTWISE | set("broadcast concatenate iota pad reshape reverse slice transpose".split())
"""Ops that are computed again rather than kept."""
LIGHT = CHEAP | set("constant dynamic-slice gather parameter reduce".split())
"""Ops that take little more time than reading what they read, once."""
_BEGIN, _END = "begin", "end"


def choose_saved_values(
    own: Collection[Instruction], forward: Collection[Instruction], read: Iterable[Instruction]
) -> frozenset[Instruction]:
    """Of what forward passes make, what a stage keeps for its backward pass.

    `own`: the ops of the stage's forward pass, of all of `forward`; `read`: what its backward pass reads.

    >>> from hlosharding.ir import Builder, DotDims, Shape
    >>> main = Builder("m").computation("main")
    >>> x = main.parameter(0, Shape.array("f32", (4, 4)))
    >>> y = main.op("dot", (x, x), dot_dims=DotDims((1,), (0,)))
    >>> z = main.op("negate", (main.op("tanh", (y,)),))
    >>> own = [y, *z.operands, z]
    >>> [inst.opcode for inst in choose_saved_values(own, own, [y, z])]
    ['dot']
    """
    import networkx as nx

    graph: nx.DiGraph[object] = nx.DiGraph()
    graph.add_nodes_from((_BEGIN, _END))
    waiting = [inst for inst in dict.fromkeys(read) if inst in forward]
    # An edge without capacity is never cut, in networkx.
    graph.add_edges_from(((inst, "out"), _END) for inst in waiting)
    seen = set(waiting)
    while waiting:
        inst = waiting.pop()
        # Not 0, of what has no elements: networkx leaves such edges out, and the value would count as kept.
        graph.add_edge((inst, "in"), (inst, "out"), capacity=max(1, inst.shape.byte_size))
        if inst not in own or inst.opcode not in CHEAP:
            graph.add_edge(_BEGIN, (inst, "in"))
            continue
        before = [operand for operand in reads_of(inst) if operand in forward]
        graph.add_edges_from(((operand, "out"), (inst, "in")) for operand in before)
        waiting += dict.fromkeys(operand for operand in before if operand not in seen)
        seen.update(before)
    _, (reachable, _) = nx.minimum_cut(graph, _BEGIN, _END)
    return frozenset(inst for inst in seen if (inst, "in") in reachable and (inst, "out") not in reachable)
