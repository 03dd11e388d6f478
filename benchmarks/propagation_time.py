"""How long does propagation take on GPT-2 training steps of growing depth, against XLA's pass, and is it linear?

`cold` is the first run of a fresh process, `warm` one of many; each is the smallest of as many runs as XLA's, and the
limit holds for both.  Memory is what Python allocates at the peak of a run beyond the module, in a process of its own,
since tracing makes a run slow.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc

from rich.table import Table

import hlosharding as hs
from benchmarks import cases
from benchmarks.graphs import ALONE, Graph, alone, saved, xla_seconds
from benchmarks.verdict import finish, judged
from examples import devices

DEPTHS, REPEATS = (12, 24, 48, 96), 5
LIMIT, BYTES_LIMIT = 1.0, 1024.0
GROWTH_LIMIT = 1.5
"""Of the time an instruction, against that of the smallest graph.  Linear would be 1; larger graphs fit caches less."""
SECONDS, BYTES = "seconds", "bytes"
ROOM = hs.propagate
"""Named so that its room is imported before anything is timed."""


def seconds_of(graph: Graph) -> float:
    """Of one run."""
    gc.collect()
    start = time.perf_counter()
    graph.propagate()
    return time.perf_counter() - start


def bytes_per_instruction(graph: Graph) -> float:
    """Peak memory of the second run: a process holds rules and tables once, whatever it propagates."""
    graph.propagate()
    gc.collect()
    tracemalloc.start()
    graph.propagate()
    return tracemalloc.get_traced_memory()[1] / len(graph.module.instructions)


def measure(layers: int) -> tuple[int, float, float, float, float]:
    """(instructions, seconds cold, warm, of XLA, bytes an instruction).

    The three take turns, so that what else the machine does meets all of them.
    """
    case = cases.gpt2_case(layers=layers)
    graph = Graph.of(case)
    graph.propagate()
    with saved(graph) as folder:
        runs = [(_alone(SECONDS, folder), seconds_of(graph), xla_seconds(case)[0]) for _ in range(REPEATS)]
        cold, warm, xla = map(min, zip(*runs, strict=True))
        return len(graph.module.instructions), cold, warm, xla, _alone(BYTES, folder)


def _alone(what: str, folder: str) -> float:
    return alone("benchmarks.propagation_time", what, folder)[0]


def main(depths: tuple[int, ...] = DEPTHS) -> None:
    """Print the table; fail where a limit is missed."""
    devices.choose_platform()
    table = Table(
        *("layers", "size", "XLA's", "cold", "cold / XLA's", "warm", "warm / XLA's", "µs each", "growth", "bytes each"),
        title="Seconds of propagation on the GPT-2 training step; microseconds and bytes an instruction",
    )
    kept: list[bool] = []
    smallest: float | None = None
    for layers in depths:
        size, cold, warm, xla, memory = measure(layers)
        each = warm / size
        smallest = smallest or each
        first, best = judged(cold / xla, LIMIT), judged(warm / xla, LIMIT)
        growth, held = judged(each / smallest, GROWTH_LIMIT), judged(memory, BYTES_LIMIT)
        seconds = f"{xla:.3f}", f"{cold:.3f}", first[0], f"{warm:.3f}", best[0]
        table.add_row(str(layers), f"{size:,}", *seconds, f"{each * 1e6:.1f}", growth[0], held[0])
        kept += [good for _, good in (first, best, growth, held)]
    finish(table, kept)


if __name__ == "__main__":
    if sys.argv[1:2] == [ALONE]:
        figure = {SECONDS: seconds_of, BYTES: bytes_per_instruction}[sys.argv[2]]
        print(figure(Graph.read(sys.argv[3])))
    else:
        main(tuple(map(int, sys.argv[1:])) or DEPTHS)
