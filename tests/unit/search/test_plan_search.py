"""Plans: weights are split as Megatron does, plans compute what one device does, the best is never pruned."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import Machine, machines
from hlosharding.errors import ScheduleError
from hlosharding.search import Plan, Planner, plan_space
from hlosharding.search.least_seconds import LeastWork, least_seconds
from hlosharding.search.priced_plan import sort_by_throughput
from hlosharding.search.tensor_parallel import tensor_splits
from tests.support.training_steps import perceptron as step

ROWS, WIDTH, LAYERS = 32, 16, 4


def arguments(width: int = WIDTH, rows: int = ROWS) -> tuple[Any, Any]:
    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    return [jax.random.normal(k, (width, width)) * 0.3 for k in keys[1:]], jax.random.normal(keys[0], (rows, width))


def traced() -> hs.Module:
    return hs.trace(step)(*arguments())


def attention(weights: Any, x: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = ((x @ weights[n]).reshape(batch, length, 4, -1).transpose(0, 2, 1, 3) for n in "qkv")
    mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v
    x = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ weights["o"]
    x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return jax.nn.gelu(x @ weights["up"]) @ weights["down"]


def test_a_transformer_layer_is_split_as_megatron_does() -> None:
    sizes = dict.fromkeys("qkvo", (16, 16)) | {"up": (16, 64), "down": (64, 16)}
    weights = {name: jnp.ones(size) for name, size in sizes.items()}
    module = hs.trace(attention)(weights, jnp.ones((2, 8, 16)))
    names = {p.parameter_number: p.op_name for p in module.entry.parameters}
    found = {names[n]: dim for n, dim in tensor_splits(module, 4, batch=frozenset({6})).items()}
    columns, rows = ("q", "k", "v", "up"), ("o", "down")
    assert found == {f"weights['{n}']": 1 for n in columns} | {f"weights['{n}']": 0 for n in rows}


def test_rows_of_stacked_weights_are_split_as_single_weights() -> None:
    """A scan's weights have the same dims split as those of its layers written one by one; the stack's dim is first."""

    def layer(x: jax.Array, own: dict[str, jax.Array]) -> jax.Array:
        return x + jnp.tanh(x @ own["up"] + own["bias"]) @ own["down"].T

    def scanned(layers: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, own: (layer(x, own), None), x, layers)[0]

    def one_by_one(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
        for own in layers:
            x = layer(x, own)
        return x

    shapes = {"up": (8, 16), "bias": (16,), "down": (8, 16)}
    x = jnp.ones((4, 8))
    single = hs.trace(one_by_one)([{name: jnp.ones(dims) for name, dims in shapes.items()}] * 3, x)
    stacked = hs.trace(scanned)({name: jnp.ones((3, *dims)) for name, dims in shapes.items()}, x)
    splits = [
        {module.entry.parameters[n].op_name[-4:]: dim for n, dim in tensor_splits(module, 2, batch=batch).items()}
        for module, batch in ((single, frozenset({9})), (stacked, frozenset({3})))
    ]
    assert splits[0]
    assert splits[1] == {name: dim + 1 for name, dim in splits[0].items()}


def test_what_a_barrier_keeps_apart_is_split_as_without_it() -> None:
    """A value that lies in memory is split as it was made: the second product by rows (Shoeybi et al. 2019)."""

    def apart(up: jax.Array, down: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.optimization_barrier(jnp.tanh(x @ up)) @ down

    module = hs.trace(apart)(jnp.ones((8, 16)), jnp.ones((16, 8)), jnp.ones((4, 8)))
    assert tensor_splits(module, 4, batch=frozenset({2})) == {0: 1, 1: 0}


def test_a_value_that_is_reached_on_many_ways_is_looked_at_once() -> None:
    """Of a product that 600 ops multiply with themselves, one after the other, two to the 600 ways lead to the end."""
    chain = "\n".join(f"  z{n} = f32[4,8] sine(y{n})\n  y{n + 1} = f32[4,8] multiply(y{n}, z{n})" for n in range(600))
    module = hs.load(f"""HloModule m
