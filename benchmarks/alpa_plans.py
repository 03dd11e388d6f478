"""The plans that Alpa ships for p3.16xlarge, 8 V100s a node, and those that we find: seconds of both, simulated.

`python -m benchmarks.alpa_plans [CASE ...]`: GPT, decoders with experts (GShard's), Wide-ResNet-50.  What Alpa found is
configuration, written here in our words: layers of stages, submeshes, their logical shapes (data, tensor) and
microbatches in `benchmark/alpa/suite_auto_gpt.py`, `suite_auto_moe.py`, `suite_wresnet.py` and the manual suites there,
of alpa-projects/alpa at b8078a9f.  A case has a process of its own; its CPU seconds are counted.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from rich.table import Table

import hlosharding as hs
from benchmarks.process_seconds import seconds
from benchmarks.published import gshard, transformer, wide_resnet
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

LIMITS = {"time": 1.0, "CPU s": 10.0}


class Family(NamedTuple):
    """A kind of model."""

    step: Callable[..., Any]
    arguments: Callable[..., Sequence[Any]]
    examples: tuple[str, ...]
    """Arguments that are the batch."""
    rounds: tuple[int, ...]
    """Microbatches over stages that we try."""


GPT = Family(transformer.train_step, transformer.arguments, ("tokens",), (16, 64))
MOE = Family(gshard.train_step, gshard.arguments, ("tokens",), (8, 32))
RESNET = Family(wide_resnet.train_step, wide_resnet.arguments, ("images", "labels"), (8, 16))


class Case(NamedTuple):
    """A model, and what Alpa found for it."""

    family: Family
    config: Any
    devices: int
    plans: tuple[str, ...]
    """Without strategy: D/T/P/K.  Several, where it is not written on what its solver spent a stage's devices."""
    batch: int = 1024


def gpt(width: int, layers: int, heads: int, devices: int, plan: str) -> Case:
    """Of vocabulary 51,200 and length 1,024, in half precision, with f32 masters; the embedding is not the output's
    weight; layers are computed again."""
    half: dict[str, Any] = {"compute": jnp.float16, "stored": jnp.float16, "attention": "written", "tied": False}
    sizes = {"width": width, "layers": layers, "heads": heads, "hidden": 4 * width}
    return Case(GPT, transformer.Config(**sizes, vocabulary=51200, length=1024, **half), devices, (plan,))


def moe(width: int, layers: int, experts: int, devices: int, plan: str) -> Case:
    """With experts on the data ways, or without."""
    data = Plan.parse(plan).data
    config = gshard.MoeConfig(layers=layers, width=width, experts=experts)
    return Case(MOE, config, devices, (plan, f"{plan} experts={data}") if data > 1 else (plan,))


def resnet(channels: int, factor: int, devices: int, *plans: str) -> Case:
    """In f32."""
    return Case(RESNET, wide_resnet.ResNetConfig(channels=channels, factor=factor), devices, plans, 1536)


CASES: Mapping[str, Case] = {
    "GPT 760M": gpt(1536, 24, 16, 2, "1/1/2/128 even"),
    "GPT 1.3B": gpt(2048, 24, 32, 4, "2/1/2/128 even"),
    "GPT 6.7B": gpt(4096, 32, 32, 16, "2/4/2/64 even"),
    "GPT 15B": gpt(5120, 48, 40, 32, "2/4/4/128 even"),
    "GPT 39B": gpt(8192, 48, 64, 64, "1/4/16/1024 even"),
    "MoE 690M": moe(768, 8, 16, 2, "2/1/1/32"),
    "MoE 1.3B": moe(768, 16, 16, 4, "2/1/2/32 even"),
    "MoE 2.4B": moe(1024, 16, 16, 8, "4/1/2/32 even"),
    "MoE 10B": moe(1536, 16, 32, 16, "8/1/2/16 even"),
    "MoE 27B": moe(2048, 16, 48, 32, "4/1/8/128 even"),
    "MoE 70B": moe(2048, 32, 64, 64, "8/1/8/64 even"),
    "ResNet 500M": resnet(224, 2, 2, "2/1/1/24", "1/2/1/24"),
    "ResNet 1B": resnet(320, 2, 4, "4/1/1/24", "1/4/1/24"),
    "ResNet 6.8B": resnet(320, 16, 32, "8/1/4/32 layers=5+4+4+3"),
}
"""Stages of GPT and MoE have as many layers each; those of ResNet are runs of 16 parts.  Left out: models on one
device, with nothing to choose; and what our plans cannot say: GPT 2.6B and ResNet 4B, of whose three stages one has
twice the devices; ResNet 2B and 13B, whose stages spend their devices in other ways each."""


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
        family = case.family
        module = hs.trace(partial(family.step, case.config))(*family.arguments(case.config, case.batch))
        strategies = {name: by_rows(each) for name, each in {"": megatron, **STRATEGIES}.items()}
        self.planner = Planner(module, family.examples, ["weights", "moments"], strategies)
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
    return [SizedPlan(each, case.batch) for text in case.plans for each in _laid_out(Plan.parse(text), case)]


def _laid_out(plan: Plan, case: Case) -> Iterator[Plan]:
    names = ("", "zero1", "zero2") if plan.data > 1 else ("",)
    splits = (False, True) if plan.tensor > 1 and case.family is not RESNET else (False,)
    return (replace(plan, strategy=name, sequence=split) for name, split in product(names, splits))


def compare(case: Case) -> Iterator[dict[str, Any]]:
    """Ours, with what the search took; and the best of Alpa's."""
    start, ours = seconds(), Prices(case)
    space = SearchSpace(ours.planner, ours.machine, case.batch, [])
    InterOp(rounds=case.family.rounds, most=2).search(space, ours.price)
    yield {**_row(ours.best), "CPU s": seconds() - start}
    theirs = Prices(case)
    theirs.price(alpas(case))
    yield _row(theirs.best)


def _row(priced: PricedPlan) -> dict[str, Any]:
    return {"plan": str(priced.plan), "s": priced.time_s, "fits": priced.fits, "GB": priced.peak_memory_bytes / 1e9}


def main() -> None:
    """Print the table; fail where Alpa's plan is faster."""
    parser = argparse.ArgumentParser(description="plans that Alpa ships, beside ours")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        for row in compare(CASES[given.cases[0]]):
            tell(row)
        return
    columns = "model", "V100s", "Alpa's plan", "s", "GB", "ours", "s", "GB", "ours / Alpa's", "CPU s"
    table, kept = Table(*columns, title="Plans for p3.16xlarge"), list[bool]()
    for name in given.cases or CASES:
        rows, errors = told("alpa_plans", [name, "--worker"], 1800)
        if errors:
            sys.exit(f"{name}: {errors[-500:]}")
        ours, theirs = rows
        figures = {"time": ours["s"] / theirs["s"] if ours["fits"] else math.inf, "CPU s": ours["CPU s"]}
        verdicts = [judged(figures[figure], limit) for figure, limit in LIMITS.items()]
        both = (text for row in (theirs, ours) for text in _cells(row))
        table.add_row(name, str(CASES[name].devices), *both, *(text for text, _ in verdicts))
        kept += [good for _, good in verdicts]
    finish(table, kept)


def _cells(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["plan"], f"{row['s']:.2f}", f"{row['GB']:.1f}" + ("" if row["fits"] else " (does not fit)")


if __name__ == "__main__":
    main()
