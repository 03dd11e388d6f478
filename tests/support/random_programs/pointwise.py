"""Random pointwise ops and those that only move elements."""

from __future__ import annotations

from math import prod

from hlosharding.ir import PaddingDim, Shape, SliceDim
from tests.support.random_programs.scope import MAX_SIZE, Scope, Value

# Opcode -> largest magnitude of the result, None: the operand's.  All have a bounded slope.
SMOOTH: dict[str, float | None] = {
    "cosine": 1.0, "erf": 1.0, "logistic": 1.0, "sine": 1.0, "tanh": 1.0, "negate": None, "abs": None, "copy": None,
    "log-plus-one": None, "exponential": 3000.0, "exponential-minus-one": 3000.0,
}  # fmt: skip
JUMPS = ("sign", "floor", "ceil", "round-nearest-even", "round-nearest-afz", "reduce-precision")
ROOTS = ("sqrt", "rsqrt", "log", "cbrt")


def unary_smooth(g: Scope) -> Value | None:
    x = g.value(lambda v: v.is_float)
    if x is None:
        return None
    opcode = g.random.choice(sorted(SMOOTH))
    if opcode.startswith("exponential") and x.magnitude > 8:
        return None
    if opcode == "log-plus-one":
        x = g.emit("abs", x.inst.shape, [x], x.magnitude, x.quantum)
    quantum = x.quantum if opcode in ("negate", "abs", "copy") else 0.0
    return g.emit(opcode, x.inst.shape, [x], SMOOTH[opcode] or x.magnitude, quantum)


def unary_root(g: Scope) -> Value | None:
    """A root or logarithm of 1 + |x|."""
    x = g.value(lambda v: v.is_float)
    if x is None:
        return None
    y = above_one(g, x)
    return g.emit(g.random.choice(ROOTS), x.inst.shape, [y], y.magnitude)


def above_one(g: Scope, x: Value) -> Value:
    positive = g.emit("abs", x.inst.shape, [x], x.magnitude, x.quantum)
    one = g.splat(x.inst.shape, 1.0)
    return g.emit("add", x.inst.shape, [positive, one], x.magnitude + 1, min(x.quantum, 1.0))


def unary_jump(g: Scope) -> Value | None:
    x = g.value(lambda v: v.is_float and v.is_exact)
    if x is None:
        return None
    opcode = g.random.choice(JUMPS)
    attributes = {"exponent_bits": 8, "mantissa_bits": 4} if opcode == "reduce-precision" else {}
    quantum = x.quantum if opcode == "reduce-precision" else 1.0
    return g.emit(opcode, x.inst.shape, [x], x.magnitude + 1, quantum, **attributes)


def unary_integer(g: Scope) -> Value | None:
    x = g.value(lambda v: v.kind in ("s32", "u32"))
    if x is None:
        return None
    opcode = g.random.choice(("not", "negate", "popcnt", "count-leading-zeros", "sign", "abs", "copy"))
    opcode = "not" if x.kind == "u32" and opcode in ("sign", "abs", "negate") else opcode
    return g.emit(opcode, x.inst.shape, [x], 2.0**31)


def is_finite(g: Scope) -> Value | None:
    x = g.value(lambda v: v.is_float)
    return None if x is None else g.emit("is-finite", x.inst.shape.with_type("pred"), [x], 1)


def convert(g: Scope) -> Value | None:
    x = g.value(lambda v: v.kind in ("f32", "bf16", "s32", "pred", "u32"))
    if x is None:
        return None
    to = g.random.choice([t for t in ("f32", "bf16", "s32") if t != x.kind])
    if to == "s32" and not x.is_exact:
        return None
    if to != "s32" and not x.is_float and x.kind != "pred":
        # Integers wrap anywhere in 32 bits: brought near zero first.
        x = g.emit("clamp", x.inst.shape, [g.splat(x.inst.shape, 0), x, g.splat(x.inst.shape, 16)], 16)
    magnitude = 1.0 if x.kind == "pred" else x.magnitude
    return g.emit("convert", x.inst.shape.with_type(to), [x], magnitude, 1.0 if not x.is_float else x.quantum)


def bitcast_convert(g: Scope) -> Value | None:
    x = g.value(lambda v: v.kind in ("s32", "u32"))
    if x is None:
        return None
    return g.emit("bitcast-convert", x.inst.shape.with_type("u32" if x.kind == "s32" else "s32"), [x], 2.0**32)


