"""A schedule on JAX's devices, in one process: steps are enqueued in the schedule's order, and devices of different
stages work at the same time where JAX dispatches asynchronously (GPUs; the CPU client runs one program at a time).

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from hlosharding.errors import ExecutionError, ScheduleError
from hlosharding.executor import Executable, ShardedArray, find_devices, lay_out
from hlosharding.schedule.flat_run import FlatRun, dropped_after
from hlosharding.schedule.interpreter import Names, interpret
from hlosharding.schedule.local_ops import Add, Concat, Number, Split, cut, joined_tiles
from hlosharding.schedule.op import Op, UserOp
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.steps import Functions
from hlosharding.schedule.transfers import AllGather, AllReduce, Reduce, ReduceScatter, Send
from hlosharding.schedule.value_type import ValueType


class _Task(NamedTuple):
    """One step, ready to run."""

    run: Callable[..., Sequence[Any]]
    operands: Names
    results: Names
    dies: Sequence[int]
    """Values that nobody reads afterwards."""


class ScheduleExecutable:
    """A schedule, compiled for devices: device n of the schedule is the n-th.

    Takes one array for each parameter of @main (numpy, jax, or ShardedArray), gives one for each result, where it lies.
    """

    def __init__(self, functions: Functions, devices: Sequence[Any] | None = None) -> None:
        run = FlatRun()
        interpret(functions, observer=run)
        count = 1 + max((device for kind in run.types for device in kind.devices), default=-1)
        self.devices = find_devices(count, devices)
        self.parameters = [run.types[n] for n in run.parameters]
        self._results = run.results
        self._programs: dict[tuple[Op, tuple[int, ...]], Callable[..., Sequence[Any]]] = {}
        self._tasks = list(self._ready(run))

    def _ready(self, run: FlatRun) -> Iterator[_Task]:
        ops = [(event, event.step.op) for event in run.events if event.step is not None]
        dropped = dropped_after([(event.operands, event.results) for event, _ in ops], run.results)
        for (event, op), dies in zip(ops, dropped, strict=True):
            taken, made = ([run.types[n] for n in side] for side in (event.operands, event.results))
            yield _Task(self._runner(op, taken, made), event.operands, event.results, dies)

    def __call__(self, *arrays: Any) -> list[Any]:
        if len(arrays) != len(self.parameters):
            raise ScheduleError(f"{len(arrays)} arrays for the {len(self.parameters)} parameters of @main")
        env: dict[int, Any] = {}
        for number, (array, kind) in enumerate(zip(arrays, self.parameters, strict=True)):
            env[number] = self._laid_out(array, kind)
        for task in self._tasks:
            made = task.run(*[env[n] for n in task.operands])
            env.update(zip(task.results, made, strict=True))
            for number in task.dies:
                del env[number]
        return [env[n] for n in self._results]

    def _laid_out(self, array: Any, kind: ValueType) -> Any:
        if tuple(np.shape(array)) != kind.shape.dims:
            raise ExecutionError(f"an array of shape {list(np.shape(array))} for a parameter {kind}")
        if not hasattr(array, "dtype") or array.dtype != kind.shape.dtype:
            array = np.asarray(array, kind.shape.dtype)
        return lay_out(array, kind.sharding, self._on(kind.devices))

    def _on(self, devices: Sequence[int]) -> list[Any]:
        return [self.devices[device] for device in devices]

    def _runner(self, op: Op, taken: Sequence[ValueType], made: Sequence[ValueType]) -> Callable[..., Sequence[Any]]:
        if isinstance(op, StageProgram):
            return self._program(op, taken[0].devices if taken else made[0].devices)
        found = _RUNNERS.get(type(op))
        if found is None:
            raise ExecutionError(f"nothing says how {op.name} runs on devices", remedy="make it a StageProgram")
        return partial(found, self, op, taken, made)

    def _program(self, op: StageProgram, devices: tuple[int, ...]) -> Executable:
        key = op, devices
        if key not in self._programs:
            self._programs[key] = op.program.compile(self._on(devices), donate=op.donated)
        return self._programs[key]  # pyright: ignore[reportReturnType]

    def moved(self, array: Any, kind: ValueType, target: ValueType) -> Any:
        """An array on other devices: tile by tile, asynchronously, where it lies there as it lay here."""
        if kind.sharding != target.sharding or len(kind.devices) != len(target.devices):
            return lay_out(array, target.sharding, self._on(target.devices))
        there = dict(zip(self._on(kind.devices), self._on(target.devices), strict=True))
        if isinstance(array, ShardedArray):
            return ShardedArray(_on_other_devices(array.tiles, there), array.sharding, array.shape)
        return _on_other_devices(array, there)


def _on_other_devices(array: Any, there: Mapping[Any, Any]) -> Any:
    import jax

    mesh = array.sharding.mesh
    devices = np.array([there[device] for device in mesh.devices.flat], dtype=object).reshape(mesh.devices.shape)
    other = jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)
    return jax.device_put(array, jax.sharding.NamedSharding(other, array.sharding.spec))


# Ops that are no programs, on jax arrays.  Pieces and sums are made where the arrays lie.

_Types = Sequence[ValueType]


def _split(run: ScheduleExecutable, op: Split, taken: _Types, made: _Types, array: Any) -> Sequence[Any]:
    return _jitted_cut(op.dim, op.parts, taken[0].ways(op.dim), array.sharding)(array)


def _concat(run: ScheduleExecutable, op: Concat, taken: _Types, made: _Types, *arrays: Any) -> Sequence[Any]:
    return [_jitted_join(op.dim, taken[0].ways(op.dim), arrays[0].sharding)(*arrays)]


@cache
def _jitted_cut(dim: int, parts: int, ways: int, sharding: Any) -> Callable[..., Sequence[Any]]:
    import jax

    return jax.jit(lambda array: cut(array, dim, parts, ways), out_shardings=[sharding] * parts)


@cache
def _jitted_join(dim: int, ways: int, sharding: Any) -> Callable[..., Any]:
    import jax

    return jax.jit(lambda *arrays: joined_tiles(arrays, dim, ways), out_shardings=sharding)


@cache
def _jitted_sum() -> Callable[..., Any]:
    import jax

    return jax.jit(lambda *arrays: sum(arrays[1:], start=arrays[0]))


def _add(run: ScheduleExecutable, op: Add, taken: _Types, made: _Types, *arrays: Any) -> Sequence[Any]:
    first = arrays[0]
    if isinstance(first, ShardedArray):
        return [ShardedArray(_jitted_sum()(*(array.tiles for array in arrays)), first.sharding, first.shape)]
    return [_jitted_sum()(*arrays)]


def _send(run: ScheduleExecutable, op: Send, taken: _Types, made: _Types, array: Any) -> Sequence[Any]:
    return [run.moved(array, taken[0], made[0])]


def _exchange(run: ScheduleExecutable, op: Op, taken: _Types, made: _Types, *arrays: Any) -> Sequence[Any]:
    """A collective between submeshes: all operands meet on the first result's, and results go where they belong."""
    here = [
        array if kind.devices == made[0].devices else run.moved(array, kind, replace(kind, devices=made[0].devices))
        for array, kind in zip(arrays, taken, strict=True)
    ]
    if isinstance(op, AllGather):
        whole = _concat(run, Concat(op.dim), taken, made, *here)
    else:
        whole = _add(run, Add(), taken, made, *here)
    if isinstance(op, ReduceScatter):
        whole = _split(run, Split(op.dim, len(made), op.axis), taken, made, whole[0])
    given = [whole[n if len(whole) > 1 else 0] for n in range(len(made))]
    return [
        array if n == 0 else run.moved(array, replace(kind, devices=made[0].devices), kind)
        for n, (array, kind) in enumerate(zip(given, made, strict=True))
    ]


def _meant(run: ScheduleExecutable, op: UserOp | Number, taken: _Types, made: _Types, *arrays: Any) -> Sequence[Any]:
    found = op.meaning([np.asarray(array) for array in arrays], taken)
    return [run._laid_out(array, kind) for array, kind in zip(found, made, strict=True)]  # pyright: ignore[reportPrivateUsage]


_RUNNERS: Mapping[type[Op], Callable[..., Sequence[Any]]] = {
    Split: _split,
    Concat: _concat,
    Add: _add,
    Send: _send,
    Reduce: _exchange,
    AllReduce: _exchange,
    AllGather: _exchange,
    ReduceScatter: _exchange,
    UserOp: _meant,
    Number: _meant,
}
