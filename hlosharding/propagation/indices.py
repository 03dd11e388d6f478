"""Is an index of a gather or scatter an iota?  Then the dim it addresses moves in step with the indices.

Floor: propagation.  Follows XLA's GetDimensionForIota and GetGatherScatterBatchParallelDims.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import ScatterDims
from hlosharding.propagation.graph import Graph
from hlosharding.propagation.handlers.indexing import output_dims_of
from hlosharding.propagation.op import ParallelDims


def parallel_dims(graph: Graph, i: int, callers: dict[int, int]) -> ParallelDims | None:
    """The implicit parallel dims of gather or scatter `i`, or None."""
    instruction, operands = graph.instructions[i], graph.operands[i]
    if graph.opcode[i] == "gather":
        dims = instruction.gather_dims
        sizes, index_map = instruction.gather_slice_sizes, dims.start_index_map
        batching, offsets = dims.start_indices_batching_dims, dims.offset_dims
        indices = operands[1]
    else:
        dims = instruction.scatter_dims
        operand, update = (graph.instructions[operands[n]].shape.dims for n in (0, len(operands) // 2 + 1))
        sizes, index_map = _slice_sizes(dims, len(operand), update), dims.scatter_dims_to_operand_dims
        batching, offsets = dims.scatter_indices_batching_dims, dims.update_window_dims
        indices = operands[len(operands) // 2]
    indices = _concatenate_behind_copies(graph, indices)
    columns = _iota_columns(graph, indices, dims.index_vector_dim, len(index_map), callers)
    operand_shape, indices_shape = (graph.instructions[n].shape.dims for n in (operands[0], indices))
    found: list[tuple[int, int]] = []
    for indices_dim, operand_dim in zip(columns, index_map, strict=False):
        if indices_dim is None:
            continue
        if any(indices_dim == seen for seen, _ in found):
            return None
        if sizes[operand_dim] != 1 or indices_dim in batching:
            continue
        if operand_shape[operand_dim] != indices_shape[indices_dim]:
            return None
        found.append((indices_dim, operand_dim))
    if not found:
        return None
    along = tuple(d for d, _ in found)
    return ParallelDims(tuple(d for _, d in found), along, output_dims_of(along, dims.index_vector_dim, offsets))


def _slice_sizes(dims: ScatterDims, rank: int, update: tuple[int, ...]) -> tuple[int, ...]:
    """The size of the slice that one index of a scatter updates."""
    window = iter(dims.update_window_dims)
    absent = (*dims.inserted_window_dims, *dims.input_batching_dims)
    return tuple(1 if d in absent else update[next(window)] for d in range(rank))


def _concatenate_behind_copies(graph: Graph, indices: int) -> int:
    behind = indices
    while graph.opcode[behind] == "copy":
        behind = graph.operands[behind][0]
    return behind if graph.opcode[behind] == "concatenate" else indices


def _iota_columns(graph: Graph, indices: int, vector_dim: int, count: int, callers: dict[int, int]) -> list[int | None]:
    """For each component of the index vector: the indices dim along which it counts up, or None."""
    columns: list[int | None] = []
    if graph.opcode[indices] == "concatenate" and graph.instructions[indices].dimensions[0] == vector_dim:
        for piece in graph.operands[indices]:
            columns += _columns_of(graph, piece, vector_dim, callers)
    else:
        columns = _columns_of(graph, indices, vector_dim, callers)
    return (columns + [None] * count)[: max(count, len(columns))]


def _columns_of(graph: Graph, piece: int, vector_dim: int, callers: dict[int, int]) -> list[int | None]:
    shape = graph.instructions[piece].shape
    width = shape.dims[vector_dim] if shape.rank > vector_dim else 1
    dim = _iota_dim(graph, piece, callers)
    return [None if dim == vector_dim else dim] * width


def _iota_dim(graph: Graph, i: int, callers: dict[int, int]) -> int | None:
    """The dim along which `i` counts 0, 1, 2, ...; None if it is no iota."""
    opcode, instruction = graph.opcode[i], graph.instructions[i]
    if opcode == "iota":
        return instruction.iota_dimension
    if instruction.shape.element_type != "s32":
        return None
    if opcode == "constant":
        return _constant_iota(instruction.literal)
    if opcode == "broadcast":
        dim = _iota_dim(graph, graph.operands[i][0], callers)
        return None if dim is None else instruction.dimensions[dim]
    if opcode == "get-tuple-element" and graph.opcode[graph.operands[i][0]] == "parameter":
        passed = _passed_element(graph, i, callers)
        return None if passed is None else _iota_dim(graph, passed, callers)
    return None


def _constant_iota(literal: np.ndarray) -> int | None:
    for dim, size in enumerate(literal.shape):
        along = [1] * literal.ndim
        along[dim] = size
        if size > 1 and bool((literal == np.arange(size).reshape(along)).all()):
            return dim
    return None


def _passed_element(graph: Graph, element: int, callers: dict[int, int]) -> int | None:
    """What a loop or branch is handed at that tuple position, provided that a loop never changes it."""
    computation, index = graph.computation[element], graph.instructions[element].tuple_index
    caller = callers.get(computation)
    if computation == graph.entry or caller is None:
        return None
    if graph.opcode[caller] == "conditional":
        given = graph.operands[caller][1 + graph.called[caller].index(computation)]
        return graph.operands[given][index] if graph.opcode[given] == "tuple" else None
    if graph.opcode[caller] != "while":
        return None
    initial, root = graph.operands[caller][0], graph.roots[computation]
    if graph.opcode[initial] != "tuple" or graph.opcode[root] != "tuple" or graph.operands[root][index] != element:
        return None
    return graph.operands[initial][index]
