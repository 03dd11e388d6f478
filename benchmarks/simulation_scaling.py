"""Does simulating a schedule take time in proportion to its steps (figure 7 of the DistIR paper), and how much?

`python -m benchmarks.simulation_scaling [STEPS ...]`: pipelines of 16 stages with as many microbatches as make so many
steps, every step written out.  `times`: when each step runs, of steps that were checked before, as a search does it;
`memory`: the same with what each device holds over time; `all`: a schedule that nobody has looked at yet, its types
checked first.  Seconds are the smallest of three runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

from rich.table import Table

from benchmarks.verdict import finish, judged
from hlosharding.schedule import Schedule
from hlosharding.schedule.simulation import record_steps, simulate_recording
from tests.support.uniform_pipelines import machine, pipeline

STEPS, STAGES, REPEATS = (1_000, 10_000, 100_000, 300_000), 16, 3
LIMIT = 3.0
"""Of the largest rate over the smallest: short schedules pay for what every simulation does once."""
RATE = 300_000
"""Steps a second of `times`, of the longest schedule, at least."""


class Rates(NamedTuple):
    """Steps a second."""

    times: float
    memory: float
    all: float


def main() -> None:
    """Measure, print the table."""
    parser = argparse.ArgumentParser(description="Steps of schedules simulated a second.")
    parser.add_argument("steps", nargs="*", type=int, default=STEPS)
    found: dict[int, Rates] = {}
    for steps in parser.parse_args().steps:
        schedule = uniform(steps)
        found[len(schedule.main.steps)] = rates(schedule)
    report(found)


def uniform(steps: int) -> Schedule:
    """1F1B of about so many steps: of each microbatch every stage's two passes, and what goes from stage to stage."""
    count = max(1, steps // (2 * STAGES + 2 * (STAGES - 1)))
    return pipeline(STAGES, count, [1.0] * STAGES, [2.0] * STAGES).schedule("1f1b", count)


def rates(schedule: Schedule) -> Rates:
    """Of one schedule."""
    target, steps = machine(STAGES), len(schedule.main.steps)
    recording = record_steps(schedule.functions, target)
    return Rates(
        steps / least(lambda: simulate_recording(recording)),
        steps / least(lambda: simulate_recording(recording).memory),
        steps / least(lambda: schedule.simulate(target).memory),
    )


def least(run: Callable[[], object]) -> float:
    """Seconds."""
    found: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def report(found: dict[int, Rates]) -> None:
    """The table, and whether the limits are kept."""
    table = Table("steps", *Rates._fields, title="Steps of a schedule simulated a second")
    for column in table.columns:
        column.justify = "right"
    for steps, rate in found.items():
        table.add_row(f"{steps:,}", *(f"{each:,.0f}" for each in rate))
    table.add_section()
    spreads = [judged(max(column) / min(column), LIMIT) for column in zip(*found.values(), strict=True)]
    table.add_row("largest over smallest", *(text for text, _ in spreads))
    text, is_fast = judged(RATE / found[max(found)].times, 1.0)
    table.add_row(f"{RATE:,} over the longest's", text)
    finish(table, [is_fast, *(good for _, good in spreads)])


if __name__ == "__main__":
    main()
