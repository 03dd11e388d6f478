"""Schedules that several processes run together, on eight devices: training steps; what a process gives and gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import hlosharding as hs
from hlosharding.schedule import UserOp, parse_schedule, pipelined
from tests.processes.cases import Case
from tests.processes.checks import check, fails, lying, mesh, right
from tests.support.pipeline_runs import program_named
from tests.support.training_steps import STEPS

# ---- training steps: a stage is a process, one of several in a process, or lies in several


def check_step(order: str, stages: int, devices: Sequence[Any], specs: Sequence[Any] = ()) -> None:
    """Of the perceptron; `specs`: how a stage's weights and its batch lie."""
    program = program_named("mlp")
    module = hs.trace(program.function, in_shardings=tuple(specs) or None)(*program.arguments)
    schedule = pipelined(module, batch=["batch"], stages=stages, microbatches=4, schedule=order)
    wanted = jax.jit(program.function)(*program.arguments)
    check_results(schedule.compile(devices)(*jax.tree.leaves(program.arguments)), wanted, stages, devices)


def check_results(results: Sequence[Any], wanted: Any, stages: int, devices: Sequence[Any]) -> None:
    """Each lies on one stage's devices, the stages one behind the other, and is right there."""
    own = len(devices) // stages
    for found, right_one in zip(results, jax.tree.leaves(wanted), strict=True):
        number = devices.index(min(_devices(found), key=lambda device: device.id)) // own
        check(found, right_one, devices[number * own : (number + 1) * own])


def _devices(array: Any) -> set[Any]:
    return (array.tiles if isinstance(array, hs.ShardedArray) else array).sharding.device_set


def gpipe_with_a_process_for_each_stage() -> None:
    count = jax.process_count()
    check_step("gpipe", count, jax.devices()[:: 8 // count])


def one_f_one_b_while_some_processes_have_nothing_to_do() -> None:
    """Of four processes two; of two each has a stage, and the gradients of its layers.  It reads the numbers of
    microbatches."""
    step, devices = STEPS["dropout_in_a_scan"](), jax.devices()[::4]
    module = hs.trace(step.function)(*step.arguments)
    schedule = pipelined(module, batch=step.batch, stages=2, microbatches=4, schedule="1f1b")
    gradients, loss = schedule.compile(devices)(*step.flat())
    for found, wanted, on in zip((gradients, loss), step.expected(), (devices, devices[1:]), strict=True):
        check(found, wanted, on)


def one_f_one_b_with_two_by_two_devices_in_a_stage() -> None:
    """A stage lies in one process of two, or in two of four."""
    on = mesh(d=2, t=2)
    weights = lying(on, (None, "t"), ("t", None), (None, "t"), ("t", None))
    check_step("1f1b", 2, jax.devices(), (weights, *lying(on, ("d",))))


def gpipe_with_two_devices_in_a_stage() -> None:
    """A process of two has two stages, one of four has one."""
    on = mesh(t=2)
    weights = lying(on, (None, "t"), ("t", None), (None, "t"), ("t", None))
    check_step("gpipe", 4, jax.devices(), (weights, *lying(on, ())))


# ---- what a process gives and gets


STATE = """
func @main(%x: f32[5,2] on {0,1} as {devices=[2,1]<=[2]}, %y: f32[4] on {2,5} as {devices=[2]<=[2]}) {
  %x_there = send(%x) to={6,7}
  %x_back = send(%x_there) to={0,1}
  %y_there = send(%y) to={4,3}
  %y_back = send(%y_there) to={2,5}
  %x_2 = @twice(%x_back)
  %y_2 = @twice(%y_back)
  return %x_2, %y_2
}"""
TWICE = UserOp("twice", lambda x: x, lambda x: 2 * x)


def results_are_the_next_calls_parameters() -> None:
    compiled = parse_schedule(STATE, {"twice": TWICE}).compile()
    given = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(4, dtype=np.float32)
    state: Sequence[Any] = given
    for _ in range(3):
        state = compiled(*state)
    on = jax.devices()
    for found, first, devices in zip(state, given, (on[:2], [on[2], on[5]]), strict=True):
        check(found, 8 * first, devices)


def copies_of_all_processes_go_anywhere() -> None:
    everywhere = NamedSharding(mesh(d=8), PartitionSpec())
    x, y = (np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(4, dtype=np.float32))
    given = [jax.make_array_from_callback(a.shape, everywhere, a.__getitem__) for a in (x, y)]
    found = parse_schedule(STATE, {"twice": TWICE}).compile()(*given)
    check(found[0], 2 * x, jax.devices()[:2])


def other_arrays_in_another_process() -> None:
    parse_schedule(STATE, {"twice": TWICE}).compile()(
        np.ones((5, 2), np.float32), np.ones(4, np.float32) * (1 + jax.process_index())
    )


def an_array_that_lies_elsewhere() -> None:
    elsewhere = NamedSharding(mesh(d=8), PartitionSpec("d"))
    y = jax.make_array_from_callback((8,), elsewhere, np.arange(8, dtype=np.float32).__getitem__)
    parse_schedule(STATE.replace("f32[4]", "f32[8]"), {"twice": TWICE}).compile()(np.ones((5, 2), np.float32), y)


CASES: dict[str, Case] = {
    "gpipe_with_a_process_for_each_stage": right(gpipe_with_a_process_for_each_stage),
    "one_f_one_b_while_some_processes_have_nothing_to_do": right(one_f_one_b_while_some_processes_have_nothing_to_do),
    "one_f_one_b_with_two_by_two_devices_in_a_stage": right(one_f_one_b_with_two_by_two_devices_in_a_stage),
    "gpipe_with_two_devices_in_a_stage": right(gpipe_with_two_devices_in_a_stage),
    "results_are_the_next_calls_parameters": right(results_are_the_next_calls_parameters),
    "copies_of_all_processes_go_anywhere": right(copies_of_all_processes_go_anywhere),
    "other_arrays_in_another_process": fails(
        other_arrays_in_another_process,
        "%y is not the same in all processes: process 1 gives another array than process 0",
    ),
    "an_array_that_lies_elsewhere": fails(
        an_array_that_lies_elsewhere, "the array lies on other devices than the parameter f32[8] on {2,5}"
    ),
}
