"""Values that are one value: a while and its body, a conditional and its branch roots, a call and its callee's root.

Floor: propagation.  Knows which instructions must agree; nothing of ops inside.
"""

from __future__ import annotations

from hlosharding.propagation.graph import Graph
from hlosharding.propagation.provenance import Trail


def related(graph: Graph, i: int, callers: dict[int, int]) -> list[int]:
    """The instructions that share one sharding with `i` (XLA's GetRelatedInstructions), `i` first."""
    opcode, called = graph.opcode[i], graph.called[i]
    if opcode == "while":
        body, condition = called
        return [i, graph.roots[body], graph.parameters[body][0], graph.parameters[condition][0]]
    if opcode == "conditional":
        return [i, *(graph.roots[c] for c in called)]
    if opcode == "call":
        return [i, graph.roots[called[0]]]
    if opcode == "parameter":
        passed = caller_operand(graph, i, callers)
        return [] if passed is None else [i, passed]
    return []


def caller_operand(graph: Graph, parameter: int, callers: dict[int, int]) -> int | None:
    """What the caller passes for a parameter of a branch or a callee; None for others."""
    computation = graph.computation[parameter]
    caller = callers.get(computation)
    if caller is None:
        return None
    if graph.opcode[caller] == "conditional":
        # The first branch that is this computation decides (operand 0 is the branch index).
        return graph.operands[caller][1 + graph.called[caller].index(computation)]
    if graph.opcode[caller] == "call":
        return graph.operands[caller][graph.instructions[parameter].parameter_number]
    return None


def connect(graph: Graph, trail: Trail) -> dict[int, int]:
    """Give related instructions the first sharding among them; returns {computation: the op that calls it}."""
    callers: dict[int, int] = {}
    for i in graph.control_flow():
        family = related(graph, i, callers)
        first = next((m for m in family if graph.sharding[m] is not None), None)
        for member in family if first is not None else ():
            _copy_sharding(graph, trail, member, first)
        for computation in graph.called[i]:
            callers[computation] = i
    return callers


def _copy_sharding(graph: Graph, trail: Trail, member: int, first: int | None) -> None:
    if first is None or graph.sharding[member] is graph.sharding[first]:
        return
    trail.note(member, -1, "computation", [first], graph.sharding[member], graph.sharding[first])
    graph.sharding[member] = graph.sharding[first]
