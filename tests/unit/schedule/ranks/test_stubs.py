"""One rank alone: its programs on one device with no communication, its steps timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import ScheduleError
from hlosharding.executor import ShardMapProgram
from hlosharding.ir import COLLECTIVES, Module, digest, verify
from hlosharding.schedule import RankRun, ScheduleBuilder, StageProgram, UserOp, parse_schedule
from hlosharding.schedule.ranks.stubs import compile_stub, stub_module, stub_program
from tests.support import mlp_ops

WHOLE = "{replicated}"


def f32(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


# Programs with collectives, loops, branches


def norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / (1e-3 + x.std(-1, keepdims=True))


def layer(qkv: Any, out: Any, up: Any, down: Any, x: Any) -> Any:
    """Attention of four heads, and an MLP."""
    rows, width = x.shape
    heads = (norm(x) @ qkv).reshape(rows, 3, 4, -1)
    q, k, v = heads[:, 0], heads[:, 1], heads[:, 2]
    weights = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k), axis=-1)
    x = x + jnp.einsum("hqk,khd->qhd", weights, v).reshape(rows, width) @ out
    return x + jax.nn.gelu(norm(x) @ up) @ down


def transformer_step(qkv: Any, out: Any, up: Any, down: Any, x: Any) -> Any:
    def loss(qkv: Any, out: Any, up: Any, down: Any) -> Any:
        return jnp.mean(layer(qkv, out, up, down, x) ** 2)

    return jax.grad(loss, argnums=(0, 1, 2, 3))(qkv, out, up, down)


def loop(weights: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, w: (jnp.tanh(jnp.tanh(x @ w) @ w.T), jnp.sum(x)), x, weights)


def branches(flag: Any, w: Any, x: Any) -> Any:
    return jax.lax.cond(flag > 0, lambda: jnp.tanh(x @ w), lambda: x * jnp.sum(w))


def fsdp(w1: Any, w2: Any, x: Any) -> Any:
    def loss(w1: Any, w2: Any) -> Any:
        return jnp.mean((jax.nn.relu(x @ w1) @ w2) ** 2)

    return jax.tree.map(lambda w, g: w - 0.1 * g, (w1, w2), jax.grad(loss, argnums=(0, 1))(w1, w2))


COLUMNS, ROWS = "{devices=[1,4]<=[4]}", "{devices=[4,1]<=[4]}"
TRANSFORMER = (f32(16, 48), f32(16, 16), f32(16, 32), f32(32, 16), f32(8, 16))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...], Any]] = {
    "a transformer layer, tensor parallel": (layer, TRANSFORMER, (COLUMNS, ROWS, COLUMNS, ROWS, WHOLE), None),
    "its gradients": (transformer_step, TRANSFORMER, (COLUMNS, ROWS, COLUMNS, ROWS, WHOLE), None),
    "a loop": (loop, (f32(3, 16, 16), f32(8, 16)), ("{devices=[1,1,4]<=[4]}", WHOLE), None),
    "a conditional": (
        branches,
        (jax.ShapeDtypeStruct((), jnp.int32), f32(16, 16), f32(8, 16)),
        (WHOLE, ROWS, COLUMNS),
        None,
    ),
    "FSDP": (fsdp, (f32(16, 32), f32(32, 16), f32(8, 16)), (ROWS, ROWS, ROWS), (ROWS, ROWS)),
}


@cache
def program(name: str) -> ShardMapProgram:
    function, arrays, shardings, results = PROGRAMS[name]
    traced = hs.trace(function, in_shardings=shardings, out_shardings=results)(*arrays)
    return hs.partition(traced).program


def tiles(made: ShardMapProgram) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=a.tile).astype(a.shape.dtype) for a in made.boundary[0]]


def communicates(module: Module) -> bool:
    return any(i.opcode in COLLECTIVES or i.opcode in ("partition-id", "replica-id") for i in module.instructions)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_stub_runs_on_one_device_and_makes_tiles(name: str) -> None:
    made = program(name)
    before = digest(made.module)
    assert communicates(made.module)
    for member in (0, 3):
        alone = stub_program(made, member)
        verify(alone.module)
        assert not communicates(alone.module)
        assert alone.num_devices == 1
        results = compile_stub(made, member, jax.devices("cpu")[0]).run(*tiles(made))
        assert [r.shape for r in results] == [a.tile for a in made.boundary[1]]
        assert all(np.isfinite(r).all() for r in results)
    assert digest(made.module) == before


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_xla_compiles_of_a_stub_sends_nothing(name: str) -> None:
    text = compile_stub(program(name), 1, jax.devices("cpu")[0]).compiled.as_text()
    assert not [opcode for opcode in (*COLLECTIVES, "partition-id") if f" {opcode}(" in text]


BETWEEN = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[256,256] parameter(0)
  y = f32[256,256] tanh(x)
  all = f32[256,256] all-reduce(y), to_apply=add, replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true
  ROOT z = f32[256,256] negate(all)
}"""


