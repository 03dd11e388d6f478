"""What one local op computes and moves: FLOPs exact where dims say so, bytes as a good kernel would touch them.

Floor: cost.  Knows shapes and attributes; no machine, no shardings.  Counts follow XLA's HloCostAnalysis (a fused
multiply-add is two FLOPs, an elementwise op one an element, transcendentals apart) except where that is wrong by
design: a loop's body is priced by its caller, a sort along one dim compares log2 of that dim, a running sum is no
quadratic reduction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from math import ceil, inf, log2, prod
from numbers import Real
from typing import NamedTuple

from hlosharding.errors import CostError
from hlosharding.ir import (
    CONTROL_FLOW,
    ELEMENTWISE,
    TRANSCENDENTAL,
    Computation,
    FusedAttention,
    Instruction,
    Shape,
    WindowDim,
    fused_attention,
)
from hlosharding.ir import custom_call_targets as targets
from hlosharding.registry import Registry
from hlosharding.rules import EstimatedCost, registered_name, users_calls
from hlosharding.spmd import device_groups, devices_of

FREE = frozenset(
    "add-dependency after-all all-gather-done all-reduce-done async-done async-update bitcast"
    " collective-permute-done constant copy-done domain get-dimension-size get-tuple-element opaque"
    " opt-barrier parameter partition-id replica-id reshape tuple".split()
)
"""Ops that compute nothing and touch no data: names, pointers, and reshapes, which layout assignment makes bitcasts."""
PART_READERS = frozenset({"dynamic-slice", "gather", "slice"})
"""Ops that read as much of their first operand as they make."""
CONTROL = CONTROL_FLOW | {"async-start"}
"""Ops whose computations run as programs of their own, and are counted there."""
_ARITHMETIC = ELEMENTWISE - {"bitcast-convert", "copy"}


class OpWork(NamedTuple):
    """Work of one execution of an op on one device."""

    flops: float
    """Arithmetic operations, transcendentals apart."""
    transcendentals: float
    """Exponentials, roots, sines, ...: one each, whatever they expand to."""
    bytes: float
    """Bytes read and written."""
    matrix: tuple[int, int, int, int] | None = None
    """Of a matrix product: batches, rows, columns, depth; it runs on the matrix unit."""
    dtype: str = "f32"
    """Element type that decides the rate."""
    is_backward: bool = False
    """Is it flash attention's gradients?"""


NOTHING = OpWork(0.0, 0.0, 0.0)
_ONE_STEP = OpWork(1.0, 0.0, 0.0)

SPECIAL: Registry[str, Callable[[Instruction], OpWork]] = Registry("op costs")


def op_work(op: Instruction) -> OpWork:
    """Work of an op by itself; a fusion's and a reducer's computations are included, loop bodies and branches not.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (8, 4)))
    >>> op_work(main.add("add", x.shape, (x, x))).flops, op_work(main.add("tanh", x.shape, (x,)))[:2]
    (32.0, (0.0, 32.0))
    """
    opcode = op.opcode
    if opcode in _ARITHMETIC:
        size = float(op.shape.size)
        flops, transcendentals = (0.0, size) if opcode in TRANSCENDENTAL else (size, 0.0)
        return _arithmetic(flops, transcendentals, traffic_bytes(op), op.shape.element_type)
    if opcode in FREE or opcode in CONTROL:
        return NOTHING
    special = SPECIAL.get(opcode)
    return OpWork(0.0, 0.0, traffic_bytes(op)) if special is None else special(op)


@lru_cache(maxsize=65536)
def _arithmetic(flops: float, transcendentals: float, nbytes: float, dtype: str) -> OpWork:
    # Remembered: most ops of a program are of these, and few of them differ.
    return OpWork(flops, transcendentals, nbytes, None, dtype)


def traffic_bytes(op: Instruction) -> float:
    """Bytes of all operands and the result, each once."""
    total = op.shape.byte_size
    for operand in op.operands:
        total += operand.shape.byte_size
    return float(total)


# ---------------------------------------------------------------------------------------------------------------------
# Contractions


@SPECIAL.register("dot")
def _dot(op: Instruction) -> OpWork:
    dims, lhs, rhs = op.dot_dims, op.operands[0].shape, op.operands[1].shape
    batch, rows, depth, columns = matrix_sizes(
        lhs.dims, rhs.dims, (dims.lhs_contracting, dims.rhs_contracting, dims.lhs_batch, dims.rhs_batch)
    )
    return _product(op, batch, rows, columns, depth)


