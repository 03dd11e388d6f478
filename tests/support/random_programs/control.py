"""Random ops that address by index values, and control flow."""

from __future__ import annotations

from math import prod

import numpy as np

from hlosharding.ir import GatherDims, Instruction, ScatterDims, Shape
from tests.support.random_programs.pointwise import MOVING, POINTWISE
from tests.support.random_programs.scope import MAX_SIZE, Maker, Scope, Value


def dynamic_slice(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1)
    if x is None:
        return None
    sizes = tuple(n if g.chance(0.5) else 1 if g.chance(0.5) else g.random.randint(1, n) for n in x.dims)
    starts = [Value(g.index(n - size)) for n, size in zip(x.dims, sizes, strict=True)]
    shape = x.inst.shape.with_dims(sizes)
    return g.emit("dynamic-slice", shape, [x, *starts], x.magnitude, x.quantum, dynamic_slice_sizes=sizes)


def dynamic_update_slice(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1)
    if x is None:
        return None
    sizes = tuple(n if g.chance(0.5) else 1 if g.chance(0.5) else g.random.randint(1, n) for n in x.dims)
    update = g.fresh(x.inst.shape.with_dims(sizes))
    starts = [Value(g.index(n - size)) for n, size in zip(x.dims, sizes, strict=True)]
    magnitude, quantum = max(x.magnitude, update.magnitude), min(x.quantum, update.quantum)
    return g.emit("dynamic-update-slice", x.inst.shape, [x, update, *starts], magnitude, quantum)


def _indices(g: Scope, dims: tuple[int, ...], high: int) -> Value:
    """An s32 array of that shape, a little out of bounds now and then."""
    shape = Shape.array("s32", dims)
    if g.is_entry and g.chance(0.6) and len(g.integers) < 12:
        return g.parameter(shape, bounds=(-1, high + 2))
    if g.chance(0.4):
        return g.emit("iota", shape, [], max(dims, default=1), 1.0, dimensions=(g.random.randrange(len(dims)),))
    numbers = [g.random.randint(0, high) for _ in range(shape.size)]
    return g.keep(Value(g.literal(np.array(numbers, np.int32).reshape(dims)), high, 1.0))


class _Addressed:
    """How a gather or scatter sees its operand: a role for each dim, and the dims of the indices."""

    def __init__(self, g: Scope, x: Value) -> None:
        dims = list(range(x.rank))
        self.batching = g.subset(dims, at_least=1, at_most=1) if x.rank >= 2 and g.chance(0.25) else ()
        rest = [d for d in dims if d not in self.batching]
        self.mapped = tuple(g.random.sample(rest, min(len(rest), g.random.choice((1, 1, 2)))))
        self.sizes = [1 if d in self.batching else n for d, n in enumerate(x.dims)]
        for d in self.mapped:
            self.sizes[d] = 1 if g.chance(0.7) else g.random.randint(1, x.dims[d])
        self.collapsed = tuple(d for d in sorted(self.mapped) if self.sizes[d] == 1 and g.chance(0.8))
        # Sizes of the batch dims, and which of them go in step with a dim of the operand.
        batch: list[tuple[int, int | None]] = [(g.dim(), None) for _ in range(g.random.randint(0, 2))]
        counted = [d for d in self.mapped if self.sizes[d] == 1 and g.chance(0.25)]
        for d in (*self.batching, *counted):
            batch.insert(g.random.randint(0, len(batch)), (x.dims[d], d))
        batch = batch or [(g.dim(), None)]
        self.batch = [size for size, _ in batch]
        # The vector of coordinates: any dim, or left out where it would have size 1.
        self.vector = g.random.randint(0, len(self.batch))
        self.index_dims = [*self.batch[: self.vector], len(self.mapped), *self.batch[self.vector :]]
        if len(self.mapped) == 1 and g.chance(0.4):
            self.index_dims, self.vector = list(self.batch), len(self.batch)
        place = {d: at + (at >= self.vector) for at, (_, d) in enumerate(batch)}
        self.batching_at = tuple(place[d] for d in self.batching)
        self.counted = {column: place[d] for column, d in enumerate(self.mapped) if d in counted}
        """Components of the index vector that count, and the indices dim along which they do."""
        self.window = [self.sizes[d] for d in dims if d not in self.collapsed and d not in self.batching]
        rank = len(self.batch) + len(self.window)
        self.window_dims = g.subset(range(rank), at_least=len(self.window), at_most=len(self.window))
        windows, batches = iter(self.window), iter(self.batch)
        self.out = tuple(next(windows) if d in self.window_dims else next(batches) for d in range(rank))
        self.high = max((x.dims[d] for d in self.mapped), default=1)


