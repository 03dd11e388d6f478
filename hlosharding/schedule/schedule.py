"""`Schedule`: what users hold of an explicit schedule, with everything they ask of it.

Floor: schedule.  Glue only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlosharding.cost import Machine, Runtime, WholeStep
from hlosharding.frontends import as_numbers
from hlosharding.schedule.execution import ScheduleExecutable
from hlosharding.schedule.interface import Interface, elements_of
from hlosharding.schedule.interpreter import interpret, run_reference
from hlosharding.schedule.op import Op
from hlosharding.schedule.printer import schedule_text
from hlosharding.schedule.ranks import RankProgram, rank_programs
from hlosharding.schedule.simulation import ScheduleSimulation, Semantics, simulate_schedule
from hlosharding.schedule.steps import Apply, Function, Functions, Step, function_named
from hlosharding.schedule.verifier import verify_schedule


@dataclass(frozen=True)
class Schedule:
    """An explicit schedule of a distributed program (the idea of DistIR, Santhanam et al. 2021).

    Make one with `ScheduleBuilder`, a pipeline generator, or `parse_schedule`; `str` prints what that reads.

    >>> from hlosharding.schedule import parse_schedule
    >>> schedule = parse_schedule('''
    ... func @main(%x: f32[2] on {0}) {
    ...   %y = send(%x) to={1}
    ...   return %y
    ... }''')
    >>> schedule.devices, schedule.run_reference(np.ones(2, np.float32))
    ((0, 1), [array([1., 1.], dtype=float32)])
    """

    functions: Functions
    """By name; the one called "main" is run."""
    ops: Mapping[str, Op] = field(default_factory=dict[str, Op])
    """Stage programs and users' ops, by name."""
    interface: Interface | None = None
    """How parameters and results of @main are parts of the caller's arrays, where they are not these themselves."""
    stages: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of a program that was cut, by function of its source (of an ONNX model, by node) the stage in which the last of
    its forward ops is; no text says it."""
    whole: WholeStep | None = None
    """Of a program that was cut, its FLOPs and tokens; no text says it, either."""

    @property
    def main(self) -> Function:
        """The function that is run."""
        return function_named(self.functions, "main")

    @property
    def devices(self) -> tuple[int, ...]:
        """All devices that parameters and transfers name, in rising order."""
        stated = [p.type.devices for p in self.main.parameters if p.type is not None]
        sent = [tuple(getattr(step.op, "to", ())) for step in self.steps() if isinstance(step, Apply)]
        return tuple(sorted({device for group in (*stated, *sent) for device in group}))

    def steps(self) -> Iterator[Step]:
        """Of all functions, each once."""
        for function in self.functions.values():
            yield from function.steps

    def verify(self, machine: Machine | None = None) -> None:
        """Raise ScheduleError where it breaks a law; with a machine, also where that lacks devices or memory."""
        verify_schedule(self.functions, machine)

    def simulate(
        self, machine: Machine, *, semantics: Semantics = "overlap", runtime: Runtime | None = None
    ) -> ScheduleSimulation:
        """Times and memory on a machine.

        "overlap": a device computes while its transfers are under way; "synchronous": a step keeps all devices that
        take part, as in DistIR.  `runtime`: as of `cost`.
        """
        return simulate_schedule(self.functions, machine.with_runtime(runtime), semantics=semantics, whole=self.whole)

    def run_reference(self, *arrays: Any) -> list[np.ndarray]:
        """Run it on whole numpy arrays, one for each argument: what the schedule means."""
        return self.join_results(run_reference(self.functions, self.cut_arguments(*arrays)))

    def interpret(self, *arguments: Any) -> list[Any]:
        """Run it on what is known of its arguments; what is known of its results (DistIR's mixed interpretation).

        An argument is an array, as of `run_reference`, or a `jax.ShapeDtypeStruct`, whose elements are not known.  A
        step of which all operands are known is computed; of the results of others the types are told.  A result is a
        numpy array, or a ShapeDtypeStruct.  Raises ScheduleError, with the argument, where shape or dtype do not fit.

        >>> import jax
        >>> from hlosharding.schedule import parse_schedule
        >>> schedule = parse_schedule('''
        ... func @main(%x: f32[2] on {0}, %y: f32[2] on {0}) {
        ...   %both = concat(%x, %y) dim=0
        ...   %twice = add(%x, %x)
        ...   return %both, %twice
        ... }''')
        >>> schedule.interpret(np.ones(2, np.float32), jax.ShapeDtypeStruct((2,), np.float32))
        [ShapeDtypeStruct(shape=(4,), dtype=float32), array([2., 2.], dtype=float32)]
        """
        return self.join_results(list(map(elements_of, interpret(self.functions, self.cut_arguments(*arguments)))))

    def cut_arguments(self, *arrays: Any) -> Sequence[Any]:
        """What the parameters of @main get of these arguments: of stacked weights that stages share, each its part."""
        numbers = list(map(as_numbers, arrays))
        return numbers if self.interface is None else self.interface.cut_arrays(numbers)

    def join_results(self, made: Sequence[Any]) -> list[Any]:
        """The results of the whole, from those of @main."""
        return list(made) if self.interface is None else self.interface.join_arrays(made)

    def compile(self, devices: Sequence[Any] | None = None) -> ScheduleExecutable:
        """Ready to be called on arrays; device n of the schedule is the n-th of `devices` (default: JAX's).

        They may belong to several processes, which then all compile and call it: see `ScheduleExecutable`.
        """
        return ScheduleExecutable(self.functions, devices, self.interface)

    def ranks(self) -> dict[int, RankProgram]:
        """What each device does, by device: its steps on its own tiles (of the parameters as of `cut_arguments`)."""
        return rank_programs(self.functions)

    def rank(self, device: int) -> RankProgram:
        """What one device does.  Raises ScheduleError where it takes no part."""
        return rank_programs(self.functions, device)[device]

    def to_text(self) -> str:
        """The text with the programs of its stages, which `parse_schedule` and `hlosharding simulate` read by itself;
        `str` leaves the programs out.  Users' ops stand in no text.
        """
        return schedule_text(self.functions, self.ops, programs=True)

    def __str__(self) -> str:
        return schedule_text(self.functions, self.ops)