ENTRY e {{
  w = f32[8,8] parameter(0)
  x = f32[4,8] parameter(1)
  y0 = f32[4,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{chain}
  ROOT y = f32[4,8] negate(y600)
}}""")
    assert tensor_splits(module, 2, batch=frozenset({1})) == {0: 1}


HANDED_ON = """p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  w = f32[8,8] get-tuple-element(p), index=1
  j = s32[] add(i, i)
  ROOT t = (s32[], f32[8,8]) tuple(j, w)"""


@pytest.mark.parametrize("body", ["ROOT p = (s32[], f32[8,8]) parameter(0)", HANDED_ON], ids=["nothing", "handed on"])
def test_two_loops_of_one_body_end(body: str) -> None:
    """Each starts with what the other one ends with, as far as names of values tell."""
    module = hs.load(f"""HloModule m
body {{
  {body}
}}
cond {{
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  ROOT l = pred[] compare(i, i), direction=LT
}}
ENTRY e {{
  n = s32[] parameter(0)
  w = f32[8,8] parameter(1)
  x = f32[4,8] parameter(2)
  t = (s32[], f32[8,8]) tuple(n, w)
  a = (s32[], f32[8,8]) while(t), condition=cond, body=body
  b = (s32[], f32[8,8]) while(a), condition=cond, body=body
  v = f32[8,8] get-tuple-element(b), index=1
  ROOT y = f32[4,8] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}""")
    found = tensor_splits(module, 2, batch=frozenset({0, 2}))
    assert found == {1: 1} or body is HANDED_ON


def test_heads_that_do_not_divide_are_not_split() -> None:
    sizes = dict.fromkeys("qkvo", (16, 16)) | {"up": (16, 64), "down": (64, 16)}
    module = hs.trace(attention)({name: jnp.ones(size) for name, size in sizes.items()}, jnp.ones((2, 8, 16)))
    local = hs.partition(hs.propagate(Planner(module, ["x"]).annotate(Plan(1, 8)), to_outputs=True), num_partitions=8)
    given = [np.random.default_rng(0).normal(size=p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    weights = dict(zip(sorted(sizes), given[:-1], strict=True))
    np.testing.assert_allclose(local.run_reference(*given), attention(weights, given[-1]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "plan",
    [Plan(2, 2, 2, 4), Plan(1, 4), Plan(8), Plan(1, 1, 4, 8), Plan(4, 1, 2, 2), Plan(1, 2, 4, 1), Plan(3)],
    ids=str,
)
def test_a_plan_computes_what_one_device_does(plan: Plan) -> None:
    weights, x = arguments(rows=48)
    module = hs.trace(step)(weights, x)
    found = Planner(module, ["x"]).schedule(plan).run_reference(*weights, x)
    for ours, expected in zip(found, jax.tree.leaves(jax.jit(step)(weights, x)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def small(memory: float = 80e9) -> Machine:
    """Eight devices so slow that arithmetic decides."""
    return replace(machines.h100(8), memory_bytes=memory)


def batch_of(module: hs.Module) -> frozenset[int]:
    return Planner(module, ["x"]).numbers


def test_of_unlike_nodes_no_plan_is_faster_than_its_bound() -> None:
    """Half of the devices are fifty times as fast as the others, and nothing but arithmetic takes time."""
    rates = {
        "peak_flops": (("f32", 1e6),),
        "vector_flops": 1e6,
        "compute_efficiency": 1.0,
        "sustained": 1.0,
        "spread": 0.0,
    }
    slow = replace(machines.h100(2), launch=0.0, matrix_tile=(1, 1, 1), **rates)  # pyright: ignore[reportArgumentType]
    mixed = Machine.of_parts(replace(slow, peak_flops=(("f32", 5e7),), vector_flops=5e7), slow)
    module = traced()
    found = hs.search(module, batch=["x"], machine=mixed, microbatches=(2, 16), prune=False)
    work = {machine: LeastWork.of(module, batch_of(module), machine) for machine in (mixed, slow)}
    assert all(each.time_s >= least_seconds(each.plan, work[mixed]) for each in found.table)
    assert min(each.time_s / least_seconds(each.plan, work[slow]) for each in found.table) < 1


def test_the_best_plan_is_never_pruned() -> None:
    module = traced()
    every = hs.search(module, batch=["x"], machine=small(), microbatches=(2, 4), prune=False)
    few = hs.search(module, batch=["x"], machine=small(), microbatches=(2, 4), keep=1)
    assert few.best == every.best
    assert hs.search(module, batch=["x"], machine=small(), microbatches=(2, 4), keep=0).table
    priced = {each.plan: each.time_s for each in every.table}
    assert all(priced[each.plan] >= least >= 0 for each, least in few.pruned if each.plan in priced)
    assert len(every.table) + len(every.refused) == len(list(plan_space(8, (2, 4))))


@pytest.mark.parametrize("seed", range(4))
def test_the_fastest_are_those_of_pricing_everything_alone(seed: int) -> None:
    """Layers of any widths, so that stages share the work unequally, on devices so slow that it decides."""
    random = Random(seed)
    widths = [random.choice((64, 128, 512)) for _ in range(LAYERS + 1)]
    weights = [jax.ShapeDtypeStruct(pair, jnp.float32) for pair in pairwise(widths)]
    x, keep = jax.ShapeDtypeStruct((ROWS, widths[0]), jnp.float32), random.choice((1, 3))
    machine = replace(machines.h100(4), peak_flops=(("f32", 1e9),))
    plans = list(plan_space(4, (2, 8), ("gpipe", "1f1b"), strategies=("", "fsdp")))
    found = hs.search(chain, weights, x, batch=["x"], machine=machine, plans=plans, keep=keep)
    exact = {each.plan: each for plan in plans for each in alone(weights, x, machine, plan).table}
    assert [priced.plan for priced in found.table[:keep]] == [
        each.plan for each in sort_by_throughput(exact.values())[:keep]
    ]
    assert all(exact[each.plan].time_s >= least for each, least in found.pruned if each.plan in exact)


def chain(weights: Any, x: jax.Array) -> Any:
    def loss(weights: Any) -> jax.Array:
        y = x
        for weight in weights:
            y = jnp.tanh(y @ weight)
        return jnp.sum(y)

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def alone(weights: Any, x: Any, machine: Machine, plan: Plan) -> hs.SearchResult:
    return hs.search(chain, weights, x, batch=["x"], machine=machine, plans=[plan])


def test_plans_that_do_not_fit_come_last_and_none_is_an_error() -> None:
    found = hs.search(traced(), batch=["x"], machine=small(memory=1.0), microbatches=(2,))
    assert not any(priced.fits for priced in found.table)
    assert "no plan fits" in found.explain()
    with pytest.raises(ScheduleError, match="no plan fits"):
        _ = found.best


def test_what_the_program_does_not_allow_is_refused_with_the_reason() -> None:
    found = hs.search(traced(), batch=["x"], machine=machines.h100(8), microbatches=(64,))
    reasons = {str(each.plan): why for each, why in found.refused}
    assert "is not cut into 64 microbatches, each 1 ways; at x, read at training_steps.py:" in reasons["1/1/8/64"]


def normed(w: jax.Array, x: jax.Array) -> jax.Array:
    h = x @ w
    mean = h.mean(0)
    return jnp.tanh(h - mean).sum()


@pytest.mark.parametrize("size", [0, -4])
def test_a_batch_without_examples_is_refused(size: int) -> None:
    arrays = jnp.ones((4, 4)), jnp.ones((8, 4))
    found = hs.search(normed, *arrays, batch=["x"], machine=machines.h100(2), plans=[Plan(2)], batch_sizes=[size])
    with pytest.raises(ScheduleError, match=f"a batch of {size} holds no example"):
        _ = found.best


def test_what_no_plan_is_allowed_is_said_once() -> None:
    """Statistics over the batch are no microbatch's own: their line, and that of what reads them."""
    arrays = jnp.ones((4, 4)), jnp.ones((8, 4))
    plans = [Plan(microbatches=2), Plan(1, 1, 2, 2), Plan(1, 1, 2, 4), Plan(3)]
    found = hs.search(normed, *arrays, batch=["x"], machine=machines.h100(4), plans=plans)
    with pytest.raises(ScheduleError) as refused:
        _ = found.best
    first = normed.__code__.co_firstlineno
    said = str(refused.value)
    assert said.startswith("no plan could be priced on h100(4); 3 of 4 refused: %")
    assert f"at test_plan_search.py:{first + 2}; at test_plan_search.py:{first + 3}; let a microbatch" in said
    assert found.explain() == said


def test_an_argument_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="no argument 'tokens'; there are weights"):
        hs.search(traced(), batch=["tokens"], machine=machines.h100(2))


def test_a_batch_of_no_examples_is_none() -> None:
    """No time is one of an example."""
    module = hs.trace(jnp.matmul)(jnp.ones((0, 4)), jnp.ones((4, 8)))
    with pytest.raises(ScheduleError, match=r"no array of a has a first dim of examples"):
        hs.search(module, batch=["a"], machine=machines.h100(2))


def test_the_winner_runs_as_it_is() -> None:
    weights, x = arguments()
    found = hs.search(step, weights, x, batch=["x"], machine=machines.h100(4), microbatches=(2, 4))
    ours = found.schedule.run_reference(*weights, x)
    for each, expected in zip(ours, jax.tree.leaves(jax.jit(step)(weights, x)), strict=True):
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-5)
    assert "takes" in found.explain()


