"""A step that was cut gives what one device gives: every model, numbers of stages and microbatches, orders."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import hlosharding as hs
from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.ir import Module
from hlosharding.schedule import Schedule, StageProgram, parse_schedule, run_ranks
from hlosharding.schedule.cutting import pipelined
from tests.support.training_steps import STEPS, Step, most_stages, traced

CUTS = [(1, 4, "gpipe"), (2, 2, "1f1b"), (4, 4, "1f1b"), (2, 4, "gpipe"), (4, 1, "1f1b"), (4, 2, "gpipe")]
"""Stages, microbatches, order; each step is cut in two of these ways."""
MODELS = [name for name in STEPS if name != "inference"]
CASES = [(name, *CUTS[(n + shift) % len(CUTS)]) for n, name in enumerate(MODELS) for shift in (0, 2)]


@cache
def with_expected(name: str) -> tuple[Step, Module, list[np.ndarray]]:
    step, module = traced(name)
    return step, module, step.expected()


def cut(name: str, stages: int, microbatches: int, order: str | None) -> Schedule:
    step, module, _ = with_expected(name)
    return pipelined(module, batch=step.batch, stages=stages, microbatches=microbatches, schedule=order)


def assert_equal(made: list[Any], expected: list[np.ndarray]) -> None:
    assert len(made) == len(expected)
    for found, wanted in zip(made, expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "stages", "microbatches", "order"), CASES)
def test_a_cut_step_gives_what_one_device_gives(name: str, stages: int, microbatches: int, order: str) -> None:
    step, _, expected = with_expected(name)
    made = cut(name, min(stages, most_stages(name)), microbatches, order)
    assert_equal(made.run_reference(*step.flat()), expected)


@pytest.mark.parametrize("name", MODELS)
def test_so_it_does_with_gradients_of_weights_in_passes_of_their_own(name: str) -> None:
    step, _, expected = with_expected(name)
    made = cut(name, 2, 4 if name != "rematerialised" else 2, "zb-h1")
    assert "@weights_0" in str(made)
    assert_equal(made.run_reference(*step.flat()), expected)


@pytest.mark.parametrize("name", ["mlp", "transformer", "experts"])
@pytest.mark.parametrize("order", ["1f1b", "breadth-first"])
def test_so_it_does_where_each_submesh_has_several_stages(name: str, order: str) -> None:
    step, module, expected = with_expected(name)
    made = pipelined(module, batch=step.batch, stages=2, microbatches=2, schedule=f"{order}-x2")
    assert sorted(made.devices) == [0, 1]
    assert "@forward_3" in str(made)
    assert_equal(made.run_reference(*step.flat()), expected)


@pytest.mark.parametrize("name", ["mlp", "transformer", "experts", "scanned_layers"])
def test_donated_parameters_are_overwritten_by_their_update(name: str) -> None:
    step, module, expected = with_expected(name)
    first = module.entry.parameters[0].op_name.partition("[")[0]
    kept, given = (
        pipelined(module, batch=step.batch, stages=2, microbatches=2, donate=donate) for donate in ((), (first,))
    )
    assert_equal(given.run_reference(*step.flat()), expected)
    assert_equal(given.compile()(*step.flat()), expected)
    plain, in_place = (made.simulate(hs.machines.h100(2)) for made in (kept, given))
    assert in_place.time_s == plain.time_s
    assert sum(level.nbytes[-2] for level in in_place.memory) < sum(level.nbytes[-2] for level in plain.memory)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 2), (2, 4), (4, 2)])
def test_inference_goes_forward_only(stages: int, microbatches: int) -> None:
    step, _, expected = with_expected("inference")
    assert_equal(cut("inference", stages, microbatches, None).run_reference(*step.flat()), expected)


@pytest.mark.parametrize("name", ["scanned_layers", "dropout", "weighted"])
def test_a_cut_step_runs_on_devices(name: str) -> None:
    step, _, expected = with_expected(name)
    assert_equal(cut(name, 2, 2, "1f1b").compile()(*step.flat()), expected)


def test_a_step_that_asks_for_its_number_runs_as_ranks_and_is_read_again() -> None:
    step, _, expected = with_expected("dropout_in_a_scan")
    schedule = cut("dropout_in_a_scan", 2, 2, "1f1b")
    given = schedule.cut_arguments(*step.flat())
    assert_equal(schedule.join_results(run_ranks(schedule.ranks(), *given)), expected)
    assert "= number() piece=1 parts=2 axis=micro" in str(schedule)
    again = parse_schedule(str(schedule), schedule.ops)
    assert_equal(schedule.join_results(again.run_reference(*given)), expected)


SPLITS = {
    "mlp": [(None, "t"), ("t", None)] * 2,
    "dropout": [(None, "t"), ("t", None)],
    "weighted": [(None, "t"), ("t", None)] * 2,
}


@pytest.mark.parametrize("name", SPLITS)
def test_stages_of_two_by_two_devices(name: str, cpu_devices: list[Any]) -> None:
    step, _, expected = with_expected(name)
    mesh = jax.make_mesh((2, 2), ("d", "t"), axis_types=(AxisType.Auto,) * 2, devices=cpu_devices[:4])
    params = [NamedSharding(mesh, PartitionSpec(*dims)) for dims in SPLITS[name]]
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("d"))
    batch = [rows if path in ("x", "mask") else whole for path in _paths(name)]
    shardings = (params, rows) if name == "mlp" else (params, *batch)
    module = hs.trace(step.function, in_shardings=shardings)(*step.arguments)
    schedule = pipelined(module, batch=step.batch, stages=2, microbatches=2)
    assert {len(parameter.type.devices) for parameter in schedule.functions["main"].parameters if parameter.type} == {4}
    assert_equal(schedule.run_reference(*step.flat()), expected)
    assert_equal(schedule.compile()(*step.flat()), expected)


def _paths(name: str) -> list[str]:
    return {"dropout": ["key", "x"], "weighted": ["x", "mask"]}.get(name, [])


def test_equal_stages_are_one_program() -> None:
    """Of four equal layers the two in the middle."""
    schedule = cut("mlp", 4, 4, "1f1b")
    programs = {op.program for op in schedule.ops.values() if isinstance(op, StageProgram)}
    assert len(programs) < len(schedule.ops)


def test_unknown_arguments_are_refused() -> None:
    _, module, _ = with_expected("mlp")
    with pytest.raises(ScheduleError, match="no argument 'nothing'"):
        pipelined(module, batch=["nothing"], stages=2)


def test_of_a_program_without_arguments_none_is_the_batch() -> None:
    with pytest.raises(ScheduleError, match=r"no argument 'x'; there are none$"):
        pipelined(hs.trace(lambda: jnp.ones(3))(), batch=["x"], stages=1)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 devices hold no stage"), (-1, "-1 devices hold no stage"), (10**12, "are more than")]
)
def test_no_devices_of_a_stage_are_refused_and_too_many(size: int, words: str) -> None:
    module = hs.trace(jnp.tanh)(jnp.ones((4, 4)))
    with pytest.raises(HloShardingError, match=words):
        pipelined(module, batch=[0], stages=2, devices_per_stage=size)


@pytest.mark.parametrize("stages", [0, -1])
def test_no_stages_are_refused(stages: int) -> None:
    module = hs.trace(jnp.tanh)(jnp.ones((4, 4)))
    with pytest.raises(ScheduleError, match=f"{stages} stages hold no program; take one or more"):
        hs.pipelined(module, batch=[0], stages=stages)


def test_results_that_are_constants_lie_where_parameters_do() -> None:
    def step(w: Any, x: Any) -> Any:
        return x @ w, jnp.ones(3), w

    w, x = jnp.ones((4, 4)), jnp.ones((4, 4))
    schedule = pipelined(hs.trace(step)(w, x), batch=["x"], stages=1, microbatches=2)
    assert_equal(schedule.run_reference(w, x), [np.asarray(a) for a in step(w, x)])


@pytest.mark.parametrize("result", ["{devices=[2,2]<=[4]}", "{devices=[1,4]<=[4]}", "{devices=[4,1]<=[4]}"])
def test_rows_keep_their_order_where_arguments_and_results_are_split_otherwise(result: str) -> None:
    def net(w: Any, x: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    random = np.random.default_rng(0)
    w, x = random.standard_normal((4, 4), np.float32), random.standard_normal((16, 4), np.float32)
    module = hs.trace(net)(w, x)
    module = hs.annotate(module, {"x": "{devices=[4,1]<=[4]}", module.entry.root.name: result})
    schedule = pipelined(module, batch=["x"], stages=2, microbatches=2)
    assert_equal(schedule.run_reference(w, x), [np.asarray(net(w, x))])


def test_what_the_program_says_of_a_value_on_its_way_holds_between_stages(cpu_devices: list[Any]) -> None:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=cpu_devices[:2])

    def net(w: Any, x: Any) -> Any:
        between = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(mesh, PartitionSpec(None, "d")))
        return jnp.tanh(between @ w)

    w, x = jnp.eye(4) + 0.5, jnp.arange(32.0).reshape(8, 4)
    schedule = pipelined(hs.trace(net)(w, x), batch=["x"], stages=2, microbatches=2)
    assert "to={2,3} : f32[4,4] on {2,3} as {devices=[1,2]<=[2]}" in str(schedule)
    assert_equal(schedule.run_reference(w, x), [np.asarray(net(w, x))])


def test_so_it_does_inside_a_stage(cpu_devices: list[Any]) -> None:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=cpu_devices[:2])

    def net(w: Any, x: Any) -> Any:
        between = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(mesh, PartitionSpec(None, "d")))
        return jnp.tanh(jnp.sin(between) @ w)

    w, x = jnp.eye(4) + 0.5, jnp.arange(32.0).reshape(8, 4)
    module = hs.annotate(hs.trace(net)(w, x), {"x": "{replicated}", "w": "{replicated}"})
    schedule = pipelined(module, batch=["x"], stages=1, microbatches=2)
    [program] = {op.program for op in schedule.ops.values() if isinstance(op, StageProgram)}
    local = [str(inst.shape) for inst in program.module.instructions if inst.opcode == "sine"]
    assert local == ["f32[4,2]"]
    assert_equal(schedule.run_reference(w, x), [np.asarray(net(w, x))])


def test_so_it_does_of_weights_whose_layers_are_cut(cpu_devices: list[Any]) -> None:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=cpu_devices[:2])

    def net(stack: Any, x: Any) -> Any:
        stack = jax.lax.with_sharding_constraint(stack, NamedSharding(mesh, PartitionSpec(None, None, "d")))
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, stack)[0]

    stack, x = jnp.arange(64.0).reshape(4, 4, 4) / 64, jnp.arange(32.0).reshape(8, 4) / 32
    schedule = pipelined(hs.trace(net)(stack, x), batch=["x"], stages=2, microbatches=2)
    types = [str(parameter.type) for parameter in schedule.main.parameters[:2]]
    assert types == [f"f32[2,4,4] on {{{where}}} as {{devices=[1,1,2]<=[2]}}" for where in ("0,1", "2,3")]
    assert_equal(schedule.run_reference(stack, x), [np.asarray(net(stack, x))])
