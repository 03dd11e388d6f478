"""Loops over layers cut between stages: what comes out is what one device gives, and each stage has its own layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.compiler import partition
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.ir import Module, Sameness, while_parts
from hlosharding.schedule import parse_schedule, run_ranks
from hlosharding.schedule.cutting import pipelined
from hlosharding.schedule.cutting.layer_loops import find_layer_loop
from hlosharding.schedule.cutting.loop_fission import Fission, cut_loops, find_loops_over_layers
from tests.support.layer_scans import LAYERS, SCANS, Step
from tests.support.training_steps import normal, trained

CUTS = [(2, 4, "gpipe"), (LAYERS, 2, None), (2, 1, None), (3, 2, "zb-h1"), (LAYERS, 4, "gpipe"), (2, 2, "1f1b-x2")]
CASES = [(name, *CUTS[(n + shift) % len(CUTS)]) for n, name in enumerate(SCANS) for shift in (0, 1)]


@cache
def of(name: str) -> tuple[Step, Module, list[np.ndarray]]:
    step = SCANS[name]()
    return step, hs.trace(step.function)(*step.arguments), step.expected()


def assert_close(name: str, found: object, wanted: np.ndarray) -> None:
    relative, absolute = (1e-2, 1e-4) if name == "bfloat16" else (2e-4, 2e-5)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=relative, atol=absolute)


@pytest.mark.parametrize(("name", "stages", "microbatches", "order"), CASES)
def test_a_scan_over_layers_is_cut(name: str, stages: int, microbatches: int, order: str | None) -> None:
    if name == "inference" and order is not None:
        order = "forward-x2" if order.endswith("-x2") else "forward"
    step, module, expected = of(name)
    made = pipelined(module, batch=step.batch, stages=stages, microbatches=microbatches, schedule=order)
    for found, wanted in zip(made.run_reference(*step.flat()), expected, strict=True):
        assert_close(name, found, wanted)


@pytest.mark.parametrize("name", SCANS)
def test_each_stage_has_the_weights_of_its_layers(name: str) -> None:
    step, module, _ = of(name)
    made = pipelined(module, batch=step.batch, stages=2)
    stacked = [p for p in module.entry.parameters if p.shape.dims[:1] == (LAYERS,)]
    rows, parts = (LAYERS, 1) if name == "two_scans" else (LAYERS // 2, 2)
    found = [p for p in made.main.parameters if p.type is not None and p.type.shape.dims[:1] == (rows,)]
    assert len(found) >= parts * len(stacked) > 0
    assert {p.type.devices for p in found if p.type is not None} == {(0,), (1,)}


@pytest.mark.parametrize("name", ["transformer", "two_scans"])
@pytest.mark.parametrize(("stages", "order"), [(2, "1f1b"), (3, "1f1b"), (4, "1f1b"), (2, "1f1b-x2")])
def test_on_devices_stacks_come_and_go_in_tiles(name: str, stages: int, order: str) -> None:
    """What a step gives is taken by the next one as it lies."""
    step, module, expected = of(name)
    cut = pipelined(
        module,
        batch=step.batch,
        stages=stages,
        microbatches=2,
        schedule=order,
        devices_per_stage=2,
    )
    run = cut.compile()
    made = run(*step.flat())
    for found, wanted in zip(made, expected, strict=True):
        assert_close(name, found, wanted)
    params = len(jax.tree.leaves(step.arguments[0]))
    later = [*made[:params], *step.flat()[params:]]
    tree = jax.tree.structure(step.arguments)
    wanted_later = jax.tree.leaves(jax.jit(step.function)(*jax.tree.unflatten(tree, [np.asarray(a) for a in later])))
    for found, wanted in zip(run(*later), wanted_later, strict=True):
        assert_close(name, found, wanted)
    if name == "two_scans" or stages == 3:  # stages have one of the scans; parts of unlike length are put together
        return
    stacks = [n for n, p in enumerate(module.entry.parameters[:params]) if p.shape.dims[:1] == (LAYERS,)]
    assert all(len(made[n].sharding.device_set) == 2 * stages for n in stacks)


def test_ranks_take_their_parts() -> None:
    step, module, expected = of("rematerialised")
    made = pipelined(module, batch=step.batch, stages=2, microbatches=2)
    results = made.join_results(run_ranks(made.ranks(), *made.cut_arguments(*step.flat())))
    for found, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def test_a_text_has_the_parts_as_parameters() -> None:
    step, module, expected = of("rematerialised")
    made = pipelined(module, batch=step.batch, stages=2)
    again = parse_schedule(made.to_text())
    results = made.join_results(again.run_reference(*made.cut_arguments(*step.flat())))
    np.testing.assert_allclose(results[0], expected[0], rtol=2e-4, atol=2e-5)


def test_memory_and_time_are_shared_by_the_stages() -> None:
    """A stage holds its layers' weights and activations alone."""

    def loss(params: jax.Array, x: jax.Array) -> jax.Array:
        return (jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params)[0] ** 2).mean()

    weights = jax.ShapeDtypeStruct((8, 512, 512), jnp.float32)
    module = hs.trace(trained(loss))(weights, jax.ShapeDtypeStruct((64, 512), jnp.float32))
    peaks = [pipelined(module, batch=["batch"], stages=n).simulate(machines.h100(n)).peak_memory_bytes for n in (1, 4)]
    assert peaks[1] < 0.35 * peaks[0]


