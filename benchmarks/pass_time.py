"""How long do propagation and partitioning take on GPT-2 training steps, against XLA's two passes, and is it linear?

`cold` is the first run of a fresh process, `warm` one of many; each is the smallest of as many runs as XLA's.  The
limit holds for the sum of both passes, warm.
"""

from __future__ import annotations

import gc
import sys
import time

from rich.table import Table

import hlosharding as hs
from benchmarks import cases
from benchmarks.graphs import ALONE, Graph, alone, saved, xla_seconds
from benchmarks.verdict import finish, judged
from examples import devices

DEPTHS, REPEATS = (24, 48, 96, 144), 3
LIMIT, GROWTH_LIMIT = 1.0, 1.5
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


def measure(layers: int) -> tuple[int, Pair, Pair, Pair]:
    """(instructions, seconds of both passes cold, warm, of XLA), the three taking turns."""
    case = cases.gpt2_case(layers=layers)
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
        *("layers", "size", "pass", "XLA's", "cold", "cold / XLA's", "warm", "warm / XLA's", "µs each", "growth"),
        title="Seconds of the two passes on the GPT-2 training step; microseconds an instruction",
    )
    kept: list[bool] = []
    smallest: float | None = None
    for layers in depths:
        size, cold, warm, xla = measure(layers)
        for n, name in enumerate(("propagate", "partition")):
            table.add_row(
                str(layers), f"{size:,}", name, *_cells(cold[n], warm[n], xla[n]), f"{warm[n] / size * 1e6:.1f}"
            )
        each = sum(warm) / size
        smallest = smallest or each
        both, growth = judged(sum(warm) / sum(xla), LIMIT), judged(each / smallest, GROWTH_LIMIT)
        cells = [*_cells(sum(cold), sum(warm), sum(xla))[:-1], both[0]]
        table.add_row(str(layers), f"{size:,}", "both", *cells, f"{each * 1e6:.1f}", growth[0])
        table.add_section()
        kept += [both[1], growth[1]]
    finish(table, kept)


def _cells(cold: float, warm: float, xla: float) -> tuple[str, ...]:
    return f"{xla:.3f}", f"{cold:.3f}", f"{cold / xla:.2f}", f"{warm:.3f}", f"{warm / xla:.2f}"


if __name__ == "__main__":
    if sys.argv[1:2] == [ALONE]:
        devices.choose_platform()
        print(*seconds_of(Graph.read(sys.argv[3])))
    else:
        main(tuple(map(int, sys.argv[1:])) or DEPTHS)
