"""A plan run on JAX's devices, and what it should take so: who runs it decides both.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from hlosharding.cost import Machine
from hlosharding.executor import lay_out, random_array
from hlosharding.schedule import Schedule
from hlosharding.search.plans import Plan

Machines = Callable[[int], Machine]
"""The machine, told how many devices work at once: forced CPU devices share their cores."""


class PlanRunner(Protocol):
    """Runs plans in one way: all devices in one process, or a process for each stage."""

    @property
    def name(self) -> str:
        """What a table says of how plans ran."""
        ...

    def predict_seconds(self, plan: Plan, schedule: Schedule, machines: Machines) -> float:
        """Seconds that a step takes by the cost formulas."""
        ...

    def measure_seconds(self, schedule: Schedule) -> float:
        """Seconds that a step took."""
        ...


@dataclass(frozen=True, slots=True)
class OneProcess:
    """All devices in this process.

    >>> OneProcess(devices=(), overlaps=False).name
    'one process, one program at a time'
    """

    devices: Sequence[Any]
    overlaps: bool
    """False where one program runs at a time (XLA's CPU client), whichever devices it is for: then stages wait for each
    other, and a step takes what all its programs take together."""
    seconds: float = 0.5
    """How long a plan is run, at least three times."""

    @property
    def name(self) -> str:
        return "one process" if self.overlaps else "one process, one program at a time"

    def predict_seconds(self, plan: Plan, schedule: Schedule, machines: Machines) -> float:
        """Seconds of a step: programs side by side, or one after the other."""
        at_once = plan.num_devices if self.overlaps else plan.data * plan.tensor
        machine = machines(at_once)
        # The machine has as many devices as work at once, one stage's; the schedule names those of all stages.
        run = schedule.simulate(replace(machine, num_devices=max(plan.num_devices, machine.num_devices)))
        if self.overlaps:
            return machine.program_launch + run.time_s
        return sum(done.work.seconds + machine.program_launch for done in run.recording.applications)

    def measure_seconds(self, schedule: Schedule) -> float:
        """The shortest of some runs on random inputs, after one that compiles."""
        import jax

        run = schedule.compile(self.devices)
        generator = np.random.default_rng(0)
        given = [random_array(kind.shape, generator) for kind in run.arguments]
        arrays: list[Any] = [None] * len(given)

        def prepare() -> None:
            for number, kind in enumerate(run.arguments):
                if arrays[number] is None or _jax_array(arrays[number]).is_deleted():
                    arrays[number] = lay_out(given[number], kind.sharding, [run.devices[n] for n in kind.devices])
            jax.block_until_ready([_jax_array(array) for array in arrays])

        return measure_shortest(
            lambda: jax.block_until_ready([_jax_array(made) for made in run(*arrays)]), self.seconds, prepare
        )


def _jax_array(array: Any) -> Any:
    return getattr(array, "tiles", array)


def measure_shortest(run: Callable[[], object], seconds: float, prepare: Callable[[], object] = lambda: None) -> float:
    """The shortest of three runs or more, for so long, after two that warm up; `prepare` comes ahead of each.

    A step that donates its arguments needs new ones each time.
    """
    times: list[float] = []
    end = float("inf")
    # Two that warm up, and from 3 to 100 that count.
    while len(times) < 5 or (perf_counter() < end and len(times) < 102):
        prepare()
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
        # The clock starts behind those that warm up: the first one compiles, which may take longer than all others.
        end = min(end, perf_counter() + seconds) if len(times) == 2 else end
    return min(times[2:])
