"""One writer per family of ops for `random_modules`: each adds a few instructions to the module being written."""

from __future__ import annotations

import math

from tests.oracle.random_modules import Dims, ModuleWriter, Value, braces, shape_text, writes


@writes(4)
def elementwise(w: ModuleWriter) -> None:
    x = w.pick()
    unary = ("negate", "abs", "exponential", "tanh", "copy", "sqrt", "sine", "logistic", "cbrt", "floor", "erf")
    binary = ("add", "multiply", "subtract", "maximum", "power", "divide", "atan2", "remainder")
    roll = w.random.random()
    if roll < 0.35:
        w.emit(w.random.choice(unary), x.dims, f"%{x.name}")
    elif roll < 0.8:
        y = w.like(x.dims)
        w.emit(w.random.choice(binary), x.dims, f"%{x.name}, %{y.name}")
    elif roll < 0.9:
        y, z = w.like(x.dims), w.like(x.dims)
        p = w.emit("compare", x.dims, f"%{x.name}, %{y.name}", "direction=LT", "pred")
        w.emit("select", x.dims, f"%{p.name}, %{y.name}, %{z.name}")
    else:
        low, high = w.like(()), w.like(())
        w.emit("clamp", x.dims, f"%{low.name}, %{x.name}, %{high.name}")


@writes(3)
def broadcast(w: ModuleWriter) -> None:
    x = w.pick()
    rank = len(x.dims) + w.random.randint(0 if x.dims else 1, 2)
    places = w.random.sample(range(rank), len(x.dims))
    if w.random.random() < 0.8:
        places.sort()
    dims = [w.random.choice((2, 3, 4, 8)) for _ in range(rank)]
    for place, size in zip(places, x.dims, strict=True):
        dims[place] = size
    w.emit("broadcast", tuple(dims), f"%{x.name}", f"dimensions={braces(places)}")


@writes(3)
def transpose(w: ModuleWriter) -> None:
    x = w.pick(least=2)
    perm = w.random.sample(range(len(x.dims)), len(x.dims))
    w.emit("transpose", tuple(x.dims[p] for p in perm), f"%{x.name}", f"dimensions={braces(perm)}")


@writes(3)
def reshape(w: ModuleWriter) -> None:
    x = w.pick()
    w.emit("reshape", _other_dims(w, x.dims), f"%{x.name}")


