"""A `Lowered` of Shardy's dialect, JAX's default, gives the module that GSPMD's dialect gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlosharding import xla_bridge
from hlosharding.errors import LoadError
from hlosharding.frontends import load
from hlosharding.frontends.shardy.attribute_text import largest_mesh, parse_meshes, parse_shardings, to_hlo
from hlosharding.ir import Module
from hlosharding.sharding import MeshInfo

P = PartitionSpec
X = jax.ShapeDtypeStruct((16, 16), jnp.float32)


def canonical(module: Module) -> list[str]:
    """Every instruction without its name, in post order."""
    number = {i: n for n, i in enumerate(i for c in module.computations for i in c.post_order())}
    lines = []
    for i in number:
        operands = [number[o] for o in i.operands]
        sharding = re.sub(r"shard_as \d+", "shard_as", str(module.sharding(i)))
        lines.append(f"{i.opcode} {i.shape} {operands} {i.custom_call_target} {i.opaque} {sharding} {i.is_root}")
    return lines


def conversions(module: Module) -> list[str]:
    """The ways into and out of manual regions."""
    found = [i for i in module.instructions if i.custom_call_target.startswith("SPMD")]
    return [f"{i.custom_call_target} {i.shape} {module.sharding(i)}" for i in found]


def both(fn: Callable[..., Any], *args: Any, **options: Any) -> tuple[Module, Module]:
    found = []
    for enabled in (True, False):
        with xla_bridge.shardy(enabled):
            found.append(load(jax.jit(fn, **options).lower(*args)))
    return found[0], found[1]


def check(fn: Callable[..., Any], *args: Any, **options: Any) -> Module:
    shardy, gspmd = both(fn, *args, **options)
    assert canonical(shardy) == canonical(gspmd)
    assert shardy.num_partitions == gspmd.num_partitions
    return shardy


def test_constraints_open_dims_and_results(mesh_2x4: Mesh) -> None:
    def named(*spec: Any) -> NamedSharding:
        return NamedSharding(mesh_2x4, P(*spec))

    def f(x: Any, y: Any) -> Any:
        a = jax.lax.with_sharding_constraint(x + 1, named(P.UNCONSTRAINED, "data"))
        b = jax.lax.with_sharding_constraint(x * 2, named("model", None))
        c = jax.lax.with_sharding_constraint((x @ y).T, named(None, ("data", "model")))
        return a, b, c, y

    module = check(
        f,
        X,
        X,
        in_shardings=(named("data", "model"), None),
        out_shardings=(None, named("model"), named(None, "data"), None),
    )
    assert module.mesh == MeshInfo(("data", "model"), (2, 4))
    assert module.open_outputs == (True, False, False, True)
    assert module.open_parameters == (False, True)


def test_shard_map_over_all_axes(mesh_2x4: Mesh) -> None:
    def f(x: Any, y: Any) -> Any:
        split = P("data", "model")
        body = jax.shard_map(
            lambda v, w: (jax.lax.psum(v @ w, "model"), v),
            mesh=mesh_2x4,
            in_specs=(split, P("model", None)),
            out_specs=(P("data", None), split),
        )
        a, b = body(jnp.sin(x), y)
        return a + b

    module = check(f, X, X)
    targets = [i.custom_call_target for i in module.instructions if i.opcode == "custom-call"]
    assert targets.count("SPMDFullToShardShape") == targets.count("SPMDShardToFullShape") == 2
    assert "call" not in [i.opcode for i in module.instructions]
    check(jax.grad(lambda x, y: f(x, y).sum()), X, X)


def test_shard_map_over_some_axes_with_a_constraint_in_a_loop(mesh_2x4: Mesh) -> None:
    def body(v: Any, w: Any) -> Any:
        def turn(c: Any, _: None) -> tuple[Any, None]:
            return jax.lax.with_sharding_constraint(jnp.sin(c), P("data", None)), None

        return jax.lax.psum(jax.lax.scan(turn, v, None, length=2)[0] @ w, "model")

    def f(x: Any, y: Any) -> Any:
        specs = (P(None, "model"), P("model", None))
        return jax.shard_map(body, mesh=mesh_2x4, in_specs=specs, out_specs=P(None, None), axis_names={"model"})(x, y)

    with jax.set_mesh(mesh_2x4):
        check(f, X, X)


def test_shard_map_inside_shard_map(mesh_2x4: Mesh) -> None:
    def outer(v: Any) -> Any:
        inner = lambda u: jax.lax.psum(u, "model")  # noqa: E731
        return jax.shard_map(inner, in_specs=P("model"), out_specs=P(), axis_names={"model"})(v)

    def f(x: Any) -> Any:
        return jax.shard_map(outer, mesh=mesh_2x4, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})(x)

    # Versions of JAX differ in whether a value that leaves the inner region is marked as manual once more.
    shardy, gspmd = both(f, X)
    for module in (shardy, gspmd):
        targets = [i.custom_call_target for i in module.instructions if i.opcode == "custom-call"]
        assert targets.count("SPMDFullToShardShape") == targets.count("SPMDShardToFullShape") == 2
    assert conversions(shardy) == conversions(gspmd)


def test_explicit_axes() -> None:
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    rows = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh, P("data", None)))
    columns = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh, P(None, "model")))
    check(lambda x, y: (x + 1) @ y, rows, columns)


def test_one_result(mesh_2x4: Mesh) -> None:
    def f(x: Any) -> Any:
        return jax.shard_map(lambda v: v * 2, mesh=mesh_2x4, in_specs=P("data"), out_specs=P("data"))(x)

    check(f, X, out_shardings=NamedSharding(mesh_2x4, P("data")))


def test_sharding_groups_become_shard_as() -> None:
    text = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=2]>}}
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] negate(x)
  g = () custom-call(x), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true, frontend_attributes={xla.sdy.sharding_group_id="7 : i64"}
  h = () custom-call(y), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true, frontend_attributes={xla.sdy.sharding_group_id="7 : i64"}
  ROOT r = f32[4] add(x, y)
}"""  # noqa: E501
    from hlosharding.frontends.hlo.text_and_proto import from_hlo_text
    from hlosharding.frontends.shardy.to_gspmd import without_shardy_marks

    module = without_shardy_marks(from_hlo_text(text))
    marks = [i for i in module.instructions if i.custom_call_target == "Sharding"]
    assert [str(module.sharding(i)) for i in marks] == ["{unknown shard_as 7}"] * 2
    assert [o.opcode for o in module.entry.root.operands] == ["custom-call", "custom-call"]