def cut(module: Module, batch: set[int], stages: tuple[int, ...]) -> Fission:
    """Each loop alike."""
    loops = find_loops_over_layers(module, batch)
    return cut_loops(module, batch, loops, {loop.name: stages for loop in loops})


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("stages", [(0, 0, 1, 1), (0, 1, 2, 3), (0, 0, 0, 1), (0, 1, 1, 2)])
def test_the_program_is_the_same(name: str, stages: tuple[int, ...]) -> None:
    """Before any stage or microbatch: XLA runs the program with its loops cut."""
    step, module, expected = of(name)
    numbers = {p.parameter_number for p in module.entry.parameters if p.op_name in step.batch}
    made = cut(module, numbers, stages)
    assert len(made.module.entry.parameters) > len(module.entry.parameters)
    run = partition(made.module, num_partitions=1).compile(jax.devices()[:1])
    results = made.interface.join_arrays(run(*made.interface.cut_arrays(step.flat())))
    for found, wanted in zip(results, expected, strict=True):
        assert_close(name, found, wanted)


@pytest.mark.parametrize(("stages", "order", "parts"), [(5, None, 5), (2, "1f1b-x3", 6), (8, "1f1b-x1", 8)])
def test_fewer_layers_than_stages_are_refused_with_their_line(stages: int, order: str | None, parts: int) -> None:
    step, module, _ = of("rematerialised")
    said = rf"4 layers \(%while[.\d]*\) for {parts} stages; at layer_scans.py:\d+; .*up to 4"
    with pytest.raises(ScheduleError, match=said):
        pipelined(module, batch=step.batch, stages=stages, microbatches=4, schedule=order)


def test_a_device_has_the_layers_of_its_chunks() -> None:
    """Megatron's: layers 0 and 2 on the first of two devices, 1 and 3 on the second."""
    step, module, _ = of("rematerialised")
    made = pipelined(module, batch=step.batch, stages=2, microbatches=2, schedule="1f1b-x2")
    rows = [p.type.devices for p in made.main.parameters if p.type is not None and p.type.shape.dims[:1] == (1,)]
    assert rows == [(0,), (1,), (0,), (1,)]


def test_one_chunk_a_device_is_the_schedule_without_chunks() -> None:
    step, module, _ = of("rematerialised")
    plain, one = (
        pipelined(module, batch=step.batch, stages=2, microbatches=4, schedule=order) for order in ("1f1b", "1f1b-x1")
    )
    assert str(one) == str(plain)


def test_what_trips_keep_comes_through_no_stage() -> None:
    """A mask, made of nothing but its sizes: each part of the loop makes its own."""

    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.ones((8, 8)))
        return jax.lax.scan(lambda x, own: (jnp.tanh(x @ (own * mask)), None), x, w)[0]

    arguments = normal(0, LAYERS, 8, 8), normal(1, 16, 8)
    made = pipelined(hs.trace(step)(*arguments), batch=["x"], stages=2)
    assert str(made).count("= send(") == 1
    assert_close("", made.run_reference(*arguments)[0], np.asarray(step(*arguments)))


def test_a_scan_over_time_is_no_loop_over_layers() -> None:
    """Its stack is data of the batch; its weights are the same in all trips."""

    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, now: (jnp.tanh(h @ w + now), None), jnp.zeros((4, 8)), x.swapaxes(0, 1))[0]

    module = hs.trace(step)(normal(0, 8, 8), normal(1, 4, 6, 8))
    assert not find_loops_over_layers(module, {1})


def test_rows_are_found_forwards_and_backwards() -> None:
    _, module, _ = of("rematerialised")
    loops = [find_layer_loop(loop) for loop in module.entry.instructions if loop.opcode == "while"]
    assert {is_from_last for loop in loops if loop is not None for is_from_last in loop.stacks.values()} == {
        False,
        True,
    }


def test_a_stack_that_is_read_as_a_whole_stays_whole() -> None:
    """Every trip reads all of one, and a row of the other: the loops go on with the whole of the first."""

    def step(u: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, own: (jnp.tanh(x @ own) + u.sum(), None), x, w)[0]

    arguments = normal(2, LAYERS, 8), normal(0, LAYERS, 8, 8), normal(1, 16, 8)
    made = pipelined(hs.trace(step)(*arguments), batch=["x"], stages=2)
    assert len(made.main.parameters) == 4
    assert_close("", made.run_reference(*arguments)[0], np.asarray(step(*arguments)))


