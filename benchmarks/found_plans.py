"""Plans that are found from a step and a machine alone, beside those that people run: predicted seconds of both.

`python -m benchmarks.found_plans [CASE ...] [--most 24]`: training steps of published models as people write them, of
which nothing is said but what may be donated; `hs.search` finds the batch and the plan.  Each case has a process of its
own, and its CPU seconds and memory are counted (JAX's trace with them).
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.process_seconds import seconds
from benchmarks.published.transformer import (
    DEEPSEEK_16B,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    MIXTRAL_8X7B,
    Config,
    arguments,
    train_step,
)
from benchmarks.verdict import finish, judged
from benchmarks.workers import tell, told
from hlosharding.cost import machines
from hlosharding.search import Climb, Plan, PricedPlan, SearchResult, search

LIMITS = {"time": 1.0, "CPU s": 60.0, "GB": 3.0}


class Case(NamedTuple):
    """A step, for so many H100s, and plans that people run."""

    config: Config
    devices: int
    batch: int
    known: tuple[str, ...]


CASES = {
    "Llama 8B": Case(
        LLAMA_8B, 64, 512, ("64/1/1/1 fsdp", "64/1/1/1 fsdp replicas=8", "64/1/1/1 zero1", "8/8/1/1 fsdp sequence")
    ),
    "Llama 70B": Case(
        LLAMA_70B, 256, 1024, ("32/8/1/1 fsdp sequence", "8/4/8/32 1f1b-x5 zero1 sequence", "256/1/1/1 fsdp")
    ),
    "Llama 405B": Case(LLAMA_405B, 512, 2048, ("8/8/8/64 1f1b-x4 fsdp sequence", "64/8/1/1 fsdp sequence")),
    "Mixtral 8x7B": Case(
        MIXTRAL_8X7B, 64, 512, ("32/2/1/1 fsdp experts=8 sequence", "64/1/1/1 fsdp experts=8", "64/1/1/1 fsdp")
    ),
    "DeepSeek 16B": Case(DEEPSEEK_16B, 64, 512, ("64/1/1/1 fsdp experts=64", "64/1/1/1 fsdp experts=8")),
}


def found(case: Case, **options: Any) -> SearchResult:
    """What a search gives of it."""
    return search(
        partial(train_step, case.config),
        *arguments(case.config, case.batch),
        donate=["weights", "moments"],
        machine=machines.h100(case.devices),
        **options,
    )


def compare(case: Case, most: int) -> Iterator[dict[str, Any]]:
    """The plan that is found, with what its search took, and those that are known."""
    start = seconds()
    best = found(case, searcher=Climb(most)).table[0]
    taken, held = seconds() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    yield {"found": True, **_row(best), "CPU s": taken, "held": held}
    known = found(case, batch=["tokens"], plans=[Plan.parse(text) for text in case.known], prune=False)
    yield from ({"found": False, **_row(priced)} for priced in known.table)


def _row(priced: PricedPlan) -> dict[str, Any]:
    return {"plan": str(priced.plan), "s": priced.time_s, "fits": priced.fits, "GB": priced.peak_memory_bytes / 1e9}


def judge(name: str, rows: list[dict[str, Any]], table: Table) -> bool:
    """Add the rows of a case to the table; are its limits kept?"""
    first, *known = rows
    least = min((row["s"] for row in known if row["fits"]), default=math.inf)
    ratio, kept = judged(first["s"] / least if first["fits"] else math.inf, LIMITS["time"])
    took, in_time = judged(first["CPU s"], LIMITS["CPU s"])
    table.add_row(name, first["plan"], f"{first['s']:.3f}", f"{first['GB']:.1f}", ratio, took, f"{first['held']:.1f}")
    for row in known:
        note = "" if row["fits"] else " (does not fit)"
        table.add_row("", row["plan"], f"{row['s']:.3f}{note}", f"{row['GB']:.1f}", "", "", "")
    return kept and in_time and first["held"] <= LIMITS["GB"]


def main() -> None:
    """Print the table; fail where a known plan is faster, or the search takes too long or too much memory."""
    parser = argparse.ArgumentParser(description="plans found, beside plans that people run")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--most", type=int, default=Climb().most, help="plans that a search prices")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        for row in compare(CASES[given.cases[0]], given.most):
            tell(row)
        return
    table = Table("case", "plan", "s", "GB", "of the best known", "CPU s", "held GB", title="Plans found, and known")
    kept = list[bool]()
    for name in given.cases or CASES:
        rows, errors = told("found_plans", [name, "--most", str(given.most), "--worker"], 1800)
        if errors:
            sys.exit(f"{name}: {errors[-500:]}")
        kept.append(judge(name, rows, table))
    finish(table, kept)


if __name__ == "__main__":
    main()
