"""From trace to executable, `hs.jit` against `jax.jit` of the same annotated program, cold, in CPU seconds.

`python -m benchmarks.first_calls [NAME ...] [--tuned]`: a name is any part of a program's; `--tuned` the programs that
changes are tuned on, in place of those held out.  Each program is compiled by each in processes of their own, without
caches, and the cheaper of two counts.  Imports, JAX's and ours, are not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import jax
from rich.table import Table

import hlosharding as hs
from benchmarks.cases import Case
from benchmarks.first_call_programs import HELD_OUT, TUNED
from benchmarks.verdict import finish, judged
from benchmarks.workers import ask, tell
from examples import devices

SECONDS_A_PROGRAM = 900
MEDIAN_LIMIT, LIMIT = 1.0, 1.2
PROCESSES = 2
OUR_STEPS = "passes", "source, lowering", "XLA"
Seconds = dict[str, float]


def main() -> None:
    """Measure in workers, one after the other; print the table."""
    parser = argparse.ArgumentParser(description="The first call, ours against jax.jit's, in CPU seconds.")
    parser.add_argument("names", nargs="*", help="parts of names; all programs without any")
    parser.add_argument("--tuned", action="store_true", help="the programs that changes are tuned on")
    parser.add_argument("--by", choices=sorted(COMPILERS), help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        tell(measured(options.names[0], options.by))
    else:
        report(TUNED if options.tuned else HELD_OUT, options.names)


# The worker


def measured(name: str, compiler: str) -> Seconds:
    """CPU seconds of each step of one compiler."""
    devices.choose_platform()
    jax.config.update("jax_enable_compilation_cache", False)
    case = (TUNED | HELD_OUT)[name]()
    _ = hs.jit  # its rooms are imported at its first use
    return dict(timed(COMPILERS[compiler](case)))


def timed(steps: Iterator[str]) -> Iterator[tuple[str, float]]:
    """A step is what happens before its name is given."""
    start = time.process_time()
    for name in steps:
        now = time.process_time()
        yield name, now - start
        start = now


def ours(case: Case) -> Iterator[str]:
    stage = hs.jit(case.function, mesh=case.mesh, **case.options).trace(*case.arguments).lower()
    yield OUR_STEPS[0]
    executable = stage.partitioned.compile(list(case.mesh.devices.flat)).executable
    _ = executable.lowered
    yield OUR_STEPS[1]
    _ = executable.compiled
    yield OUR_STEPS[2]


def jax_jit(case: Case) -> Iterator[str]:
    jax.jit(case.function, **case.options).lower(*case.arguments).compile()
    yield "all"


COMPILERS: dict[str, Callable[[Case], Iterator[str]]] = {"ours": ours, "jax.jit": jax_jit}


# The parent


def report(programs: dict[str, Any], parts: list[str]) -> None:
    """Run the workers and print; status 1 where a limit is missed, or a program failed."""
    table = Table("program", *OUR_STEPS, "ours", "jax.jit", "ratio", title="From trace to executable, CPU seconds")
    for column in table.columns[1:]:
        column.justify = "right"
    ratios: list[float] = []
    kept: list[bool] = []
    for name in programs:
        if parts and not any(part in name for part in parts):
            continue
        both = [cheapest(name, compiler) for compiler in COMPILERS]
        failed = [row["failed"] for row in both if "failed" in row]
        if failed:
            table.add_row(name, f"[red]{failed[0]}[/red]")
            kept.append(False)
            continue
        mine, theirs = (sum(row.values()) for row in both)
        ratios.append(mine / theirs)
        text, good = judged(ratios[-1], LIMIT)
        kept.append(good)
        table.add_row(name, *(f"{both[0][s]:.2f}" for s in OUR_STEPS), f"{mine:.2f}", f"{theirs:.2f}", text)
    if ratios:
        text, good = judged(median(ratios), MEDIAN_LIMIT)
        table.add_section()
        table.add_row("median", *[""] * (len(OUR_STEPS) + 2), text)
        kept.append(good)
    finish(table, kept)


def cheapest(name: str, compiler: str) -> dict[str, Any]:
    """What the process tells that took the fewest seconds, or one that failed."""
    rows = [ask("first_calls", name, ("--by", compiler), SECONDS_A_PROGRAM) for _ in range(PROCESSES)]
    failed = [row for row in rows if "failed" in row]
    return failed[0] if failed else min(rows, key=lambda row: sum(row.values()))


if __name__ == "__main__":
    main()
