"""The program of one microbatch, its sums, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import ScheduleError
from hlosharding.schedule.cutting.microbatched import Microbatched
from hlosharding.schedule.cutting.microbatches import cut_microbatches
from hlosharding.schedule.cutting.openings import opening_levels

W, X = jnp.ones((6, 4)), jnp.ones((8, 6))


def cut(function: Callable[..., Any], count: int = 4, batch: tuple[int, ...] = (1,)) -> Microbatched:
    return cut_microbatches(hs.trace(function)(W, X), dict.fromkeys(batch, 0), count)


def test_a_gradient_is_a_sum_and_its_update_comes_once() -> None:
    found = cut(lambda w, x: w - jax.grad(lambda w: (x @ w).sum())(w))
    assert [sum_.shape.dims for sum_ in found.sums] == [W.T.shape]
    assert found.module.entry.root.operands[0] in found.after
    assert not found.after & found.varying
    assert found.opening == frozenset()
    assert found.number is None


def test_results_of_each_example_are_joined() -> None:
    assert cut(lambda w, x: (w, x @ w, (x @ w).sum(), (x @ w).T)).joined == {1: 0, 3: 1}


def test_what_is_the_same_for_all_is_no_sum() -> None:
    found = cut(lambda w, x: ((x @ w).sum() / jnp.ones_like(x[:, 0]).sum(), w.sum()))
    assert len(found.sums) == 1


def test_arguments_that_are_no_batch_stay_whole() -> None:
    """A loop carries them beside the batch: what is split there says nothing of what comes in."""

    def rollout(costs: jax.Array, rows: jax.Array, actions: jax.Array) -> Any:
        def move(carry: tuple[jax.Array, jax.Array], action: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
            return (jnp.sum(action * action, -1), jnp.tanh(carry[1] + action)), None

        return jax.lax.scan(move, (costs, rows), actions)[0]

    given = jnp.zeros(8), X, jnp.arange(144.0).reshape(3, 8, 6)
    made = hs.pipelined(hs.trace(rollout)(*given), batch=["rows"], stages=1, microbatches=2)
    assert [p.type.shape.dims for p in made.main.parameters] == [(8,), (8, 6), (3, 8, 6)]
    for found, wanted in zip(made.run_reference(*given), rollout(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_number_of_a_microbatch_is_a_parameter() -> None:
    found = cut(lambda w, x: x * jax.lax.broadcasted_iota(x.dtype, x.shape, 0) @ w)
    assert found.number is not None
    assert found.number in found.varying
    assert [str(p.shape) for p in found.module.entry.parameters] == ["f32[6,4]", "f32[2,6]", "u32[]"]
    assert not list(found.module.of_opcodes("partition-id"))


def test_a_sum_of_inputs_is_made_ahead_and_so_is_one_made_of_it() -> None:
    def step(w: Any, x: Any) -> Any:
        deviation = x - x.mean(0)
        return (deviation / jnp.sqrt((deviation**2).mean(0) + 1.0)) @ w

    found = cut(step)
    assert sorted(opening_levels(found).values()) == [0, 1]
    assert found.sums == found.opening


def test_one_microbatch_may_do_what_it_likes() -> None:
    assert cut(lambda w, x: jnp.sort(x @ w, 0), count=1).count == 1


def statistics(w: Any, x: Any) -> Any:
    h = x @ w
    return h - h.mean(0)


def statistics_in_a_loop(w: Any, x: Any) -> Any:
    def layer(h: Any, v: Any) -> Any:
        h = h * v
        return h / (1.0 + h.sum(0)), None

    return jax.lax.scan(layer, x, w.T)[0] if w.shape[0] == x.shape[1] else x


def another_order(w: Any, x: Any) -> Any:
    return jnp.sort(x @ w, 0)


def largest_of_all(w: Any, x: Any) -> Any:
    return (x @ w).max(0)


def neighbours(w: Any, x: Any) -> Any:
    return jnp.roll(x, 1, 0) @ w


def products_of_sums_in_a_loop(w: Any, x: Any) -> Any:
    def layer(total: Any, v: Any) -> Any:
        return total * (x * v).sum(), None

    return jax.lax.scan(layer, jnp.float32(1.0), w.T)[0]


def trips_by_a_sum(w: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda c: c.sum() < 100.0, lambda c: c * 2.0, x)


def rows_in_groups(w: Any, x: Any) -> Any:
    return (x @ w).reshape(2, 4, -1)


def groups_of_rows_last(w: Any, x: Any) -> Any:
    return (x @ w).reshape(2, 4, -1).transpose(1, 0, 2)


def rows_from_the_last(w: Any, x: Any) -> Any:
    return (x @ w)[::-1]


def carried_beside(w: Any, x: Any) -> Any:
    return jax.lax.scan(lambda c, _: ((c[0] * 2, c[1] * c[0].sum()), None), (w[0], x), None, length=3)[0]


def counted(w: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))


def chosen_beside(w: Any, x: Any) -> Any:
    return jax.lax.cond(w[0, 0] > 0, lambda: (w, x * 2), lambda: (w * 2, x))


LINE = statistics.__code__.co_firstlineno + 2
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "statistics over the batch": (
        statistics,
        rf"needs a sum over .* to work on one of them: that of %\S+ at test_microbatches.py:{LINE}; ",
    ),
    "statistics in a loop": (statistics_in_a_loop, "needs a sum over all microbatches before its loop"),
    "another order": (another_order, "needs elements of other microbatches"),
    "the largest of all": (largest_of_all, "another reduction over all microbatches than a sum"),
    "neighbours": (neighbours, "needs elements of other microbatches"),
    "products of sums in a loop": (products_of_sums_in_a_loop, "before its loop, or branch, has ended"),
    "rows in groups": (rows_in_groups, "a result, has the microbatches along several dims"),
    "groups of rows last": (groups_of_rows_last, "a result, has the microbatches along several dims"),
    "rows from the last": (rows_from_the_last, r"or in another order: \{devices=\[4,1\]3,2,1,0\}"),
    "carried beside": (carried_beside, "a result, is the same in each microbatch"),
    "counted": (counted, "a result, is the same in each microbatch"),
    "chosen beside": (chosen_beside, "a result, is the same in each microbatch"),
    "trips by a sum": (trips_by_a_sum, "before its loop, or branch, has ended"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_op_and_line(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message) as caught:
        cut(function)
    assert "%" in str(caught.value)
    assert "test_microbatches.py:" in (caught.value.where or "")


def test_a_batch_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ScheduleError, match="cannot be cut into 3 microbatches along dim 0"):
        cut(lambda w, x: x @ w, count=3)


@pytest.mark.parametrize("count", [0, -2])
def test_so_is_no_number_of_microbatches(count: int) -> None:
    with pytest.raises(ScheduleError, match=f"{count} pieces are no whole; take one or more"):
        cut(lambda w, x: x @ w, count=count)


def run(function: Callable[..., Any], *given: Any, microbatches: int) -> None:
    """Of arrays of which the last is the batch; against one device."""
    made = hs.pipelined(hs.trace(function)(*given), batch=[len(given) - 1], stages=1, microbatches=microbatches)
    for found, wanted in zip(made.run_reference(*given), function(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_sum_of_what_is_the_same_in_all_counts_it_as_often() -> None:
    def step(b: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
        own = jnp.broadcast_to(b, x.shape) ** 2  # split as the batch is, and no microbatch's own
        return ((x + own).sum(0, dtype=x.dtype), (own * b).sum(0, dtype=x.dtype))

    run(step, jnp.arange(3.0), jnp.ones((8, 3)), microbatches=4)
    small = hs.trace(step)(jnp.arange(3, dtype=jnp.int8), jnp.ones((128, 3), jnp.int8))
    cut_microbatches(small, {1: 0}, 128)  # which is no s8: it wraps around, as the sum does


def test_rows_from_the_last_on_may_be_turned_again_and_added_up() -> None:
    run(lambda w, x: ((x[::-1] @ w)[::-1], (x[::-1] * jnp.arange(8.0)[:, None]).sum(0)), W, X, microbatches=4)


def test_each_token_may_choose_its_largest() -> None:
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        values, places = jax.lax.top_k(x @ w, 2)
        return (jax.nn.softmax(values) * jnp.sin(w[0, places])).sum()

    w, x = np.random.default_rng(0).normal(size=(2, 6, 6)).astype(np.float32)
    run(lambda w, x: (loss(w, x), *jax.lax.top_k(x, 3)), w, x, microbatches=3)


def test_a_program_without_a_forward_pass_is_no_stage() -> None:
    with pytest.raises(ScheduleError, match=r"0 ops of .* for 1 stages; let it compute something of the batch"):
        hs.pipelined(hs.trace(lambda x: (x, jnp.arange(8)))(X), batch=["x"], stages=1)


RESULTS = {
    "nested": "t = (f32[8,6], f32[8,6]) tuple(x, y)  ROOT r = ((f32[8,6], f32[8,6]), f32[8,6]) tuple(t, y)",
    "of a call": "ROOT r = (f32[8,6], f32[8,6], f32[8,6]) call(x), to_apply=twice",
}


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("results", RESULTS)
def test_each_array_of_the_result_is_one(results: str, microbatches: int) -> None:
    module = hs.load(f"""HloModule m
