"""Random ops that fold, contract or slide: dot, convolution, reduce, windows, sort, linear algebra, fft."""

from __future__ import annotations

from math import prod

import numpy as np

from hlosharding.ir import ConvDims, DotDims, Shape, WindowDim
from tests.support.random_programs.scope import MAX_SIZE, Scope, Value


def dot(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind in ("f32", "bf16", "s32") and v.magnitude < 1e3)
    if x is None:
        return None
    contracted = g.subset(range(x.rank), at_least=0 if g.chance(0.1) else 1, at_most=2)
    batch = g.subset([d for d in range(x.rank) if d not in contracted], at_most=2) if g.chance(0.4) else ()
    free = [g.dim() for _ in range(g.random.randint(0, 2))]
    parts = [*((d, x.dims[d]) for d in (*contracted, *batch)), *((None, size) for size in free)]
    g.random.shuffle(parts)
    y = g.fresh(x.inst.shape.with_dims(tuple(size for _, size in parts)))
    place = {d: i for i, (d, _) in enumerate(parts) if d is not None}
    dims = DotDims(contracted, tuple(place[d] for d in contracted), batch, tuple(place[d] for d in batch))
    kept = [x.dims[d] for d in (*batch, *dims.lhs_free(x.rank))] + [y.dims[d] for d in dims.rhs_free(y.rank)]
    if prod(kept) > MAX_SIZE:
        return None
    depth = prod(x.dims[d] for d in contracted)
    shape = x.inst.shape.with_dims(tuple(kept))
    return g.emit("dot", shape, [x, y], x.magnitude * y.magnitude * depth, x.quantum * y.quantum, dot_dims=dims)


def _windowed(size: int, w: WindowDim) -> int:
    padded = w.padding_low + (size - 1) * w.base_dilation + 1 + w.padding_high
    return (padded - ((w.size - 1) * w.window_dilation + 1)) // w.stride + 1


