"""Which values feed a value and which take it, leaf by leaf: what a tuple's other elements do is another story.

Floor: propagation.  Tuples, their elements, loops, branches, calls and barriers pass a leaf on; all other ops make new
values of old ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.propagation import data_flow
from hlosharding.propagation.graph import Graph
from hlosharding.sharding import HloSharding

Value = tuple[int, int | None]
"""An instruction by id, and the leaf of its tuple; None: an array, or a tuple as a whole."""


def held(sharding: HloSharding | None, leaf: int | None) -> HloSharding | None:
    """What one leaf has of a tuple's sharding."""
    if sharding is None or leaf is None or not sharding.is_tuple():
        return sharding
    return sharding.leaves[leaf] if leaf < len(sharding.leaves) else None


def leaf_count(graph: Graph, i: int) -> int | None:
    """How many leaves a tuple has; None for an array."""
    shape = graph.instructions[i].shape
    return len(shape.leaves) if shape.is_tuple else None


def element_base(graph: Graph, i: int) -> int:
    """Of a get-tuple-element, the first leaf that it takes from its operand."""
    inst = graph.instructions[i]
    return sum(len(shape.leaves) for shape in inst.operands[0].shape.tuple_shapes[: inst.tuple_index])


def operand_base(graph: Graph, i: int, position: int) -> int:
    """Of a tuple, the first leaf that one of its operands becomes."""
    return sum(leaf_count(graph, o) or 1 for o in graph.operands[i][:position])


def holder(graph: Graph, i: int, leaf: int) -> Value:
    """The operand of a tuple that became one of its leaves."""
    for operand in graph.operands[i]:
        count = leaf_count(graph, operand)
        if leaf < (count or 1):
            return operand, None if count is None else leaf
        leaf -= 1 if count is None else count
    raise IndexError(leaf)


def passes_leaves(graph: Graph, i: int) -> bool:
    """Does the op hand values on as they are?"""
    opcode = graph.opcode[i]
    return opcode in ("get-tuple-element", "tuple", "while", "conditional", "call", "opt-barrier", "parameter")


def sources(graph: Graph, callers: dict[int, int], value: Value) -> list[Value]:
    """What a value is made of: one per operand of an op that computes."""
    i, leaf = value
    opcode, operands, called = graph.opcode[i], graph.operands[i], graph.called[i]
    if opcode == "get-tuple-element":
        return [(operands[0], element_base(graph, i) + (leaf or 0))]
    if opcode == "parameter":
        return _passed(graph, callers, value)
    if opcode == "while":
        return [(operands[0], leaf), (graph.roots[called[0]], leaf)]
    if opcode in ("conditional", "call"):
        return [(graph.roots[c], leaf) for c in called]
    if leaf is None:
        return [(o, None) for o in operands]
    if opcode == "tuple":
        return [holder(graph, i, leaf)]
    alike: list[Value] = [(o, leaf) for o in operands if leaf_count(graph, o) == leaf_count(graph, i)]
    return alike or [(o, None) for o in (operands[leaf : leaf + 1] or operands)]


def _passed(graph: Graph, callers: dict[int, int], value: Value) -> list[Value]:
    i, leaf = value
    caller = callers.get(graph.computation[i])
    if caller is None:
        return []
    if graph.opcode[caller] == "while":
        return [(caller, leaf)]
    passed = data_flow.caller_operand(graph, i, callers)
    return [] if passed is None else [(passed, leaf)]


def users(graph: Graph, callers: dict[int, int], value: Value) -> list[Value]:
    """Who takes a value, and what it is there."""
    i, leaf = value
    found = dict.fromkeys(taken for user in graph.users[i] for taken in _taken(graph, user, value))
    caller = callers.get(graph.computation[i])
    if caller is not None and graph.is_root(i):
        found[caller, leaf] = None
    return list(found)


def _taken(graph: Graph, user: int, value: Value) -> Iterator[Value]:
    i, leaf = value
    opcode, count = graph.opcode[user], leaf_count(graph, user)
    positions = [n for n, o in enumerate(graph.operands[user]) if o == i]
    if opcode == "get-tuple-element":
        base, inside = element_base(graph, user), count or 1
        if leaf is not None and base <= leaf < base + inside:
            yield user, None if count is None else leaf - base
    elif opcode == "tuple":
        yield from ((user, operand_base(graph, user, n) + (leaf or 0)) for n in positions)
    elif opcode in ("conditional", "call"):
        yield from _parameters(graph, user, positions, leaf)
    elif count is None or leaf is not None:
        yield user, leaf if count is not None else None
    else:
        yield from ((user, n) for n in positions if n < count)


def _parameters(graph: Graph, caller: int, positions: list[int], leaf: int | None) -> Iterator[Value]:
    """What a branch or a callee takes the value as."""
    called = graph.called[caller]
    for position in positions:
        if graph.opcode[caller] == "call":
            yield graph.parameters[called[0]][position], leaf
        elif position:
            yield graph.parameters[called[position - 1]][0], leaf