@lru_cache(maxsize=65536)
def matrix_sizes(
    lhs: tuple[int, ...], rhs: tuple[int, ...], dims: tuple[tuple[int, ...], ...]
) -> tuple[int, int, int, int]:
    """(batches, rows, depth, columns) of a dot; `dims`: lhs and rhs contracting, lhs and rhs batch.

    >>> matrix_sizes((5, 8, 4), (5, 4, 2), ((2,), (1,), (0,), (0,)))
    (5, 8, 4, 2)
    """
    lhs_contracting, rhs_contracting, lhs_batch, rhs_batch = dims
    depth, batch = prod(lhs[d] for d in lhs_contracting), prod(lhs[d] for d in lhs_batch)
    rows = prod(n for d, n in enumerate(lhs) if d not in lhs_contracting and d not in lhs_batch)
    columns = prod(n for d, n in enumerate(rhs) if d not in rhs_contracting and d not in rhs_batch)
    return batch, rows, depth, columns


def _product(op: Instruction, batch: int, rows: int, columns: int, depth: int) -> OpWork:
    flops = 2.0 * batch * rows * columns * depth
    dtype = op.operands[0].shape.element_type
    if op.operands[0].shape.is_complex:
        flops *= 4  # four real products
    return OpWork(flops, 0.0, traffic_bytes(op), (batch, rows, columns, depth), dtype)


@SPECIAL.register("ragged-dot")
def _ragged_dot(op: Instruction) -> OpWork:
    dims, ragged, _ = op.ragged_dims
    depth = prod(op.operands[0].shape.dims[d] for d in dims.lhs_contracting)
    # With a contracted ragged dim the result's first counts groups, each of which sums its own part of it only.
    made = op.shape.dims[1:] if set(ragged) <= set(dims.lhs_contracting) else op.shape.dims
    return _product(op, 1, prod(made[:-1]), prod(made[-1:]), depth)


