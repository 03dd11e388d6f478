"""Ops that rearrange elements, or make them of nothing.

Floor: onnx_ranks.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction, PaddingDim
from hlosharding.onnx_ranks.graph_writer import WRITERS, GraphWriter, Writer

_CALLS: dict[str, Writer] = {
    "bitcast": lambda out, inst, value: out.reshape(value, inst.shape.dims),
    "concatenate": lambda out, inst, *values: out.add("Concat", *values, axis=inst.dimensions[0]),
    "constant": lambda out, inst: out.constant(inst.literal, inst.name),
    "domain": lambda out, inst, value: value,
    "opt-barrier": lambda out, inst, value: value,
    "pad": lambda out, inst, value, filler: pad(out, value, inst.operands[0].shape.dims, inst.padding, filler),
    "partition-id": lambda out, inst: out.constant(np.asarray(out.rank, inst.shape.dtype), inst.name),
    "replica-id": lambda out, inst: out.constant(np.asarray(0, inst.shape.dtype), inst.name),
    "reshape": lambda out, inst, value: out.reshape(value, inst.shape.dims),
    "transpose": lambda out, inst, value: out.transpose(value, inst.dimensions),
}
for _opcode, _write in _CALLS.items():
    WRITERS.add(_opcode, _write)


@WRITERS.register("broadcast")
def _broadcast(out: GraphWriter, inst: Instruction, value: str) -> str:
    dims = [size if d in inst.dimensions else 1 for d, size in enumerate(inst.shape.dims)]
    return out.add("Expand", out.reshape(value, dims), out.integers(inst.shape.dims))


@WRITERS.register("slice")
def _slice(out: GraphWriter, inst: Instruction, value: str) -> str:
    bounds = zip(*((d.start, d.limit, axis, d.stride) for axis, d in enumerate(inst.slice_dims)), strict=True)
    return out.add("Slice", value, *map(out.integers, bounds))


@WRITERS.register("reverse")
def _reverse(out: GraphWriter, inst: Instruction, value: str) -> str:
    for axis in inst.dimensions:
        value = reverse(out, value, axis)
    return value


def reverse(out: GraphWriter, value: str, axis: int) -> str:
    """One dim in the other direction."""
    # An end of -1 would be the last element again; the least number lies in front of the first.
    return out.slice(value, axis, -1, np.iinfo(np.int64).min, -1)


def pad(out: GraphWriter, value: str, dims: tuple[int, ...], padding: tuple[PaddingDim, ...], filler: str) -> str:
    """As HLO pads: between elements, too, and less than nothing at an edge cuts."""
    if any(p.interior_padding for p in padding):
        value, dims = _spread(out, value, dims, [p.interior_padding for p in padding], filler)
    edges = [(p.edge_padding_low, p.edge_padding_high) for p in padding]
    wider = [max(low, 0) for low, _ in edges] + [max(high, 0) for _, high in edges]
    if any(wider):
        value = out.add("Pad", value, out.integers(wider), filler)
    for axis, (low, high) in enumerate(edges):
        if low < 0 or high < 0:
            value = out.slice(value, axis, max(-low, 0), dims[axis] + max(low, 0) + high)
    return value


def _spread(
    out: GraphWriter, value: str, dims: tuple[int, ...], between: list[int], filler: str
) -> tuple[str, tuple[int, ...]]:
    """Each element is followed by others, the last one excepted."""
    # ONNX pads at edges only: each element gets a dim of its own, in which what comes between stands behind it.
    value = out.reshape(value, [n for size in dims for n in (size, 1)])
    behind = [n for more in between for n in (0, more)]
    value = out.add("Pad", value, out.integers([0] * len(behind) + behind), filler)
    value = out.reshape(value, [size * (1 + more) for size, more in zip(dims, between, strict=True)])
    kept = tuple(max(0, size * (1 + more) - more) for size, more in zip(dims, between, strict=True))
    starts, axes = [0] * len(kept), range(len(kept))
    return out.add("Slice", value, *map(out.integers, (starts, kept, tuple(axes)))), kept


@WRITERS.register("iota")
def _iota(out: GraphWriter, inst: Instruction) -> str:
    dims, along = inst.shape.dims, inst.iota_dimension
    line = np.arange(dims[along]).reshape([-1 if d == along else 1 for d in range(len(dims))])
    size = [n if d == along else 1 for d, n in enumerate(dims)]
    made = out.constant(line.astype(inst.shape.dtype).reshape(size), inst.name)
    return made if tuple(size) == dims else out.add("Expand", made, out.integers(dims))
