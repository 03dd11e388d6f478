"""What does it take to price a plan, in CPU seconds (children included) and in memory?

`python -m benchmarks.plan_speed [--layers 40] [FORM ...]`: a step of Adam on 512 sequences of Llama 3's decoder of 8B,
for 64 H100s; its layers `listed` or `scanned`, here 40: the trace, then plans one after the other, of which the first
is cold and the others find what was found before; and `search`, of 140 plans of its 32 layers in a scan.  Each form has
a process of its own.  A machine at work on other things counts more seconds for the same: JAX's own trace, which no
change of ours alters, stands beside.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from rich.table import Table

from benchmarks.process_seconds import seconds
from benchmarks.published.planning import planner_of
from benchmarks.published.transformer import LLAMA_8B, arguments, train_step
from benchmarks.verdict import finish, judged
from benchmarks.workers import tell, told
from hlosharding.cost import machines
from hlosharding.search import Plan, search

MACHINE, BATCH = machines.h100(64), 512
PLANS = (
    Plan(64),
    Plan(64, strategy="fsdp"),
    Plan(64, strategy="zero1"),
    Plan(8, 8),
    Plan(8, 8, strategy="fsdp", sequence=True),
    Plan(16, 1, 4, 16),
    Plan(8, 2, 4, 16),
    Plan(8, 2, 4, 32),
)
LIMITS = {"listed": 1.0, "scanned": 0.3, "search": 60.0}
"""CPU seconds of a plan, or of the search."""
GIGABYTES = 2.0


def taken(work: Callable[[], Any]) -> float:
    """CPU seconds."""
    start = seconds()
    work()
    return seconds() - start


def measured(form: str, layers: int) -> Iterator[tuple[str, float]]:
    """What was done, and the CPU seconds."""
    import jax

    config = replace(LLAMA_8B, layers=layers, scanned=form != "listed")
    yield "JAX's trace", taken(lambda: jax.jit(partial(train_step, config)).trace(*arguments(config, BATCH)))
    if form == "search":
        yield "140 plans", taken(_searched)
        return
    yield "trace", taken(lambda: planner_of(config, BATCH))
    planner = planner_of(config, BATCH)
    for plan in PLANS:
        yield str(plan), taken(lambda plan=plan: planner.schedule(plan, MACHINE).simulate(MACHINE))


def _searched() -> None:
    search(
        partial(train_step, LLAMA_8B),
        *arguments(LLAMA_8B, BATCH),
        batch=["tokens"],
        donate=["weights", "moments"],
        machine=MACHINE,
        microbatches=(8, 16, 32),
        strategies=("", "fsdp"),
    )


def main() -> None:
    """Print the table; fail where a limit is missed."""
    parser = argparse.ArgumentParser(description="CPU seconds to price a plan.")
    parser.add_argument("forms", nargs="*", choices=[[], *LIMITS], help="all without any")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        [form] = options.forms
        for what, spent in measured(form, options.layers):
            tell({"what": what, "s": spent, "gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6})
        return
    table, kept = Table("layers", "what", "CPU s", "of the limit", "peak memory so far, GB", title="A plan's price"), []
    for form in options.forms or LIMITS:
        rows, error = told("plan_speed", [form, "--layers", str(options.layers), "--worker"], 7200)
        for row in rows:
            is_plan = "trace" not in row["what"]
            ratio, is_fast = judged(row["s"] / LIMITS[form], 1.0) if is_plan else ("", True)
            kept += [is_fast, row["gb"] < GIGABYTES]
            table.add_row(form, row["what"], f"{row['s']:.2f}", ratio, f"{row['gb']:.2f}")
        if error:
            table.add_row(form, error.strip().splitlines()[-1], "", "[red]failed[/red]", "")
            kept.append(False)
    finish(table, kept)


if __name__ == "__main__":
    main()
