"""Functions under JAX's `custom_partitioning`: the user's `partition` says what each device computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError, PartitionError

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def with_rule(function: Callable[..., jax.Array], rule: str, whole: tuple[str, ...]) -> Any:
    """The function, with a rule string and the callbacks that GSPMD asks for."""
    made = custom_partitioning(function)

    def first(mesh: Any, arguments: Any, result: Any) -> Any:
        return NamedSharding(mesh, P(*arguments[0].sharding.spec[:1], None))

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        rows, rest = NamedSharding(mesh, P("data", None)), NamedSharding(mesh, P(None, None))
        return mesh, function, rows, (rows, *[rest] * (len(arguments) - 1))

    made.def_partition(
        partition=partition, infer_sharding_from_operands=first, sharding_rule=rule, need_replication_factors=whole
    )
    return made


product = with_rule(lambda x, w: jnp.einsum("ij,jk->ik", x, w), "i j, j k -> i k", ("j",))
softmax = with_rule(lambda x: jax.nn.softmax(x, -1), "b n -> b n", ("n",))


def both(x: jax.Array, w: jax.Array) -> jax.Array:
    return softmax(product(x * 2, w) + 1).sum(0)


@pytest.mark.parametrize("specs", [(P("data"), P()), (P("data", "model"), P("model")), (P(None, "data"), P())])
def test_rule_strings_do_not_stand_in_the_way(mesh_2x4: Mesh, specs: tuple[P, P]) -> None:
    stage = hs.jit(both, mesh=mesh_2x4, in_shardings=specs).trace(X, X.T).propagate().partition()
    assert not stage.partitioned.warnings
    want = jax.nn.softmax(2 * X @ X.T + 1, -1).sum(0)
    np.testing.assert_allclose(stage.partitioned.run(X, X.T), want, rtol=1e-5)


@dataclass
class Recorder:
    """A custom_partitioning that tells what its `partition` is offered, and lowers to `local` for each device."""

    function: Callable[..., Any]
    local: Callable[..., Any]
    wanted: Callable[[Any, Any], tuple[Any, Any]] | None = None
    """(argument specs, result specs) from those offered; as they are where None."""
    offered: list[tuple[Any, Any]] = field(default_factory=list)

    def made(self, infer: Callable[..., Any] | None = None, **rule: Any) -> Any:
        made = custom_partitioning(self.function)
        made.def_partition(partition=self.partition, infer_sharding_from_operands=infer, **rule)
        return made

    def partition(self, mesh: Any, arguments: Any, result: Any) -> Any:
        offer = jax.tree.map(lambda x: x.sharding.spec, (arguments, result))
        self.offered.append(offer)
        if self.wanted is not None:
            offer = self.wanted(*offer)
        is_spec = {"is_leaf": lambda s: isinstance(s, P)}
        taken, given = (jax.tree.map(lambda s: NamedSharding(mesh, s), o, **is_spec) for o in offer)
        return mesh, self.local, given, taken


def partitioned(function: Any, mesh: Mesh, specs: tuple[P, ...], *arrays: np.ndarray) -> hs.Partitioned:
    return hs.jit(function, mesh=mesh, in_shardings=specs).trace(*arrays).propagate().partition().partitioned


def assert_right(local: hs.Partitioned, want: Any, *arrays: np.ndarray) -> None:
    for run in (local.run, local.run_reference):
        for got, one in zip(jax.tree.leaves(run(*arrays)), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-5, atol=1e-5)


def test_the_users_function_of_tiles_is_what_runs_and_may_communicate(mesh_2x4: Mesh) -> None:
    local = Recorder(
        lambda x, w: x @ w,
        lambda x, w: jax.lax.psum(x @ w, "model"),
        lambda *_: ((P("data", "model"), P("model", None)), P("data", None)),
    )
    matmul = local.made(sharding_rule="i j, j k -> i k", reduction_factors=("j",))
    specs = (P("data", "model"), P("model"))
    program = partitioned(lambda x, w: jnp.sin(matmul(x, w)), mesh_2x4, specs, X, X.T)
    assert_right(program, np.sin(X @ X.T), X, X.T)
    assert [c.kind for c in program.collectives if c.bytes_per_device] == ["all-reduce"]
    assert not program.warnings
    assert local.offered == [((P("data", "model"), P("model", None)), P("data", None))]


def test_on_one_device_nothing_is_asked_as_in_jax() -> None:
    local = Recorder(lambda x: x[:, ::-1], lambda x: x[:, ::-1])
    flip = local.made(sharding_rule="i j -> i j")
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    assert_right(partitioned(lambda x: flip(x + 1), mesh, (P("data"),), X), (X + 1)[:, ::-1], X)
    np.testing.assert_array_equal(jax.jit(flip, in_shardings=NamedSharding(mesh, P("data")))(X), X[:, ::-1])
    assert not local.offered


@pytest.mark.parametrize("devices", [1, 2])
def test_the_users_program_is_lowered_for_the_platform_that_will_run_it(devices: int) -> None:
    """CuDNN's attention has no lowering for the CPUs of the mesh."""
    query = jax.ShapeDtypeStruct((4, 128, 2, 64), jnp.bfloat16)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    attention = partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn")
    module = hs.trace(attention, mesh=mesh, in_shardings=P("data"), platform="cuda")(*[query] * 3)
    calls = [i for i in hs.partition(module).module.instructions if i.opcode == "custom-call"]
    assert [i.shape.leaves[0].dims for i in calls] == [(4 // devices, 2, 128, 64)]


def test_a_need_for_the_whole_in_the_rule_is_brought_about_before_partition_is_asked(mesh_2x4: Mesh) -> None:
    local = Recorder(lambda x: x[:, ::-1], lambda x: x[:, ::-1])
    flip = local.made(sharding_rule="i j -> i j", need_replication_factors=("j",))
    program = partitioned(flip, mesh_2x4, (P("data", "model"),), X)
    assert_right(program, X[:, ::-1], X)
    assert all(dict(enumerate(taken)).get(1) is None for ((taken,), _) in local.offered)


def test_without_a_rule_the_offer_is_that_of_gspmd(mesh_2x4: Mesh) -> None:
    def rows(mesh: Any, arguments: Any, result: Any) -> Any:
        return NamedSharding(mesh, P(arguments[0].sharding.spec[0], None))

    def offers() -> tuple[Recorder, Any]:
        local = Recorder(lambda x: jnp.cumsum(x, 1), lambda x: jnp.cumsum(x, 1), lambda _, r: ((r,), r))
        return local, local.made(rows)

    ours, scan = offers()
    program = partitioned(scan, mesh_2x4, (P("data", "model"),), X)
    assert_right(program, np.cumsum(X, 1), X)
    theirs, scan = offers()
    with xla_bridge.shardy(False):
        split = NamedSharding(mesh_2x4, P("data", "model"))
        np.testing.assert_allclose(jax.jit(scan, in_shardings=split)(X), np.cumsum(X, 1), rtol=1e-5, atol=1e-5)
    assert ours.offered[0][0] == theirs.offered[0][0] == (P("data", "model"),)


def test_functions_without_rule_or_inference_get_what_propagation_found(mesh_2x4: Mesh) -> None:
    local = Recorder(lambda x: {"twice": 2 * x, "sum": x.sum(1)}, lambda x: {"twice": 2 * x, "sum": x.sum(1)})
    twice = local.made()
    program = partitioned(lambda x: twice(x + 1), mesh_2x4, (P("data"),), X)
    assert_right(program, {"twice": 2 * X + 2, "sum": (X + 1).sum(1)}, X)
    assert local.offered == [((P("data", None),), {"twice": P("data", None), "sum": P("data")})]
    assert not program.collectives


def test_inside_a_loop_partition_is_asked_once_and_its_program_runs_every_trip(mesh_2x4: Mesh) -> None:
    local = Recorder(
        lambda c, w: jnp.tanh(c @ w),
        lambda c, w: jnp.tanh(jax.lax.psum(c @ w, "model")),
        lambda *_: ((P(None, "model"), P("model", None)), P(None, None)),
    )
    step = local.made(sharding_rule="i j, j k -> i k", reduction_factors=("j",))

    def loop(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (step(c, w), None), x, None, length=3)[0]

    want = X
    for _ in range(3):
        want = np.tanh(want @ X.T)
    program = partitioned(loop, mesh_2x4, (P(), P("model")), X, X.T)
    assert_right(program, want, X, X.T)
    assert len({str(o) for o in local.offered}) == len(local.offered)
    assert [c.executions for c in program.collectives if c.kind == "all-reduce"] == [3]


@pytest.mark.parametrize("rows", [7, 13])
def test_uneven_tiles_are_not_handed_to_a_function_that_knows_nothing_of_padding(mesh_2x4: Mesh, rows: int) -> None:
    local = Recorder(lambda x: x - x.max(0), lambda x: x - jax.lax.pmax(x.max(0), "data"))
    shifted = local.made(sharding_rule="i j -> i j", reduction_factors=())
    x = -1 - np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    program = partitioned(shifted, mesh_2x4, (P("data"),), x)
    assert_right(program, x - x.max(0), x)


def test_a_program_from_text_has_lost_the_callbacks_and_computes_the_same(mesh_2x4: Mesh) -> None:
    text = hs.trace(both, mesh=mesh_2x4, in_shardings=(P("data"), P()))(X, X.T).to_hlo_text()
    want = jax.nn.softmax(2 * X @ X.T + 1, -1).sum(0)
    np.testing.assert_allclose(hs.partition(hs.load(text)).run(X, X.T), want, rtol=1e-5)


def test_inside_shard_map_the_function_is_per_device_already(mesh_2x4: Mesh) -> None:
    local = Recorder(lambda x: x * 3, lambda x: x * 5)
    triple = local.made(sharding_rule="i j -> i j")
    mapped = jax.shard_map(triple, mesh=mesh_2x4, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    assert_right(partitioned(mapped, mesh_2x4, (P("data"),), X), 3 * X, X)
    assert not local.offered


def _raises(*_: Any) -> Any:
    raise KeyError("no such axis")


@pytest.mark.parametrize(
    ("local", "wanted", "message"),
    [
        (lambda x: x, _raises, r"partition of a custom_partitioning fails: KeyError: 'no such axis'.*test_custom_p"),
        (_raises, None, r"the function that partition returned.*fails: KeyError"),
        (lambda x: x[:1], None, r"makes f32\[2,8\].*the whole is f32\[8,8\]"),
        (lambda x: x, lambda *_: ((P("nowhere"),), P("data")), r"partition of a custom_partitioning fails: .*nowhere"),
    ],
)
def test_what_fails_in_the_users_callbacks_says_whose_they_are(
    mesh_2x4: Mesh, local: Any, wanted: Any, message: str
) -> None:
    made = Recorder(lambda x: x * 2, local, wanted).made(sharding_rule="i j -> i j")
    with pytest.raises(PartitionError, match=message):
        partitioned(made, mesh_2x4, (P("data"),), X)


def test_jax_itself_lowers_them_as_before(mesh_2x4: Mesh) -> None:
    hs.trace(both, mesh=mesh_2x4)(X, X)
    rows = NamedSharding(mesh_2x4, P("data"))
    lowered = jax.jit(both, in_shardings=(rows, None)).lower(X, X)
    assert "CustomSPMDPartitioning" in lowered.as_text()
    with pytest.raises(ExecutionError, match=r"only XLA's own partitioner.*trace the function"):
        hs.partition(hs.load(lowered)).run(X, X)


def test_the_users_program_minds_dims_that_the_result_lacks() -> None:
    """His rule names no reduction, his program sums over devices itself: it is given the tiles that there are."""

    @custom_partitioning
    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(x)

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        def local(x: jax.Array) -> jax.Array:
            return jax.lax.psum(jnp.sum(x), "x")

        return mesh, local, result.sharding, (arguments[0].sharding,)

    total.def_partition(partition, sharding_rule="i j -> ")
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    function = hs.jit(total, mesh=mesh, in_shardings=P(None, "x"))
    assert float(function(np.ones((32, 16), np.float32))) == 512.0


# ---- around a kernel that nobody can look into


def kernel(name: str, *results: tuple[int, ...]) -> Callable[..., Any]:
    """A foreign call with results of these shapes; without any that of operand 0."""

    def call(*arrays: jax.Array) -> Any:
        made = [jax.ShapeDtypeStruct(dims, np.float32) for dims in results or (arrays[0].shape,)]
        return jax.ffi.ffi_call(name, tuple(made) if len(made) > 1 else made[0])(*arrays)

    return call


def outputs_of(function: Any, mesh: Mesh, specs: tuple[P, ...], *arrays: Any, **options: Any) -> list[str]:
    """Shardings of the results; nothing is sent, and nobody is warned."""
    stage = hs.jit(function, mesh=mesh, in_shardings=specs or None, **options).lower(*arrays)
    assert not stage.partitioned.collectives
    assert not stage.partitioned.warnings
    return [str(layout.sharding.meaning) for layout in stage.partitioned.program.written.outputs]


@pytest.mark.parametrize("said", [{"infer": lambda m, a, r: a[0].sharding}, {"sharding_rule": "i j, k l -> i j"}])
def test_results_are_split_as_the_user_says(mesh_2x4: Mesh, said: dict[str, Any]) -> None:
    call = kernel("kernel_of_two")
    opaque, clear = (Recorder(f, f).made(**said) for f in (call, lambda x, y: jnp.tanh(x) * y.sum()))
    for function in (opaque, clear, lambda x, y: opaque(jnp.sin(x), y) + 1):
        assert outputs_of(function, mesh_2x4, (P("data", "model"), P()), X, X) == ["{devices=[2,4]<=[8]}"]


def test_operands_take_what_the_result_has_as_in_gspmd(mesh_2x4: Mesh) -> None:
    def infer(mesh: Any, arguments: Any, result: Any) -> Any:
        return arguments[0].sharding or NamedSharding(mesh, P())

    wanted = NamedSharding(mesh_2x4, P("data", "model"))
    clear, opaque = (Recorder(f, f).made(infer) for f in (jnp.tanh, kernel("kernel_of_one")))
    with xla_bridge.shardy(False):
        theirs = jax.jit(lambda x: clear(x * 2) + 1, out_shardings=wanted).lower(X).compile()
    assert "{devices=[2,4]<=[8]}" in str(theirs.input_shardings)
    stage = hs.jit(lambda x: opaque(x * 2) + 1, mesh=mesh_2x4, out_shardings=wanted).lower(X)
    assert str(stage.partitioned.program.written.inputs[0].sharding.meaning) == "{devices=[2,4]<=[8]}"


def test_a_spec_may_end_in_nones_for_dims_that_the_result_lacks(mesh_2x4: Mesh) -> None:
    """As cuDNN's attention in JAX returns it; JAX drops them where the sharding becomes one of HLO."""

    def call(x: jax.Array) -> Any:
        return kernel("kernel_of_rows", x.shape[:1])(x)

    rows = Recorder(call, call).made(lambda m, a, r: NamedSharding(m, P(a[0].sharding.spec[0], None)))
    assert outputs_of(rows, mesh_2x4, (P("data"),), X) == ["{devices=[2,4]<=[8] last_tile_dim_replicate}"]
    split = Recorder(call, call).made(lambda m, a, r: NamedSharding(m, P(None, "model")))
    with pytest.raises(PartitionError, match="has 2 entries for an array of 1 dims"):
        outputs_of(split, mesh_2x4, (P("data"),), X)


def test_training_around_kernels_with_several_results(mesh_2x4: Mesh) -> None:
    """A look-alike of cuDNN's attention: heads and batches stay split, only gradients of weights are summed up."""
    queries, sums = (8, 6, 4, 8), (8, 4, 6)
    forward, backward = kernel("forward", queries, sums), kernel("backward", queries, queries, queries)

    def specs(mesh: Any, arguments: Any) -> tuple[Any, Any]:
        batch, _, heads, *_ = (*arguments[0].sharding.spec, None, None, None)
        return NamedSharding(mesh, P(batch, None, heads, None)), NamedSharding(mesh, P(batch, heads, None, None))

    def tiles_of(results: Any) -> Callable[..., Any]:
        def call(*tiles: jax.Array) -> Any:
            batch, time, heads, width = tiles[0].shape
            return kernel("tile", *results(batch, time, heads, width))(*tiles)

        return call

    ahead, back = custom_partitioning(forward), custom_partitioning(backward)
    ahead.def_partition(
        partition=lambda m, a, r: (
            m, tiles_of(lambda b, t, n, h: ((b, t, n, h), (b, n, t))), specs(m, a), (specs(m, a)[0],) * 3,
        ),
        infer_sharding_from_operands=lambda m, a, r: specs(m, a),
    )  # fmt: skip
    back.def_partition(
        partition=lambda m, a, r: (
            m, tiles_of(lambda *dims: (dims,) * 3), (specs(m, a)[0],) * 3,
            (*(specs(m, a)[0],) * 3, specs(m, a)[1], specs(m, a)[0]),
        ),
        infer_sharding_from_operands=lambda m, a, r: (specs(m, a)[0],) * 3,
    )  # fmt: skip

    @jax.custom_vjp
    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return ahead(q, k, v)[0]

    def keep(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        result, kept = ahead(q, k, v)
        return result, (q, k, v, kept)

    attention.defvjp(keep, lambda kept, cotangent: tuple(back(*kept, cotangent)))

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        q = jnp.einsum("btd,dnh->btnh", x, w)
        return (attention(q, 2 * q, 3 * q) ** 2).sum()

    shapes = jax.ShapeDtypeStruct((16, 4, 8), np.float32), jax.ShapeDtypeStruct((8, 6, 16), np.float32)
    stage = hs.jit(jax.value_and_grad(loss), mesh=mesh_2x4, in_shardings=(P(None, "model"), P("data"))).lower(*shapes)
    assert not stage.partitioned.warnings
    assert {c.kind for c in stage.partitioned.collectives} == {"all-reduce"}
    gradient = stage.partitioned.program.written.outputs[1].sharding.meaning
    assert gradient.num_tiles_along(1) == 4
