"""A schedule on JAX's devices: steps are enqueued in the schedule's order, and devices of different stages work at the
same time where JAX dispatches asynchronously (GPUs; the CPU client runs one program at a time in each process).

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from hlosharding.errors import ExecutionError, ScheduleError
from hlosharding.executor import Executable, array_of_tiles, find_devices, lay_out_checked
from hlosharding.frontends import as_numbers
from hlosharding.schedule.execution.array_ops import Call, local_call
from hlosharding.schedule.execution.given_arrays import GivenArrays, fetch_whole
from hlosharding.schedule.execution.moves import ArrayMoves, MovesInOneProcess
from hlosharding.schedule.execution.moves_between_processes import MovesBetweenProcesses
from hlosharding.schedule.execution.stacked_arrays import StackedArrays
from hlosharding.schedule.flat_run import FlatRun, find_dropped
from hlosharding.schedule.interface import Interface, whole_arrays
from hlosharding.schedule.interpreter import Names, interpret
from hlosharding.schedule.local_ops import Add, Concat, Split
from hlosharding.schedule.op import Op, UserOp
from hlosharding.schedule.sources import Source
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.steps import Functions, function_named
from hlosharding.schedule.transfers import Send, SubmeshCollective
from hlosharding.schedule.value_type import Types, ValueType


class _Task(NamedTuple):
    """One step, ready to run."""

    run: Call
    operands: Names
    results: Names
    dies: Sequence[int]
    """Values that nobody reads afterwards."""


class ScheduleExecutable:
    """A schedule, compiled for devices: device n of the schedule is the n-th.

    Takes one array for each parameter of @main (numpy, jax, or ShardedArray), gives one for each result, where it lies.

    The devices may belong to several processes (`jax.distributed`).  All processes then make it and call it with the
    same arrays; each enqueues the steps in which its own devices take part, in the schedule's order.  Values that go
    from process to process do so in collectives.  Of a result on devices of others a process gets a jax array (or
    ShardedArray) that has its shape, type and sharding and of which no part is here (`addressable_shards` is empty), as
    of any program; it may be given back as a parameter that lies there.  A result that lies on devices of several
    processes is one array of theirs.

    >>> import numpy as np
    >>> from hlosharding.schedule import parse_schedule
    >>> schedule = parse_schedule('''
    ... func @main(%x: f32[4] on {0,1} as {devices=[2]<=[2]}) {
    ...   %there = send(%x) to={2,3}
    ...   return %x, %there
    ... }''')
    >>> here, there = schedule.compile()(np.arange(4, dtype=np.float32))
    >>> there.tolist(), sorted(device.id for device in there.devices())
    ([0.0, 1.0, 2.0, 3.0], [2, 3])
    """

    def __init__(
        self, functions: Functions, devices: Sequence[Any] | None = None, interface: Interface | None = None
    ) -> None:
        import jax

        run = FlatRun()
        interpret(functions, observer=run)
        count = 1 + max((device for kind in run.types for device in kind.devices), default=-1)
        self.devices = find_devices(count, devices)
        self._parameters = run.parameters
        self._mine = {n for n, device in enumerate(self.devices) if device.process_index == jax.process_index()}
        self._moves = _moves(self.devices)
        self._results = [(n, run.types[n]) for n in run.results]
        kinds = [run.types[n] for n in run.parameters]
        interface = interface or whole_arrays(len(kinds), len(self._results))
        self._stacks = StackedArrays(interface, kinds, [kind for _, kind in self._results], self.devices)
        self.arguments = self._stacks.arguments
        names = [parameter.name for parameter in function_named(functions, "main").parameters]
        first = [names[interface.arguments.index(n)] for n in range(len(self.arguments))]
        self._given = GivenArrays(first, self.arguments, self.devices)
        self._program = cache(self._compile)
        self._tasks = list(self._make_tasks(run))

    def _make_tasks(self, run: FlatRun) -> Iterator[_Task]:
        """The steps of this process."""
        ops = [(event, event.step.op) for event in run.events if event.step is not None]
        dropped = find_dropped([(event.operands, event.results) for event, _ in ops], run.results)
        for (event, op), dies in zip(ops, dropped, strict=True):
            taken, made = ([run.types[n] for n in side] for side in (event.operands, event.results))
            if any(self._is_here(kind) for kind in (*taken, *made)):
                yield _Task(self._call(op, taken, made), event.operands, event.results, dies)

    def _is_here(self, kind: ValueType) -> bool:
        """Has this process some of the devices on which a value lies?"""
        return not self._mine.isdisjoint(kind.devices)

    def __call__(self, *arrays: Any) -> list[Any]:
        import jax

        if len(arrays) != len(self.arguments):
            raise ScheduleError(f"{len(arrays)} arrays for the {len(self.arguments)} parameters of @main")
        # No mesh of the user's, whose devices need not be those of a step, and no rules of his for broadcasting.
        with jax.set_mesh(None), jax.numpy_rank_promotion("allow"):
            return self._run(list(map(as_numbers, arrays)))

    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        env = {self._parameters[n]: array for n, array in self._stacks.cut(self._given.lay_out_all(arrays)).items()}
        for task in self._tasks:
            made = task.run(*[env.get(n) for n in task.operands])
            env.update(zip(task.results, made, strict=True))
            for number in task.dies:
                env.pop(number, None)
        for n, kind in self._results:
            if not self._is_here(kind):  # a value of which nothing is here
                env[n] = array_of_tiles({}, kind.shape, kind.sharding, self._moves.devices_of(kind))
        return self._stacks.join([env[n] for n, _ in self._results])

    def _call(self, op: Op, taken: Types, made: Types) -> Call:
        """A step as a function of arrays."""
        match op:
            case StageProgram():
                return self._program(op, taken[0].devices if taken else made[0].devices)
            case Split() | Concat() | Add():
                return local_call(op, taken[0], self._moves.devices_of(taken[0]))
            case Send():
                return self._moves.make_send(taken[0], made[0])
            case SubmeshCollective():
                return self._moves.make_exchange(op, taken, made)
            case UserOp() | Source():
                return partial(self._run_in_numpy, op, taken, made)
            case _:
                raise ExecutionError(f"nothing says how {op.name} runs on devices", remedy="make it a StageProgram")

    def _compile(self, op: StageProgram, devices: tuple[int, ...]) -> Executable:
        return op.program.compile([self.devices[device] for device in devices], donate=op.donates)

    def _run_in_numpy(self, op: UserOp | Source, taken: Types, made: Types, *arrays: Any) -> Sequence[Any]:
        """What an op means in numpy: each process that has some of its devices works it out."""
        found = op.compute([fetch_whole(array) for array in arrays], taken, made)
        pairs = zip(found, made, strict=True)
        return [lay_out_checked(array, kind.sharding, self._moves.devices_of(kind)) for array, kind in pairs]


def _moves(devices: Sequence[Any]) -> ArrayMoves:
    is_shared = len({device.process_index for device in devices}) > 1
    return MovesBetweenProcesses(devices) if is_shared else MovesInOneProcess(devices)
