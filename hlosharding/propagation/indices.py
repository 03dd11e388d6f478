"""Is an index of a gather or scatter an iota?  Then the dim it addresses moves in step with the indices.

Floor: propagation.  Follows XLA's GetDimensionForIota and GetGatherScatterBatchParallelDims, which recognise less than
`rules.iota_signature`: here they decide which shardings spread, there what is computed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hlosharding.propagation import policy
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.handlers import output_dims_of
from hlosharding.propagation.op_view import ParallelDims
from hlosharding.rules import addressing


def parallel_dims(graph: PropagationGraph, i: int, callers: dict[int, int]) -> ParallelDims | None:
    """The implicit parallel dims of gather or scatter `i`, or None."""
    instruction, operands = graph.instructions[i], graph.operands[i]
    how = addressing(instruction)
    indices = _concatenate_behind_copies(graph, operands[how.indices])
    operand_shape, indices_shape = (graph.instructions[n].shape.dims for n in (operands[0], indices))
    found: list[tuple[int, int]] = []
    for indices_dim, operand_dim in zip(_columns(graph, indices, how.vector_dim, callers), how.addressed, strict=False):
        if indices_dim is None:
            continue
        if any(indices_dim == seen for seen, _ in found):
            return None
        if how.slice_sizes[operand_dim] != 1 or indices_dim in how.batching:
            continue
        if operand_shape[operand_dim] != indices_shape[indices_dim]:
            return None
        found.append((indices_dim, operand_dim))
    if not found:
        return None
    along = tuple(d for d, _ in found)
    return ParallelDims(tuple(d for _, d in found), along, output_dims_of(along, how.vector_dim, how.windows))


def _concatenate_behind_copies(graph: PropagationGraph, indices: int) -> int:
    behind = indices
    while graph.opcode[behind] in policy.COPIES:
        behind = graph.operands[behind][0]
    return behind if graph.opcode[behind] in policy.STACKS else indices


def _columns(graph: PropagationGraph, indices: int, vector_dim: int, callers: dict[int, int]) -> Iterator[int | None]:
    """For each component of the index vector: the indices dim along which it is an iota, or None."""
    joined = graph.opcode[indices] in policy.STACKS and graph.instructions[indices].dimensions[0] == vector_dim
    pieces = graph.operands[indices] if joined else [indices]
    for piece in pieces:
        shape, dim = graph.instructions[piece].shape, _iota_dim(graph, piece, callers)
        width = shape.dims[vector_dim] if shape.rank > vector_dim else 1
        yield from (None if dim == vector_dim else dim,) * width


def _iota_dim(graph: PropagationGraph, i: int, callers: dict[int, int]) -> int | None:
    """The dim along which `i` is 0, 1, 2, ...; None if it is no iota."""
    find = _IOTA_DIM.get(graph.opcode[i])
    return None if find is None else find(graph, i, callers)


def _of_iota(graph: PropagationGraph, i: int, callers: dict[int, int]) -> int | None:
    return graph.instructions[i].iota_dimension


def _of_constant(graph: PropagationGraph, i: int, callers: dict[int, int]) -> int | None:
    return _dim_counted_along(graph.instructions[i].literal) if _may_be_iota(graph, i) else None


def _dim_counted_along(literal: np.ndarray) -> int | None:
    """The dim along which an array is 0, 1, 2, ...

    >>> _dim_counted_along(np.array([[0, 0], [1, 1], [2, 2]]))
    0
    """
    for dim, size in enumerate(map(int, literal.shape)):
        numbers = np.expand_dims(np.arange(size), tuple(range(1, literal.ndim - dim)))
        if size > 1 and np.array_equal(literal, np.broadcast_to(numbers, literal.shape)):
            return dim
    return None


def _of_broadcast(graph: PropagationGraph, i: int, callers: dict[int, int]) -> int | None:
    dim = _iota_dim(graph, graph.operands[i][0], callers) if _may_be_iota(graph, i) else None
    return None if dim is None else graph.instructions[i].dimensions[dim]


def _of_element(graph: PropagationGraph, i: int, callers: dict[int, int]) -> int | None:
    if not (_may_be_iota(graph, i) and graph.is_parameter(graph.operands[i][0])):
        return None
    passed = _passed_element(graph, i, callers)
    return None if passed is None else _iota_dim(graph, passed, callers)


def _may_be_iota(graph: PropagationGraph, i: int) -> bool:
    """XLA looks for an iota behind values of one type only."""
    return graph.instructions[i].shape.element_type == "s32"


_IOTA_DIM: dict[str, Callable[[PropagationGraph, int, dict[int, int]], int | None]] = {
    "iota": _of_iota,
    "constant": _of_constant,
    "broadcast": _of_broadcast,
    "get-tuple-element": _of_element,
}


def _passed_element(graph: PropagationGraph, element: int, callers: dict[int, int]) -> int | None:
    """What a loop or branch is handed at that tuple position, provided that a loop never changes it."""
    computation, index = graph.computation[element], graph.instructions[element].tuple_index
    caller = callers.get(computation)
    if computation == graph.entry or caller is None:
        return None
    if graph.opcode[caller] in policy.BRANCHES:
        given = graph.operands[caller][1 + graph.called[caller].index(computation)]
        return graph.operands[given][index] if graph.is_tuple(given) else None
    if not graph.is_loop(caller):
        return None
    initial, root = graph.operands[caller][0], graph.roots[computation]
    if not (graph.is_tuple(initial) and graph.is_tuple(root)) or graph.operands[root][index] != element:
        return None
    return graph.operands[initial][index]
