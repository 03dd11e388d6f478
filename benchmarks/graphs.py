"""The GPT-2 training step at some depth, for benchmarks that time passes: here, and in a fresh process.

A fresh process reads the saved module; importing and reading are not timed, and nothing is remembered of anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jax

import hlosharding as hs
from benchmarks import cases, live_xla

ALONE = "--alone"


@dataclass(frozen=True, slots=True)
class Graph:
    """A module as it is propagated, and which parameters and outputs are free."""

    module: hs.Module
    parameters: list[bool]
    outputs: list[bool]

    @classmethod
    def of(cls, case: cases.Case) -> Graph:
        """The case's program, prepared as XLA prepares it."""
        return cls(hs.load(case.lowered(), prepare=True), case.free_parameters, case.free_outputs)

    @classmethod
    def read(cls, folder: str) -> Graph:
        """What `saved` left there."""
        free = json.loads((Path(folder) / "free.json").read_text())
        return cls(hs.load((Path(folder) / "module.pb").read_bytes(), format="hlo-proto"), *free)

    def propagate(self) -> hs.Propagation:
        """The first pass."""
        return hs.propagate(self.module, to_parameters=self.parameters, to_outputs=self.outputs)


@contextmanager
def saved(graph: Graph) -> Iterator[str]:
    """The folder of a saved graph."""
    with tempfile.TemporaryDirectory(prefix="passes_") as folder:
        (Path(folder) / "module.pb").write_bytes(graph.module.to_hlo_proto())
        (Path(folder) / "free.json").write_text(json.dumps([graph.parameters, graph.outputs]))
        yield folder


def alone(benchmark: str, what: str, folder: str) -> tuple[float, ...]:
    """The figures that `python -m BENCHMARK --alone WHAT FOLDER` prints."""
    command = [sys.executable, "-m", benchmark, ALONE, what, folder]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return tuple(map(float, printed.split()))


def xla_seconds(case: cases.Case) -> tuple[float, float]:
    """XLA's propagation and partitioning, on the program lowered and compiled anew."""
    jax.clear_caches()
    seconds = live_xla.pass_seconds_only(case.lowered())
    return seconds[live_xla.PROPAGATION], seconds[live_xla.PARTITIONING]
