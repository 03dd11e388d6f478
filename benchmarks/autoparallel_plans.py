"""Llama 8B on 64 H100s in one stage: the plan that autoparallel's solver picks, beside the one that a search finds; the
collectives of both priced by our formulas of NCCL and by autoparallel's.

`python -m benchmarks.autoparallel_plans [CASE ...]`.  What it picks is told in `docs/adaptive_sharding.md` of
meta-pytorch/autoparallel (2026-06), batches and meshes in `examples/example_llama3.py`; what its formulas say of groups
of such meshes stands in `published/data/autoparallel_h100_mesh.csv`, between whose sizes we interpolate.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from jax.sharding import PartitionSpec as P
from rich.table import Table

import hlosharding as hs
from benchmarks.collectives import FOLDER
from benchmarks.process_seconds import seconds
from benchmarks.published.planning import planner_of
from benchmarks.published.transformer import LLAMA_8B, arguments, train_step
from benchmarks.verdict import finish, judged
from hlosharding.cost import group_placement, machines
from hlosharding.ir import Module
from hlosharding.schedule import PipelineRuns, StageProgram
from hlosharding.search import Climb, Plan, Planner, fsdp
from hlosharding.search.strategies import Specs, Ways, number_specs
from hlosharding.spmd import Collective

MACHINE = machines.h100(64)
LLAMA = replace(LLAMA_8B, length=8192)
LIMITS = {"its prices": 1.0, "CPU s": 5.0}


class Case(NamedTuple):
    """A batch, and what is picked for it."""

    batch: int
    picked: str


CASES: Mapping[str, Case] = {
    "8 x 8": Case(16, "8/8/1/1 autoparallel sequence"),
    "64": Case(128, "64/1/1/1 fsdp"),
}


def autoparallel(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
    """FSDP over data; over tensor products by columns, then by rows, but for that behind attention: whole there, for
    sequences are split."""
    outputs = (p for p in module.entry.parameters if p.path.endswith("['o']"))
    own = number_specs(module, fsdp(module, ways, batch))
    return {**own, **{p.parameter_number: P(None, None, None, "data") for p in outputs}}


class Row(NamedTuple):
    """A plan: seconds of a step, and of its collectives by ours and by autoparallel's formulas."""

    plan: str
    step: float
    ours: float
    theirs: float
    gigabytes: float


def price(planner: Planner, plan: Plan) -> Row:
    """Of its program for one device."""
    cut = planner.pipeline(plan, MACHINE)
    run = PipelineRuns(MACHINE).simulate(cut, cut.usual_order, plan.microbatches)
    steps = (*cut.openings, *cut.pieces, *cut.closings)
    costs = [hs.cost(step.op.program.module, machine=MACHINE) for step in steps if isinstance(step.op, StageProgram)]
    theirs = sum(one.executions * their_seconds(one) for report in costs for one in report.collectives)
    ours = sum(report.comm_s for report in costs)
    return Row(str(plan), run.time_s, ours, theirs, run.peak_memory_bytes / 1e9)


def their_seconds(one: Collective) -> float:
    """Of one execution; a permute, which it has none of, sends what an all-to-all does."""
    where = group_placement(one.groups or (tuple(range(MACHINE.devices_per_node)),), MACHINE)
    if where.size < 2:
        return 0.0
    kind = one.kind if one.groups else "all-to-all"
    known = _table()[kind, where.nodes, where.per_node]
    sizes, taken = np.log(np.array(known)).T
    return math.exp(float(np.interp(math.log(max(one.nbytes, 1.0)), sizes, taken)))


@lru_cache
def _table() -> Mapping[tuple[str, int, int], Sequence[tuple[float, float]]]:
    """By kind, nodes and devices in each: bytes and seconds."""
    found = defaultdict[tuple[str, int, int], list[tuple[float, float]]](list)
    with (FOLDER / "autoparallel_h100_mesh.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["kind"], int(row["nodes"]), int(row["per_node"])
            found[key].append((float(row["bytes"]), float(row["microseconds"]) / 1e6))
    return found


def find_plan(case: Case, most: int) -> tuple[Plan, float]:
    """The fastest in one stage, and CPU seconds of the search."""
    start, step = seconds(), partial(train_step, LLAMA)
    given = arguments(LLAMA, case.batch)
    found = hs.search(step, *given, donate=["weights", "moments"], machine=MACHINE, searcher=Climb(most))
    return next(each.plan for each in found.table if each.plan.stages == 1 and each.fits), seconds() - start


def main() -> None:
    """Print a table for each case; fail where ours costs more by autoparallel's prices, or takes too long to find."""
    parser = argparse.ArgumentParser(description="autoparallel's plans for Llama 8B, beside ours")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--most", type=int, default=Climb().most, help="plans that a search prices")
    given, columns = parser.parse_args(), ("mesh", "plan", "step s", "collectives s, our prices", "its prices", "GB")
    table, kept = Table(*columns, "ours / its", "CPU s", title="Llama 8B, 64 H100s, sequences of 8,192"), list[bool]()
    for name in given.cases or CASES:
        case = CASES[name]
        planner = planner_of(LLAMA, case.batch).with_strategy("autoparallel", autoparallel)
        best, taken = find_plan(case, given.most)
        theirs, ours = price(planner, Plan.parse(case.picked)), price(planner, best)
        figures = {"its prices": ours.theirs / theirs.theirs, "CPU s": taken}
        verdicts = [judged(figures[figure], limit) for figure, limit in LIMITS.items()]
        for row, said in ((theirs, ("", "")), (ours, tuple(text for text, _ in verdicts))):
            numbers = row.step, row.ours, row.theirs, row.gigabytes
            table.add_row(name, row.plan, *(f"{number:.3f}" for number in numbers), *said)
        kept += [good for _, good in verdicts]
    finish(table, kept)


if __name__ == "__main__":
    main()
