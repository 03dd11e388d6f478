"""What all trips of a loop have in common is communicated once, before it; and what stays in the loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import hlosharding as hs
from hlosharding.ir import COLLECTIVES, Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.partitioner.passes import pipeline
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram
from tests.support.split_programs import mark, right, split

STATE = "(s32[], f32[1600,64], f32[64,64])"
START, TRIPS = 3, 4
ROWS = "[8,1]<=[8]"
SPLIT = PartitionSpec("d")


def loop(*, step: str = "", weight: str = "w", later: str = "w", condition: str = "", name: str = "body") -> str:
    """Computations of a loop over (counter, x, w): x = tanh(x weight); `step` may compute things before."""
    return f"""
      {name} {{
        p = {STATE} parameter(0)
        i = s32[] get-tuple-element(p), index=0
        one = s32[] constant(1)
        next = s32[] add(i, one)
        x = f32[1600,64] get-tuple-element(p), index=1
        w = f32[64,64] get-tuple-element(p), index=2
        {step}
        d = f32[1600,64] dot(x, {weight}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        y = f32[1600,64] tanh(d)
        ROOT t = {STATE} tuple(next, y, {later})
      }}
      {name}_more {{
        q = {STATE} parameter(0)
        j = s32[] get-tuple-element(q), index=0
        n = s32[] constant({START + TRIPS})
        {condition and "less = pred[] compare(j, n), direction=LT"}
        {condition or "ROOT more = pred[] compare(j, n), direction=LT"}
      }}"""


def entry(start: str = f"s32[] constant({START})", after: str = "") -> str:
    """A program around the loop: rows of x and of w are split over all devices."""
    after = after or f"ROOT r = f32[1600,64] get-tuple-element(l), index=1{mark(ROWS)}"
    return f"""
        x = f32[1600,64] parameter(0){mark(ROWS)}
        w = f32[64,64] parameter(1){mark(ROWS)}
        zero = {start}
        t = {STATE} tuple(zero, x, w)
        l = {STATE} while(t), condition=body_more, body=body,
          sharding={{{{replicated}}, {{devices={ROWS}}}, {{devices={ROWS}}}}}
        {after}"""


def executions(local: hs.Partitioned, kind: str = "all-gather") -> list[int]:
    """How often collectives of a kind run."""
    return [c.executions for c in local.collectives if c.kind == kind]


def carried(local: hs.Partitioned) -> list[tuple[int, ...]]:
    """Local dims of the arrays that the last loop carries."""
    [*_, found] = (i for i in local.module.instructions if i.opcode == "while")
    return [s.dims for s in found.shape.tuple_shapes]


GATHER = 7 / 8 * 64 * 64 * 4


def test_a_weight_that_every_trip_uses_is_gathered_once() -> None:
    local = right(entry(), computations=loop())
    assert executions(local) == [1]
    assert local.comm_bytes_per_device == GATHER
    assert carried(local) == [(), (200, 64), (64, 64)]  # the part of the weight is carried no longer
    assert "%d (dot)" in local.collectives[0].cause


def test_the_program_needs_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = split(entry(), computations=loop())
    monkeypatch.setattr(pipeline, "hoist_invariants", lambda *_: None)
    assert moved.peak_memory_bytes <= split(entry(), computations=loop()).peak_memory_bytes


@pytest.mark.parametrize("start", ["s32[] constant(7)", "s32[] constant(99)"])
def test_a_loop_that_makes_no_trip_keeps_its_collectives(start: str) -> None:
    assert executions(right(entry(start), computations=loop())) == [0]


@pytest.mark.parametrize("start", [7, 6, -3])
def test_a_loop_of_unknown_length_is_right_with_no_trips_too(start: int) -> None:
    body = entry(start=f"s32[] parameter(2){mark('')}")
    x, w = (np.random.default_rng(n).normal(size=s).astype(np.float32) for n, s in enumerate(((1600, 64), (64, 64))))
    local = right(body, x, w, np.array(start, np.int32), computations=loop())
    assert executions(local) == [1]
    assert carried(local) == [(), (200, 64), (64, 64)]


def test_one_trip_has_nothing_in_common_with_others() -> None:
    local = right(entry(f"s32[] constant({START + TRIPS - 1})"), computations=loop())
    assert local.module.by_name(local.collectives[0].name).computation is not local.module.entry


def test_a_weight_that_the_body_changes_is_gathered_in_every_trip() -> None:
    local = right(entry(), computations=loop(step="v = f32[64,64] negate(w)", later="v"))
    assert executions(local) == [TRIPS]


@pytest.mark.parametrize(
    "step",
    [
        "v = f32[64,64] transpose(w), dimensions={1,0}",
        "h = bf16[64,64] convert(w)  v = f32[64,64] convert(h)",
        "c = f32[] constant(0.5)  b = f32[64,64] broadcast(c), dimensions={}  v = f32[64,64] multiply(b, w)",
    ],
)
def test_what_is_computed_from_such_only_is_gathered_once(step: str) -> None:
    local = right(entry(), computations=loop(step=step, weight="v"))
    assert [c.executions for c in local.collectives] == [1]


def test_a_weight_cut_by_the_trips_number_is_gathered_in_every_trip() -> None:
    # Stacked weights of fully sharded layers: only the layer's own may be whole.
    stacked = loop(
        step="""z = s32[] constant(0)
        v1 = f32[1,64,64] dynamic-slice(w, i, z, z), dynamic_slice_sizes={1,64,64}
        v = f32[64,64] reshape(v1)""",
        weight="v",
    )
    body = entry().replace("f32[64,64]", "f32[9,64,64]").replace(ROWS + "}}", "[1,8,1]<=[8]}}")
    body = body.replace(f"parameter(1){mark(ROWS)}", f"parameter(1){mark('[1,8,1]<=[8]')}")
    stacked = stacked.replace("f32[64,64])", "f32[9,64,64])").replace("w = f32[64,64]", "w = f32[9,64,64]")
    local = right(body, computations=stacked)
    assert executions(local) == [TRIPS]
    assert carried(local) == [(), (200, 64), (9, 8, 64)]


def test_a_weight_behind_a_barrier_stays_where_the_barrier_is() -> None:
    # Rematerialisation: somebody wants it gathered anew.
    local = right(entry(), computations=loop(step="v = f32[64,64] opt-barrier(w)", weight="v"))
    assert executions(local) == [TRIPS]


def test_what_the_condition_computes_of_an_unchanged_value_is_computed_once() -> None:
    condition = """
        v = f32[64,64] get-tuple-element(q), index=2
        z = f32[] constant(0)
        sum = f32[] reduce(v, z), dimensions={0,1}, to_apply=add_f32
        much = f32[] constant(1e6)
        small = pred[] compare(sum, much), direction=LT
        ROOT more = pred[] and(less, small)"""
    local = right(entry(), computations=loop(condition=condition))
    assert executions(local, "all-reduce") == [1]
    assert executions(local) == [1]


def test_a_value_read_after_the_loop_is_what_it_was_before() -> None:
    after = f"""
        r = f32[1600,64] get-tuple-element(l), index=1
        v = f32[64,64] get-tuple-element(l), index=2
        ROOT o = (f32[1600,64], f32[64,64]) tuple(r, v), sharding={{{{devices={ROWS}}}, {{devices={ROWS}}}}}"""
    local = right(entry(after=after), computations=loop())
    assert executions(local) == [1]


def test_a_value_that_trips_read_in_parts_too_is_carried_in_both_forms() -> None:
    step = "u = f32[64,64] add(w, w)  s = f32[64,64] multiply(u, x64)"
    step = f"x64 = f32[64,64] slice(x), slice={{[0:64], [0:64]}}{mark(ROWS)}  {step}  c = f32[64,64] tanh(s)"
    text = loop(step=step).replace(
        "y = f32[1600,64] tanh(d)",
        """y1 = f32[1600,64] tanh(d)
        z = f32[] constant(0)
        extra = f32[64] reduce(c, z), dimensions={0}, to_apply=add_f32
        rows = f32[1600,64] broadcast(extra), dimensions={1}
        y = f32[1600,64] add(y1, rows)""",
    )
    local = right(entry(), computations=text, objective="bytes")
    assert executions(local) == [1]
    assert carried(local) == [(), (200, 64), (8, 64), (64, 64)]


def test_inner_and_outer_loop_have_it_in_common() -> None:
    outer = f"""
      outer {{
        p = {STATE} parameter(0)
        i = s32[] get-tuple-element(p), index=0
        one = s32[] constant(1)
        next = s32[] add(i, one)
        x = f32[1600,64] get-tuple-element(p), index=1
        w = f32[64,64] get-tuple-element(p), index=2
        first = s32[] constant({START})
        t = {STATE} tuple(first, x, w)
        l = {STATE} while(t), condition=body_more, body=body,
          sharding={{{{replicated}}, {{devices={ROWS}}}, {{devices={ROWS}}}}}
        y = f32[1600,64] get-tuple-element(l), index=1
        v = f32[64,64] get-tuple-element(l), index=2
        ROOT r = {STATE} tuple(next, y, v)
      }}"""
    body = entry().replace("body=body", "body=outer")
    local = right(body, computations=loop() + outer)
    assert executions(local) == [1]
    assert carried(local) == [(), (200, 64), (64, 64)]


# JAX programs: scans, memory, manual regions


def scanned(rows: int, weights: int, mesh: Mesh) -> tuple[Module, list[np.ndarray]]:
    """A scan of four steps, each of which multiplies [rows, 64] by fully sharded weights."""

    def run(x: jax.Array, *given: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            for w in given:
                x = jnp.tanh(x @ w)
            return x, None

        return jax.lax.scan(step, x, None, length=4)[0]

    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=(n, 64)).astype(np.float32) for n in (rows, *[64] * weights)]
    module = hs.trace(run, mesh=mesh, in_shardings=(SPLIT,) * len(arrays), out_shardings=SPLIT)(*arrays)
    return module, arrays


@pytest.fixture(scope="module")
def line(cpu_devices: list[Any]) -> Mesh:
    return Mesh(np.array(cpu_devices), ("d",))


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_only_as_many_move_as_memory_bears(line: Mesh, objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Thirty whole weights are far more than a step needs at once.
    module, arrays = scanned(16000, 30, line)
    options = PartitionOptions(objective=objective)
    moved = check(RandomProgram(module, tuple(arrays))).partitioned
    with_objective = hs.partition(module, options=options)
    monkeypatch.setattr(pipeline, "hoist_invariants", lambda *_: None)
    stayed = hs.partition(module, options=options)
    for local in (moved, with_objective):
        assert stayed.peak_memory_bytes < local.peak_memory_bytes <= 1.05 * stayed.peak_memory_bytes
        assert set(executions(local)) == {1, 4}


def test_weights_that_are_small_beside_the_batch_all_move(line: Mesh) -> None:
    module, arrays = scanned(64000, 6, line)
    local = check(RandomProgram(module, tuple(arrays))).partitioned
    assert executions(local) == [1] * 6


def test_a_collective_of_a_manual_region_moves_too(line: Mesh) -> None:
    def run(x: jax.Array, w: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ jax.lax.all_gather(w, "d", tiled=True)), None

        return jax.lax.scan(step, x, None, length=4)[0]

    x, w = (np.random.default_rng(n).normal(size=(n, 64)).astype(np.float32) / 8 for n in (1600, 64))
    program = jax.shard_map(run, mesh=line, in_specs=(SPLIT, SPLIT), out_specs=SPLIT, check_vma=False)
    local = hs.partition(hs.trace(program, mesh=line, in_shardings=(SPLIT, SPLIT))(x, w))
    assert executions(local) == [1]
    np.testing.assert_allclose(local.run(x, w), np.asarray(jax.jit(program)(x, w)), rtol=0, atol=1e-5)


def test_a_reshard_inside_the_groups_of_a_manual_region_moves_too(cpu_devices: list[Any]) -> None:
    square = Mesh(np.array(cpu_devices).reshape(2, 4), ("a", "b"))

    def run(x: jax.Array, w: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ w), None

        return jax.lax.scan(step, x, None, length=4)[0]

    x, w = (np.random.default_rng(n).normal(size=(n, 64)).astype(np.float32) / 8 for n in (1600, 64))
    specs = (PartitionSpec("a"), PartitionSpec())
    program = jax.shard_map(run, mesh=square, in_specs=specs, out_specs=specs[0], axis_names={"a"}, check_vma=False)
    given = (PartitionSpec(("a", "b")), PartitionSpec("b"))
    local = hs.partition(hs.trace(program, mesh=square, in_shardings=given)(x, w))
    assert 4 not in executions(local)
    np.testing.assert_allclose(local.run(x, w), np.asarray(jax.jit(program)(x, w)), rtol=0, atol=1e-5)


TO_HOST = """HloModule m, num_partitions=4
body {
  p = (s32[], f32[8,2], f32[4,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  acc = f32[8,2] get-tuple-element(p), index=1
  x = f32[4,2] get-tuple-element(p), index=2
  z = s32[] constant(0)
  row = f32[1,2] dynamic-slice(x, i, z), dynamic_slice_sizes={1,2}
  h = f32[1,2] custom-call(row), custom_call_target="MoveToHost"
  upd = f32[8,2] dynamic-update-slice(acc, h, i, z)
  ROOT t = (s32[], f32[8,2], f32[4,2]) tuple(j, upd, x)
}
cond {
  q = (s32[], f32[8,2], f32[4,2]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(k, n), direction=LT
}
ENTRY e {
  x = f32[4,2] parameter(0), sharding={devices=[2,2]<=[4]}
  c = f32[] constant(0)
  b = f32[8,2] broadcast(c), dimensions={}
  z = s32[] constant(0)
  init = (s32[], f32[8,2], f32[4,2]) tuple(z, b, x)
  w = (s32[], f32[8,2], f32[4,2]) while(init), condition=cond, body=body
  ROOT g = f32[8,2] get-tuple-element(w), index=1
}
"""


def test_rows_that_a_loop_writes_to_the_host_are_priced_while_its_collectives_move() -> None:
    """Trials of a move are priced on modules whose ids are dense: what the move removed is not looked at."""
    local = hs.partition(hs.load(TO_HOST, format="hlo"))
    (loop,) = [i for i in local.module.instructions if i.opcode == "while"]
    assert all(i.computation is loop.computation for i in local.module.instructions if i.opcode in COLLECTIVES)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(local.run_reference(x), np.concatenate([x, np.zeros_like(x)]))