def test_schedules_are_searched_too_and_zero_bubble_has_less_of_one() -> None:
    weight, x = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((4096, 4096), (4096, 4096)))
    module = hs.trace(step)([weight] * LAYERS, x)
    found = hs.search(
        module, batch=["x"], machine=small(), microbatches=(4,), schedules=("1f1b", "zb-h1"), prune=False, keep=0
    )
    idle = {(p.plan.data, p.plan.tensor, p.plan.stages, p.plan.schedule): p.idle_s for p in found.table}
    pairs = [(idle[d, t, s, "zb-h1"], idle[d, t, s, "1f1b"]) for d, t, s, name in idle if name == "zb-h1"]
    assert len(pairs) == 6
    assert all(ours < theirs for ours, theirs in pairs)


def test_no_schedule_takes_less_than_its_bound() -> None:
    weights, x = arguments(width=256, rows=64)
    module = hs.trace(step)(weights, x)
    schedules = ("gpipe", "1f1b", "1f1b-x2", "breadth-first-x2", "zb-h1")
    found = hs.search(module, batch=["x"], machine=small(), microbatches=(2, 4), schedules=schedules, prune=False)
    assert {priced.plan.schedule for priced in found.table} == {*schedules, ""}
    work = LeastWork.of(module, batch_of(module), small())
    assert all(priced.time_s >= least_seconds(priced.plan, work) for priced in found.table)