def _addresses(g: Scope, a: _Addressed) -> Value:
    """The indices: components that count are an iota, joined with the others."""
    dims = tuple(a.index_dims)
    if not a.counted:
        return _indices(g, dims, a.high)
    narrow = tuple(1 if d == a.vector else n for d, n in enumerate(dims))
    shape = Shape.array("s32", narrow)
    columns = [
        g.emit("iota", shape, [], max(narrow), 1.0, dimensions=(a.counted[c],))
        if c in a.counted
        else _indices(g, narrow, a.high)
        for c in range(len(a.mapped))
    ]
    if len(columns) == 1:
        return columns[0]
    magnitude = max(c.magnitude for c in columns)
    return g.emit("concatenate", shape.with_dims(dims), columns, magnitude, 1.0, dimensions=(a.vector,))


def gather(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1)
    if x is None:
        return None
    a = _Addressed(g, x)
    if prod(a.out) > MAX_SIZE or not a.index_dims:
        return None
    dims = GatherDims(a.window_dims, a.collapsed, a.mapped, a.vector, a.batching, a.batching_at)
    indices = _addresses(g, a)
    return g.emit(
        "gather", x.inst.shape.with_dims(a.out), [x, indices], x.magnitude, x.quantum, gather_dims=dims,
        gather_slice_sizes=a.sizes,
    )  # fmt: skip


def scatter(g: Scope) -> Value | None:
    x = g.value(lambda v: v.rank >= 1 and v.kind in ("f32", "bf16", "s32"))
    if x is None:
        return None
    a = _Addressed(g, x)
    if prod(a.out) > MAX_SIZE or not a.index_dims:
        return None
    opcode, unique = g.random.choice(("add", "add", "maximum", "minimum", "multiply")), False
    indices = _addresses(g, a)
    update = g.fresh(x.inst.shape.with_dims(a.out))
    if opcode == "multiply" and (x.is_float or prod(a.batch) > 3):
        opcode = "add"
    if len(a.mapped) == 1 and len(a.batch) == 1 and a.sizes[a.mapped[0]] == 1 and not a.batching and g.chance(0.5):
        # Assignments in any order agree only where no row is written twice.
        count, rows = a.batch[0], x.dims[a.mapped[0]]
        if count <= rows:
            order = np.array(g.random.sample(range(rows), count), np.int32).reshape(a.index_dims)
            indices, opcode, unique = g.keep(Value(g.literal(order), rows, 1.0)), "assign", True
    dims = ScatterDims(a.window_dims, a.collapsed, a.mapped, a.vector, a.batching, a.batching_at)
    depth = prod(a.batch) * prod(a.window) if opcode == "add" else 1
    magnitude = x.magnitude + update.magnitude * depth
    return g.emit(
        "scatter", x.inst.shape, [x, indices, update], magnitude, min(x.quantum, update.quantum), scatter_dims=dims,
        called=[g.reducer(opcode, x.kind)], unique_indices=unique,
    )  # fmt: skip


# Control flow.  Inside, values are taken as rounded and below 8; what leaves is brought below 8 again.


def _body_value(inner: Scope, shape: Shape, steps: int) -> Instruction:
    """A value of `shape` after some steps inside: a random result of that shape, or one made of the carry."""
    makers: list[Maker] = [*POINTWISE, *MOVING, dynamic_slice, dynamic_update_slice]
    for _ in range(steps):
        inner.random.choice(makers)(inner)
    same = [v for v in inner.pool if v.inst.shape == shape and v.inst.opcode != "get-tuple-element"]
    found = inner.random.choice(same) if same else inner.like(next(v for v in inner.pool if v.inst.shape == shape))
    if shape.is_floating:
        low, high = (inner.scalar(shape.element_type, n) for n in (-8, 8))
        return inner.add("clamp", shape, [low, found.inst, high])
    return found.inst


