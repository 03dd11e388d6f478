"""`trace` gives the same module whether JAX lowers for GSPMD or, as a JAX without GSPMD would, for Shardy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding import xla_bridge
from hlosharding.ir import Module

X = jax.ShapeDtypeStruct((16, 16), jnp.float32)
ROWS = "{devices=[8,1]<=[8]}"
REVERSED = "{devices=[8,1]7,6,5,4,3,2,1,0}"
needs_gspmd = pytest.mark.skipif(not xla_bridge.has_gspmd_lowering(), reason="this JAX lowers for Shardy only")


def described(module: Module) -> list[str]:
    """Every instruction with all it says: frames of this file, shardings, attributes, control edges.

    Names without the numbers that make them unique: Shardy's calls, which vanish, took some of them.
    """
    ordered = [i for c in module.computations for i in c.post_order()]
    number = {i: n for n, i in enumerate(ordered)}
    lines = []
    for i in ordered:
        operands, before = ([number[o] for o in others] for others in (i.operands, i.control_predecessors))
        sharding = re.sub(r"shard_as \d+", "shard_as", str(module.sharding(i)))
        frames = [str(f) for f in i.frames if f.file == __file__]
        # Functions inside and their arguments have other names in each dialect; nobody reads them.
        is_inside = i.opcode == "parameter" and not i.computation.is_entry
        op_name, name = ("", "") if is_inside else (i.op_name, root(i.name))
        called = [len(c.instructions) for c in i.called]
        lines.append(
            f"{name} {i.opcode} {i.shape} {operands} {before} {called} {i.custom_call_target} {i.opaque}"
            f" {sharding} {sorted(i.frontend_attributes.items())} {op_name} {frames} {i.is_root}"
            f" {i.proto.custom_call_has_side_effect}"
        )
    return lines


def root(name: str) -> str:
    return name.partition(".")[0]


def assert_same_module(one: Module, other: Module) -> None:
    assert "\n".join(described(one)) == "\n".join(described(other))
    assert (one.mesh, one.num_partitions, len(one.callbacks)) == (
        other.mesh,
        other.num_partitions,
        len(other.callbacks),
    )
    assert [(p.partition, p.infer_sharding_from_operands) for p in one.partitionings] == [
        (p.partition, p.infer_sharding_from_operands) for p in other.partitionings
    ]
    for field in fields(one.signature):
        assert getattr(one.signature, field.name) == getattr(other.signature, field.name), field.name


def both(fn: Callable[..., Any], *args: Any, **options: Any) -> tuple[Module, Module]:
    """Lowered for GSPMD, and as a JAX does it that knows nothing but Shardy."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for has_gspmd in (True, False):  # one line of the user's, or the frames differ
            jax.clear_caches()  # JAX's own inner functions keep the frames of whoever called them first
            patch.setattr(xla_bridge, "has_gspmd_lowering", lambda: has_gspmd)  # noqa: B023
            found.append(hs.trace(fn, **options)(*args))
    return found[0], found[1]


def constraints(x: Any) -> Any:
    a = lax.with_sharding_constraint(x + 1, P(P.UNCONSTRAINED, "data"))
    b = lax.with_sharding_constraint(x * 2, P("model", None))
    return a, lax.with_sharding_constraint((a @ b).T, P(None, ("data", "model")))


def any_sharding(x: Any) -> Any:
    y = hs.with_sharding(jnp.sin(x), REVERSED)
    z = hs.with_sharding(
        {"a": y @ x, "b": x[:5]}, {"a": "{devices=[2,4]<=[8]}", "b": "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"}
    )
    return hs.with_sharding(jax.vmap(lambda r: hs.with_sharding(r * 2, "{devices=[8]<=[8]}"))(y), P("data")), z


def alike(x: Any, y: Any) -> Any:
    a, b = hs.shard_alike(jnp.sin(x), y)
    c, d = hs.shard_alike({"p": a @ b}, {"p": a + b})
    return jax.grad(lambda v: hs.shard_alike(v * 2, y)[0].sum())(x), c, d


def manual_regions(x: Any, y: Any) -> Any:
    split = P("data", "model")

    def body(v: Any, w: Any) -> Any:
        return lax.psum(v @ w, "model"), lax.all_gather(v, "data")

    outer = jax.shard_map(
        body, in_specs=(split, P("model", None)), out_specs=(P("data", None), P(None, None, "model")), check_vma=False
    )
    partly = jax.shard_map(
        lambda v: lax.with_sharding_constraint(lax.psum(v, "model"), P("data", None)),
        in_specs=P(None, "model"),
        out_specs=P(None, None),
        axis_names={"model"},
    )
    a, b = outer(jnp.sin(x), y)
    return a + partly(y).sum(), b


def loops(x: Any) -> Any:
    def body(c: Any, row: Any) -> Any:
        c = hs.with_sharding(jnp.tanh(c) + row, REVERSED)
        return lax.with_sharding_constraint(c, P("data")), c.sum(0)

    scanned, sums = lax.scan(body, x, x)
    whiled = lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, lax.with_sharding_constraint(c[1] * 2, P(None, "model"))), (0, scanned)
    )[1]
    return lax.cond(
        sums.sum() > 0,
        lambda v: lax.with_sharding_constraint(v + 1, P("model")),
        lambda v: hs.with_sharding(v - 1, ROWS),
        whiled,
    )


def keys(key: Any, x: Any) -> Any:
    keys = hs.with_sharding(jax.random.split(key, 8), "{devices=[8]<=[8]}")
    keys = lax.with_sharding_constraint(keys, P("data"))
    return keys, jax.vmap(lambda k: jax.random.normal(k, (3,)))(keys), x


