"""The shape of an op's result, where operands, attributes and callees make it: the law that builds and that checks.

Floor: ir.  One function an opcode or family, as XLA's ShapeInference states it.  A type that does not follow (of
convert; dot and convolution may widen) is taken as the instruction states it.  Ops whose dims are free (parameter,
constant, iota, broadcast, reshape, custom-call, ...) have no row here; `shape_laws` says what must hold of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlosharding.errors import ModuleError
from hlosharding.ir.attributes import WindowDim
from hlosharding.ir.control_flow import branches, while_parts
from hlosharding.ir.graph import Instruction
from hlosharding.ir.group_mode import group_size
from hlosharding.ir.opcode import ELEMENTWISE
from hlosharding.ir.shape import Shape

Dims = tuple[int, ...]
_PRED, _COUNT = Shape.array("pred"), Shape.array("s32")
_PARTS = {"c64": "f32", "c128": "f64"}
_WHOLES = {part: whole for whole, part in _PARTS.items()}
_CHOOSING = frozenset({"select", "clamp"})
"""A scalar may choose, or bound, for all elements."""
_TRUTH = frozenset({"compare", "is-finite"})
_REAL = frozenset({"abs", "imag", "real"})
OF_ANOTHER_TYPE = _TRUTH | _REAL | {"complex"}
"""Elementwise ops whose type is not that of their operands, or not where these are complex."""
_FREE_TYPE = frozenset({"convert", "stochastic-convert"})
_MIXED_TYPES = frozenset({"select", "clamp", "stochastic-convert"})


def infer_shape(instruction: Instruction) -> Shape:
    """The shape that an instruction's operands, attributes and callees make.  Raises ModuleError, saying what clashes.

    >>> from hlosharding.ir import Builder
    >>> main = Builder("m").computation("main")
    >>> x = main.parameter(0, Shape.parse("f32[4,8]"))
    >>> infer_shape(main.add("transpose", x.shape, (x,), dimensions=(1, 0)))
    f32[8,4]
    """
    rule = SHAPE_RULES.get(instruction.opcode)
    if rule is None:
        raise ModuleError(f"the shape of a {instruction.opcode} does not follow", remedy="give it: add(opcode, shape)")
    try:
        return rule(instruction)
    # First, for it is a ValueError as well.
    except ModuleError:
        raise
    except (IndexError, ValueError) as error:
        raise ModuleError("its attributes do not fit its operands") from error


def stated_type(operands: Sequence[Instruction], element_type: str | None = None) -> Shape:
    """What an instruction states before its shape is inferred: a type, where none is given that of operand 0."""
    return Shape.array(element_type or (operands[0].shape.element_type if operands else "f32"))


# Elementwise


def _elementwise(inst: Instruction) -> Shape:
    opcode = inst.opcode
    first = inst.operands[1 if opcode in _CHOOSING else 0]
    shape = first.shape
    if opcode == "select" and inst.operands[0].shape.element_type != "pred":
        raise ModuleError(f"operand %{inst.operands[0].name} is {inst.operands[0].shape}, and select chooses by pred")
    for operand in inst.operands:
        other = operand.shape
        if other is shape:
            continue
        differs = other.element_type != shape.element_type and opcode not in _MIXED_TYPES
        if differs or (other.dims != shape.dims and (other.dims or opcode not in _CHOOSING)):
            raise ModuleError(f"operand %{operand.name} is {other}, operand %{first.name} is {shape}")
    return _typed(inst, opcode, shape)


def _typed(inst: Instruction, opcode: str, shape: Shape) -> Shape:
    if opcode in _TRUTH:
        return shape.with_type("pred")
    if opcode in _FREE_TYPE:
        return shape.with_type(inst.shape.element_type)
    if opcode in _REAL and shape.is_complex:
        return shape.with_type(_PARTS[shape.element_type])
    if opcode == "complex":
        return shape.with_type(_WHOLES.get(shape.element_type, shape.element_type))
    return shape


def _bitcast_convert(inst: Instruction) -> Shape:
    """A wider type takes its parts from the last dim, a narrower one spreads over a new one."""
    given, to = inst.operands[0].shape, inst.shape.element_type
    before, after = (Shape.array(t).bits for t in (given.element_type, to))
    if before == after:
        return given.with_type(to)
    dims = (*given.dims, before // after) if before > after else given.dims[:-1]
    if before < after and given.dims[-1:] != (after // before,):
        raise ModuleError(f"{given} has no last dim of {after // before} parts")
    return Shape.array(to, dims)


# Data movement


def _transpose(inst: Instruction) -> Shape:
    given = inst.operands[0].shape
    return given.with_dims(tuple([given.dims[d] for d in inst.dimensions]))


def _concatenate(inst: Instruction) -> Shape:
    at, first = inst.dimensions[0], inst.operands[0].shape
    parts = [o.shape.dims for o in inst.operands]
    if any(p[:at] + p[at + 1 :] != first.dims[:at] + first.dims[at + 1 :] for p in parts):
        raise ModuleError("its parts differ in another dim")
    return first.with_dim(at, sum(p[at] for p in parts))


def _slice(inst: Instruction) -> Shape:
    given = inst.operands[0].shape
    for d, size in zip(inst.slice_dims, given.dims, strict=True):
        if d.start < 0 or d.limit > size or d.limit < d.start:
            raise ModuleError(f"it reaches over the end of {list(given.dims)}")
    return given.with_dims(tuple([-(-(d.limit - d.start) // d.stride) for d in inst.slice_dims]))


def _pad(inst: Instruction) -> Shape:
    given = inst.operands[0].shape
    return given.with_dims(
        tuple(
            max(0, p.edge_padding_low + p.edge_padding_high + size + max(0, size - 1) * p.interior_padding)
            for p, size in zip(inst.padding, given.dims, strict=True)
        )
    )


def _dynamic_slice(inst: Instruction) -> Shape:
    sizes, given = inst.dynamic_slice_sizes, inst.operands[0].shape
    if any(n > size for n, size in zip(sizes, given.dims, strict=True)):
        raise ModuleError(f"it takes {list(sizes)} of {list(given.dims)}")
    return given.with_dims(sizes)


def _dynamic_update_slice(inst: Instruction) -> Shape:
    whole, update = inst.operands[0].shape, inst.operands[1].shape
    if any(n > size for n, size in zip(update.dims, whole.dims, strict=True)):
        raise ModuleError(f"{update} is written into {whole}")
    return whole


def _gather(inst: Instruction) -> Shape:
    d, indices = inst.gather_dims, list(inst.operands[1].shape.dims)
    if d.index_vector_dim < len(indices):
        del indices[d.index_vector_dim]
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    window = [n for i, n in enumerate(inst.gather_slice_sizes) if i not in gone]
    if len(window) != len(d.offset_dims):
        raise ModuleError(f"{len(window)} dims of its slices go to {len(d.offset_dims)} dims")
    sizes, batch = iter(window), iter(indices)
    dims = tuple([next(sizes if i in d.offset_dims else batch) for i in range(len(window) + len(indices))])
    return inst.operands[0].shape.with_dims(dims)


def _together(shapes: Sequence[Shape]) -> Shape:
    """Of ops that take one array, or several and make a tuple."""
    return shapes[0] if len(shapes) == 1 else Shape.tuple(tuple(shapes))


def _all_operands(inst: Instruction) -> Shape:
    return _together([o.shape for o in inst.operands])


# Reductions, contractions and windows


def _combined(inst: Instruction, dims: Dims) -> Shape:
    """One result for each pair of value and initial value, of the types that the reducer makes."""
    count = len(inst.operands) // 2
    made = inst.called[0].root.shape.leaves if inst.called else tuple(o.shape for o in inst.operands[count:])
    return _together([Shape.array(scalar.element_type, dims) for scalar in made])


def _reduce(inst: Instruction) -> Shape:
    dims, gone = inst.operands[0].shape.dims, inst.dimensions
    return _combined(inst, tuple([size for d, size in enumerate(dims) if d not in gone]))


def _reduce_window(inst: Instruction) -> Shape:
    given = inst.operands[0].shape.dims
    return _combined(inst, tuple([window_count(n, w) for n, w in zip(given, inst.window, strict=True)]))


def window_count(size: int, window: WindowDim) -> int:
    """Places of a sliding window along a dim.

    >>> window_count(8, WindowDim(size=3, stride=2, padding_low=1))
    4
    """
    # As XLA's DilatedBound: of nothing dilation makes nothing.
    base = (size - 1) * window.base_dilation + 1 if size else 0
    base += window.padding_low + window.padding_high
    wide = (window.size - 1) * window.window_dilation + 1 if window.size else 0
    return 0 if base < wide else (base - wide) // window.stride + 1


def _dot(inst: Instruction) -> Shape:
    left, right, d = inst.operands[0].shape.dims, inst.operands[1].shape.dims, inst.dot_dims
    pairs = [*zip(d.lhs_contracting, d.rhs_contracting, strict=True), *zip(d.lhs_batch, d.rhs_batch, strict=True)]
    if any(left[a] != right[b] for a, b in pairs):
        raise ModuleError(f"contracted or batch dims of {list(left)} and {list(right)} differ")
    kept = [left[a] for a in (*d.lhs_batch, *d.lhs_free(len(left)))]
    return Shape.array(inst.shape.element_type, (*kept, *[right[b] for b in d.rhs_free(len(right))]))


def _convolution(inst: Instruction) -> Shape:
    c, (left, right) = inst.conv_dims, (o.shape.dims for o in inst.operands)
    if left[c.input_feature_dimension] != right[c.kernel_input_feature_dimension] * inst.feature_group_count:
        raise ModuleError(f"input {list(left)} and kernel {list(right)} differ in features")
    out = [0] * len(left)
    out[c.output_batch_dimension] = left[c.input_batch_dimension] // inst.batch_group_count
    out[c.output_feature_dimension] = right[c.kernel_output_feature_dimension]
    for number, window in enumerate(inst.window):
        if window.size != right[c.kernel_spatial_dimensions[number]]:
            raise ModuleError(f"the window has {window.size} taps, the kernel is {list(right)}")
        size = left[c.input_spatial_dimensions[number]]
        out[c.output_spatial_dimensions[number]] = window_count(size, window)
    return Shape.array(inst.shape.element_type, tuple(out))


# Collectives


def _all_gather(inst: Instruction) -> Shape:
    at, ways = inst.dimensions[0], group_size(inst)
    return _together([o.shape.with_dim(at, o.shape.dims[at] * ways) for o in inst.operands])


def _reduce_scatter(inst: Instruction) -> Shape:
    at, ways = inst.dimensions[0], group_size(inst)
    return _together([_part(o.shape, at, ways) for o in inst.operands])


def _part(shape: Shape, dim: int, ways: int) -> Shape:
    size = shape.dims[dim]
    if size % ways:
        raise ModuleError(f"{shape} has no {ways} equal parts along dim {dim}")
    return shape.with_dim(dim, size // ways)


def _all_to_all(inst: Instruction) -> Shape:
    if not inst.dimensions:  # one operand for each member
        return Shape.tuple(tuple(o.shape for o in inst.operands))
    given = inst.operands[0].shape
    _part(given, inst.dimensions[0], group_size(inst))
    return given


# Tuples and control flow


def _element(inst: Instruction) -> Shape:
    parts = inst.operands[0].shape.tuple_shapes
    if inst.tuple_index >= len(parts):
        raise ModuleError(f"index {inst.tuple_index} of {len(parts)} elements")
    return parts[inst.tuple_index]


def _call(inst: Instruction) -> Shape:
    callee = inst.called[0]
    taken = [p.shape for p in callee.parameters]
    if [o.shape for o in inst.operands] != taken:
        raise ModuleError(f"the parameters of %{callee.name} are {', '.join(map(str, taken))}")
    return callee.root.shape


def _while(inst: Instruction) -> Shape:
    carried, parts = inst.operands[0].shape, while_parts(inst)
    for callee, made in zip(parts, (carried, _PRED), strict=True):
        if len(callee.parameters) != 1 or callee.parameters[0].shape is not carried:
            raise ModuleError(f"%{callee.name} does not take {carried}")
        if callee.root.shape is not made:
            raise ModuleError(f"%{callee.name} makes {callee.root.shape}")
    return carried


def _conditional(inst: Instruction) -> Shape:
    made = inst.called[0].root.shape
    for branch, operand in branches(inst):
        taken = [p.shape for p in branch.parameters]
        if taken != [operand.shape]:
            raise ModuleError(f"%{branch.name} takes {', '.join(map(str, taken))}, not {operand.shape}")
        if branch.root.shape is not made:
            raise ModuleError(f"%{branch.name} makes {branch.root.shape}")
    return made


_KEEP_THE_FIRST = (
    *("add-dependency", "all-reduce-done", "async-update", "cholesky", "domain", "opt-barrier", "reverse"),
    "select-and-scatter",
)
_ENDS = ("async-done", "all-gather-done", "collective-permute-done")
SHAPE_RULES: dict[str, Callable[[Instruction], Shape]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_KEEP_THE_FIRST, lambda inst: inst.operands[0].shape),
    **dict.fromkeys(("triangular-solve", "ragged-all-to-all"), lambda inst: inst.operands[1].shape),
    **dict.fromkeys(_ENDS, lambda inst: inst.operands[0].shape.tuple_shapes[1]),
    **dict.fromkeys(("after-all", "send-done"), lambda inst: Shape.array("token")),
    **dict.fromkeys(("sort", "all-reduce", "collective-broadcast", "collective-permute"), _all_operands),
    **dict.fromkeys(("partition-id", "replica-id"), lambda inst: Shape.array("u32")),
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "bitcast-convert": _bitcast_convert,
    "call": _call,
    "concatenate": _concatenate,
    "copy-done": lambda inst: inst.operands[0].shape.tuple_shapes[0],
    "conditional": _conditional,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "fusion": lambda inst: inst.called[0].root.shape,
    "gather": _gather,
    "get-dimension-size": lambda inst: _COUNT,
    "get-tuple-element": _element,
    "map": lambda inst: inst.operands[0].shape.with_type(inst.called[0].root.shape.element_type),
    "pad": _pad,
    "reduce": _reduce,
    "reduce-scatter": _reduce_scatter,
    "reduce-window": _reduce_window,
    "scatter": lambda inst: _together([o.shape for o in inst.operands[: (len(inst.operands) - 1) // 2]]),
    "slice": _slice,
    "transpose": _transpose,
    "tuple": lambda inst: Shape.tuple(tuple([o.shape for o in inst.operands])),
    "while": _while,
}