def convolution(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank in (3, 4) and v.kind in ("f32", "bf16") and v.magnitude < 1e3)
    if x is None:
        return None
    spatial = x.rank - 2
    order, kernel_order, out_order = (g.random.sample(range(x.rank), x.rank) for _ in range(3))
    batch, features = x.dims[order[0]], x.dims[order[1]]
    groups = g.random.choice([d for d in range(1, features + 1) if features % d == 0]) if g.chance(0.3) else 1
    batch_groups = 1
    if groups == 1 and g.chance(0.2):
        batch_groups = g.random.choice([d for d in range(1, batch + 1) if batch % d == 0])
    out_features = groups * batch_groups * g.random.randint(1, 4)
    windows = [_window(g) for _ in range(spatial)]
    if g.chance(0.2):
        windows = [WindowDim(size=x.dims[order[2 + i]]) for i in range(spatial)]
    sizes = [_windowed(x.dims[order[2 + i]], w) for i, w in enumerate(windows)]
    out_dims, kernel_dims = [0] * x.rank, [0] * x.rank
    for at, size in zip(out_order, (batch // batch_groups, out_features, *sizes), strict=True):
        out_dims[at] = size
    for at, size in zip(kernel_order, (features // groups, out_features, *(w.size for w in windows)), strict=True):
        kernel_dims[at] = size
    if min(out_dims) < 1 or prod(out_dims) > MAX_SIZE or prod(kernel_dims) > MAX_SIZE:
        return None
    kernel = g.fresh(x.inst.shape.with_dims(tuple(kernel_dims)))
    dims = ConvDims(
        order[0], order[1], tuple(order[2:]), kernel_order[0], kernel_order[1], tuple(kernel_order[2:]),
        out_order[0], out_order[1], tuple(out_order[2:]),
    )  # fmt: skip
    depth = features // groups * prod(w.size for w in windows)
    return g.emit(
        "convolution", x.inst.shape.with_dims(tuple(out_dims)), [x, kernel], x.magnitude * kernel.magnitude * depth,
        x.quantum * kernel.quantum, conv_dims=dims, window=windows, feature_group_count=groups,
        batch_group_count=batch_groups,
    )  # fmt: skip


def _window(g: Scope) -> WindowDim:
    if g.chance(0.3):
        return WindowDim()
    return WindowDim(
        g.random.randint(1, 3), g.random.choice((1, 1, 2)), g.random.randint(0, 2), g.random.randint(0, 2),
        g.random.choice((1, 1, 1, 2)), g.random.choice((1, 1, 1, 2)), g.chance(0.1),
    )  # fmt: skip


_IDENTITY = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf, "and": 1, "or": 0}


def _initial(g: Scope, opcode: str, kind: str) -> Value:
    """The identity: XLA drops any other initial value, on one device too, where it reduces dims of size 1."""
    number = _IDENTITY[opcode]
    if kind == "s32" and np.isinf(number):
        number = np.iinfo(np.int32).max if number > 0 else np.iinfo(np.int32).min
    return Value(g.scalar(kind, number))


def reduce(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind in ("f32", "bf16", "s32", "pred"))
    if x is None:
        return None
    dims = g.subset(range(x.rank), at_least=1)
    kept = tuple(size for d, size in enumerate(x.dims) if d not in dims)
    choices = ("and", "or") if x.kind == "pred" else ("add", "add", "maximum", "minimum")
    opcode = g.random.choice(choices)
    depth = prod(x.dims[d] for d in dims) + 1 if opcode == "add" else 1
    return g.emit(
        "reduce", x.inst.shape.with_dims(kept), [x, _initial(g, opcode, x.kind)], (x.magnitude + 2) * depth, x.quantum,
        dimensions=dims, called=[g.reducer(opcode, x.kind)],
    )  # fmt: skip


def argmax(g: Scope) -> Value | None:
    """A reduce of a value and an iota to the largest and its index."""
    x = g.value(lambda v: v.rank >= 1 and v.kind == "f32" and v.is_exact)
    if x is None:
        return None
    at = g.random.randrange(x.rank)
    places = g.emit("iota", x.inst.shape.with_type("s32"), [], x.dims[at], 1.0, dimensions=(at,))
    kept = tuple(size for d, size in enumerate(x.dims) if d != at)
    leaves = (x.inst.shape.with_dims(kept), places.inst.shape.with_dims(kept))
    inits = [Value(g.scalar("f32", -np.inf)), Value(g.scalar("s32", 0))]
    pair = g.add(
        "reduce", Shape.tuple(leaves), [x.inst, places.inst, *(i.inst for i in inits)], dimensions=(at,),
        called=[_argmax_reducer(g)],
    )  # fmt: skip
    g.keep(Value(g.add("get-tuple-element", leaves[0], [pair], tuple_index=0), x.magnitude, x.quantum))
    return g.keep(Value(g.add("get-tuple-element", leaves[1], [pair], tuple_index=1), x.dims[at], 1.0))


def _argmax_reducer(g: Scope):
    if "argmax" not in g.reducers:
        build = g.builder.computation("argmax")
        f32, s32, pred = (Shape.array(k) for k in ("f32", "s32", "pred"))
        x, i, y, j = (build.parameter(n, s) for n, s in enumerate((f32, s32, f32, s32)))
        above = build.add("compare", pred, [x, y], comparison_direction="GT")
        equal = build.add("compare", pred, [x, y], comparison_direction="EQ")
        first = build.add("compare", pred, [i, j], comparison_direction="LT")
        tie = build.add("and", pred, [equal, first])
        left = build.add("or", pred, [above, tie])
        value = build.add("select", f32, [left, x, y])
        index = build.add("select", s32, [left, i, j])
        build.add("tuple", Shape.tuple((f32, s32)), [value, index])
        g.reducers["argmax"] = build.computation
    return g.reducers["argmax"]


def reduce_window(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind in ("f32", "bf16", "s32") and v.magnitude < 1e4)
    if x is None:
        return None
    windows = [WindowDim(*_plain(_window(g))) for _ in x.dims]
    if g.chance(0.3):
        at = g.random.randrange(x.rank)
        size = x.dims[at]
        low, high = (size - 1, 0) if g.chance(0.7) else (0, size - 1)
        windows = [WindowDim(size, 1, low, high) if d == at else WindowDim() for d in range(x.rank)]
    dims = tuple(_windowed(size, w) for size, w in zip(x.dims, windows, strict=True))
    if min(dims) < 1 or prod(dims) > MAX_SIZE:
        return None
    opcode = g.random.choice(("add", "add", "maximum", "minimum"))
    depth = prod(w.size for w in windows) * 2 if opcode == "add" else 1
    # A window of padding alone gives the initial value: kept finite.
    init = Value(g.scalar(x.kind, 0 if opcode == "add" else g.random.randint(-2, 2)))
    return g.emit(
        "reduce-window", x.inst.shape.with_dims(dims), [x, init], (x.magnitude + 2) * depth, x.quantum,
        window=windows, called=[g.reducer(opcode, x.kind)],
    )  # fmt: skip


def _plain(w: WindowDim) -> tuple[int, int, int, int, int, int]:
    return w.size, w.stride, w.padding_low, w.padding_high, w.window_dilation, w.base_dilation


def select_and_scatter(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 2 and v.kind == "f32" and v.is_exact)
    if x is None:
        return None
    windows = [WindowDim(size := g.random.randint(1, min(3, n)), g.random.randint(1, size)) for n in x.dims]
    dims = tuple(_windowed(size, w) for size, w in zip(x.dims, windows, strict=True))
    source = g.fresh(x.inst.shape.with_dims(dims))
    if not source.is_exact:
        return None
    depth = prod(w.size for w in windows)
    return g.emit(
        "select-and-scatter", x.inst.shape, [x, source, Value(g.scalar("f32", 0))], source.magnitude * depth,
        source.quantum, window=windows, called=[g.reducer("GE", "f32"), g.reducer("add", "f32")],
    )  # fmt: skip


def sort(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind in ("f32", "s32") and v.is_exact)
    if x is None:
        return None
    at, order = (g.random.randrange(x.rank),), g.random.choice(("LT", "GT"))
    if g.chance(0.5):
        less = g.reducer(order, x.kind)
        return g.emit("sort", x.inst.shape, [x], x.magnitude, x.quantum, dimensions=at, called=[less], is_stable=True)
    y = g.fresh(Shape.array("s32", x.dims))
    both = Shape.tuple((x.inst.shape, y.inst.shape))
    less = _first_of_pair(g, order, x.kind)
    pair = g.add("sort", both, [x.inst, y.inst], dimensions=at, called=[less], is_stable=True)
    g.keep(Value(g.add("get-tuple-element", x.inst.shape, [pair], tuple_index=0), x.magnitude, x.quantum))
    return g.keep(Value(g.add("get-tuple-element", y.inst.shape, [pair], tuple_index=1), y.magnitude, 1.0))


def _first_of_pair(g: Scope, order: str, kind: str):
    key = f"pair_{order}_{kind}"
    if key not in g.reducers:
        build = g.builder.computation(key)
        shapes = [Shape.array(k) for k in (kind, kind, "s32", "s32")]
        x, y, *_ = (build.parameter(n, s) for n, s in enumerate(shapes))
        build.root(build.add("compare", Shape.array("pred"), [x, y], comparison_direction=order))
        g.reducers[key] = build.computation
    return g.reducers[key]


def topk(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind == "f32" and v.is_exact)
    if x is None:
        return None
    k = g.random.randint(1, x.dims[-1])
    dims = (*x.dims[:-1], k)
    leaves = (x.inst.shape.with_dims(dims), Shape.array("s32", dims))
    pair = g.add("topk", Shape.tuple(leaves), [x.inst], k=k, largest=True)
    # Ties may come in any order: only the values are used.
    return g.keep(Value(g.add("get-tuple-element", leaves[0], [pair], tuple_index=0), x.magnitude, x.quantum))


def fft(g: Scope) -> Value | None:
    """A real transform, and at times a complex one of it.

    Of one dim only: XLA's CPU kernel knows one layout, its layout pass picks others too, and the failure ends the
    process.  Batches of transforms are tested one by one, in tests/truth and with the partitioner.
    """
    x = g.value(lambda v: v.rank == 1 and v.kind == "f32" and v.magnitude < 100)
    if x is None:
        return None
    dims = (x.dims[0] // 2 + 1,)
    magnitude = x.magnitude * x.dims[0]
    z = g.emit("fft", Shape.array("c64", dims), [x], magnitude, fft_type=2, fft_length=x.dims)
    if g.chance(0.5):
        kind = g.random.choice((0, 1))
        z = g.emit("fft", z.inst.shape, [z], magnitude * dims[0], fft_type=kind, fft_length=dims)
    return g.emit("real", Shape.array("f32", dims), [z], z.magnitude)


def _square(g: Scope) -> Value | None:
    return g.value(lambda v: v.rank in (2, 3) and v.kind == "f32" and v.dims[-1] == v.dims[-2] and v.magnitude < 100)


def _with_diagonal(g: Scope, x: Value, size: float) -> Value:
    """x + size * I."""
    shape = x.inst.shape.with_type("s32")
    rows, columns = (g.emit("iota", shape, [], 16, 1.0, dimensions=(x.rank - d,)) for d in (1, 2))
    same = g.emit("compare", shape.with_type("pred"), [rows, columns], 1, comparison_direction="EQ")
    eye = g.emit("select", x.inst.shape, [same, g.splat(x.inst.shape, size), g.splat(x.inst.shape, 0.0)], size, size)
    return g.emit("add", x.inst.shape, [x, eye], x.magnitude + size)


def matrices(g: Scope) -> Value | None:
    """A Cholesky factor of x x^T + cI, and a triangular solve with it."""
    x = _square(g) or g.fresh(Shape.array("f32", (g.dim(), *(g.random.choice((2, 3, 4, 6)),) * 2)))
    lead = tuple(range(x.rank - 2))
    dims = DotDims((x.rank - 1,), (x.rank - 1,), lead, lead)
    depth = x.magnitude**2 * x.dims[-1]
    squared = g.emit("dot", x.inst.shape, [x, x], depth, dot_dims=dims)
    positive = _with_diagonal(g, squared, float(2 ** np.ceil(np.log2(depth + 1))))
    lower = g.emit("cholesky", x.inst.shape, [positive], depth)
    inst = lower.inst
    inst.own_proto().cholesky_options.lower = True
    right = g.fresh(x.inst.shape.with_dims((*x.dims[:-1], g.dim())))
    solved = g.emit("triangular-solve", right.inst.shape, [lower, right], right.magnitude)
    options = solved.inst.own_proto().triangular_solve_options
    options.left_side, options.lower, options.transpose_a = True, True, 1
    return solved


def random_bits(g: Scope) -> Value | None:
    state = g.literal(np.array([g.random.randint(0, 99), 7], np.uint64))
    shape = g.shape("u32")
    pair = g.add("rng-bit-generator", Shape.tuple((state.shape, shape)), [state], rng_algorithm=1)
    return g.keep(Value(g.add("get-tuple-element", shape, [pair], tuple_index=1), 2.0**32))


def batch_norm(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 2 and v.kind == "f32" and v.magnitude < 100)
    if x is None:
        return None
    at = g.random.randrange(x.rank)
    vector = Shape.array("f32", (x.dims[at],))
    scale, offset, mean = (g.fresh(vector) for _ in range(3))
    spread = g.splat(vector, 2.0)
    return g.emit(
        "batch-norm-inference", x.inst.shape, [x, scale, offset, mean, spread],
        (x.magnitude + mean.magnitude) * (scale.magnitude + 1) + offset.magnitude, epsilon=0.5, feature_index=at,
    )  # fmt: skip


CONTRACTING = (
    dot, dot, dot, convolution, convolution, reduce, reduce, argmax, reduce_window, reduce_window, select_and_scatter,
    sort, topk, fft, matrices, random_bits, batch_norm,
)  # fmt: skip