def calls(x: Any) -> Any:
    @jax.jit
    def inner(v: Any) -> Any:
        return lax.with_sharding_constraint(jnp.where(v > 0, v, 0), P("model"))

    return inner(inner(x)) + jax.checkpoint(inner)(x)


def hosted(x: Any) -> Any:
    def told(v: Any) -> Any:
        return np.asarray(v) * 2

    jax.debug.print("{}", x.sum())
    return jax.pure_callback(told, X, x) + 1


def hosted_inside(x: Any) -> Any:
    def body(v: Any) -> Any:
        shape = jax.ShapeDtypeStruct(v.shape, v.dtype)
        jax.debug.print("{}", v.sum())
        a, b = jax.pure_callback(lambda v: (v, v), (shape, shape), v)
        return a + b + jax.pure_callback(lambda v: v, shape, v)

    return jax.shard_map(body, in_specs=P("data", "model"), out_specs=P("data", "model"))(x)


def tree(params: Any, scale: Any) -> Any:
    return {"out": [params["w"] @ params["v"] * scale, params["w"].sum()], "other": params["v"]}


def named(mesh: Mesh, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec))


@needs_gspmd
@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize(
    ("fn", "arguments"),
    [
        (constraints, (X,)),
        (any_sharding, (X,)),
        (alike, (X, X)),
        (manual_regions, (X, X)),
        (loops, (X,)),
        (jax.grad(lambda x: loops_without_while(x).sum()), (X,)),
        (keys, (jax.eval_shape(lambda: jax.random.key(0)), X)),
        (calls, (X,)),
        (hosted, (X,)),
        (hosted_inside, (X,)),
    ],
)
def test_functions(mesh_2x4: Mesh, fn: Callable[..., Any], arguments: tuple[Any, ...], prepare: bool) -> None:
    assert_same_module(*both(fn, *arguments, mesh=mesh_2x4, prepare=prepare))


def loops_without_while(x: Any) -> Any:
    def body(c: Any, row: Any) -> Any:
        return hs.with_sharding(jnp.tanh(c) * row, REVERSED), lax.with_sharding_constraint(c.sum(0), P("model"))

    return lax.scan(jax.checkpoint(body), x, x)[1]


@needs_gspmd
@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"in_shardings": P("data"), "out_shardings": P("model")},
        {"in_shardings": (P("data", "model"), None), "out_shardings": (None, P(None, "data"))},
        {"in_shardings": (REVERSED, "{devices=[3,1]0,1,2}"), "out_shardings": (REVERSED, None)},
        {"out_shardings": ("{maximal device=3}", P())},
    ],
)
def test_boundaries(mesh_2x4: Mesh, options: dict[str, Any], prepare: bool) -> None:
    assert_same_module(*both(lambda x, y: (x @ y, x.T), X, X, mesh=mesh_2x4, prepare=prepare, **options))
    only = {name: value[0] if isinstance(value, tuple) else value for name, value in options.items()}
    assert_same_module(*both(lambda x: x + 1, X, mesh=mesh_2x4, prepare=prepare, **only))


@needs_gspmd
def test_arguments_that_bring_their_shardings_and_keywords(mesh_2x4: Mesh) -> None:
    split = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=named(mesh_2x4, "data", "model"))
    assert_same_module(*both(tree, {"w": split, "v": X}, 2.0, out_shardings=None))
    explicit = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    rows = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=named(explicit, "data", None))
    columns = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=named(explicit, None, "model"))
    assert_same_module(*both(lambda x, y: (x + 1) @ y, rows, columns, mesh=explicit))


@needs_gspmd
@pytest.mark.parametrize("prepare", [True, False])
def test_outputs_in_another_layout_and_returned_twice(mesh_2x4: Mesh, prepare: bool) -> None:
    wanted = ("{devices=[3,1]0,1,2}", "{maximal device=3}", P("data"), None)
    modules = both(
        lambda x: (x.T, jnp.sin(x), x.T, x), X, mesh=mesh_2x4, prepare=prepare, in_shardings=ROWS, out_shardings=wanted
    )
    assert_same_module(*modules)
    for module in modules:
        annotated = {str(module.sharding(i)) for i in module.instructions if i.opcode == "reshape"} - {"None"}
        assert annotated == {str(leaf) for leaf in module.sharding(module.entry.root).leaves[:3]}


@needs_gspmd
def test_donated_arguments(mesh_2x4: Mesh) -> None:
    inner = jax.jit(lambda x, y: (x + 1, y.sum()), donate_argnums=(0,))
    assert_same_module(*both(inner, X, X, mesh=mesh_2x4, in_shardings=P("data")))


@needs_gspmd
@pytest.mark.parametrize("infer", [None, lambda mesh, arguments, result: arguments[0].sharding])
def test_custom_partitioning(mesh_2x4: Mesh, infer: Any) -> None:
    @custom_partitioning
    def softmax(x: Any) -> Any:
        return jax.nn.softmax(x, -1)

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        return mesh, softmax.fun, arguments[0].sharding, (arguments[0].sharding,)

    softmax.def_partition(
        partition,
        infer_sharding_from_operands=infer,
        sharding_rule=None if infer else "i j -> i j",
        **{} if infer else {"need_replication_factors": ("j",)},
    )

    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (softmax(c * 2), None), x, None, length=2)[0] + softmax(x)

    for prepare in (True, False):
        found = both(f, X, mesh=mesh_2x4, prepare=prepare, in_shardings=P("data"))
        assert_same_module(*found)
        assert len(found[0].partitionings) == len(found[1].partitionings) > 0
