"""What shapes say about an op: the dims (and mostly the type) that its operands and attributes make.

Floor: ir.  One function an opcode or family, as XLA's ShapeInference states it; opcodes without one are XLA's to check
when it parses what we print.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlosharding.ir.attributes import WindowDim
from hlosharding.ir.control_flow import branches, while_parts
from hlosharding.ir.instruction import Instruction
from hlosharding.ir.opcode import ELEMENTWISE
from hlosharding.ir.shape import Shape

Dims = tuple[int, ...]
Law = Callable[[Instruction], "str | None"]
"""What is wrong with an instruction's shape, or None."""

_NEW_TYPE = frozenset({"convert", "compare", "select", "is-finite", "complex", "real", "imag", "abs", "bitcast-convert",
                       "stochastic-convert", "clamp"})  # fmt: skip


def elementwise(inst: Instruction) -> str | None:
    """One shape, but for the element types of some; a scalar may select or bound."""
    shape = inst.shape
    for operand in inst.operands:
        other = operand.shape
        if other is shape:
            continue
        if other.dims != shape.dims and (other.dims or inst.opcode not in ("select", "clamp")):
            return f"operand %{operand.name} is {other}" if inst.opcode != "bitcast-convert" else None
        if other.element_type != shape.element_type and inst.opcode not in _NEW_TYPE:
            return f"operand %{operand.name} is {other}"
    return None


def _makes(rule: Callable[[Instruction], Dims]) -> Law:
    """The law of an op whose (single) result has the dims that `rule` finds."""

    def law(inst: Instruction) -> str | None:
        dims = rule(inst)
        return None if dims == inst.shape.dims else f"the operands make {list(dims)}"

    return law


def _broadcast(inst: Instruction) -> str | None:
    dims, given = inst.operands[0].shape.dims, inst.dimensions
    fits = len(dims) == len(given) and all(
        d < len(inst.shape.dims) and size in (1, inst.shape.dims[d]) for d, size in zip(given, dims, strict=True)
    )
    return None if fits else f"dims {list(dims)} do not broadcast to it by {list(given)}"


def _reshape(inst: Instruction) -> str | None:
    given = inst.operands[0].shape
    return None if given.size == inst.shape.size else f"the operand has {given.size} elements"


def _transpose(inst: Instruction) -> Dims:
    dims = inst.operands[0].shape.dims
    return tuple(dims[d] for d in inst.dimensions)


def _reduce(inst: Instruction) -> str | None:
    dims, gone = inst.operands[0].shape.dims, inst.dimensions
    kept = tuple(size for d, size in enumerate(dims) if d not in gone)
    wrong = any(leaf.dims != kept for leaf in inst.shape.leaves)
    return f"the operands make {list(kept)}" if wrong else None


def _concatenate(inst: Instruction) -> str | None:
    at, dims = inst.dimensions[0], inst.shape.dims
    parts = [o.shape.dims for o in inst.operands]
    if any(p[:at] + p[at + 1 :] != dims[:at] + dims[at + 1 :] for p in parts):
        return "its parts differ in another dim"
    total = sum(p[at] for p in parts)
    return None if total == dims[at] else f"its parts have {total} elements along dim {at}"


