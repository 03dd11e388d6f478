"""The plans that Alpa ships for GPT on p3.16xlarge, 8 V100s a node, and those that we find: seconds of both, simulated.

`python -m benchmarks.alpa_plans [MODEL ...]`.  What Alpa found is configuration, written here in our words: layers of
stages, submeshes, their logical shapes (data, tensor) and microbatches in `benchmark/alpa/suite_auto_gpt.py` and
`suite_manual_gpt.py` of alpa-projects/alpa, at b8078a9f.  A case has a process of its own; its CPU seconds are counted.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from rich.table import Table

import hlosharding as hs
from benchmarks.process_seconds import seconds
from benchmarks.published.transformer import Config, arguments, train_step
from benchmarks.verdict import finish, judged
from benchmarks.workers import tell, told
from hlosharding.cost import Machine, machines
from hlosharding.errors import HloShardingError
from hlosharding.ir import Module
from hlosharding.schedule import PipelineRuns
from hlosharding.search import STRATEGIES, InterOp, Plan, Planner, PricedPlan, SearchSpace, SizedPlan, megatron
from hlosharding.search.price_file import Outcome
from hlosharding.search.priced_plan import sort_by_throughput
from hlosharding.search.strategies import Specs, Strategy, Ways, join_specs, sum_as

LIMIT = 1.0
BATCH = 1024


class Case(NamedTuple):
    """A GPT of vocabulary 51,200 and length 1,024, and what Alpa found for it."""

    width: int
    layers: int
    heads: int
    devices: int
    plan: str
    """Without strategy: D/T/P/K."""

    @property
    def config(self) -> Config:
        """In half precision, with f32 masters; the embedding is not the output's weight; layers are computed again."""
        half: dict[str, Any] = {"compute": jnp.float16, "stored": jnp.float16, "attention": "written", "tied": False}
        sizes = {"width": self.width, "layers": self.layers, "heads": self.heads, "hidden": 4 * self.width}
        return Config(**sizes, vocabulary=51200, length=1024, **half)


CASES: Mapping[str, Case] = {
    "760M": Case(1536, 24, 16, 2, "1/1/2/128"),
    "1.3B": Case(2048, 24, 32, 4, "2/1/2/128"),
    "6.7B": Case(4096, 32, 32, 16, "2/4/2/64"),
    "15B": Case(5120, 48, 40, 32, "2/4/4/128"),
    "39B": Case(8192, 48, 64, 64, "1/4/16/1024"),
}
"""Stages have as many layers each.  Left out: 350M on one device, with nothing to choose; 2.6B on eight, whose three
stages have 2, 2 and 4 devices, which our plans cannot say."""


def p3(devices: int) -> Machine:
    """AWS p3.16xlarge: 8 V100 with 16 GB a node, 25 Gbit/s between nodes."""
    known = machines.v100(devices)
    between = replace(known.between, bandwidth=25e9 / 8 / known.devices_per_node)
    return replace(known, name=f"p3.16xlarge({devices})", memory_bytes=16e9, between=between)


def by_rows(strategy: Strategy) -> Strategy:
    """The same with the embedding, which megatron leaves whole where it is not the output's weight, over tensor."""

    def both(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        found = {p.parameter_number: P("tensor") for p in module.entry.parameters if p.path.endswith("['embedding']")}
        return join_specs(module, found, strategy(module, ways, batch))

    return sum_as(strategy, both)


class Prices:
    """Of plans for one case."""

    def __init__(self, case: Case) -> None:
        module = hs.trace(partial(train_step, case.config))(*arguments(case.config, BATCH))
        strategies = {name: by_rows(each) for name, each in {"": megatron, **STRATEGIES}.items()}
        self.planner = Planner(module, ["tokens"], ["weights", "moments"], strategies)
        self.machine = p3(case.devices)
        self.found: dict[SizedPlan, Outcome] = {}

    def price(self, plans: Sequence[SizedPlan]) -> Mapping[SizedPlan, Outcome]:
        """Each, as a step of it is simulated."""
        made = {sized: self._priced(sized) for sized in plans}
        self.found.update(made)
        return made

    def _priced(self, sized: SizedPlan) -> Outcome:
        try:
            cut = self.planner.pipeline(sized.plan, self.machine)
            run = PipelineRuns(self.machine).simulate(cut, cut.usual_order, sized.plan.microbatches)
            return PricedPlan.of(sized, run)
        except HloShardingError as error:
            return str(error)

    @property
    def best(self) -> PricedPlan:
        """Of all that were priced."""
        return sort_by_throughput(each for each in self.found.values() if isinstance(each, PricedPlan))[0]


def alpas(case: Case) -> list[SizedPlan]:
    """Its plan, by each way to lay out weights and sequences: which of them its solver chose is not written."""
    plan = Plan.parse(case.plan)
    names = ("", "zero1", "zero2") if plan.data > 1 else ("",)
    found = product(names, (False, True) if plan.tensor > 1 else (False,))
    return [SizedPlan(replace(plan, strategy=name, sequence=split, even=True), BATCH) for name, split in found]


def compare(case: Case) -> Iterator[dict[str, Any]]:
    """Ours, with what the search took; and the best of Alpa's."""
    start, ours = seconds(), Prices(case)
    InterOp(rounds=(16, 64), most=4).search(SearchSpace(ours.planner, ours.machine, BATCH, []), ours.price)
    yield {**_row(ours.best), "CPU s": seconds() - start}
    theirs = Prices(case)
    theirs.price(alpas(case))
    yield _row(theirs.best)


def _row(priced: PricedPlan) -> dict[str, Any]:
    return {"plan": str(priced.plan), "s": priced.time_s, "fits": priced.fits, "GB": priced.peak_memory_bytes / 1e9}


def main() -> None:
    """Print the table; fail where Alpa's plan is faster."""
    parser = argparse.ArgumentParser(description="plans that Alpa ships, beside ours")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        for row in compare(CASES[given.models[0]]):
            tell(row)
        return
    columns = "model", "V100s", "Alpa's plan", "s", "GB", "ours", "s", "GB", "ours / Alpa's", "CPU s"
    table, kept = Table(*columns, title="GPT on p3.16xlarge"), list[bool]()
    for name in given.models or CASES:
        rows, errors = told("alpa_plans", [name, "--worker"], 1800)
        if errors:
            sys.exit(f"{name}: {errors[-500:]}")
        ours, theirs = rows
        ratio, is_kept = judged(ours["s"] / theirs["s"] if ours["fits"] else math.inf, LIMIT)
        both = (text for row in (theirs, ours) for text in _cells(row))
        table.add_row(name, str(CASES[name].devices), *both, ratio, f"{ours['CPU s']:.0f}")
        kept.append(is_kept)
    finish(table, kept)


def _cells(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["plan"], f"{row['s']:.2f}", f"{row['GB']:.1f}" + ("" if row["fits"] else " (does not fit)")


if __name__ == "__main__":
    main()
