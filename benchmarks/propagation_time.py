"""How long does propagation take on GPT-2 training steps of growing depth, against XLA's pass, and is it linear?

`first` is the first run on a graph, with nothing remembered of it; `best` the smallest of five.  The limit holds for
`best`, as XLA's time is the best of three.  Memory is what Python allocates at the peak of a run beyond the module,
measured in a process of its own: tracing makes a run slow.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import tracemalloc
from dataclasses import dataclass

import jax
from rich.table import Table

import hlosharding as hs
from benchmarks import cases, live_xla
from benchmarks.verdict import finish, judged
from examples import devices

DEPTHS, REPEATS, XLA_REPEATS = (12, 24, 48, 96), 5, 3
LIMIT, BYTES_LIMIT = 1.0, 1024.0
MEMORY = "--memory"


@dataclass(frozen=True, slots=True)
class Graph:
    """A training step as both propagate it."""

    case: cases.Case
    module: hs.Module

    @classmethod
    def of(cls, layers: int) -> Graph:
        """The GPT-2 training step of that depth."""
        case = cases.gpt2_case(layers=layers)
        return cls(case, hs.load(case.lowered(), prepare=True))

    def propagate(self) -> float:
        """Seconds of one run of ours."""
        parameters, outputs = self.case.free_parameters, self.case.free_outputs
        gc.collect()
        start = time.perf_counter()
        hs.propagate(self.module, to_parameters=parameters, to_outputs=outputs)
        return time.perf_counter() - start

    def xla(self) -> float:
        """Seconds of one run of XLA's pass, on the program lowered and compiled anew."""
        jax.clear_caches()
        return live_xla.pass_seconds_only(self.case.lowered())[live_xla.PROPAGATION]


def bytes_per_instruction(layers: int) -> float:
    """Peak memory of a run beyond what was there before, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.propagation_time", MEMORY, str(layers)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _print_memory(layers: int) -> None:
    graph = Graph.of(layers)
    graph.propagate()  # what a process holds once, whatever it propagates: rules, tables
    gc.collect()
    tracemalloc.start()
    graph.propagate()
    print(tracemalloc.get_traced_memory()[1] / len(graph.module.instructions))


def main(depths: tuple[int, ...] = DEPTHS) -> None:
    """Print the table; fail where a limit is missed."""
    devices.choose_platform()
    table = Table(
        *("layers", "instructions", "first", "best", "µs an instruction", "XLA's best", "best / XLA's"),
        "bytes / instruction",
        title="Seconds of propagation on the GPT-2 training step",
    )
    kept: list[bool] = []
    for layers in depths:
        graph = Graph.of(layers)
        ours = [graph.propagate() for _ in range(REPEATS)]
        xla = min(graph.xla() for _ in range(XLA_REPEATS))
        best, size = min(ours), len(graph.module.instructions)
        ratio, fast = judged(best / xla, LIMIT)
        memory, small = judged(bytes_per_instruction(layers), BYTES_LIMIT)
        times = f"{ours[0]:.3f}", f"{best:.3f}", f"{best / size * 1e6:.1f}", f"{xla:.3f}"
        table.add_row(str(layers), f"{size:,}", *times, ratio, memory)
        kept += [fast, small]
    finish(table, kept)


if __name__ == "__main__":
    if sys.argv[1:2] == [MEMORY]:
        devices.choose_platform()
        _print_memory(int(sys.argv[2]))
    else:
        main(tuple(map(int, sys.argv[1:])) or DEPTHS)
