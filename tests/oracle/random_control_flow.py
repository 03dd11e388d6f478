"""Control flow for `random_modules`: loops, branches and calls around a few of the ops of `random_ops`."""

from __future__ import annotations

from tests.oracle.random_modules import Body, ModuleWriter, Value, braces, writes
from tests.oracle.random_ops import broadcast, dot, elementwise, reduce, reshape, transpose, tuples


def _nested(w: ModuleWriter, values: list[Value], ops: int, as_tuple: bool) -> tuple[str, list[Value]]:
    """A computation over `values` that returns values of the same dims; returns its name."""
    outer, w.body = w.body, Body()
    w.depth += 1
    name = w.fresh("body")
    inner: list[Value] = []
    if as_tuple:
        shape = ", ".join(v.shape for v in values)
        w.body.lines.append(f"  %{name}.p = ({shape}) parameter(0)")
        inner = [w.emit("get-tuple-element", v.dims, f"%{name}.p", f"index={n}", v.type) for n, v in enumerate(values)]
    else:
        inner = [w.emit("parameter", v.dims, str(n), "", v.type) for n, v in enumerate(values)]
    for _ in range(ops):
        if w.nesting and w.depth == 1 and w.random.random() < 0.15:
            w.random.choice((while_loop, conditional, call))(w)
        else:
            w.random.choice((elementwise, elementwise, transpose, broadcast, dot, reduce, reshape, tuples))(w)
    results = [w.random.choice([v for v in w.body.values if (v.dims, v.type) == (i.dims, i.type)]) for i in inner]
    if as_tuple:
        names, shape = ", ".join(f"%{r.name}" for r in results), ", ".join(r.shape for r in results)
        w.body.lines.append(f"  ROOT %{name}.r = ({shape}) tuple({names})")
    else:
        w.body.lines.append(f"  ROOT %{name}.r = {results[0].shape} copy(%{results[0].name})")
    text = f"%{name} {{\n" + "\n".join(w.body.lines) + "\n}\n"
    w.regions.append(text)
    w.body = outer
    w.depth -= 1
    return name, results


@writes(2)
def while_loop(w: ModuleWriter) -> None:
    if w.depth > 1:
        return
    values = [w.pick() for _ in range(w.random.randint(1, 3))]
    body, _ = _nested(w, values, w.random.randint(1, 5), as_tuple=True)
    shape = ", ".join(v.shape for v in values)
    condition = w.fresh("condition")
    w.regions.append(
        f"%{condition} {{\n  %{condition}.p = ({shape}) parameter(0)\n"
        f"  ROOT %{condition}.r = pred[] constant(true)\n}}\n"
    )
    initial, loop = w.fresh("initial"), w.fresh("while")
    names = ", ".join(f"%{v.name}" for v in values)
    w.body.lines.append(f"  %{initial} = ({shape}) tuple({names})")
    sharding = ""
    if w.random.random() < w.density:
        sharding = f", sharding={{{', '.join(w.sharding(v.dims) for v in values)}}}"
    w.body.lines.append(f"  %{loop} = ({shape}) while(%{initial}), condition=%{condition}, body=%{body}{sharding}")
    for n, v in enumerate(values):
        w.emit("get-tuple-element", v.dims, f"%{loop}", f"index={n}")


@writes()
def conditional(w: ModuleWriter) -> None:
    if w.depth > 1:
        return
    x = w.pick()
    branches = [_nested(w, [x], w.random.randint(1, 3), as_tuple=False)[0] for _ in range(2)]
    which = w.like((), "pred")
    attributes = f"true_computation=%{branches[0]}, false_computation=%{branches[1]}"
    w.emit("conditional", x.dims, f"%{which.name}, %{x.name}, %{w.like(x.dims).name}", attributes)


@writes()
def call(w: ModuleWriter) -> None:
    if w.depth > 1:
        return
    values = [w.pick() for _ in range(w.random.randint(1, 2))]
    callee, _ = _nested(w, values, w.random.randint(1, 3), as_tuple=False)
    for _ in range(w.random.choice((1, 1, 2))):
        w.emit("call", values[0].dims, ", ".join(f"%{v.name}" for v in values), f"to_apply=%{callee}")


@writes()
def look_up_in_loop(w: ModuleWriter) -> None:
    """A gather in a loop body whose index is an iota that the loop carries unchanged."""
    if w.depth > 0:
        return
    x = w.pick(least=2)
    rows, width = x.dims[0], x.dims[1:]
    index = w.emit("iota", (rows, 1), "", "iota_dimension=0", "s32")
    shape = f"({x.shape}, {index.shape})"
    body, condition = w.fresh("body"), w.fresh("condition")
    offsets = list(range(1, len(x.dims)))
    lines = [
        f"  %{body}.p = {shape} parameter(0)",
        f"  %{body}.x = {x.shape} get-tuple-element(%{body}.p), index=0",
        f"  %{body}.i = {index.shape} get-tuple-element(%{body}.p), index=1",
        f"  %{body}.g = {x.shape} gather(%{body}.x, %{body}.i), offset_dims={braces(offsets)},"
        f" collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={braces((1, *width))}",
        f"  ROOT %{body}.r = {shape} tuple(%{body}.g, %{body}.i)",
    ]
    w.regions.append(f"%{body} {{\n" + "\n".join(lines) + "\n}\n")
    w.regions.append(
        f"%{condition} {{\n  %{condition}.p = {shape} parameter(0)\n  ROOT %{condition}.r = pred[] constant(true)\n}}\n"
    )
    start, loop = w.fresh("start"), w.fresh("while")
    w.body.lines.append(f"  %{start} = {shape} tuple(%{x.name}, %{index.name})")
    w.body.lines.append(f"  %{loop} = {shape} while(%{start}), condition=%{condition}, body=%{body}")
    w.emit("get-tuple-element", x.dims, f"%{loop}", "index=0")


@writes()
def shared_callee(w: ModuleWriter) -> None:
    """One computation called with values that are annotated differently."""
    if w.depth > 0:
        return
    x = w.pick()
    callee, _ = _nested(w, [x], w.random.randint(1, 2), as_tuple=False)
    for _ in range(2):
        y = w.emit("negate", x.dims, f"%{w.like(x.dims).name}")
        w.emit("call", x.dims, f"%{y.name}", f"to_apply=%{callee}")
