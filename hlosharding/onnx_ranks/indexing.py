"""Reading and writing at places that are computed.

Floor: onnx_ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlosharding.ir import Instruction, reducer_kind
from hlosharding.onnx_ranks.graph_writer import WRITERS, GraphWriter, no_form

_SCATTER = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "assign": "none"}


@WRITERS.register("dynamic-slice")
def _dynamic_slice(out: GraphWriter, inst: Instruction, value: str, *starts: str) -> str:
    dims, sizes = inst.operands[0].shape.dims, inst.shape.dims
    for axis, start in enumerate(starts):
        if sizes[axis] < dims[axis]:
            value = _part(out, value, axis, *_bounds(out, start, dims[axis], sizes[axis]))
    return value


@WRITERS.register("dynamic-update-slice")
def _dynamic_update_slice(out: GraphWriter, inst: Instruction, value: str, update: str, *starts: str) -> str:
    dims, sizes = inst.operands[0].shape.dims, inst.operands[1].shape.dims
    bounds = [
        (axis, *_bounds(out, start, dims[axis], sizes[axis]))
        for axis, start in enumerate(starts)
        if sizes[axis] < dims[axis]
    ]
    return _written(out, value, update, bounds)


def _written(out: GraphWriter, value: str, update: str, bounds: Sequence[tuple[int, str, str]]) -> str:
    """`value` with `update` in it: along the first dim what is before, the part with the update, what is behind."""
    if not bounds:
        return update
    (axis, start, limit), rest = bounds[0], bounds[1:]
    part = _written(out, _part(out, value, axis, start, limit), update, rest) if rest else update
    before = _part(out, value, axis, out.integers([0]), start)
    behind = _part(out, value, axis, limit, out.integers([np.iinfo(np.int64).max]))
    return out.add("Concat", before, part, behind, axis=axis)


def _part(out: GraphWriter, value: str, axis: int, start: str, limit: str) -> str:
    return out.add("Slice", value, start, limit, out.integers([axis]))


def _bounds(out: GraphWriter, start: str, size: int, taken: int) -> tuple[str, str]:
    """Where a part begins, moved into the dim as HLO moves it, and where it ends."""
    first = _inside(out, out.reshape(out.cast(start, np.int64), [1]), [size - taken])
    return first, out.add("Add", first, out.integers([taken]))


def _inside(out: GraphWriter, numbers: str, last: Sequence[int]) -> str:
    return out.add("Min", out.add("Max", numbers, out.integers([0])), out.integers(last))


@WRITERS.register("gather")
def _gather(out: GraphWriter, inst: Instruction, value: str, indices: str) -> str:
    dims, given, sizes = inst.gather_dims, inst.operands[0].shape.dims, inst.gather_slice_sizes
    gone = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    window = [d for d in range(len(given)) if d not in gone]
    vectors, batch = _vectors(out, inst, indices, dims.index_vector_dim)
    mapped = dims.start_index_map
    starts = _inside(out, vectors, [given[d] - sizes[d] for d in mapped])
    order = _out_order(inst.shape.rank, dims.offset_dims)
    # Whole rows along one dim are what ONNX's Gather takes; all else goes by numbers of single elements.
    if len(mapped) == 1 and gone == set(mapped) and all(sizes[d] == given[d] for d in window):
        [axis] = mapped
        found = out.add("Gather", value, out.reshape(starts, batch), axis=axis)
        count = len(batch)
        moved = [*range(axis, axis + count), *range(axis), *range(axis + count, inst.shape.rank)]
        return out.transpose(found, [moved[k] for k in order])
    pairs = tuple(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True))
    places = _places(
        out, starts, batch, given, mapped, window, [sizes[d] for d in window], pairs, dims.index_vector_dim
    )
    return out.transpose(out.add("Gather", out.reshape(value, [-1]), places), order)


def _out_order(rank: int, offset_dims: Sequence[int]) -> list[int]:
    """Dims of the result among (batch, window)."""
    batch = [d for d in range(rank) if d not in offset_dims]
    made = [*batch, *offset_dims]
    return [made.index(d) for d in range(rank)]


def _vectors(out: GraphWriter, inst: Instruction, indices: str, vector_dim: int) -> tuple[str, tuple[int, ...]]:
    """The indices as 64-bit vectors in the last dim, and the dims before it."""
    dims = inst.operands[-1 if inst.opcode == "gather" else 1].shape.dims
    batch = tuple(n for d, n in enumerate(dims) if d != vector_dim)
    numbers = out.cast(indices, np.int64)
    if vector_dim == len(dims):
        return out.reshape(numbers, (*batch, 1)), batch
    return out.transpose(numbers, [*(d for d in range(len(dims)) if d != vector_dim), vector_dim]), batch


def _places(
    out: GraphWriter, starts: str, batch: Sequence[int], given: Sequence[int], mapped: Sequence[int],
    window: Sequence[int], sizes: Sequence[int], batching: Sequence[tuple[int, int]], vector_dim: int,
) -> str:  # fmt: skip
    """Of each element of (batch, window) its number among the elements of the array."""
    strides = np.cumprod([1, *given[:0:-1]], dtype=np.int64)[::-1]
    first = out.reduce("add", out.add("Mul", starts, out.integers([int(strides[d]) for d in mapped])), [-1])
    first = out.reshape(first, (*batch, *[1] * len(window)))
    steps = [(len(batch) + k, n, strides[d]) for k, (d, n) in enumerate(zip(window, sizes, strict=True))]
    # Dims of the batch are counted without the one that holds the vectors.
    steps += [(k := j - (j > vector_dim), batch[k], strides[d]) for d, j in batching]
    rank = len(batch) + len(window)
    for at, size, stride in steps:
        line = np.arange(size, dtype=np.int64) * stride
        first = out.add("Add", first, out.constant(line.reshape([-1 if d == at else 1 for d in range(rank)])))
    return first


@WRITERS.register("scatter")
def _scatter(out: GraphWriter, inst: Instruction, value: str, indices: str, *updates: str) -> str:
    kind = reducer_kind(inst.called[0])
    if len(updates) != 1 or kind not in _SCATTER:
        raise no_form(inst, f"a scatter of {len(updates)} arrays by {kind!r}")
    update = updates[0]
    dims, given, written = inst.scatter_dims, inst.shape.dims, inst.operands[2].shape
    gone = {*dims.inserted_window_dims, *dims.input_batching_dims}
    window = [d for d in range(len(given)) if d not in gone]
    sizes = dict(zip(window, (written.dims[d] for d in dims.update_window_dims), strict=True))
    starts, batch = _vectors(out, inst, indices, dims.index_vector_dim)
    mapped = dims.scatter_dims_to_operand_dims
    pairs = tuple(zip(dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True))
    last = [given[d] - sizes.get(d, 1) for d in mapped]
    places = _places(out, starts, batch, given, mapped, window, list(sizes.values()), pairs, dims.index_vector_dim)
    fits = out.reshape(_fits(out, starts, last), (*batch, *[1] * len(window)))
    # What does not fit is written to one element more, behind the array, and cut off.
    places = out.add("Where", fits, places, out.integers([inst.shape.size]))
    order = [d for d in range(written.rank) if d not in dims.update_window_dims] + list(dims.update_window_dims)
    flat = out.reshape(out.transpose(update, order), [-1])
    room = out.add("Concat", out.reshape(value, [-1]), out.constant(np.zeros(1, inst.shape.dtype)), axis=0)
    made = out.add("ScatterElements", room, out.reshape(places, [-1]), flat, axis=0, reduction=_SCATTER[kind])
    return out.reshape(out.slice(made, 0, 0, inst.shape.size), given)


def _fits(out: GraphWriter, starts: str, last: Sequence[int]) -> str:
    """Is each vector inside?  HLO writes nothing of an update that reaches over the edge."""
    same = out.add("Equal", starts, _inside(out, starts, last))
    return out.cast(out.reduce("minimum", out.cast(same, np.int64), [-1]), np.bool_)