@pytest.mark.parametrize(("name", "alike"), [("rematerialised", True), ("dropout", False)])
def test_parts_count_alike_where_nobody_asks_for_the_number(name: str, alike: bool) -> None:
    """So that stages are partitioned once; a body that counts layers itself begins where it is."""
    _, module, _ = of(name)
    made = cut(module, {module.entry.parameters[-1].parameter_number}, (0, 0, 1, 1))
    loops = [inst for inst in made.module.entry.instructions if inst.opcode == "while"]
    sameness = Sameness()
    bodies = [sameness.computation(while_parts(loop).body) for loop in loops[:2]]
    assert (bodies[0] == bodies[1]) == alike


def row(stack: Any, number: Any) -> Any:
    return jax.lax.dynamic_index_in_dim(stack, number, keepdims=False, allow_negative_indices=False)


def place_elsewhere(n: Any, x: Any, state: Any, u: Any) -> Any:
    return n + 1, x + jax.lax.dynamic_slice(u.reshape(-1), (n,), (8,), allow_negative_indices=False), state


def two_rows(n: Any, x: Any, state: Any, u: Any) -> Any:
    return n + 1, x + row(u, n) * row(u, LAYERS - 1 - n), state


def next_number(n: Any, x: Any, state: Any, u: Any) -> Any:
    following = n + 1
    return following, x * following, state


def number_handed_on(n: Any, x: Any, state: Any, u: Any) -> Any:
    following = n + 1
    return following, x * state, following


def stack_handed_on(n: Any, x: Any, state: Any, u: Any) -> Any:
    stack, whole = state
    put = jax.lax.dynamic_update_index_in_dim(stack, x[None], n, 0, allow_negative_indices=False)
    return n + 1, x + whole.sum(), (put, put)


STACK = jnp.zeros((LAYERS, 16, 8))


@pytest.mark.parametrize(
    ("trip", "state"),
    [(place_elsewhere, 0), (two_rows, 0), (next_number, 0), (number_handed_on, 7), (stack_handed_on, (STACK, STACK))],
)
def test_what_is_counted_beside_rows_goes_on_in_later_parts(trip: Callable[..., Any], state: Any) -> None:
    """The number of a row is a number for something else, too; a stack is what the next trip has as a whole."""

    def step(u: Any, w: Any, x: Any) -> Any:
        def body(carry: Any) -> Any:
            n, x, state = carry
            return trip(n, jnp.tanh(x @ row(w, n)), state, u)

        start = jnp.int32(0), x, jax.tree.map(jnp.asarray, state)
        return jax.tree.leaves(jax.lax.while_loop(lambda carry: carry[0] < LAYERS, body, start))[1:]

    arguments = normal(2, LAYERS, 8), normal(0, LAYERS, 8, 8), normal(1, 16, 8)
    made = pipelined(hs.trace(step)(*arguments), batch=["x"], stages=2, microbatches=1)
    for found, wanted in zip(made.run_reference(*arguments), step(*arguments), strict=True):
        assert_close("", found, np.asarray(wanted))


def test_a_loop_over_columns_of_a_stack_stays_whole() -> None:
    """There are as many layers as columns, so that it counts as the loop that stacked them does."""

    def step(w: Any, x: Any) -> Any:
        x, sums = jax.lax.scan(lambda x, own: (jnp.tanh(x @ own), x.sum(0)), x, w)
        return jax.lax.scan(lambda x, column: (jnp.sin(x + column), None), x, sums.T)[0]

    arguments = normal(0, 6, 6, 6), normal(1, 16, 6)
    made = pipelined(hs.trace(step)(*arguments), batch=["x"], stages=2, microbatches=1)
    assert_close("", made.run_reference(*arguments)[0], np.asarray(step(*arguments)))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_sum_that_layers_carry_goes_through_parts_of_one_layer(stages: int) -> None:
    """As losses of experts do: what a single layer gives is no loop's, and enters the loop of the layers behind it."""

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            def layer(carry: Any, own: Any) -> Any:
                x, losses = carry
                return (jnp.tanh(x @ own), losses + jnp.mean((x @ own) ** 2)), None

            (out, losses), _ = jax.lax.scan(layer, (x, 0.0), w)
            return jnp.mean(out**2) + losses

        value, gradient = jax.value_and_grad(loss)(w)
        return w - 0.1 * gradient, value

    arguments = normal(0, 4, 8, 8), normal(1, 16, 8)
    made = pipelined(hs.trace(step)(*arguments), batch=["x"], stages=stages, microbatches=2)
    for found, wanted in zip(made.run_reference(*arguments), step(*arguments), strict=True):
        assert_close("", found, np.asarray(wanted))
