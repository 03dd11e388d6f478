"""Traced functions: arguments, boundary shardings, names, signature, errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from hlosharding.errors import LoadError, TraceError
from hlosharding.frontends import load, trace
from hlosharding.frontends.jax.tracing import platforms
from hlosharding.ir import FusedAttention, Module, fused_attention, verify
from hlosharding.sharding import HloSharding, MeshInfo

P = PartitionSpec
ROWS = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
COLUMNS = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"


def struct(*shape: int, dtype: Any = jnp.float32, **options: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, **options)


def parameters(module: Module) -> dict[str, str | None]:
    found = {p.op_name: module.sharding(p) for p in module.entry.parameters}
    return {name: None if s is None else str(s) for name, s in found.items()}


def test_pytrees_become_parameters_named_by_their_paths(mesh_2x4: Mesh) -> None:
    def f(params: dict[str, Any], batch: tuple[Any, Any], *, scale: Any) -> Any:
        return {"y": params["w"] @ batch[0] * scale, "b": batch[1]}

    call = trace(f, mesh=mesh_2x4, in_shardings=({"w": P("data"), "b": None}, P(None, "model")))
    module = call({"w": struct(8, 8), "b": struct(3)}, (struct(8, 8), struct(8, 8)), scale=np.float32(2))
    assert parameters(module) == {
        "params['b']": None,
        "params['w']": ROWS,
        "batch[0]": COLUMNS,
        "batch[1]": COLUMNS,
        "scale": "{replicated}",  # JAX's own rule for scalars on several devices
    }
    signature = module.signature
    assert signature.names == ("params['b']", "params['w']", "batch[0]", "batch[1]", "scale")
    assert signature.unflatten([1, 2]) == {"b": 1, "y": 2}
    assert signature.flatten(({"w": 1, "b": 0}, (2, 3)), {"scale": 4}) == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match="structure"):
        signature.flatten((1,), {})
    assert module.mesh == MeshInfo(("data", "model"), (2, 4))
    assert module.num_partitions == 8
    verify(module)


def test_parameter_shardings_are_spelled_as_jax_spells_them(mesh_2x4: Mesh) -> None:
    from hlosharding import xla_bridge
    from hlosharding.frontends.hlo.text_and_proto import from_hlo_proto

    specs = (P("data", "model"), P(("model", "data")), P(None, "model"), P())
    arguments = [struct(16, 16)] * len(specs)
    with xla_bridge.shardy(False):
        shardings = tuple(NamedSharding(mesh_2x4, spec) for spec in specs)
        lowered = jax.jit(lambda *xs: xs, in_shardings=shardings).lower(*arguments)
    theirs = from_hlo_proto(xla_bridge.lowered_to_hlo_proto(lowered))
    ours = trace(lambda *xs: xs, mesh=mesh_2x4, in_shardings=specs)(*arguments)
    assert list(parameters(ours).values()) == list(parameters(theirs).values())


def test_unused_arguments_stay_parameters_and_static_ones_are_none() -> None:
    def f(x: Any, n: int, y: Any, flag: bool) -> Any:
        return x * n if flag else y

    module = trace(f, static_argnums=(1, -1))(struct(4), 3, struct(4), True)
    assert list(parameters(module)) == ["x", "y"]
    assert module.signature.parameters == (0, 1)


def sum_in_each_trip(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda c, row: (jnp.tanh(c * row), (c**2).sum()), x, w)[0]


def sum_in_each_branch(x: Any, w: Any) -> Any:
    return jax.lax.cond(x[0] > 0, lambda: (x + 1, w.sum()), lambda: (x - 1, w.max()))[0]


@pytest.mark.parametrize("function", [sum_in_each_trip, sum_in_each_branch])
def test_what_no_result_needs_is_left_out_as_jax_leaves_it_out(function: Any) -> None:
    shapes = struct(4), struct(3, 4)
    module = trace(function)(*shapes)
    ours, jax_s = [[i.opcode for i in m.instructions] for m in (module, load(jax.jit(function).lower(*shapes)))]
    assert "reduce" not in ours
    assert len(module.entry.parameters) == 2
    assert sorted(set(ours) - {"parameter"}) == sorted(set(jax_s) - {"parameter"})
    assert ours.count("get-tuple-element") == jax_s.count("get-tuple-element")


def test_concrete_arguments_bring_their_shardings(mesh_2x4: Mesh) -> None:
    x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh_2x4, P("data")))
    module = trace(lambda x, y, z: (x @ y, z))(x, np.ones((8, 8)), 2.5)
    assert parameters(module)["x"] == ROWS
    assert module.entry.parameters[1].shape.element_type == "f32"
    assert module.entry.parameters[2].shape.dims == ()
    assert module.num_partitions == 8


def test_uneven_and_odd_shardings_are_taken_at_the_boundary(mesh_2x4: Mesh) -> None:
    odd = HloSharding.tile([[2, 0], [3, 1], [5, 4]])
    call = trace(
        lambda x, y: (x + 1, y * 2),
        mesh=mesh_2x4,
        in_shardings=(P("model"), odd),
        out_shardings=("{devices=[3,1]2,1,0}", P("data")),
    )
    module = call(struct(7, 3), struct(5, 5))
    assert parameters(module) == {"x": "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", "y": str(odd)}
    root = module.sharding(module.entry.root)
    assert root is not None
    assert [str(leaf) for leaf in root.leaves] == ["{devices=[3,1]2,1,0}", ROWS]
    assert module.open_outputs == (False, False)


def test_a_single_output_gets_its_sharding_on_the_root() -> None:
    module = trace(lambda x: x + 1, out_shardings="{devices=[3]2,0,1}")(struct(7))
    assert str(module.sharding(module.entry.root)) == "{devices=[3]2,0,1}"
    assert module.num_partitions == 3


def test_open_boundaries_are_told_as_jax_tells_xla(mesh_2x4: Mesh) -> None:
    call = trace(lambda x, y: (x, y), mesh=mesh_2x4, in_shardings=(P("data"), None), out_shardings=(None, P()))
    module = call(struct(8), struct(8))
    assert (module.open_parameters, module.open_outputs) == ((False, True), (True, False))


def test_meshes_without_devices_do() -> None:
    auto = (jax.sharding.AxisType.Auto,) * 2
    mesh = AbstractMesh((16, 32), ("data", "model"), axis_types=auto)

    def f(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, P("model", "data"))

    module = trace(f, mesh=mesh, in_shardings=P("data", "model"))(struct(512, 512))
    assert module.num_partitions == 512
    marks = [str(module.sharding(i)) for i in module.instructions if i.custom_call_target == "Sharding"]
    assert marks == ["{devices=[32,16]<=[16,32]T(1,0)}"]


@pytest.mark.parametrize("kind", ["constraint", "jitted", "shard_map"])
def test_the_mesh_of_what_is_said_inside_is_used(kind: str) -> None:
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = NamedSharding(mesh, P("data"))

    def f(x: Any) -> Any:
        if kind == "shard_map":
            return jax.shard_map(lambda part: 2 * part, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)
        constrained = partial(jax.lax.with_sharding_constraint, shardings=rows)
        return jax.jit(constrained)(2 * x) if kind == "jitted" else constrained(2 * x)

    module = trace(f)(struct(8, 8))
    assert module.mesh == MeshInfo(("data", "model"), (2, 4))
    assert module.num_partitions == 8


def test_the_mesh_of_the_context_is_used(mesh_2x4: Mesh) -> None:
    with jax.set_mesh(mesh_2x4):
        module = trace(lambda x: x * 2, in_shardings=P("data"))(struct(8, 8))
    assert parameters(module) == {"x": ROWS}
    assert module.mesh == MeshInfo(("data", "model"), (2, 4))


def test_flash_attention_of_gpus_that_are_not_there_is_traced_without_cudnn() -> None:
    def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        return mixed.astype(jnp.float32).sum()

    q, k = (jax.ShapeDtypeStruct((2, 128, heads, 64), jnp.bfloat16) for heads in (8, 4))
    module = trace(jax.grad(loss, argnums=(0, 1, 2)), platform="cuda")(q, k, k)
    calls = [i for i in module.instructions if i.opcode == "custom-call"]
    assert [fused_attention(call) for call in calls] == [
        FusedAttention(heads=2, is_backward=is_backward, is_causal=True, is_plain=True, scale=0.125)  # 1 / sqrt(64)
        for is_backward in (False, True)
    ]


@pytest.mark.parametrize(
    ("platform", "target"), [("cpu", "lapack_"), ("cuda", "cusolver_"), ("gpu", "cusolver_"), ("rocm", "hipsolver_")]
)
def test_the_platform_decides_custom_calls(platform: str, target: str) -> None:
    module = trace(jnp.linalg.qr, platform=platform)(struct(8, 8))
    assert any(i.custom_call_target.startswith(target) for i in module.instructions)


@pytest.mark.parametrize(("version", "platform"), [("rocm 60300", "rocm"), ("cuda 12080", "cuda")])
def test_gpus_of_a_mesh_are_those_of_their_maker(version: str, platform: str) -> None:
    class Client:
        platform_version = version

    class Device:
        process_index, platform, client = 0, "gpu", Client()

    assert platforms(None, Mesh(np.array([Device()]), ("x",))) == (platform,)


def test_jitted_and_partial_functions_are_traced_through() -> None:
    @partial(jax.jit, static_argnums=1)
    def f(x: Any, n: int) -> Any:
        return x * n

    module = trace(partial(f, n=3))(struct(4))
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "constant", "broadcast", "multiply"]


def test_typed_keys_and_64_bits_are_traced() -> None:
    key = jax.eval_shape(lambda: jax.random.key(0))
    module = trace(lambda key: jax.random.normal(key, (4,)))(key)
    assert str(module.entry.parameters[0].shape) == "u32[2]"
    with jax.enable_x64(True):
        assert str(trace(lambda x: x)(np.ones(3)).entry.root.shape) == "f64[3]"


def test_prefix_trees_go_into_containers_of_other_libraries_and_over_missing_subtrees(mesh_2x4: Mesh) -> None:
    class State(NamedTuple):
        count: Any
        moments: Any

    def f(params: dict[str, Any], state: State) -> tuple[Any, State]:
        return params, State(state.count + 1, params)

    params = {"w": struct(8, 8), "frozen": None}
    spec = {"w": P("data"), "frozen": None}
    call = trace(f, mesh=mesh_2x4, in_shardings=(spec, State(None, P("model"))), out_shardings=(spec, None))
    module = call(params, State(struct(), struct(8, 8)))
    columns = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
    assert parameters(module) == {"params['w']": ROWS, "state.count": "{replicated}", "state.moments": columns}
    assert module.open_outputs == (False, True, True)


def test_frames_are_the_users_own() -> None:
    def layer(x: Any) -> Any:
        return jnp.tanh(x)

    module = trace(layer)(struct(4))
    tanh = next(i for i in module.instructions if i.opcode == "tanh")
    assert tanh.location.startswith(f"{Path(__file__).name}:")
    assert not any("hlosharding" in f.file and "tests" not in f.file for f in tanh.frames)


def test_tracing_leaves_jax_as_it_was(mesh_2x4: Mesh) -> None:
    from hlosharding import xla_bridge

    before = xla_bridge.is_shardy()
    with pytest.raises(ZeroDivisionError):
        trace(lambda x: x * (1 // 0), mesh=mesh_2x4)(struct(4))
    assert xla_bridge.is_shardy() == before
    assert xla_bridge.context_mesh() is None


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"in_shardings": P("data")}, (struct(8),), "needs a mesh"),
        ({"in_shardings": "{devices=[2,2]<=[4]}"}, (struct(8),), "splits 2 dims"),
        ({"in_shardings": 3}, (struct(8),), "no sharding"),
        ({"in_shardings": (None, None)}, (struct(8),), "in_shardings do not match"),
        ({"out_shardings": (None, None)}, (struct(8),), "out_shardings do not match"),
        ({"out_shardings": "{{replicated}}"}, (struct(8),), "tuple"),
        ({"mesh": "data"}, (struct(8),), "no mesh"),
        ({}, ("text",), "static_argnums"),
        ({}, (object(),), r"as an abstract array.*of type <class 'object'>.* at path x; list its position"),
    ],
)
def test_what_cannot_be_traced_is_told(options: dict[str, Any], arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        trace(lambda x: x, **options)(*arguments)


def test_axes_that_the_mesh_lacks_or_named_twice_and_open_dims_are_refused(mesh_2x4: Mesh) -> None:
    with pytest.raises(TraceError, match=r"rows.*name axes of the mesh \(data, model\), each once at most"):
        trace(lambda x: x, mesh=mesh_2x4, in_shardings=P("rows"))(struct(8))
    with pytest.raises(TraceError, match=r"duplicate entries for `data`.*each once at most"):
        trace(lambda x: x, mesh=mesh_2x4, in_shardings=P("data", ("model", "data")))(struct(8, 8))
    with pytest.raises(TraceError, match="unconstrained"):
        trace(lambda x: x, mesh=mesh_2x4, in_shardings=P(P.UNCONSTRAINED))(struct(8))


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this JAX has no jax.new_ref")
def test_mutable_arrays_of_the_caller_are_refused() -> None:
    mutable = jax.new_ref(jnp.ones(4))
    with pytest.raises(TraceError, match=r"mutable array .* of its caller's; take its value as an argument"):
        trace(lambda ref, x: ref[...] * x)(mutable, struct(4))
    with pytest.raises(TraceError, match="mutable array"):
        trace(lambda x: mutable[...] * x)(struct(4))
    with pytest.raises(LoadError, match="mutable array"):
        load(jax.jit(lambda ref, x: ref[...] * x).lower(mutable, struct(4)))
    # One of the function's own is nobody else's business.
    assert trace(lambda x: jax.new_ref(x)[...])(struct(4)).entry.root.shape.dims == (4,)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TraceError, match="Expected a callable value"):
        trace(3)  # type: ignore[arg-type]