def _slice(inst: Instruction) -> str | None:
    given = inst.operands[0].shape.dims
    if any(d.start < 0 or d.limit > size or d.limit < d.start for d, size in zip(inst.slice_dims, given, strict=True)):
        return f"it reaches over the end of {list(given)}"
    dims = tuple(-(-(d.limit - d.start) // d.stride) for d in inst.slice_dims)
    return None if dims == inst.shape.dims else f"the slice makes {list(dims)}"


def _pad(inst: Instruction) -> Dims:
    dims = inst.operands[0].shape.dims
    return tuple(
        max(0, p.edge_padding_low + p.edge_padding_high + size + max(0, size - 1) * p.interior_padding)
        for p, size in zip(inst.padding, dims, strict=True)
    )


def _dynamic_slice(inst: Instruction) -> str | None:
    sizes, given = inst.dynamic_slice_sizes, inst.operands[0].shape.dims
    if sizes != inst.shape.dims or any(n > size for n, size in zip(sizes, given, strict=True)):
        return f"it takes {list(sizes)} of {list(given)}"
    return None


def _dynamic_update_slice(inst: Instruction) -> str | None:
    whole, update = inst.operands[0].shape, inst.operands[1].shape
    if whole.dims != inst.shape.dims or any(n > size for n, size in zip(update.dims, whole.dims, strict=True)):
        return f"{update} is written into {whole}"
    return None


def _dot(inst: Instruction) -> str | None:
    left, right, d = inst.operands[0].shape.dims, inst.operands[1].shape.dims, inst.dot_dims
    pairs = [*zip(d.lhs_contracting, d.rhs_contracting, strict=True), *zip(d.lhs_batch, d.rhs_batch, strict=True)]
    if any(left[a] != right[b] for a, b in pairs):
        return f"contracted or batch dims of {list(left)} and {list(right)} differ"
    dims = tuple(left[a] for a in d.lhs_batch)
    dims += tuple(left[a] for a in d.lhs_free(len(left))) + tuple(right[b] for b in d.rhs_free(len(right)))
    return None if dims == inst.shape.dims else f"the operands make {list(dims)}"


def _taps(size: int, window: WindowDim) -> int:
    """Output positions of a sliding window along a dim."""
    base = (size - 1) * window.base_dilation + 1 if size else 0
    base += window.padding_low + window.padding_high
    wide = (window.size - 1) * window.window_dilation + 1 if window.size else 0
    return 0 if base < wide else (base - wide) // window.stride + 1


def _convolution(inst: Instruction) -> str | None:
    c, (left, right) = inst.conv_dims, (o.shape.dims for o in inst.operands)
    if left[c.input_feature_dimension] != right[c.kernel_input_feature_dimension] * inst.feature_group_count:
        return f"input {list(left)} and kernel {list(right)} differ in features"
    out = list(inst.shape.dims)
    out[c.output_batch_dimension] = left[c.input_batch_dimension] // inst.batch_group_count
    out[c.output_feature_dimension] = right[c.kernel_output_feature_dimension]
    for number, window in enumerate(inst.window):
        if window.size != right[c.kernel_spatial_dimensions[number]]:
            return f"the window has {window.size} taps, the kernel is {list(right)}"
        taps = _taps(left[c.input_spatial_dimensions[number]], window)
        out[c.output_spatial_dimensions[number]] = taps
    return None if tuple(out) == inst.shape.dims else f"the operands make {out}"


def _reduce_window(inst: Instruction) -> str | None:
    given = inst.operands[0].shape.dims
    dims = tuple(_taps(size, w) for size, w in zip(given, inst.window, strict=True))
    return None if all(leaf.dims == dims for leaf in inst.shape.leaves) else f"the windows make {list(dims)}"


def _gather(inst: Instruction) -> Dims:
    d, indices = inst.gather_dims, list(inst.operands[1].shape.dims)
    if d.index_vector_dim < len(indices):
        del indices[d.index_vector_dim]
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    window = iter([n for i, n in enumerate(inst.gather_slice_sizes) if i not in gone])
    batch = iter(indices)
    return tuple(next(window if i in d.offset_dims else batch, -1) for i in range(inst.shape.rank))


def _first(inst: Instruction) -> Dims:
    return inst.operands[0].shape.dims


def _each(inst: Instruction) -> str | None:
    """Every result has the dims of its operand."""
    pairs = zip(inst.shape.leaves, (s for o in inst.operands for s in o.shape.leaves), strict=False)
    return next((f"operand {given} for result {leaf}" for leaf, given in pairs if leaf.dims != given.dims), None)


def _grows(inst: Instruction) -> str | None:
    """all-gather: the tiles of a group, joined.  reduce-scatter: the other way round."""
    groups, at = inst.replica_groups, inst.dimensions[0]
    size = len(groups[0]) if groups else max(1, inst.module.num_partitions)
    for given, made in zip((o.shape for o in inst.operands), inst.shape.leaves, strict=True):
        small, large = (given, made) if inst.opcode == "all-gather" else (made, given)
        if tuple(n * size if d == at else n for d, n in enumerate(small.dims)) != large.dims:
            return f"{given} over groups of {size} makes no {made}"
    return None


def _all_to_all(inst: Instruction) -> str | None:
    if inst.shape.is_tuple:
        return _each(inst)
    given, groups = inst.operands[0].shape, inst.replica_groups
    size = len(groups[0]) if groups else max(1, inst.module.num_partitions)
    if given.dims != inst.shape.dims or given.dims[inst.dimensions[0]] % size:
        return f"{given} is exchanged in {size} parts along dim {inst.dimensions[0]}"
    return None


def _tuple(inst: Instruction) -> str | None:
    shapes = tuple(o.shape for o in inst.operands)
    return None if shapes == inst.shape.tuple_shapes else f"the operands make {Shape.tuple(shapes)}"


def _element(inst: Instruction) -> str | None:
    parts = inst.operands[0].shape.tuple_shapes
    if inst.tuple_index >= len(parts):
        return f"index {inst.tuple_index} of {len(parts)} elements"
    return None if parts[inst.tuple_index] is inst.shape else f"the element is {parts[inst.tuple_index]}"


def _called(inst: Instruction) -> str | None:
    """Arguments fit the parameters, the root is the result."""
    callee = inst.called[0]
    wrong = [(o, p) for o, p in zip(inst.operands, callee.parameters, strict=False) if o.shape is not p.shape]
    if wrong or len(inst.operands) != len(callee.parameters):
        return f"the parameters of %{callee.name} are {', '.join(str(p.shape) for p in callee.parameters)}"
    return None if callee.root.shape is inst.shape else f"%{callee.name} makes {callee.root.shape}"


def _while(inst: Instruction) -> str | None:
    carried, parts = inst.operands[0].shape, while_parts(inst)
    for callee in parts:
        if len(callee.parameters) != 1 or callee.parameters[0].shape is not carried:
            return f"%{callee.name} does not take {carried}"
    for callee, made in zip(parts, (carried, Shape.array("pred")), strict=True):
        if callee.root.shape is not made:
            return f"%{callee.name} makes {callee.root.shape}"
    return None if carried is inst.shape else f"the carry is {carried}"


def _conditional(inst: Instruction) -> str | None:
    for branch, operand in branches(inst):
        if branch.parameters[0].shape is not operand.shape:
            return f"%{branch.name} takes {branch.parameters[0].shape}, not {operand.shape}"
        if branch.root.shape is not inst.shape:
            return f"%{branch.name} makes {branch.root.shape}"
    return None


def _iota(inst: Instruction) -> str | None:
    return None if inst.iota_dimension < max(1, inst.shape.rank) else f"it counts along dim {inst.iota_dimension}"


def _constant(inst: Instruction) -> str | None:
    shape = inst.proto.literal.shape
    if not inst.shape.is_array or tuple(shape.dimensions) == inst.shape.dims or prod(inst.shape.dims) == 0:
        return None
    return f"the literal is {list(shape.dimensions)}"


SHAPE_LAWS: dict[str, Law] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(("sort", "all-reduce", "collective-permute", "collective-broadcast"), _each),
    **dict.fromkeys(("all-gather", "reduce-scatter"), _grows),
    **dict.fromkeys(("reverse", "cholesky"), _makes(_first)),
    "all-to-all": _all_to_all,
    "broadcast": _broadcast,
    "call": _called,
    "concatenate": _concatenate,
    "conditional": _conditional,
    "constant": _constant,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _makes(_gather),
    "get-tuple-element": _element,
    "iota": _iota,
    "pad": _makes(_pad),
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "scatter": _each,
    "slice": _slice,
    "transpose": _makes(_transpose),
    "tuple": _tuple,
    "while": _while,
}
