"""What a pipeline of many microbatches takes, told from runs of a few: once it is full, each microbatch adds the same.

Floor: schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose

from hlosharding.cost import Machine
from hlosharding.schedule.pipelines.pipeline import Pipeline
from hlosharding.schedule.simulation import ScheduleSimulation, Usage

_ALIKE = 1e-9
_STEPS = 3
"""So many equal additions show that the pipeline is full."""


@dataclass(frozen=True)
class Estimate:
    """A run's figures without its events."""

    machine: Machine
    time_s: float
    usage: tuple[Usage, ...]

    @property
    def peak_memory_bytes(self) -> float:
        """Of the device that holds most."""
        return max((use.peak_bytes for use in self.usage), default=0.0)


def estimated(pipeline: Pipeline, name: str, microbatches: int, machine: Machine) -> Estimate:
    """As `pipeline.simulate`, with work that does not grow with the microbatches where they only add up.

    Where p devices are full, or p microbatches go round together, runs of a few more microbatches differ by the same
    time, the same work and the same memory; then so do all larger ones.  Else all are simulated.
    """
    step = pipeline.num_devices if pipeline.num_chunks > 1 else 1
    first = 2 * pipeline.num_devices * pipeline.num_chunks
    first += (microbatches - first) % step
    if microbatches > first + (_STEPS + 2) * step:
        counts = [first + n * step for n in range(_STEPS + 1)]
        runs = [_of(pipeline.simulate(name, microbatches, machine, first=count), machine) for count in counts]
        if all(_adds_the_same(*three) for three in zip(runs, runs[1:], runs[2:], strict=False)):
            return _extended(runs[-2], runs[-1], (microbatches - first) // step - _STEPS)
    return _of(pipeline.simulate(name, microbatches, machine), machine)


def _of(run: ScheduleSimulation, machine: Machine) -> Estimate:
    return Estimate(machine, run.time_s, tuple(run.usage))


def _figures(run: Estimate) -> list[float]:
    each = [(use.busy_s, use.exposed_s, use.peak_bytes) for use in run.usage]
    return [run.time_s, *(figure for figures in each for figure in figures)]


def _adds_the_same(first: Estimate, second: Estimate, third: Estimate) -> bool:
    triples = zip(_figures(first), _figures(second), _figures(third), strict=True)
    return all(isclose(c - b, b - a, rel_tol=_ALIKE, abs_tol=_ALIKE * max(c, 1e-12)) for a, b, c in triples)


def _extended(before: Estimate, last: Estimate, steps: int) -> Estimate:
    """`steps` more of what lies between two runs."""

    def more(old: float, new: float) -> float:
        return new + steps * (new - old)

    time_s = more(before.time_s, last.time_s)
    usage = [_more_usage(a, b, steps, time_s) for a, b in zip(before.usage, last.usage, strict=True)]
    return Estimate(last.machine, time_s, tuple(usage))


def _more_usage(old: Usage, new: Usage, steps: int, time_s: float) -> Usage:
    busy, exposed, peak = (
        b + steps * (b - a)
        for a, b in ((old.busy_s, new.busy_s), (old.exposed_s, new.exposed_s), (old.peak_bytes, new.peak_bytes))
    )
    return Usage(new.devices, busy, exposed, time_s - busy, busy / time_s if time_s else 0.0, peak)