def _carried(g: Scope) -> list[Value] | None:
    values = [g.value(lambda v: (v.kind in ("f32", "s32", "bf16") and v.magnitude <= 8) or v.kind == "s32")]
    if g.chance(0.6):
        values.append(g.value(lambda v: v.kind in ("f32", "bf16") and v.magnitude <= 8))
    return None if None in values else [v for v in values if v is not None]


def while_(g: Scope) -> Value | None:
    """A counted loop; its bound is a constant or carried along."""
    carried = _carried(g)
    if carried is None:
        return None
    counter = Shape.array("s32")
    shapes = [counter, *(v.inst.shape for v in carried)]
    trips = g.random.randint(0, 4)
    test = g.inside("condition", shapes)
    condition = test.computation
    condition.root(
        condition.add(
            "compare", Shape.array("pred"), [test.pool[0].inst, test.scalar("s32", trips)], comparison_direction="LT"
        )
    )
    body = g.inside("body", shapes)
    step = body.pool[0].inst
    results = [body.add("add", counter, [step, body.scalar("s32", 1)])]
    results += [_body_value(body, shape, g.random.randint(1, 3)) for shape in shapes[1:]]
    whole = Shape.tuple(tuple(shapes))
    body.computation.root(body.add("tuple", whole, results))
    start = g.add("tuple", whole, [g.scalar("s32", 0), *(v.inst for v in carried)])
    # XLA's order of callees: the body, then the condition.
    loop = g.add("while", whole, [start], called=[body.computation.computation, condition.computation])
    return _unpack(g, loop, shapes)


def _unpack(g: Scope, inst: Instruction, shapes: list[Shape]) -> Value:
    for number, shape in enumerate(shapes):
        g.keep(Value(g.add("get-tuple-element", shape, [inst], tuple_index=number), 8.0))
    return g.pool[-1]


def conditional(g: Scope) -> Value | None:
    carried = _carried(g)
    if carried is None:
        return None
    shapes = [v.inst.shape for v in carried]
    whole, branches = Shape.tuple(tuple(shapes)), g.random.choice((2, 2, 3))
    called = []
    for _ in range(branches):
        branch = g.inside("branch", shapes)
        results = [_body_value(branch, shape, g.random.randint(1, 2)) for shape in shapes]
        called.append(branch.computation.root(branch.add("tuple", whole, results)).computation)
    chooser = g.index(branches - 1)
    if branches == 2 and g.chance(0.5):
        zero = g.scalar("s32", 0)
        chooser = g.add("compare", Shape.array("pred"), [chooser, zero], comparison_direction="GT")
    given = g.add("tuple", whole, [v.inst for v in carried])
    return _unpack(g, g.add("conditional", whole, [chooser, *[given] * branches], called=called), shapes)


def call(g: Scope) -> Value | None:
    carried = _carried(g)
    if carried is None:
        return None
    shapes = [v.inst.shape for v in carried]
    whole = Shape.tuple(tuple(shapes))
    callee = g.inside("callee", shapes)
    results = [_body_value(callee, shape, g.random.randint(1, 2)) for shape in shapes]
    target = callee.computation.root(callee.add("tuple", whole, results)).computation
    given = g.add("tuple", whole, [v.inst for v in carried])
    return _unpack(g, g.add("call", whole, [given], called=[target]), shapes)


def map_(g: Scope) -> Value | None:
    x = g.value(lambda v: v.kind == "f32" and v.rank >= 1 and v.magnitude <= 100)
    if x is None:
        return None
    y = g.like(x)
    key = "mapped"
    if key not in g.reducers:
        build, shape = g.builder.computation(key), Shape.array("f32")
        a, b = build.parameter(0, shape), build.parameter(1, shape)
        build.add("subtract", shape, [build.add("tanh", shape, [a]), b])
        g.reducers[key] = build.computation
    return g.emit("map", x.inst.shape, [x, y], 1 + y.magnitude, dimensions=range(x.rank), called=[g.reducers[key]])


INDEXING = (
    dynamic_slice, dynamic_slice, dynamic_update_slice, dynamic_update_slice, gather, gather, gather, scatter, scatter,
    scatter,
)  # fmt: skip
CONTROL = (while_, conditional, call, map_)
