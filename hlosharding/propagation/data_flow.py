"""Values that are one value: a while and its body, a conditional and its branch roots, a call and its callee's root.

Floor: propagation.  Knows which instructions must agree; nothing of ops inside.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.policy import PASSES_LEAVES
from hlosharding.propagation.provenance import Trail
from hlosharding.sharding import HloSharding


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


# ---- which values feed a value and which take it, leaf by leaf: other elements of a tuple do not matter
#
# Tuples, their elements, loops, branches, calls and barriers pass a leaf on; all other ops make new values of old
# ones.


ValueLeaf = tuple[int, int | None]
"""An instruction by id, and the leaf of its tuple; None: an array, or a tuple as a whole."""


def leaf_sharding(sharding: HloSharding | None, leaf: int | None) -> HloSharding | None:
    """What one leaf has of a tuple's sharding."""
    if sharding is None or leaf is None or not sharding.is_tuple():
        return sharding
    return sharding.leaves[leaf] if leaf < len(sharding.leaves) else None


def leaf_count(graph: PropagationGraph, i: int) -> int | None:
    """How many leaves a tuple has; None for an array."""
    shape = graph.instructions[i].shape
    return len(shape.leaves) if shape.is_tuple else None


def element_base(graph: PropagationGraph, i: int) -> int:
    """Of a get-tuple-element, the first leaf that it takes from its operand."""
    inst = graph.instructions[i]
    return inst.operands[0].shape.first_leaves[inst.tuple_index]


def operand_base(graph: PropagationGraph, i: int, position: int) -> int:
    """Of a tuple, the first leaf that one of its operands becomes."""
    return graph.instructions[i].shape.first_leaves[position]


def holder(graph: PropagationGraph, i: int, leaf: int) -> ValueLeaf:
    """The operand of a tuple that became one of its leaves."""
    first = graph.instructions[i].shape.first_leaves
    # An empty tuple has no leaves, so several operands may begin at one leaf: the last of them is the one that has it.
    position = bisect_right(first, leaf) - 1
    operand = graph.operands[i][position]
    return operand, None if leaf_count(graph, operand) is None else leaf - first[position]


def passes_leaves(graph: PropagationGraph, i: int) -> bool:
    """Does the op hand values on as they are?"""
    return graph.opcode[i] in PASSES_LEAVES


def sources(graph: PropagationGraph, callers: dict[int, int], value: ValueLeaf) -> list[ValueLeaf]:
    """What a value is made of: one per operand of an op that computes."""
    i, leaf = value
    operands, called = graph.operands[i], graph.called[i]
    if graph.is_element(i):
        return [(operands[0], element_base(graph, i) + (leaf or 0))]
    if graph.is_parameter(i):
        return _passed(graph, callers, value)
    if graph.is_loop(i):
        return [(operands[0], leaf), (graph.roots[called[0]], leaf)]
    if graph.opcode[i] in HANDS_OVER:
        return [(graph.roots[c], leaf) for c in called]
    if leaf is None:
        return [(o, None) for o in operands]
    if graph.is_tuple(i):
        return [holder(graph, i, leaf)]
    alike: list[ValueLeaf] = [(o, leaf) for o in operands if leaf_count(graph, o) == leaf_count(graph, i)]
    return alike or [(o, None) for o in (operands[leaf : leaf + 1] or operands)]


def _passed(graph: PropagationGraph, callers: dict[int, int], value: ValueLeaf) -> list[ValueLeaf]:
    i, leaf = value
    caller = callers.get(graph.computation[i])
    if caller is None:
        return []
    if graph.is_loop(caller):
        return [(caller, leaf)]
    passed = caller_operand(graph, i, callers)
    return [] if passed is None else [(passed, leaf)]


def users(graph: PropagationGraph, callers: dict[int, int], value: ValueLeaf) -> list[ValueLeaf]:
    """Who takes a value, and what it is there."""
    i, leaf = value
    found = dict.fromkeys(taken for user in graph.users[i] for taken in _taken(graph, user, value))
    caller = callers.get(graph.computation[i])
    if caller is not None and graph.is_root(i):
        found[caller, leaf] = None
    return list(found)


def _taken(graph: PropagationGraph, user: int, value: ValueLeaf) -> Iterator[ValueLeaf]:
    i, leaf = value
    count = leaf_count(graph, user)
    positions = graph.positions(i, user)
    if graph.is_element(user):
        base, inside = element_base(graph, user), count or 1
        if leaf is not None and base <= leaf < base + inside:
            yield user, None if count is None else leaf - base
    elif graph.is_tuple(user):
        yield from ((user, operand_base(graph, user, n) + (leaf or 0)) for n in positions)
    elif graph.opcode[user] in HANDS_OVER:
        yield from _parameters(graph, user, positions, leaf)
    elif count is None or leaf is not None:
        yield user, leaf if count is not None else None
    else:
        yield from ((user, n) for n in positions if n < count)


def _parameters(graph: PropagationGraph, caller: int, positions: list[int], leaf: int | None) -> Iterator[ValueLeaf]:
    """What a branch or a callee takes the value as."""
    taken = HANDS_OVER[graph.opcode[caller]].parameter
    parameters = (taken(graph, caller, position) for position in positions)
    yield from ((parameter, leaf) for parameter in parameters if parameter is not None)
