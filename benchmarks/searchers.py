"""All searchers at equal time: the fastest plan that fits after so many CPU seconds, over the fastest of all of them.

`python -m benchmarks.searchers [CASE ...] [--seconds 60]`: steps of `benchmarks.found_plans`, unannotated, and that of
a decoder that computes nothing again, on cards with little memory.  Each searcher has a process of its own, and prices
plan by plan until its time is up; JAX's trace does not count.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.found_plans import CASES
from benchmarks.process_seconds import seconds
from benchmarks.published.transformer import Config, arguments, train_step
from benchmarks.workers import tell, told
from hlosharding.cost import Machine, machines
from hlosharding.frontends import trace
from hlosharding.search import (
    MICROBATCHES,
    Climb,
    Grid,
    InterOp,
    Plan,
    PricedPlan,
    Searcher,
    SearchSpace,
    SizedPlan,
    search,
)
from hlosharding.search.searchers import PricePlans

MOMENTS = (0.25, 0.5, 1.0)
"""Of the time, when the best so far is looked at."""


class Question(NamedTuple):
    """A step, and for what."""

    config: Config
    batch: int
    machine: Machine


QUESTIONS = {name: Question(c.config, c.batch, machines.h100(c.devices)) for name, c in CASES.items()}
QUESTIONS["scarce memory"] = Question(
    replace(CASES["Llama 8B"].config, remat="none"), 128, replace(machines.h100(64), memory_bytes=40e9)
)


class OneStage:
    """Optima of all choices: on one axis, and on two of which the inner one stays in the node."""

    def search(self, space: SearchSpace, price: PricePlans) -> None:
        """The larger data ways first."""
        devices, node = space.machine.num_devices, space.machine.devices_per_node
        inner = [1, *(tensor for tensor in (2, 4, 8) if tensor <= node and devices % tensor == 0)]
        price([SizedPlan(Plan(devices // n, n, strategy="optimum"), space.batch_size) for n in inner])


class Random:
    """A user's own: plans of the grid in any order."""

    def search(self, space: SearchSpace, price: PricePlans) -> None:
        """All of them."""
        price(random.Random(0).sample(list(space.plans), len(space.plans)))


SEARCHERS: Mapping[str, Searcher] = {
    "Climb": Climb(),
    "Grid": Grid(),
    "optimum of one stage": OneStage(),
    "InterOp": InterOp(),
    "at random": Random(),
}
_GRID: Mapping[str, Any] = {"strategies": ("fsdp", "zero1"), "sequence": (True,), "microbatches": MICROBATCHES[2:5]}
"""What is asked for: as much as people ask for."""


class _TimeIsUpError(Exception):
    pass


class Watched:
    """A searcher whose plans are priced one by one, until its time is up."""

    def __init__(self, searcher: Searcher, most: float) -> None:
        self.searcher, self.most = searcher, most
        self.found: list[tuple[float, float]] = []
        """When, and how long a step takes, of plans that fit."""

    def search(self, space: SearchSpace, price: PricePlans) -> None:
        """As its searcher does."""
        start = seconds()

        def price_in_turn(plans: Sequence[SizedPlan]) -> dict[SizedPlan, Any]:
            made = dict[SizedPlan, Any]()
            for plan in plans:
                if seconds() - start > self.most:
                    raise _TimeIsUpError
                made |= price([plan])
                if isinstance(one := made[plan], PricedPlan) and one.fits:
                    self.found.append((seconds() - start, one.time_s))
            return made

        try:
            self.searcher.search(space, price_in_turn)
        except _TimeIsUpError:
            return

    def best_at(self, moment: float) -> float | None:
        """The fastest that was found by then."""
        return min((time_s for when, time_s in self.found if when <= moment), default=None)


def measure(question: Question, name: str, most: float) -> Iterator[dict[str, Any]]:
    """What a searcher has found at each moment."""
    module = trace(partial(train_step, question.config))(*arguments(question.config, question.batch))
    watched, asked = Watched(SEARCHERS[name], most), {} if name in ("Climb", "InterOp") else _GRID
    search(module, donate=["weights", "moments"], machine=question.machine, searcher=watched, progress=False, **asked)
    yield {"best": [watched.best_at(part * most) for part in MOMENTS], "fitting": len(watched.found)}


def main() -> None:
    """Print a table for each case, as soon as it is done."""
    parser = argparse.ArgumentParser(description="all searchers at equal time")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(QUESTIONS)}")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds of each searcher")
    parser.add_argument("--worker", metavar="SEARCHER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        for row in measure(QUESTIONS[given.cases[0]], given.worker, given.seconds):
            tell(row)
        return
    for case in given.cases or QUESTIONS:
        Console(width=max(120, Console().width)).print(compare(case, given.seconds))


def compare(case: str, most: float) -> Table:
    """A row for each searcher."""
    at = [f"after {part * most:g} CPU s" for part in MOMENTS]
    table = Table("searcher", *at, "plans that fit", title=f"{case}: times of steps, over the fastest plan of all")
    found = {name: _told(case, name, most) for name in SEARCHERS}
    least = min((time_s for row in found.values() for time_s in row["best"] if time_s is not None), default=1.0)
    for name, row in found.items():
        said = ("none" if time_s is None else f"{time_s / least:.3f}" for time_s in row["best"])
        table.add_row(name, *said, str(row["fitting"]))
    return table


def _told(case: str, name: str, most: float) -> dict[str, Any]:
    rows, errors = told("searchers", [case, "--seconds", str(most), "--worker", name], 1800)
    if errors:
        sys.exit(f"{case}, {name}: {errors[-500:]}")
    return rows[0]


if __name__ == "__main__":
    main()
