"""Which values feed a value and which take it, leaf by leaf: other elements of a tuple do not matter.

Floor: propagation.  Tuples, their elements, loops, branches, calls and barriers pass a leaf on; all other ops make new
values of old ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from hlosharding.propagation import data_flow
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.policy import PASSES_LEAVES
from hlosharding.sharding import HloSharding

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
    if graph.opcode[i] in data_flow.HANDS_OVER:
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
    passed = data_flow.caller_operand(graph, i, callers)
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
    elif graph.opcode[user] in data_flow.HANDS_OVER:
        yield from _parameters(graph, user, positions, leaf)
    elif count is None or leaf is not None:
        yield user, leaf if count is not None else None
    else:
        yield from ((user, n) for n in positions if n < count)


def _parameters(graph: PropagationGraph, caller: int, positions: list[int], leaf: int | None) -> Iterator[ValueLeaf]:
    """What a branch or a callee takes the value as."""
    taken = data_flow.HANDS_OVER[graph.opcode[caller]].parameter
    parameters = (taken(graph, caller, position) for position in positions)
    yield from ((parameter, leaf) for parameter in parameters if parameter is not None)