def momentum(weights: list[jax.Array], moments: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], ...]:
    gradients = jax.grad(lambda ws: jnp.sum(jnp.tanh(jnp.tanh(x @ ws[0]) @ ws[1])))(weights)
    moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, moments, strict=True)], moments


def with_donated(*donate: str | int) -> hs.SearchResult:
    w, x = jax.ShapeDtypeStruct((1024, 1024), jnp.float32), jax.ShapeDtypeStruct((8, 1024), jnp.float32)
    arguments = [w, w], [w, w], x
    return hs.search(momentum, *arguments, batch=["x"], machine=machines.h100(1), plans=[Plan()], donate=donate)


def test_what_donating_would_save_is_said_where_nothing_is_donated() -> None:
    found, given = with_donated(), with_donated("weights", "moments")
    saved = found.table[0].peak_memory_bytes - given.table[0].peak_memory_bytes
    assert saved >= 2 * 1024 * 1024 * 4
    assert found.explain().endswith(f"\ndonating weights, moments would save {saved / 1e6:.3g} MB")
    assert "donating" not in given.explain()


def test_arguments_are_donated_by_number_as_jit_counts_them() -> None:
    peaks = [with_donated(*donate).table[0].peak_memory_bytes for donate in ((0, 1), ("weights", "moments"), (0,))]
    assert peaks[0] == peaks[1] < peaks[2]
    with pytest.raises(ScheduleError, match=r"no argument 3; there are 3, counted from 0"):
        with_donated(3)


def _tokens_per_s(*batch: jax.ShapeDtypeStruct) -> float | None:
    table = jax.ShapeDtypeStruct((512, 64), jnp.bfloat16)

    def scores(table: Any, *batch: Any) -> Any:
        return [each[..., :1] @ table[:1] if each.ndim < 2 else table[each.astype(int)] @ table.T for each in batch]

    names = [f"batch[{number}]" for number in range(len(batch))]
    found = hs.search(scores, table, *batch, batch=names, machine=machines.h100(2), plans=[Plan(2)])
    figures = found.figures(found.table[0])
    return figures.tokens_per_s and figures.tokens_per_s * found.table[0].time_s


def test_tokens_are_the_integers_of_a_batch() -> None:
    tokens, more, floats = (
        jax.ShapeDtypeStruct(dims, dtype)
        for dims, dtype in (((8, 32), jnp.int32), ((8, 64), jnp.int32), ((8, 32), jnp.float32))
    )
    assert _tokens_per_s(tokens) == pytest.approx(8 * 32 / 2)
    assert _tokens_per_s(tokens, tokens, floats) == pytest.approx(8 * 32 / 2)
    assert _tokens_per_s(tokens, more) is _tokens_per_s(floats) is None
