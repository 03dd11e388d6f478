"""How long does propagation take on GPT-2 training steps of growing depth, against XLA's pass, and is it linear?

`cold` is the first run of a fresh process, once hlosharding is imported and the module read: nothing is remembered of
anything.  `warm` runs follow one another in one process.  Each is the smallest of as many runs as XLA's, and the limit
holds for both.  Memory is what Python allocates at the peak of a run beyond the module, in a process of its own, since
tracing makes a run slow.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jax
from rich.table import Table

import hlosharding as hs
from benchmarks import cases, live_xla
from benchmarks.verdict import finish, judged
from examples import devices

DEPTHS, REPEATS = (12, 24, 48, 96), 5
LIMIT, BYTES_LIMIT = 1.0, 1024.0
GROWTH_LIMIT = 1.5
"""Of the time an instruction, against that of the smallest graph.  Linear would be 1; larger graphs fit caches less."""
COLD, MEMORY = "--cold", "--memory"
propagate = hs.propagate  # imports the room


@dataclass(frozen=True, slots=True)
class Graph:
    """A training step as it is propagated, and which parameters and outputs are free."""

    module: hs.Module
    parameters: list[bool]
    outputs: list[bool]

    def save(self, folder: Path) -> None:
        """For a process of its own."""
        (folder / "module.pb").write_bytes(self.module.to_hlo_proto())
        (folder / "free.json").write_text(json.dumps([self.parameters, self.outputs]))

    @classmethod
    def read(cls, folder: Path) -> Graph:
        """What `save` left."""
        free = json.loads((folder / "free.json").read_text())
        return cls(hs.load((folder / "module.pb").read_bytes(), format="hlo-proto"), *free)

    def propagate(self) -> float:
        """Seconds of one run."""
        gc.collect()
        start = time.perf_counter()
        propagate(self.module, to_parameters=self.parameters, to_outputs=self.outputs)
        return time.perf_counter() - start

    def bytes_per_instruction(self) -> float:
        """Peak memory of a run beyond what was there before: of the second run, since a process holds rules and tables
        once, whatever it propagates."""
        self.propagate()
        gc.collect()
        tracemalloc.start()
        self.propagate()
        return tracemalloc.get_traced_memory()[1] / len(self.module.instructions)


def xla_seconds(case: cases.Case) -> float:
    """One run of XLA's pass, on the program lowered and compiled anew."""
    jax.clear_caches()
    return live_xla.pass_seconds_only(case.lowered())[live_xla.PROPAGATION]


@contextmanager
def saved(graph: Graph) -> Iterator[Path]:
    """The folder of a saved graph."""
    with tempfile.TemporaryDirectory(prefix="propagation_") as folder:
        graph.save(Path(folder))
        yield Path(folder)


def alone(what: str, folder: Path) -> float:
    """A figure of the graph saved there, found out by a process of its own."""
    command = [sys.executable, "-m", "benchmarks.propagation_time", what, str(folder)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(layers: int) -> tuple[int, float, float, float, float]:
    """(instructions, seconds cold, warm, of XLA, bytes an instruction).

    The three take turns, so that what else the machine does meets all of them.
    """
    case = cases.gpt2_case(layers=layers)
    graph = Graph(hs.load(case.lowered(), prepare=True), case.free_parameters, case.free_outputs)
    graph.propagate()
    with saved(graph) as folder:
        runs = [(alone(COLD, folder), graph.propagate(), xla_seconds(case)) for _ in range(REPEATS)]
        cold, warm, xla = map(min, zip(*runs, strict=True))
        return len(graph.module.instructions), cold, warm, xla, alone(MEMORY, folder)


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
    if sys.argv[1:2] == [COLD]:
        print(Graph.read(Path(sys.argv[2])).propagate())
    elif sys.argv[1:2] == [MEMORY]:
        print(Graph.read(Path(sys.argv[2])).bytes_per_instruction())
    else:
        main(tuple(map(int, sys.argv[1:])) or DEPTHS)