twice {{ a = f32[8,6] parameter(0)  n = f32[8,6] negate(a)
  ROOT r = (f32[8,6], f32[8,6], f32[8,6]) tuple(a, n, n) }}
ENTRY e {{ x = f32[8,6] parameter(0)  y = f32[8,6] negate(x)
  {RESULTS[results]} }}""")
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    found = hs.pipelined(module, batch=[0], stages=1, microbatches=microbatches).run_reference(x)
    for array, wanted in zip(found, (x, -x, -x), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_fused_attention_of_scanned_layers_keeps_microbatches_apart() -> None:
    """What it saves for the way back goes through the loop's carry, which propagation does not split."""

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            q = jnp.einsum("bshd,de->bshe", x, w)
            return jax.nn.dot_product_attention(q, x, x, is_causal=True, implementation="cudnn"), None

        return jax.lax.scan(layer, x, w)[0].astype(jnp.float32).sum()

    w, x = (jax.ShapeDtypeStruct(dims, jnp.bfloat16) for dims in ((3, 64, 64), (8, 128, 4, 64)))
    found = cut_microbatches(hs.trace(jax.grad(loss), platform="cuda")(w, x), {1: 0}, 4)
    calls = [i for i in found.module.instructions if i.opcode == "custom-call"]
    assert len(calls) == 2
    assert {call.operands[0].shape.dims for call in calls} == {(2, 128, 4, 64)}
    assert [s.shape.dims for s in found.sums] == [(3, 64, 64)]