@SPECIAL.register("convolution")
def _convolution(op: Instruction) -> OpWork:
    lhs, out, dims = op.operands[0].shape.dims, _first(op.shape).dims, op.conv_dims
    positions = prod(
        valid_positions(lhs[i], out[o], window)
        for i, o, window in zip(dims.input_spatial_dimensions, dims.output_spatial_dimensions, op.window, strict=True)
    )
    features = lhs[dims.input_feature_dimension] // op.feature_group_count
    columns = out[dims.output_feature_dimension]
    batch = lhs[dims.input_batch_dimension] // op.batch_group_count
    rows, depth = max(1, prod(out) // max(1, columns)), features * prod(w.size for w in op.window)
    flops = 2.0 * features * columns * batch * positions * (4 if op.operands[0].shape.is_complex else 1)
    return _product(op, 1, rows, columns, depth)._replace(flops=flops)


@lru_cache(maxsize=65536)
def valid_positions(size: int, out: int, window: WindowDim) -> int:
    """Pairs of (window element, output) along one dim that read a real element, neither padding nor a hole.

    >>> valid_positions(4, 4, WindowDim(size=3, padding_low=1, padding_high=1))
    10
    """
    total = 0
    for k in range(window.size):
        low = k * window.window_dilation - window.padding_low
        if window.base_dilation == 1:
            # Outputs o with 0 <= o * stride + low < size.
            first = max(0, -(low // window.stride))
            last = min(out, -((low - size) // window.stride))
            total += max(0, last - first)
        else:
            places = (o * window.stride + low for o in range(out))
            total += sum(0 <= p <= (size - 1) * window.base_dilation and p % window.base_dilation == 0 for p in places)
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Reductions: an applied computation times how often it is applied


def _work_applied(op: Instruction, index: int, times: float, *, bytes: float | None = None) -> OpWork:
    inside = _work_inside(op.called[index]) if index < len(op.called) else _ONE_STEP
    moved = traffic_bytes(op) if bytes is None else bytes
    flops, transcendentals = inside.flops * times, inside.transcendentals * times
    return OpWork(flops, transcendentals, moved, None, _first(op.shape).element_type)


_known: ContextVar[dict[Computation, OpWork] | None] = ContextVar("work inside computations", default=None)


def _work_inside(computation: Computation) -> OpWork:
    """Work of an applied computation (a reducer, a fusion), its last product's sizes and element type; no bytes.

    Each is looked at once for each op that is asked about: where one applies the next twice, and so on, twice as many
    ways lead to each further one.
    """
    known = _known.get()
    if known is None:
        token = _known.set({})
        try:
            return _work_inside(computation)
        finally:
            _known.reset(token)
    if computation not in known:
        known[computation] = _add_up(computation)
    return known[computation]


def _add_up(computation: Computation) -> OpWork:
    found = NOTHING
    for op in computation.instructions:
        if op.opcode in FREE:
            continue
        work = op_work(op)
        product = found if work.matrix is None else work
        flops, transcendentals = found.flops + work.flops, found.transcendentals + work.transcendentals
        found = OpWork(flops, transcendentals, 0.0, product.matrix, product.dtype)
    return found


def _first(shape: Shape) -> Shape:
    return shape.leaves[0] if shape.is_tuple and shape.leaves else shape


@SPECIAL.register("reduce")
def _reduce(op: Instruction) -> OpWork:
    # Of no elements the initial value alone is left.
    return _work_applied(op, 0, max(0, op.operands[0].shape.size - _first(op.shape).size))


@SPECIAL.register("map")
def _map(op: Instruction) -> OpWork:
    return _work_applied(op, 0, op.shape.size)


@SPECIAL.register("reduce-window")
def _reduce_window(op: Instruction) -> OpWork:
    source, out = op.operands[0].shape, _first(op.shape)
    if any(w.is_running(n) for w, n in zip(op.window, source.dims, strict=True)):
        return _work_applied(op, 0, out.size)
    pairs = prod(valid_positions(n, o, w) for n, o, w in zip(source.dims, out.dims, op.window, strict=True))
    return _work_applied(op, 0, max(0, pairs - out.size))


@SPECIAL.register("select-and-scatter")
def _select_and_scatter(op: Instruction) -> OpWork:
    source = op.operands[1].shape.size
    select = _work_applied(op, 0, source * (prod(w.size for w in op.window) - 1))
    scatter = _work_applied(op, 1, source)
    return select._replace(flops=select.flops + scatter.flops)


@SPECIAL.register("sort")
def _sort(op: Instruction) -> OpWork:
    steps = ceil(log2(max(2, _sorted_length(op))))
    return _work_applied(op, 0, op.operands[0].shape.size * steps, bytes=traffic_bytes(op) * memory_passes(op))


def _sorted_length(op: Instruction) -> int:
    shape = op.operands[0].shape
    return shape.dims[op.dimensions[0]] if op.dimensions else shape.size


_STAGES_A_PASS, _MOST_OF_A_LINE = 2.6, 20.0
"""Of a bitonic sort on an H200, in rows of 64 to 65,536 numbers (f32; within 0.7 to 1.2), and passes of the radix sort
that XLA has for a single line (16 M numbers: 18)."""


def memory_passes(op: Instruction) -> float:
    """How often what an op reads and makes goes through memory: once, of a sort for some stages of it each.

    >>> import hlosharding as hs
    >>> text = '''HloModule m
    ... less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT l = pred[] compare(a, b), direction=LT }
    ... ENTRY e { x = f32[8,4096] parameter(0)  ROOT s = f32[8,4096] sort(x), dimensions={1}, to_apply=less }'''
    >>> memory_passes(hs.load(text).by_name("s"))
    30.0
    """
    if op.opcode != "sort":
        return 1.0
    length = _sorted_length(op)
    steps = ceil(log2(max(2, length)))
    passes = max(1.0, steps * (steps + 1) / 2 / _STAGES_A_PASS)
    return min(passes, _MOST_OF_A_LINE) if op.operands[0].shape.size == length else passes


@SPECIAL.register("topk")
def _topk(op: Instruction) -> OpWork:
    return OpWork(float(op.operands[0].shape.size), 0.0, traffic_bytes(op), None, op.operands[0].shape.element_type)


@SPECIAL.register("all-reduce", "all-reduce-start", "reduce-scatter")
def _reducing_collective(op: Instruction) -> OpWork:
    # (g - 1) / g of the buffer is combined on each device, by ring as by halving.  Traffic is the collective's price.
    size = max(map(len, device_groups(op, devices_of(op.module, (op,)))))
    elements = sum(o.shape.size for o in op.operands)
    return _work_applied(op, 0, elements * (size - 1) / size, bytes=0.0)


@SPECIAL.register(
    "all-gather", "all-gather-start", "all-to-all", "collective-broadcast", "collective-permute",
    "collective-permute-start", "infeed", "outfeed", "ragged-all-to-all", "recv-done", "send-done",
    "set-dimension-size",
)  # fmt: skip
def _no_local_work(op: Instruction) -> OpWork:
    return NOTHING


# ---------------------------------------------------------------------------------------------------------------------
# Indexing: what is moved, not what is pointed into


@SPECIAL.register(*PART_READERS)
def _reading_part(op: Instruction) -> OpWork:
    return OpWork(0.0, 0.0, 2.0 * op.shape.byte_size + sum(o.shape.byte_size for o in op.operands[1:]))


@SPECIAL.register("copy-start")
def _copying(op: Instruction) -> OpWork:
    # What it makes names its operand, too.
    return OpWork(0.0, 0.0, 2.0 * op.operands[0].shape.byte_size)


@SPECIAL.register("dynamic-update-slice")
def _writing_part(op: Instruction) -> OpWork:
    # In place: the rest of the operand is not touched.
    return OpWork(0.0, 0.0, 2.0 * op.operands[1].shape.byte_size)


@SPECIAL.register("scatter")
def _scatter(op: Instruction) -> OpWork:
    arrays = (len(op.operands) - 1) // 2
    indices, updates = op.operands[arrays], op.operands[arrays + 1 :]
    # Updates are read, their targets read and written.
    moved = 3.0 * sum(u.shape.byte_size for u in updates) + indices.shape.byte_size
    return _work_applied(op, 0, updates[0].shape.size, bytes=moved)


# ---------------------------------------------------------------------------------------------------------------------
# Linear algebra, transforms, random numbers


@SPECIAL.register("fft")
def _fft(op: Instruction) -> OpWork:
    # 5 N log2 N real operations for a complex transform (Cooley and Tukey), half of that where one side is real.
    real = op.fft_type in ("RFFT", "IRFFT")
    points = (op.operands[0] if op.fft_type == "RFFT" else op).shape.size
    return OpWork((2.5 if real else 5.0) * points * sum(log2(max(1, n)) for n in op.fft_length), 0.0, traffic_bytes(op))


@SPECIAL.register("cholesky")
def _cholesky(op: Instruction) -> OpWork:
    return OpWork(op.shape.size * op.shape.dims[-1] / 3, 0.0, traffic_bytes(op), None, op.shape.element_type)


@SPECIAL.register("triangular-solve")
def _triangular_solve(op: Instruction) -> OpWork:
    return OpWork(
        float(op.shape.size * op.operands[0].shape.dims[-1]), 0.0, traffic_bytes(op), None, op.shape.element_type
    )


@SPECIAL.register("rng", "rng-bit-generator", "rng-get-and-update-state")
def _random(op: Instruction) -> OpWork:
    # As XLA: a random number is as dear as a transcendental function.
    return OpWork(0.0, float(op.shape.size), float(op.shape.byte_size), None, "u32")


@SPECIAL.register("batch-norm-inference", "batch-norm-training", "batch-norm-grad")
def _batch_norm(op: Instruction) -> OpWork:
    # Mean, variance, scale and shift: some eight operations an element, twice that backward.
    each = 16.0 if op.opcode.endswith("grad") else 8.0
    return OpWork(each * op.operands[0].shape.size, 0.0, traffic_bytes(op), None, op.operands[0].shape.element_type)


@SPECIAL.register("custom-call")
def _custom_call(op: Instruction) -> OpWork:
    target = op.custom_call_target
    said = users_calls.get(registered_name(op))
    if said is not None and said.cost is not None:
        return _said_cost(op, said.cost(op))
    # What bears such a name and is no such product moves its bytes.
    with suppress(LookupError, ValueError):
        if "gemm" in target or "matmul" in target:
            return _library_product(op)
        if target.startswith("__cudnn$conv") and op.window and target.endswith("Forward"):
            return _convolution(op)
    found = fused_attention(op)
    if found is not None:
        return _fused_attention(op, found)
    if target in targets.ANNOTATIONS:
        return NOTHING
    return OpWork(0.0, 0.0, traffic_bytes(op))


_FILLS_ANY_DEVICE = (1, 1 << 20, 1 << 20, 1 << 20)
"""A product of which no device has an empty tile or wave: a user who says FLOPs says no sizes."""


def _said_cost(op: Instruction, found: EstimatedCost) -> OpWork:
    """What a user's function says.  Raises CostError where that is no cost."""
    figures = (getattr(found, name, None) for name in ("flops", "transcendentals", "bytes_accessed"))
    if not all(isinstance(figure, Real) and 0.0 <= float(figure) < inf for figure in figures):
        raise CostError(
            f"the cost of custom call {op.custom_call_target!r} is {found!r}",
            where=" ".join(filter(None, (f"%{op.name}", op.location))),
            remedy="let it be a hlosharding.CallCost whose figures are finite, and none negative",
        )
    leaves = (leaf for one in (*op.operands, op) for leaf in one.shape.leaves)
    dtype = next((leaf.element_type for leaf in leaves if leaf.is_floating), "f32")
    sizes = getattr(found, "matrix", None) or _FILLS_ANY_DEVICE
    return OpWork(float(found.flops), float(found.transcendentals), float(found.bytes_accessed), sizes, dtype)


def _library_product(op: Instruction) -> OpWork:
    """A matrix product of cuBLAS, whose dims stand in its backend config, or of oneDNN (plain rows times columns)."""
    lhs, rhs = (operand.shape.dims for operand in op.operands[:2])
    batch, rows, depth, columns = matrix_sizes(lhs, rhs, _stated_dims(op) or _plain_dims(len(lhs), len(rhs)))
    return _product(op, batch, rows, columns, depth)


def _stated_dims(op: Instruction) -> tuple[tuple[int, ...], ...] | None:
    """As of `matrix_sizes`; None where the config is not cuBLAS's: strangers' calls have others."""
    names = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    try:
        config = json.loads(op.opaque)
        numbers = config.get("gemm_backend_config", config)["dot_dimension_numbers"]
        return tuple(tuple(int(d) for d in numbers.get(f"{name}_dimensions", ())) for name in names)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None


def _plain_dims(lhs: int, rhs: int) -> tuple[tuple[int, ...], ...]:
    """The last dim of the one times the last but one of the other; by their ranks."""
    return (lhs - 1,), (max(0, rhs - 2),), tuple(range(rhs - 2)), tuple(range(rhs - 2))


def _fused_attention(op: Instruction, found: FusedAttention) -> OpWork:
    """cuDNN's flash attention, in which scores stay: two products forward; backward five, the scores made again."""
    queries, keys = op.operands[0].shape, op.operands[1].shape
    batch, heads, depth = queries.dims[0], queries.dims[found.heads], queries.dims[3]
    products = batch * heads, queries.dims[found.length], keys.dims[found.length], depth
    seen = 0.5 if found.is_causal else 1.0
    return flash_attention(products, queries.element_type, traffic_bytes(op), is_backward=found.is_backward, seen=seen)


def flash_attention(
    products: tuple[int, int, int, int], dtype: str, nbytes: float, *, is_backward: bool, seen: float = 1.0
) -> OpWork:
    """Of queries times keys of these sizes: batches, queries, keys, head_dim.  `seen`: share of the scores that a mask
    leaves.

    >>> flash_attention((8, 64, 64, 16), "bf16", 0.0, is_backward=False).flops == 2 * 2 * 8 * 64 * 64 * 16
    True
    """
    scores = prod(products[:3]) * seen
    flops = (5 if is_backward else 2) * 2.0 * scores * products[3]
    return OpWork(flops, scores, nbytes, products, dtype, is_backward)


# ---------------------------------------------------------------------------------------------------------------------
# Fusions


@SPECIAL.register("fusion")
def _fusion(op: Instruction) -> OpWork:
    body = op.called[0]
    inside = _work_inside(body)
    moved = sum(_bytes_read(p) for p in body.instructions if p.opcode == "parameter") + _bytes_written(body.root)
    dtype = inside.dtype if inside.matrix is not None else _first(op.shape).element_type
    return inside._replace(bytes=moved, dtype=dtype)


def _bytes_read(parameter: Instruction) -> float:
    """What a fusion reads of one operand: slices of it where all its uses are slices, else all of it."""
    total = 0.0
    for user in parameter.users:
        first = user.operands[0] is parameter
        if user.opcode in PART_READERS and first:
            total += user.shape.byte_size
        elif not (user.opcode in ("dynamic-update-slice", "scatter") and first):
            return float(parameter.shape.byte_size)
    return min(total, float(parameter.shape.byte_size))


def _bytes_written(root: Instruction) -> float:
    if root.opcode == "tuple":
        return sum(_bytes_written(o) for o in root.operands)
    if root.opcode in ("bitcast", "reshape", "convert", "copy") and root.operands[0].opcode == "dynamic-update-slice":
        return _bytes_written(root.operands[0])
    if root.opcode == "dynamic-update-slice":
        return float(root.operands[1].shape.byte_size)
    return float(root.shape.byte_size)
