"""Values that are one value: a while and its body, a conditional and its branch roots, a call and its callee's root.

Floor: propagation.  Knows which instructions must agree; nothing of ops inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.provenance import Trail


def related_instructions(graph: PropagationGraph, i: int, callers: dict[int, int]) -> list[int]:
    """The instructions that share one sharding with `i` (XLA's GetRelatedInstructions), `i` first."""
    if graph.is_loop(i):
        body, condition = graph.called[i]
        return [i, graph.roots[body], graph.parameters[body][0], graph.parameters[condition][0]]
    if graph.opcode[i] in HANDS_OVER:
        return [i, *(graph.roots[c] for c in graph.called[i])]
    passed = caller_operand(graph, i, callers) if graph.is_parameter(i) else None
    return [] if passed is None else [i, passed]


def caller_operand(graph: PropagationGraph, parameter: int, callers: dict[int, int]) -> int | None:
    """What the caller passes for a parameter of a branch or a callee; None for others."""
    computation = graph.computation[parameter]
    caller = callers.get(computation)
    if caller is None:
        return None
    handed = HANDS_OVER.get(graph.opcode[caller])
    return None if handed is None else handed.operand(graph, caller, computation, parameter)


@dataclass(frozen=True, slots=True)
class HandOver:
    """How an op gives its operands to the computations that it calls."""

    operand: Callable[[PropagationGraph, int, int, int], int]
    """(graph, caller, computation, parameter): the operand that the parameter stands for."""
    parameter: Callable[[PropagationGraph, int, int], int | None]
    """(graph, caller, position of an operand): the parameter that it becomes; None for a branch index."""


def _to_branch(graph: PropagationGraph, caller: int, branch: int, parameter: int) -> int:
    """The first branch that is this computation decides (operand 0 is the branch index)."""
    return graph.operands[caller][1 + graph.called[caller].index(branch)]


def _of_branch(graph: PropagationGraph, caller: int, position: int) -> int | None:
    return graph.parameters[graph.called[caller][position - 1]][0] if position else None


def _to_callee(graph: PropagationGraph, caller: int, callee: int, parameter: int) -> int:
    return graph.operands[caller][graph.instructions[parameter].parameter_number]


def _of_callee(graph: PropagationGraph, caller: int, position: int) -> int:
    return graph.parameters[graph.called[caller][0]][position]


HANDS_OVER: Mapping[str, HandOver] = {
    "conditional": HandOver(_to_branch, _of_branch),
    "call": HandOver(_to_callee, _of_callee),
}


def connect(graph: PropagationGraph, trail: Trail) -> dict[int, int]:
    """Give related instructions the first sharding among them; returns {computation: the op that calls it}."""
    callers: dict[int, int] = {}
    for i in graph.control_flow():
        family = related_instructions(graph, i, callers)
        first = next((m for m in family if graph.sharding[m] is not None), None)
        for member in family if first is not None else ():
            _copy_sharding(graph, trail, member, first)
        for computation in graph.called[i]:
            callers[computation] = i
    return callers


def _copy_sharding(graph: PropagationGraph, trail: Trail, member: int, first: int | None) -> None:
    if first is None or graph.sharding[member] is graph.sharding[first]:
        return
    trail.note(member, -1, "computation", [first], graph.sharding[member], graph.sharding[first])
    graph.sharding[member] = graph.sharding[first]