def _other_dims(w: ModuleWriter, dims: Dims) -> Dims:
    """Other dims of the same size: merge neighbours, split sizes, add and drop ones."""
    new = list(dims)
    for _ in range(w.random.randint(1, 3)):
        roll = w.random.random()
        if roll < 0.4 and len(new) > 1:
            at = w.random.randrange(len(new) - 1)
            new[at : at + 2] = [new[at] * new[at + 1]]
        elif roll < 0.8 and new:
            at = w.random.randrange(len(new))
            ways = [d for d in range(1, new[at] + 1) if new[at] % d == 0] or [1]
            way = w.random.choice(ways)
            new[at : at + 1] = [way, new[at] // way]
        elif roll < 0.9:
            new.insert(w.random.randint(0, len(new)), 1)
        elif 1 in new:
            new.remove(1)
    if math.prod(new) != math.prod(dims) or len(new) > 6:
        return (math.prod(dims),)
    return tuple(new)


@writes(3)
def reduce(w: ModuleWriter) -> None:
    x = w.pick(least=1)
    gone = sorted(w.random.sample(range(len(x.dims)), w.random.randint(0, len(x.dims))))
    kept = tuple(d for n, d in enumerate(x.dims) if n not in gone)
    zero = w.like(())
    if w.random.random() < 0.75:
        w.emit("reduce", kept, f"%{x.name}, %{zero.name}", f"dimensions={braces(gone)}, to_apply=%{w.region()}")
        return
    y = w.like(x.dims)
    region = w.region("maximum", pairs=2)
    args = f"%{x.name}, %{y.name}, %{zero.name}, %{zero.name}"
    attributes = f"dimensions={braces(gone)}, to_apply=%{region}"
    _tuple_valued(w, "reduce", [kept, kept], args, attributes)


def _tuple_valued(w: ModuleWriter, opcode: str, dims: list[Dims], args: str, attributes: str) -> None:
    """An op with several results, and an element of each."""
    name = w.fresh(opcode.replace("-", "_"))
    sharding = ""
    if w.random.random() < w.density:
        one = w.sharding(dims[0])
        sharding = f", sharding={{{', '.join([one] * len(dims))}}}"
    shape = ", ".join(map(shape_text, dims))
    w.body.lines.append(f"  %{name} = ({shape}) {opcode}({args}), {attributes}{sharding}")
    for n, d in enumerate(dims):
        w.emit("get-tuple-element", d, f"%{name}", f"index={n}")


@writes(4)
def dot(w: ModuleWriter) -> None:
    x = w.pick(least=1)
    rank = len(x.dims)
    batch = w.random.randint(0, max(0, rank - 1)) if w.random.random() < 0.4 else 0
    contracted = w.random.randint(0 if rank == batch else 1, max(1, rank - batch)) if rank > batch else 0
    places = w.random.sample(range(rank), batch + contracted)
    left_batch, left_contracted = places[:batch], places[batch:]
    free = [w.random.choice((2, 3, 4, 8)) for _ in range(w.random.randint(0, 2))]
    roles = [(role, n) for role, count in (("b", batch), ("c", contracted), ("f", len(free))) for n in range(count)]
    w.random.shuffle(roles)
    size = {"b": [x.dims[p] for p in left_batch], "c": [x.dims[p] for p in left_contracted], "f": free}
    y = w.like(tuple(size[role][n] for role, n in roles))
    right_batch = [roles.index(("b", n)) for n in range(batch)]
    right_contracted = [roles.index(("c", n)) for n in range(contracted)]
    left_free = [d for p, d in enumerate(x.dims) if p not in places]
    right_free = [free[n] for role, n in roles if role == "f"]
    dims = (*size["b"], *left_free, *right_free)
    attributes = f"lhs_contracting_dims={braces(left_contracted)}, rhs_contracting_dims={braces(right_contracted)}"
    if batch:
        attributes = f"lhs_batch_dims={braces(left_batch)}, rhs_batch_dims={braces(right_batch)}, {attributes}"
    w.emit("dot", dims, f"%{x.name}, %{y.name}", attributes)


@writes(2)
def convolution(w: ModuleWriter) -> None:
    b, f, o = (w.random.choice((1, 2, 4, 8)) for _ in range(3))
    spatial = [w.random.choice((1, 2, 3, 4, 8)) for _ in range(w.random.randint(0, 2))]
    groups = w.random.choice((1, 1, 1, f))
    windows = [_window(w, s) for s in spatial]
    kernel = [k for k, _, _ in windows]
    out = [n for _, n, _ in windows]
    if any(n <= 0 for n in out):
        return
    image = w.like((b, f, *spatial))
    weights = w.like((f // groups, o * groups, *kernel))
    labels = "012"[: len(spatial)]
    attributes = f"dim_labels=bf{labels}_io{labels}->bf{labels}"
    if spatial:
        parts = zip(*(text for _, _, text in windows), strict=True)
        words = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
        window = " ".join(f"{word}={'x'.join(part)}" for word, part in zip(words, parts, strict=True))
        attributes = f"window={{{window}}}, {attributes}"
    if groups > 1:
        attributes += f", feature_group_count={groups}"
    w.emit("convolution", (b, o * groups, *out), f"%{image.name}, %{weights.name}", attributes)


def _window(w: ModuleWriter, size: int) -> tuple[int, int, tuple[str, ...]]:
    """(kernel size, output size, texts): a plain window, or one that plays the part of a dot dim."""
    kind = w.random.choice(("plain", "plain", "batch", "contracting", "left", "right"))
    k, stride, low, high, base, dilate, reverse = w.random.choice((1, 2, 3)), 1, 0, 0, 1, 1, 0
    if kind == "plain":
        low = high = w.random.choice((0, k // 2))
        stride = w.random.choice((1, 1, 2))
    elif kind == "batch":
        k, base, stride = size, size, max(1, size - 1)
    elif kind == "contracting":
        k = size
    elif kind == "left":
        k = 1
    elif size == 1:
        k = w.random.choice((2, 4))
        low = high = k - 1
        reverse = 1
    padded = (size - 1) * base + 1 + low + high
    out = (padded - ((k - 1) * dilate + 1)) // stride + 1
    return k, out, (str(k), str(stride), f"{low}_{high}", str(base), str(dilate), str(reverse))


@writes(2)
def slices(w: ModuleWriter) -> None:
    x = w.pick(least=1)
    limits = [w.random.randint(1, d) for d in x.dims]
    parts = ", ".join(f"[0:{n}]" for n in limits)
    roll = w.random.random()
    if roll < 0.35:
        w.emit("slice", tuple(limits), f"%{x.name}", f"slice={{{parts}}}")
    elif roll < 0.6:
        low = [w.random.randint(0, 2) for _ in x.dims]
        config = "x".join(f"{n}_1" for n in low)
        zero = w.like(())
        dims = tuple(d + n + 1 for d, n in zip(x.dims, low, strict=True))
        w.emit("pad", dims, f"%{x.name}, %{zero.name}", f"padding={config}")
    else:
        _dynamic(w, x, tuple(limits))


def _dynamic(w: ModuleWriter, x: Value, limits: Dims) -> None:
    start = w.emit("constant", (), "0", "", "s32")
    starts = ", ".join([f"%{start.name}"] * len(x.dims))
    sizes = tuple(d if w.random.random() < 0.5 else n for d, n in zip(x.dims, limits, strict=True))
    if w.random.random() < 0.5:
        w.emit("dynamic-slice", sizes, f"%{x.name}, {starts}", f"dynamic_slice_sizes={braces(sizes)}")
    else:
        update = w.like(sizes)
        w.emit("dynamic-update-slice", x.dims, f"%{x.name}, %{update.name}, {starts}")


@writes(2)
def concatenate(w: ModuleWriter) -> None:
    x = w.pick(least=1)
    dim = w.random.randrange(len(x.dims))
    parts = [x] + [w.like(x.dims) for _ in range(w.random.randint(0, 2))]
    if w.random.random() < 0.3:
        parts = [w.emit("reshape", x.dims, f"%{w.parameter(x.dims).name}") for _ in parts] if w.depth == 0 else parts
    dims = list(x.dims)
    dims[dim] *= len(parts)
    w.emit("concatenate", tuple(dims), ", ".join(f"%{p.name}" for p in parts), f"dimensions={{{dim}}}")


@writes()
def reverse(w: ModuleWriter) -> None:
    x = w.pick(least=1)
    dims = sorted(w.random.sample(range(len(x.dims)), w.random.randint(1, len(x.dims))))
    w.emit("reverse", x.dims, f"%{x.name}", f"dimensions={braces(dims)}")


@writes(2)
def sort(w: ModuleWriter) -> None:
    x = w.pick(least=1)
    dim = w.random.randrange(len(x.dims))
    if w.random.random() < 0.6:
        w.emit("sort", x.dims, f"%{x.name}", f"dimensions={{{dim}}}, to_apply=%{w.region('compare')}")
        return
    y = w.like(x.dims)
    attributes = f"dimensions={{{dim}}}, to_apply=%{w.region('compare', pairs=2)}"
    _tuple_valued(w, "sort", [x.dims, x.dims], f"%{x.name}, %{y.name}", attributes)


@writes(3)
def gather(w: ModuleWriter) -> None:
    """An embedding look-up, batched or not, perhaps with iota columns."""
    x = w.pick(least=2)
    if w.random.random() < 0.3:
        _batched_gather(w, x)
        return
    columns = w.random.randint(1, min(2, len(x.dims)))
    index_map = sorted(w.random.sample(range(len(x.dims)), columns))
    batch = tuple(w.random.choice((2, 4, 8)) for _ in range(w.random.randint(1, 2)))
    if w.random.random() < 0.4:
        batch = (x.dims[index_map[0]], *batch[1:])
    indices = _indices(w, batch, columns)
    sizes = [1 if d in index_map else (n if w.random.random() < 0.7 else max(1, n // 2)) for d, n in enumerate(x.dims)]
    collapsed = index_map
    kept = [n for d, n in enumerate(sizes) if d not in collapsed]
    rank = len(batch) + len(kept)
    offsets = sorted(w.random.sample(range(rank), len(kept)))
    left, right = iter(batch), iter(kept)
    dims = tuple(next(right) if d in offsets else next(left) for d in range(rank))
    attributes = (
        f"offset_dims={braces(offsets)}, collapsed_slice_dims={braces(collapsed)},"
        f" start_index_map={braces(index_map)}, index_vector_dim={len(batch)}, slice_sizes={braces(sizes)}"
    )
    result = w.emit("gather", dims, f"%{x.name}, %{indices.name}", attributes)
    if w.random.random() < 0.5:
        _scatter_back(w, x, indices, result, offsets, collapsed, index_map, sizes)


def _indices(w: ModuleWriter, batch: Dims, columns: int) -> Value:
    """Index vectors along the last dim: opaque, or some of their columns an iota."""
    if w.random.random() < 0.5:
        pieces = []
        for _ in range(columns):
            if w.random.random() < 0.6:
                dim = w.random.randrange(len(batch))
                pieces.append(w.emit("iota", (*batch, 1), "", f"iota_dimension={dim}", "s32"))
            else:
                pieces.append(w.like((*batch, 1), "s32"))
        names = ", ".join(f"%{p.name}" for p in pieces)
        found = w.emit("concatenate", (*batch, columns), names, f"dimensions={{{len(batch)}}}", "s32")
        return w.emit("copy", found.dims, f"%{found.name}", "", "s32") if w.random.random() < 0.2 else found
    return w.like((*batch, columns), "s32")


def _scatter_back(
    w: ModuleWriter, x: Value, indices: Value, update: Value, offsets: object, inserted: object, index_map: object,
    sizes: list[int],
) -> None:  # fmt: skip
    attributes = (
        f"update_window_dims={braces(offsets)}, inserted_window_dims={braces(inserted)},"
        f" scatter_dims_to_operand_dims={braces(index_map)}, index_vector_dim={len(indices.dims) - 1}"
    )
    if w.random.random() < 0.8:
        attributes += f", to_apply=%{w.region()}"
        w.emit("scatter", x.dims, f"%{x.name}, %{indices.name}, %{update.name}", attributes)
        return
    other, more = w.like(x.dims), w.like(update.dims)
    attributes += f", to_apply=%{w.region(pairs=2)}"
    args = f"%{x.name}, %{other.name}, %{indices.name}, %{update.name}, %{more.name}"
    _tuple_valued(w, "scatter", [x.dims, x.dims], args, attributes)


def _batched_gather(w: ModuleWriter, x: Value) -> None:
    batch = x.dims[0]
    indices = w.like((batch, w.random.choice((2, 4)), 1), "s32")
    rest = x.dims[2:]
    offsets = list(range(2, 2 + len(rest)))
    attributes = (
        f"offset_dims={braces(offsets)}, collapsed_slice_dims={{1}}, start_index_map={{1}},"
        f" operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, index_vector_dim=2,"
        f" slice_sizes={braces((1, 1, *rest))}"
    )
    result = w.emit("gather", (batch, indices.dims[1], *rest), f"%{x.name}, %{indices.name}", attributes)
    if w.random.random() < 0.5:
        attributes = (
            f"update_window_dims={braces(offsets)}, inserted_window_dims={{1}}, scatter_dims_to_operand_dims={{1}},"
            f" input_batching_dims={{0}}, scatter_indices_batching_dims={{0}}, index_vector_dim=2,"
            f" to_apply=%{w.region()}"
        )
        w.emit("scatter", x.dims, f"%{x.name}, %{indices.name}, %{result.name}", attributes)


@writes(2)
def windows(w: ModuleWriter) -> None:
    x = w.pick(least=1)
    zero = w.like(())
    size = [w.random.choice((1, 2)) if d > 1 else 1 for d in x.dims]
    same = w.random.random() < 0.5
    if same:
        pad = "x".join(f"{n - 1}_0" for n in size)
        dims = x.dims
        window = f"window={{size={'x'.join(map(str, size))} pad={pad}}}"
    else:
        dims = tuple(d // n for d, n in zip(x.dims, size, strict=True))
        window = f"window={{size={'x'.join(map(str, size))} stride={'x'.join(map(str, size))}}}"
    if w.random.random() < 0.7:
        w.emit("reduce-window", dims, f"%{x.name}, %{zero.name}", f"{window}, to_apply=%{w.region()}")
    elif not same:
        source = w.like(dims)
        attributes = f"{window}, select=%{w.region('compare')}, scatter=%{w.region()}"
        w.emit("select-and-scatter", x.dims, f"%{x.name}, %{source.name}, %{zero.name}", attributes)


@writes(2)
def tuples(w: ModuleWriter) -> None:
    values = [w.pick() for _ in range(w.random.randint(1, 3))]
    name = w.fresh("tuple")
    shape = ", ".join(v.shape for v in values)
    sharding = ""
    if w.random.random() < w.density:
        sharding = f", sharding={{{', '.join(w.sharding(v.dims) for v in values)}}}"
    names = ", ".join(f"%{v.name}" for v in values)
    w.body.lines.append(f"  %{name} = ({shape}) tuple({names}){sharding}")
    if w.random.random() < 0.4:
        barrier = w.fresh("barrier")
        w.body.lines.append(f"  %{barrier} = ({shape}) opt-barrier(%{name})")
        name = barrier
    for n, v in enumerate(values):
        if w.random.random() < 0.7:
            w.emit("get-tuple-element", v.dims, f"%{name}", f"index={n}")


@writes(2)
def annotations(w: ModuleWriter) -> None:
    """`Sharding` calls: plain, with open dims, unknown, in shard groups."""
    x = w.pick()
    target = 'custom_call_target="Sharding"'
    roll = w.random.random()
    if roll < 0.4:
        w.emit("custom-call", x.dims, f"%{x.name}", f"{target}, sharding={w.tiled(x.dims)}")
    elif roll < 0.7 and x.dims:
        dims = sorted(w.random.sample(range(len(x.dims)), w.random.randint(1, len(x.dims))))
        opaque = f'backend_config="unspecified_dims=[{",".join(map(str, dims))}]"'
        w.emit("custom-call", x.dims, f"%{x.name}", f"{target}, sharding={w.tiled(x.dims)}, {opaque}")
    elif roll < 0.8:
        w.emit("custom-call", x.dims, f"%{x.name}", f"{target}, sharding={{unknown}}")
    elif w.groups:
        kind, number = w.random.choice(("as", "like")), w.random.randint(1, 3)
        members = [
            w.emit("negate", x.dims, f"%{x.name}"),
            w.emit("exponential", x.dims, f"%{w.like(x.dims).name}"),
        ]
        group = f"{{unknown shard_{kind} {w.count * 4 + number}}}"
        for value in members:
            attributes = f"{target}, custom_call_has_side_effect=true, sharding={group}"
            w.emit("custom-call", x.dims, f"%{value.name}", attributes)


@writes()
def manual_region(w: ModuleWriter) -> None:
    """Into a manual region and out again, along one subgroup of devices."""
    x = w.pick(least=1)
    if not w.manual or x.dims[0] % 2 or w.devices % 2:
        return
    rest = w.devices // 2
    ones = ",".join(["1"] * (len(x.dims) - 1))
    tail = f",{ones}" if ones else ""
    outer = f"{{devices=[2{tail},{rest}]<=[{w.devices}] last_tile_dim_replicate}}"
    inner = f"{{devices=[1{tail},2,{rest}]<=[{w.devices}] last_tile_dims={{manual, replicated}}}}"
    local = (x.dims[0] // 2, *x.dims[1:])
    open_dims = ""
    if len(x.dims) > 1 and w.random.random() < 0.6:
        open_dims = f', backend_config="unspecified_dims=[{",".join(map(str, range(1, len(x.dims))))}]"'
    into = w.emit("custom-call", x.dims, f"%{x.name}", f'custom_call_target="Sharding", sharding={outer}{open_dims}')
    target = 'custom_call_target="SPMDFullToShardShape"'
    shard = w.emit("custom-call", local, f"%{into.name}", f"{target}, sharding={inner}{open_dims}")
    work = w.emit("negate", local, f"%{shard.name}")
    back = w.emit("custom-call", local, f"%{work.name}", f'custom_call_target="Sharding", sharding={inner}{open_dims}')
    target = 'custom_call_target="SPMDShardToFullShape"'
    w.emit("custom-call", x.dims, f"%{back.name}", f"{target}, sharding={outer}{open_dims}")


@writes()
def other_calls(w: ModuleWriter) -> None:
    x = w.pick()
    targets = ("X64Combine", "LayoutConstraint", "ResizeNearest", "MoveToHost", "Foreign", "ShardBarrierFrom",
               "ShardBarrierTo", "Cholesky")  # fmt: skip
    target = w.random.choice(targets)
    if target.startswith("ShardBarrier") and not w.groups:
        return
    w.emit("custom-call", x.dims, f"%{x.name}", f'custom_call_target="{target}"')


@writes(2)
def rare(w: ModuleWriter) -> None:
    """Ops that pass little or nothing on."""
    x = w.pick()
    roll = w.random.randrange(8)
    if roll == 0:
        w.emit("convert", x.dims, f"%{x.name}", "", "bf16")
    elif roll == 1:
        w.emit("map", x.dims, f"%{x.name}, %{w.like(x.dims).name}",
               f"dimensions={braces(range(len(x.dims)))}, to_apply=%{w.region()}")  # fmt: skip
    elif roll == 2:
        groups = "{" + braces(range(w.devices)) + "}"
        w.emit("all-reduce", x.dims, f"%{x.name}", f"replica_groups={groups}, to_apply=%{w.region()}")
    elif roll == 3:
        w.emit("collective-permute", x.dims, f"%{x.name}", "source_target_pairs={{0,1},{1,0}}")
    elif roll == 4:
        low, high = w.like(()), w.like(())
        w.emit("rng", x.dims, f"%{low.name}, %{high.name}", "distribution=rng_uniform")
    elif roll == 5:
        w.emit("bitcast-convert", x.dims, f"%{x.name}", "", "s32")
    elif roll == 6:
        w.emit("real", x.dims, f"%{w.emit('complex', x.dims, f'%{x.name}, %{w.like(x.dims).name}', '', 'c64').name}")
    else:
        state = w.like((2,), "u64")
        name = w.fresh("bits")
        shape = f"(u64[2], {shape_text(x.dims, 'u32')})"
        w.body.lines.append(f"  %{name} = {shape} rng-bit-generator(%{state.name}), algorithm=rng_philox")
        w.emit("get-tuple-element", x.dims, f"%{name}", "index=1", "u32")


@writes()
def nested_tuples(w: ModuleWriter) -> None:
    """A tuple in a tuple, taken apart again."""
    x, y, z = w.pick(), w.pick(), w.pick()
    inner, outer = w.fresh("inner"), w.fresh("outer")
    w.body.lines.append(f"  %{inner} = ({x.shape}, {y.shape}) tuple(%{x.name}, %{y.name})")
    sharding = ""
    if w.random.random() < w.density:
        sharding = f", sharding={{{w.sharding(z.dims)}, {w.sharding(x.dims)}, {w.sharding(y.dims)}}}"
    shape = f"({z.shape}, ({x.shape}, {y.shape}))"
    w.body.lines.append(f"  %{outer} = {shape} tuple(%{z.name}, %{inner}){sharding}")
    again = w.fresh("again")
    w.body.lines.append(f"  %{again} = ({x.shape}, {y.shape}) get-tuple-element(%{outer}), index=1")
    w.emit("get-tuple-element", y.dims, f"%{again}", "index=1")
    w.emit("get-tuple-element", z.dims, f"%{outer}", "index=0")


@writes()
def dilated_windows(w: ModuleWriter) -> None:
    """A reduce-window over dilated input or window, one or two inputs."""
    x, zero = w.pick(least=1), w.like(())
    rank = len(x.dims)
    which = w.random.choice(("lhs_dilate", "rhs_dilate", ""))
    window = f"size={'x'.join(['1'] * rank)}" + (f" {which}={'x'.join(['2'] + ['1'] * (rank - 1))}" if which else "")
    dims = ((x.dims[0] - 1) * 2 + 1, *x.dims[1:]) if which == "lhs_dilate" else x.dims
    if w.random.random() < 0.5:
        args = f"%{x.name}, %{zero.name}"
        w.emit("reduce-window", dims, args, f"window={{{window}}}, to_apply=%{w.region()}")
        return
    y = w.like(x.dims)
    args = f"%{x.name}, %{y.name}, %{zero.name}, %{zero.name}"
    attributes = f"window={{{window}}}, to_apply=%{w.region(pairs=2)}"
    _tuple_valued(w, "reduce-window", [dims, dims], args, attributes)


@writes()
def plain_collectives(w: ModuleWriter) -> None:
    """Collectives of a program that already has some; most pass nothing on."""
    x = w.pick(least=1)
    groups = "{" + braces(range(2)) + "}"
    roll = w.random.randrange(4)
    if roll == 0:
        dims = (x.dims[0] * 2, *x.dims[1:])
        w.emit("all-gather", dims, f"%{x.name}", f"replica_groups={groups}, dimensions={{0}}")
    elif roll == 1 and x.dims[0] % 2 == 0:
        dims = (x.dims[0] // 2, *x.dims[1:])
        attributes = f"replica_groups={groups}, dimensions={{0}}, to_apply=%{w.region()}"
        w.emit("reduce-scatter", dims, f"%{x.name}", attributes)
    elif roll == 2 and x.dims[0] % 2 == 0:
        w.emit("all-to-all", x.dims, f"%{x.name}", f"replica_groups={groups}, dimensions={{0}}")
    else:
        w.emit("collective-broadcast", x.dims, f"%{x.name}", f"replica_groups={groups}")


@writes()
def grouped_convolution(w: ModuleWriter) -> None:
    """A weight gradient as XLA writes it: the batch dim in groups."""
    groups, size = w.random.choice((2, 4)), w.random.choice((3, 4, 8))
    image, kernel = w.like((groups * 2, 4, size)), w.like((4, groups * 2, 1))
    attributes = f"window={{size=1}}, dim_labels=bf0_io0->bf0, batch_group_count={groups}"
    w.emit("convolution", (2, groups * 2, size), f"%{image.name}, %{kernel.name}", attributes)