def test_xla_does_not_fuse_past_a_stub_nor_drop_it() -> None:
    compiled = compile_stub(ShardMapProgram(hs.load(BETWEEN)), 0, jax.devices("cpu")[0])
    x = np.full((256, 256), 0.5, np.float32)
    np.testing.assert_allclose(compiled.run(x)[0], -np.tanh(x), rtol=1e-6)
    bodies = compiled.compiled.as_text().split("\n\n")
    [holder] = [body for body in bodies if " select(" in body]
    assert " tanh(" not in holder
    assert " negate(" not in holder


EACH = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
two { a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] parameter(2)  d = f32[] parameter(3)
      e = f32[] add(a, c)  f = f32[] add(b, d)  ROOT t = (f32[], f32[]) tuple(e, f) }
ENTRY main {
  x = f32[4,8] parameter(0)
  n = s64[4] parameter(1)
  ROOT y = STEP
}"""
ALL = "replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true"
X = np.arange(32, dtype=np.float32).reshape(4, 8)
STEPS = {
    "all-reduce": (f"f32[4,8] all-reduce(x), to_apply=add, {ALL}", [X]),
    "variadic all-reduce": (f"(f32[4,8], f32[4,8]) all-reduce(x, x), to_apply=add, {ALL}", [X, X]),
    "all-gather": (f"f32[4,32] all-gather(x), dimensions={{1}}, {ALL}", [np.tile(X, (1, 4))]),
    "variadic all-gather": (
        f"(f32[16,8], f32[16,8]) all-gather(x, x), dimensions={{0}}, {ALL}",
        [np.tile(X, (4, 1))] * 2,
    ),
    "reduce-scatter": (f"f32[4,2] reduce-scatter(x), dimensions={{1}}, to_apply=add, {ALL}", [X[:, :2]]),
    "all-to-all": ("f32[4,8] all-to-all(x), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1", [X]),
    "all-to-all of tuples": (
        "(f32[4,8], f32[4,8]) all-to-all(x, x), replica_groups={{0,1},{2,3}}, channel_id=1",
        [X, X],
    ),
    "collective-permute": ("f32[4,8] collective-permute(x), source_target_pairs={{0,1},{1,2}}, channel_id=1", [X]),
    "collective-broadcast": (f"f32[4,8] collective-broadcast(x), {ALL.split(', use')[0]}", [X]),
    "ragged-all-to-all": (f"f32[4,8] ragged-all-to-all(x, x, n, n, n, n), {ALL.split(', use')[0]}", [X]),
    "partition-id": ("u32[] partition-id()", [np.uint32(2)]),
    "replica-id": ("u32[] replica-id()", [np.uint32(0)]),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_collective_has_a_stub_of_its_shape(step: str) -> None:
    text, expected = STEPS[step]
    alone = stub_module(hs.load(EACH.replace("STEP", text)), 2)
    verify(alone)
    assert not communicates(alone)
    with jax.enable_x64(True):
        results = ShardMapProgram(alone).run(X, np.zeros(4, np.int64))
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, right)


def test_a_member_that_is_none() -> None:
    with pytest.raises(ScheduleError, match="member 4 of a program of 4 devices"):
        stub_program(program("FSDP"), 4)


# A rank's whole program


def test_one_rank_of_a_tensor_parallel_pipeline() -> None:
    halves = "{devices=[2,1]<=[2]}"
    columns = "{devices=[1,2]<=[2]}"
    first = StageProgram.of("first", mlp_ops.dense, f32(16, 16), f32(4, 16), in_shardings=(columns, WHOLE))
    second = StageProgram.of("second", mlp_ops.dense, f32(16, 16), f32(4, 16), in_shardings=(halves, columns))
    b = ScheduleBuilder()
    x = b.parameter("x", first.inputs[1].shape.with_dims((8, 16)), (0, 1))
    w = [
        b.parameter(f"w{n}", op.inputs[0].shape, (2 * n, 2 * n + 1), op.inputs[0].sharding)
        for n, op in enumerate((first, second))
    ]
    made = []
    for piece in b.split(x, 2):
        [middle] = b.run(first, w[0], piece)
        made += b.run(second, w[1], b.send(middle, (2, 3), second.inputs[1].sharding))
    schedule = b.finish(b.concat(*made))
    for device in range(4):
        rank = schedule.rank(device)
        run = rank.run_alone()
        assert [r.shape for r in run.results] == [tile.shape.dims for tile in rank.results]
        assert all(np.isfinite(r).all() for r in run.results)
        assert [step for step, _ in run.steps] == list(rank.steps)
        assert all(seconds > 0 for seconds in (run.seconds, *(each for _, each in run.steps)))
        assert len(str(run).splitlines()) == len(rank.steps) + 1


@cache
def figure(name: str, rows: int) -> Any:
    return parse_schedule((mlp_ops.FIGURES / f"{name}.txt").read_text(), mlp_ops.ops(rows))


@pytest.mark.parametrize(("name", "rows", "device"), [("pipeline", 4, 0), ("pipeline", 4, 1), ("zero", 4, 0)])
def test_a_figures_rank_alone(name: str, rows: int, device: int) -> None:
    rank = figure(name, rows).rank(device)
    run = rank.run_alone()
    assert [r.shape for r in run.results] == [tile.shape.dims for tile in rank.results]
    assert all(np.isfinite(r).all() for r in run.results)


def test_a_rank_that_needs_nobody_computes_what_it_means() -> None:
    found = figure("checkpointing", 8).rank(0).run_alone(mlp_ops.arrays())
    for result, right in zip(found.results, mlp_ops.one_device(), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)


def test_given_what_it_receives_a_pipelines_rank_computes_what_it_means() -> None:
    w1, w2, x, y = mlp_ops.arrays()
    sent = np.asarray(mlp_ops.dense(w1, x))
    run = figure("pipeline", 4).rank(1).run_alone([w2, y], received={"ar_1": sent[:4], "ar_2": sent[4:]})
    [result] = run.results
    np.testing.assert_allclose(result, mlp_ops.one_device()[1], rtol=1e-5, atol=1e-5)


def alone(text: str, arrays: Sequence[Any], **ops: Any) -> RankRun:
    return parse_schedule(text, ops).rank(0).run_alone(arrays)


def test_collectives_of_the_schedule_and_parts_of_tiles() -> None:
    text = """
    func @main(%x: f32[4,2] on {0}, %y: f32[4,2] on {1}, %z: f64[8] on {0,1} as {devices=[2]<=[2]}) {
      %x_1, %x_2 = split(%x) dim=0 parts=2 axis=data
      %y_1, %y_2 = split(%y) dim=0 parts=2 axis=data
      %a = @term(%x_1)
      %b = @term(%y_2)
      %all_0, %all_1 = all-reduce(%a, %b)
      %own_0, %own_1 = reduce-scatter(%a, %b) dim=1 axis=owner
      %w_0, %w_1 = all-gather(%own_0, %own_1) dim=1
      %far = reduce(%a, %b) to={1}
      %there = send(%z) to={2-4} sharding={devices=[3]<=[3]}
      %back = send(%there) to={0-1} sharding={devices=[2]<=[2]}
      return %all_0, %w_0, %back
    }"""
    term = UserOp("term", lambda x: x, lambda x: 2 * x, sums=(0,))
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    run = alone(text, [x, np.arange(4.0)], term=term)
    own = 2 * x[:2]
    np.testing.assert_array_equal(run.results[0], own)
    np.testing.assert_array_equal(run.results[1], np.concatenate([own[:, :1]] * 2, axis=1))
    assert (run.results[2].shape, run.results[2].dtype) == ((4,), np.float64)


def test_what_cannot_run_alone_says_so() -> None:
    spread = "func @main(%x: f32[4] on {0,1} as {devices=[2]<=[2]}) {\n  %y = @own(%x)\n  return %y\n}"
    own = UserOp("own", lambda x: x, lambda x: x)
    with pytest.raises(ScheduleError, match=r"nothing says what one device does of @own; at rank 0: %y = @own"):
        alone(spread, [np.zeros(2)], own=own)
    rank = figure("pipeline", 4).rank(1)
    with pytest.raises(ScheduleError, match="1 arrays for the 2 tiles"):
        rank.run_alone([np.zeros((16, 16))])
    with pytest.raises(ScheduleError, match=r"%w2 is a tile of f32\[16,16\], the array given has shape \[2\]"):
        rank.run_alone([np.zeros(2), np.zeros((8, 16))])
    with pytest.raises(ScheduleError, match="the rank receives no %as_1; it receives ar_1, ar_2"):
        rank.run_alone(received={"as_1": np.zeros((4, 16))})


def test_an_array_that_an_op_overwrites_is_still_the_callers() -> None:
    text = "func @main(%w: f32[16,16] on {0}, %dw: f32[16,16] on {0}) {\n  %n = @update(%w, %dw)\n  return %n\n}"
    w = jnp.ones((16, 16))
    [result] = parse_schedule(text, {"update": mlp_ops.ops(4)["update"]}).rank(0).run_alone([w, w]).results
    np.testing.assert_allclose(result, np.full((16, 16), 0.9), rtol=1e-6)
    assert float(w.sum()) == 256
