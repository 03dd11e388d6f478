"""Schedules that several processes run together, on eight devices: what each process must get is checked in it.

A process's own parts are those of one device's run; of what lies in other processes it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import hlosharding as hs
from hlosharding.ir import Shape
from hlosharding.schedule import UserOp, ValueType, parse_schedule, pipelined
from hlosharding.sharding import HloSharding
from tests.processes.cases import Case
from tests.support.relative_error import relative_error
from tests.support.training_steps import STEPS

CASES: dict[str, Case] = {}
NEAR = 1e-5


def right(run: Callable[[], None]) -> Callable[[], None]:
    """The function checks what it makes, in every process."""

    def checked(_: Mesh) -> bool:
        run()
        return True

    CASES[run.__name__] = Case(checked, True)
    return run


def fails(error: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """The function fails in every process, with these words."""

    def enter(run: Callable[[], None]) -> Callable[[], None]:
        CASES[run.__name__] = Case(lambda _: run(), error=error)
        return run

    return enter


def check(found: Any, wanted: Any, devices: Sequence[Any]) -> None:
    """A value that lies on these devices: the parts that are here."""
    wanted = np.asarray(wanted)
    tiles = found.tiles if isinstance(found, hs.ShardedArray) else found
    here = [device for device in devices if device.process_index == jax.process_index()]
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert tiles.sharding.device_set == set(devices)
    assert {shard.device for shard in tiles.addressable_shards} == set(here)
    if here and isinstance(found, hs.ShardedArray):
        assert relative_error(np.asarray(found.as_jax()), wanted) < NEAR
        return
    for shard in tiles.addressable_shards:
        assert relative_error(np.asarray(shard.data), wanted[shard.index], of=wanted) < NEAR


# ---- training steps: a stage is a process, one of several in a process, or lies in several


def check_step(name: str, order: str, stages: int, devices: Sequence[Any], shardings: Any = None) -> None:
    step = STEPS[name]()
    options = {} if shardings is None else {"in_shardings": shardings}
    module = hs.trace(step.function, **options)(*step.arguments)
    schedule = pipelined(module, batch=step.batch, stages=stages, microbatches=4, schedule=order)
    own = len(devices) // stages
    for found, wanted in zip(schedule.compile(devices)(*step.flat()), step.expected(), strict=True):
        number = devices.index(min(_devices(found), key=lambda device: device.id)) // own
        check(found, wanted, devices[number * own : (number + 1) * own])


def _devices(array: Any) -> set[Any]:
    return (array.tiles if isinstance(array, hs.ShardedArray) else array).sharding.device_set


def mesh(**axes: int) -> Mesh:
    """Of a stage."""
    count = int(np.prod(list(axes.values())))
    return jax.make_mesh(
        tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes), devices=jax.devices()[:count]
    )


def lying(on: Mesh, *specs: Any) -> Any:
    return [NamedSharding(on, PartitionSpec(*spec)) for spec in specs]


@right
def gpipe_with_a_process_for_each_stage() -> None:
    count = jax.process_count()
    check_step("mlp", "gpipe", count, jax.devices()[:: 8 // count])


@right
def one_f_one_b_while_some_processes_have_nothing_to_do() -> None:
    """Of four processes two; of two each has a stage.  It reads the numbers of microbatches."""
    check_step("dropout_in_a_scan", "1f1b", 2, jax.devices()[::4])


@right
def one_f_one_b_with_two_by_two_devices_in_a_stage() -> None:
    """A stage lies in one process of two, or in two of four."""
    on = mesh(d=2, t=2)
    weights = lying(on, (None, "t"), ("t", None), (None, "t"), ("t", None))
    check_step("mlp", "1f1b", 2, jax.devices(), (weights, *lying(on, ("d",))))


@right
def gpipe_with_two_devices_in_a_stage() -> None:
    """A process of two has two stages, one of four has one."""
    on = mesh(t=2)
    weights = lying(on, (None, "t"), ("t", None), (None, "t"), ("t", None))
    check_step("mlp", "gpipe", 4, jax.devices(), (weights, *lying(on, ())))


# ---- moves


@right
def values_lie_otherwise_where_they_arrive() -> None:
    """As many devices or not, tiles that grow and shrink, uneven ones, copies, scalars."""
    rows, columns = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
    four, copies = "{devices=[2,2]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
    ways = [
        ("{0,1}", rows, "{6,7}", columns),
        ("{0,1}", rows, "{6,7}", columns),
        ("{0,1}", rows, "{6,7}", "{replicated}"),
        ("{0,1}", "{replicated}", "{6,7}", rows),
        ("{0,1}", columns, "{2,4,5,7}", four),
        ("{0,3,5,6}", four, "{2,4}", rows),
        ("{0,1,2,3}", copies, "{4,5,6,7}", four),
        ("{1,3,5,7}", four, "{2}", "{replicated}"),
        ("{1}", "{replicated}", "{2,4,6}", "{devices=[3,1]<=[3]}"),
        ("{0,2,4}", "{replicated}", "{7,5}", "{replicated}"),
        ("{0,1}", "{devices=[1,2]1,0}", "{4,5}", "{devices=[1,2]1,0}"),
    ]
    for number, (here, lies, there, arrives) in enumerate(ways):
        dims = [(8, 4), (5, 3)][number % 2]
        x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
        schedule = parse_schedule(f"""
        func @main(%x: f32[{dims[0]},{dims[1]}] on {here} as {lies}) {{
          %y = send(%x) to={there} sharding={arrives}
          return %y
        }}""")
        [found] = schedule.compile()(x)
        check(found, x, [jax.devices()[int(n)] for n in there.strip("{}").split(",")])


@right
def scalars_and_wide_numbers_move() -> None:
    schedule = parse_schedule("""
    func @main(%x: s32[] on {0,1}, %y: f64[3] on {2}, %z: pred[2] on {0}) {
      %a = send(%x) to={5,6}
      %b = send(%y) to={4}
      %c = send(%z) to={7}
      return %a, %b, %c
    }""")
    on = jax.devices()
    with jax.enable_x64(True):
        given = np.int32(7), np.float64(2) ** 40 + np.arange(3), np.array([True, False])
        for found, wanted, devices in zip(schedule.compile()(*given), given, (on[5:7], on[4:5], on[7:]), strict=True):
            check(found, wanted, devices)


ROWS = HloSharding.parse("{devices=[2]<=[2]}")
SUMMED = UserOp("summed", lambda x: ValueType(Shape.array("f32", (8,)), x.devices, ROWS), lambda x: x.sum(0), sums=[0])
COLLECTIVES = """
func @main(%x: f32[6,8] on {0,1} as {devices=[1,2]<=[2]}) {
  %a, %b, %c = split(%x) dim=0 parts=3 axis=data
  %b_there = send(%b) to={2,3}
  %c_there = send(%c) to={4,5}
  %p = @summed(%a)
  %q = @summed(%b_there)
  %r = @summed(%c_there)
"""


def collectives(steps: str) -> list[Any]:
    """Results of a schedule where three submeshes have terms of the columns' sums."""
    return parse_schedule(f"{COLLECTIVES}{steps}\n}}", {"summed": SUMMED}).compile()(WIDE)


WIDE = np.arange(48, dtype=np.float32).reshape(6, 8)


@right
def submeshes_reduce_to_all_and_to_one() -> None:
    on = jax.devices()
    found = collectives("""
      %s, %t, %u = all-reduce(%p, %q, %r)
      return %s, %u
    """)
    for made, devices in zip(found, (on[:2], on[4:6]), strict=True):
        check(made, WIDE.sum(0), devices)
    [made] = collectives("""
      %s = reduce(%p, %q, %r) to={2,3}
      return %s
    """)
    check(made, WIDE.sum(0), on[2:4])


@right
def submeshes_gather_and_scatter() -> None:
    on = jax.devices()
    found = parse_schedule("""
    func @main(%x: f32[4,6] on {0,4} as {devices=[2,1]<=[2]}) {
      %a, %b = split(%x) dim=1 parts=2 axis=data
      %there = send(%b) to={3,7}
      %s, %t = all-gather(%a, %there) dim=1
      return %s, %t
    }""").compile()(WIDE.reshape(12, 4)[:6].T.copy())
    for made, devices in zip(found, ([on[0], on[4]], [on[3], on[7]]), strict=True):
        check(made, WIDE.reshape(12, 4)[:6].T, devices)


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


@right
def results_are_the_next_calls_parameters() -> None:
    compiled = parse_schedule(STATE, {"twice": TWICE}).compile()
    given = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(4, dtype=np.float32)
    state: Sequence[Any] = given
    for _ in range(3):
        state = compiled(*state)
    on = jax.devices()
    for found, first, devices in zip(state, given, (on[:2], [on[2], on[5]]), strict=True):
        check(found, 8 * first, devices)


@right
def copies_of_all_processes_go_anywhere() -> None:
    everywhere = NamedSharding(mesh(d=8), PartitionSpec())
    x, y = (np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(4, dtype=np.float32))
    given = [jax.make_array_from_callback(a.shape, everywhere, a.__getitem__) for a in (x, y)]
    found = parse_schedule(STATE, {"twice": TWICE}).compile()(*given)
    check(found[0], 2 * x, jax.devices()[:2])


@fails("%y is not the same in all processes: process 1 gives another array than process 0")
def other_arrays_in_another_process() -> None:
    parse_schedule(STATE, {"twice": TWICE}).compile()(
        np.ones((5, 2), np.float32), np.ones(4, np.float32) * (1 + jax.process_index())
    )


@fails("the array lies on other devices than the parameter f32[8] on {2,5}")
def an_array_that_lies_elsewhere() -> None:
    elsewhere = NamedSharding(mesh(d=8), PartitionSpec("d"))
    y = jax.make_array_from_callback((8,), elsewhere, np.arange(8, dtype=np.float32).__getitem__)
    parse_schedule(STATE.replace("f32[4]", "f32[8]"), {"twice": TWICE}).compile()(np.ones((5, 2), np.float32), y)