def binary(g: Scope) -> Value | None:
    x = g.value(lambda v: v.is_float)
    if x is None:
        return None
    y = g.like(x)
    opcode = g.random.choice(("add", "add", "subtract", "multiply", "maximum", "minimum", "divide", "atan2", "power"))
    if opcode in ("divide", "atan2"):
        y = above_one(g, y)
        return g.emit(opcode, x.inst.shape, [x, y], max(2.0, x.magnitude))
    if opcode == "power":
        base, exponent = above_one(g, x), g.splat(x.inst.shape, 0.5)
        return g.emit(opcode, x.inst.shape, [base, exponent], base.magnitude)
    if opcode == "multiply":
        return g.emit(opcode, x.inst.shape, [x, y], x.magnitude * y.magnitude, x.quantum * y.quantum)
    magnitude = x.magnitude + y.magnitude if opcode in ("add", "subtract") else max(x.magnitude, y.magnitude)
    return g.emit(opcode, x.inst.shape, [x, y], magnitude, min(x.quantum, y.quantum))


def binary_integer(g: Scope) -> Value | None:
    x = g.value(lambda v: v.kind in ("s32", "pred"))
    if x is None:
        return None
    if x.kind == "pred":
        return g.emit(g.random.choice(("and", "or", "xor")), x.inst.shape, [x, g.like(x)], 1)
    opcode = g.random.choice(
        ("add", "subtract", "multiply", "and", "or", "xor", "maximum", "minimum", "remainder", "divide", "shift-left",
         "shift-right-arithmetic", "shift-right-logical")
    )  # fmt: skip
    y = (
        g.splat(x.inst.shape, g.random.randint(1, 6))
        if "shift" in opcode or opcode in ("remainder", "divide")
        else g.like(x)
    )
    return g.emit(opcode, x.inst.shape, [x, y], 2.0**31)


def compare(g: Scope) -> Value | None:
    x = g.value(lambda v: v.kind in ("f32", "bf16", "s32") and v.is_exact)
    if x is None:
        return None
    y = g.like(x)
    if not y.is_exact:
        return None
    direction = g.random.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))
    return g.emit("compare", x.inst.shape.with_type("pred"), [x, y], 1, comparison_direction=direction)


def select(g: Scope) -> Value | None:
    p = g.value(kind="pred")
    if p is None:
        return None
    x = g.value(lambda v: v.kind != "c64" and (v.dims == p.dims or (p.rank == 0 and v.rank > 0)))
    if x is None:
        return None
    y = g.like(x)
    return g.emit("select", x.inst.shape, [p, x, y], max(x.magnitude, y.magnitude), min(x.quantum, y.quantum))


def clamp(g: Scope) -> Value | None:
    x = g.value(lambda v: v.kind in ("f32", "bf16", "s32"))
    if x is None:
        return None
    low, high = g.random.randint(-4, 0), g.random.randint(1, 6)
    if g.chance(0.5):
        bounds = [Value(g.scalar(x.kind, low)), Value(g.scalar(x.kind, high))]
    else:
        bounds = [g.splat(x.inst.shape, low), g.splat(x.inst.shape, high)]
    return g.emit("clamp", x.inst.shape, [bounds[0], x, bounds[1]], max(-low, high), x.quantum)


def complex_parts(g: Scope) -> Value | None:
    x = g.value(kind="f32")
    if x is None:
        return None
    y = g.like(x)
    z = g.emit("complex", x.inst.shape.with_type("c64"), [x, y], x.magnitude + y.magnitude, min(x.quantum, y.quantum))
    # Of x + ix the square is purely imaginary: its real part would be nothing but rounding.
    if g.chance(0.5) and x.inst is not y.inst:
        z = g.emit("multiply", z.inst.shape, [z, z], z.magnitude**2, z.quantum**2)
    return g.emit(g.random.choice(("real", "imag")), x.inst.shape, [z], z.magnitude, z.quantum)


def broadcast(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank <= 3)
    if x is None:
        return None
    dims = list(x.dims)
    places = list(range(len(dims)))
    for _ in range(g.random.randint(1, 2)):
        at = g.random.randint(0, len(dims))
        dims.insert(at, g.dim())
        places = [p + (p >= at) for p in places]
    if prod(dims) > MAX_SIZE:
        return None
    if g.random.random() < 0.1:
        g.random.shuffle(places)
        for place, size in zip(places, x.dims, strict=True):
            dims[place] = size
    return g.emit("broadcast", x.inst.shape.with_dims(tuple(dims)), [x], x.magnitude, x.quantum, dimensions=places)


def reshape(g: Scope) -> Value | None:
    x = g.value(lambda v: 1 < prod(v.dims) <= MAX_SIZE)
    if x is None:
        return None
    rest, dims = prod(x.dims), []
    while rest > 1 and len(dims) < 3:
        divisors = [d for d in range(1, rest + 1) if rest % d == 0 and d <= 64]
        dims.append(g.random.choice(divisors))
        rest //= dims[-1]
    dims.insert(g.random.randint(0, len(dims)), rest)
    return g.emit("reshape", x.inst.shape.with_dims(tuple(dims)), [x], x.magnitude, x.quantum)