def test_calls_of_shardy_that_nobody_knows_are_named() -> None:
    text = """HloModule m
ENTRY e { x = f32[4] parameter(0)  ROOT r = f32[4] custom-call(x), custom_call_target="xla.sdy.Unheard" }"""
    from hlosharding.frontends.hlo.text_and_proto import from_hlo_text
    from hlosharding.frontends.shardy.to_gspmd import without_shardy_marks

    with pytest.raises(LoadError, match=r"xla\.sdy\.Unheard is not known"):
        without_shardy_marks(from_hlo_text(text))


def test_a_lowering_drops_unused_arguments_and_the_signature_knows() -> None:
    module = load(jax.jit(lambda x, unused, y: {"sum": x + y}).lower(np.ones(3), np.ones(2), np.ones(3)))
    assert module.signature.parameters == (0, None, 1)
    assert module.signature.names[0] == "x"
    assert module.signature.flatten((1, 2, 3), {}) == [1, 3]
    assert module.signature.unflatten([5]) == {"sum": 5}


def test_mesh_texts_of_shardy() -> None:
    text = '{mesh = #sdy.mesh<["a"=2, "b"=4]>, other = #sdy.mesh<["x"=2], device_ids=[1, 0]>, none = #sdy.mesh<[]>}'
    meshes = parse_meshes(text)
    assert meshes["other"].mesh.device_ids == (1, 0)
    assert largest_mesh(meshes) == MeshInfo(("a", "b"), (2, 4))


@pytest.mark.parametrize(
    ("text", "expected", "open_dims"),
    [
        ('<@mesh, [{"a"}, {}]>', "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", ()),
        ('<@mesh, [{"b":(1)2, ?}, {?}]>', "{devices=[2,1,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}", (0, 1)),
        ('<@mesh, [{"b", "a"}p1]>', "{devices=[8]<=[2,4]T(1,0)}", ()),
        ("<@mesh, []>", "{replicated}", ()),
        ('<@mesh, [{}], replicated={"a"}>', "{replicated}", ()),
        ('<@mesh, [{"a"}], unreduced={"b"}>', "{devices=[2,4]<=[8] last_tile_dims={unreduced}}", ()),
        ('<mesh<["c"=2]>, [{"c"}]>', "{devices=[2]<=[2]}", ()),
    ],
)
def test_sharding_texts_of_shardy(text: str, expected: str, open_dims: tuple[int, ...]) -> None:
    meshes = parse_meshes('{mesh = #sdy.mesh<["a"=2, "b"=4]>}')
    found = parse_shardings(f"#sdy.sharding_per_value<[{text}]>", meshes)
    assert [(str(to_hlo(f)), f.open_dims) for f in found] == [(expected, open_dims)]


def test_a_sharding_over_an_unknown_mesh_is_an_error() -> None:
    with pytest.raises(LoadError, match="@mesh"):
        parse_shardings("#sdy.sharding<@mesh, [{}]>", parse_meshes(""))


def test_the_mesh_comes_from_the_boundary_where_the_dialect_has_none(mesh_2x4: Mesh) -> None:
    rows = NamedSharding(mesh_2x4, P("data"))
    for module in both(lambda x: x + 1, X, in_shardings=rows):
        assert module.mesh == MeshInfo(("data", "model"), (2, 4))


def test_a_compiled_function_shows_what_xla_made_of_it(mesh_2x4: Mesh) -> None:
    split = NamedSharding(mesh_2x4, P(None, "data")), NamedSharding(mesh_2x4, P("data"))
    module = load(jax.jit(lambda x, y: x @ y, in_shardings=split).lower(X, X).compile())
    assert module.num_partitions == 8
    assert any(i.opcode.startswith("all-reduce") for i in module.instructions)
    assert str(module.entry.parameters[0].shape) == "f32[16,8]"
