"""How long do propagation and partitioning take on a 24-layer training step, against XLA's two passes?

One process, one machine.  `first` is the first run in a fresh process, with nothing memoised; `best` is the smallest of
several, as XLA's is.  The limit holds for `best`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import jax
from rich.table import Table

import hlosharding as hs
from benchmarks import cases, live_xla
from benchmarks.verdict import finish, judged
from examples import devices

LAYERS, REPEATS, LIMIT = 24, 3, 3.0
T = TypeVar("T")


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """(seconds, answer)."""
    start = time.perf_counter()
    answer = action()
    return time.perf_counter() - start, answer


def live_seconds(case: cases.Case) -> dict[str, float]:
    """XLA's two passes on the program, lowered and compiled anew."""
    jax.clear_caches()
    return live_xla.pass_seconds(case.lowered())


def main() -> None:
    """Print the table; fail where the limit is missed."""
    devices.choose_platform()
    case = cases.gpt2_case(layers=LAYERS)
    module = hs.load(case.lowered(), prepare=True)
    ours: dict[str, list[float]] = {"propagate": [], "partition": []}
    parameters, outputs = case.free_parameters, case.free_outputs
    for _ in range(REPEATS):
        seconds, propagated = timed(lambda: hs.propagate(module, to_parameters=parameters, to_outputs=outputs))
        ours["propagate"].append(seconds)
        ours["partition"].append(timed(lambda propagated=propagated: hs.partition(propagated))[0])
    live = [live_seconds(case) for _ in range(REPEATS)]
    table = Table(
        "pass", "first", "best", "XLA's best", "best / XLA's", title=f"{case.name}: seconds of the two passes"
    )
    total, its_total = 0.0, 0.0
    for mine, its in (("propagate", live_xla.PROPAGATION), ("partition", live_xla.PARTITIONING)):
        best, theirs = min(ours[mine]), min(run[its] for run in live)
        table.add_row(mine, f"{ours[mine][0]:.3f}", f"{best:.3f}", f"{theirs:.3f}", f"{best / theirs:.2f}")
        total, its_total = total + best, its_total + theirs
    text, good = judged(total / its_total, LIMIT)
    table.add_section()
    table.add_row("both", f"{sum(runs[0] for runs in ours.values()):.3f}", f"{total:.3f}", f"{its_total:.3f}", text)
    finish(table, [good])


if __name__ == "__main__":
    main()