def merge_or_split(g: Scope) -> Value | None:
    """A reshape that only merges two neighbours, or splits one dim."""
    x = g.value(lambda v: v.rank >= 1)
    if x is None:
        return None
    dims, at = list(x.dims), g.random.randrange(x.rank)
    if at + 1 < x.rank and g.chance(0.5):
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    else:
        major = g.random.choice([d for d in range(1, dims[at] + 1) if dims[at] % d == 0])
        dims[at : at + 1] = [major, dims[at] // major]
    return g.emit("reshape", x.inst.shape.with_dims(tuple(dims)), [x], x.magnitude, x.quantum)


def transpose(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 2)
    if x is None:
        return None
    order = g.random.sample(range(x.rank), x.rank)
    shape = x.inst.shape.with_dims(tuple(x.dims[d] for d in order))
    return g.emit("transpose", shape, [x], x.magnitude, x.quantum, dimensions=order)


def reverse(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1)
    if x is None:
        return None
    dims = g.subset(range(x.rank), at_least=1)
    return g.emit("reverse", x.inst.shape, [x], x.magnitude, x.quantum, dimensions=dims)


def slice_(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1)
    if x is None:
        return None
    records = []
    for size in x.dims:
        start = g.random.randint(0, size - 1) if g.chance(0.5) else 0
        limit = g.random.randint(start + 1, size) if g.chance(0.5) else size
        records.append(SliceDim(start, limit, g.random.choice((1, 1, 2, 3))))
    dims = tuple(-(-(r.limit - r.start) // r.stride) for r in records)
    return g.emit("slice", x.inst.shape.with_dims(dims), [x], x.magnitude, x.quantum, slice_dims=records)


def pad(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind in ("f32", "bf16", "s32"))
    if x is None:
        return None
    records = [
        PaddingDim(g.random.randint(-1, 3), g.random.randint(-1, 3), g.random.choice((0, 0, 1)))
        if g.chance(0.5)
        else PaddingDim()
        for _ in x.dims
    ]
    dims = tuple(p.low + size + p.interior * (size - 1) + p.high for p, size in zip(records, x.dims, strict=True))
    if min(dims) < 1 or prod(dims) > MAX_SIZE:
        return None
    fill = Value(g.scalar(x.kind, g.random.randint(-2, 2)))
    return g.emit("pad", x.inst.shape.with_dims(dims), [x, fill], max(2, x.magnitude), x.quantum, padding=records)


def concatenate(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind != "c64")
    if x is None:
        return None
    at, parts = g.random.randrange(x.rank), [x]
    for _ in range(g.random.randint(1, 2)):
        dims = list(x.dims)
        dims[at] = g.dim()
        parts.append(g.like(x) if g.chance(0.4) else g.fresh(x.inst.shape.with_dims(tuple(dims))))
    dims = list(x.dims)
    dims[at] = sum(p.dims[at] for p in parts)
    if prod(dims) > MAX_SIZE:
        return None
    g.random.shuffle(parts)
    shape = x.inst.shape.with_dims(tuple(dims))
    magnitude, quantum = max(p.magnitude for p in parts), min(p.quantum for p in parts)
    return g.emit("concatenate", shape, parts, magnitude, quantum, dimensions=(at,))


def iota(g: Scope) -> Value | None:
    shape = g.shape(g.random.choice(("s32", "f32")))
    at = g.random.randrange(shape.rank)
    return g.emit("iota", shape, [], shape.dims[at], 1.0, dimensions=(at,))


def constant(g: Scope) -> Value | None:
    return g.constant(g.shape(g.random.choice(("s32", "f32", "bf16", "pred"))))


def barrier(g: Scope) -> Value | None:
    """Two values through a tuple, an optimization barrier and back."""
    x, y = g.value(), g.value()
    if x is None or y is None:
        return None
    shape = Shape.tuple((x.inst.shape, y.inst.shape))
    both = g.add("tuple", shape, [x.inst, y.inst])
    held = g.add("opt-barrier", shape, [both])
    for number, value in enumerate((x, y)):
        leaf = g.add("get-tuple-element", value.inst.shape, [held], tuple_index=number)
        g.keep(Value(leaf, value.magnitude, value.quantum))
    return g.pool[-1]


POINTWISE = (
    unary_smooth, unary_root, unary_jump, unary_integer, is_finite, convert, bitcast_convert, binary, binary_integer,
    compare, select, clamp, complex_parts,
)  # fmt: skip
MOVING = (
    broadcast, reshape, merge_or_split, transpose, reverse, slice_, pad, concatenate, iota, constant, barrier,
)  # fmt: skip
