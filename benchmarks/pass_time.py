"""How long do propagation and partitioning take on training steps of four architectures, against XLA's two passes?

`python -m benchmarks.pass_time [DEPTH ...]`.  `cold` is the first run of a fresh process, `warm` one of many; each is
the smallest of as many runs as XLA's.  The limits hold for the sum of both passes, cold, with default options.
"""

from __future__ import annotations

import gc
import sys
import time

import jax
from rich.table import Table

import hlosharding as hs
from benchmarks.cases import Case
from benchmarks.deep_models import ARCHITECTURES
from benchmarks.graphs import ALONE, Graph, alone, saved, xla_seconds
from benchmarks.verdict import finish, judged
from examples import devices

DEPTHS, REPEATS = (12, 24, 48, 96), 2
LIMIT, DEEP, DEEP_LIMIT = 1.0, 48, 0.5
"""From `DEEP` layers on most layers are repeats."""
SECONDS = "seconds"
ROOMS = hs.propagate, hs.partition
"""Named so that their rooms are imported before anything is timed."""
Pair = tuple[float, float]


def seconds_of(graph: Graph) -> Pair:
    """Of propagating and of partitioning, one run."""
    gc.collect()
    start = time.perf_counter()
    propagated = graph.propagate()
    middle = time.perf_counter()
    hs.partition(propagated)
    return middle - start, time.perf_counter() - middle


def measure(case: Case) -> tuple[int, Pair, Pair, Pair]:
    """(instructions, seconds of both passes cold, warm, of XLA), the three taking turns."""
    graph = Graph.of(case)
    seconds_of(graph)
    cold: list[tuple[float, ...]] = []
    warm: list[Pair] = []
    xla: list[Pair] = []
    with saved(graph) as folder:
        for _ in range(REPEATS):
            cold.append(alone("benchmarks.pass_time", SECONDS, folder))
            warm.append(seconds_of(graph))
            xla.append(xla_seconds(case))
    return len(graph.module.instructions), _least(cold), _least(warm), _least(xla)


def _least(runs: list[tuple[float, ...]] | list[Pair]) -> Pair:
    """Of each pass the smallest."""
    first, second = map(min, zip(*runs, strict=True))
    return first, second


def main(depths: tuple[int, ...] = DEPTHS) -> None:
    """Print the table; fail where a limit is missed."""
    devices.choose_platform()
    table = Table(
        *("architecture", "layers", "size", "cold", "cold / XLA's", "limit", "warm / XLA's", "µs each, warm"),
        title="Seconds of propagating and partitioning a training step, against XLA's two passes",
    )
    kept: list[bool] = []
    for name, case_of in ARCHITECTURES.items():
        for layers in depths:
            size, cold, warm, xla = measure(case_of(layers))
            limit = DEEP_LIMIT if layers >= DEEP else LIMIT
            cell, is_kept = judged(sum(cold) / sum(xla), limit)
            each = sum(warm) / size * 1e6
            cells = f"{size:,}", _seconds(cold), cell, f"{limit}", f"{sum(warm) / sum(xla):.2f}", f"{each:.1f}"
            table.add_row(name, str(layers), *cells)
            kept.append(is_kept)
        table.add_section()
    finish(table, kept)


def _seconds(pair: Pair) -> str:
    """Of propagating and of partitioning."""
    return f"{pair[0]:.2f} + {pair[1]:.2f}"


if __name__ == "__main__":
    if sys.argv[1:2] == [ALONE]:
        devices.choose_platform()
        jax.devices()  # whoever traced a program has started JAX's devices before
        print(*seconds_of(Graph.read(sys.argv[3])))
    else:
        main(tuple(map(int, sys.argv[1:])) or DEPTHS)
