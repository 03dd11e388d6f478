"""From trace to executable, ours against `jax.jit` of the same annotated program, without caches, and where it goes.

`python -m benchmarks.compile_time [NAME ...]`: a name is any part of a model's of the zoo, or of "GPT-2".  Each model
is measured in a process of its own, both programs in turns; seconds are the process's own, the least of the turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import jax
from rich.table import Table

import hlosharding as hs
from benchmarks import cases
from benchmarks.verdict import finish, judged
from benchmarks.workers import ask, tell
from benchmarks.zoo import MODELS
from examples import devices

GPT2, LAYERS = "GPT-2, 24 layers", 24
TURNS, SECONDS_A_MODEL = 3, 900
MEDIAN_LIMIT, LIMIT = 1.0, 1.2
Seconds = dict[str, float]


def case_of(name: str) -> cases.Case:
    """A model of the zoo at its smallest sizes, or the example."""
    if name == GPT2:
        return cases.gpt2_case(layers=LAYERS)
    [model] = [m for m in MODELS if m.name == name]
    mesh = model.mesh()
    program = model.build(mesh, 1)
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.arguments)
    return cases.Case(name=name, function=program.function, arguments=arguments, mesh=mesh, options=program.options)


def timed(steps: Iterator[str]) -> Seconds:
    """Of each step, with JAX's caches empty; a step is what happens before its name is given."""
    jax.clear_caches()
    found: Seconds = {}
    start = time.process_time()
    for name in steps:
        now = time.process_time()
        found[name], start = now - start, now
    return found


def our_steps(case: cases.Case) -> Iterator[str]:
    traced = hs.jit(case.function, mesh=case.mesh, **case.options).trace(*case.arguments)
    yield "trace"
    _ = traced.module
    yield "read"
    partitioned = traced.lower()
    yield "passes"
    partitioned.as_python()
    yield "source"
    partitioned.compile()
    yield "JAX and XLA"


def their_steps(case: cases.Case) -> Iterator[str]:
    lowered = jax.jit(case.function, **case.options).lower(*case.arguments)
    yield "trace"
    lowered.compile()
    yield "JAX and XLA"


def measured(name: str) -> dict[str, Any]:
    """The least seconds of both; the first turn, which imports, is not counted."""
    devices.choose_platform()
    jax.config.update("jax_enable_compilation_cache", False)
    case = case_of(name)
    both: tuple[Callable[[cases.Case], Iterator[str]], ...] = our_steps, their_steps
    turns = [[timed(steps(case)) for steps in both] for _ in range(TURNS)][1:]
    ours, live = (min(runs, key=lambda run: sum(run.values())) for runs in zip(*turns, strict=True))
    return {"name": name, "ours": ours, "live": live}


def main(parts: list[str]) -> None:
    """Print the table; fail where a limit is missed."""
    names = [n for n in (GPT2, *(m.name for m in MODELS)) if not parts or any(part in n for part in parts)]
    steps = "trace", "read", "passes", "source", "JAX and XLA"
    table = Table("model", *steps, "ours", "jax.jit", "ratio", title="From trace to executable, seconds of the process")
    ratios: list[float] = []
    kept: list[bool] = []
    for name in names:  # one after the other, for they are timed
        row = ask("compile_time", name, (), SECONDS_A_MODEL)
        if "failed" in row:
            table.add_row(name, row["failed"])
            kept.append(False)
            continue
        ours, live = sum(row["ours"].values()), sum(row["live"].values())
        ratios.append(ours / live)
        text, good = judged(ratios[-1], LIMIT)
        kept.append(good)
        table.add_row(name, *(f"{row['ours'][step]:.2f}" for step in steps), f"{ours:.2f}", f"{live:.2f}", text)
    if ratios:
        text, good = judged(median(ratios), MEDIAN_LIMIT)
        table.add_section()
        table.add_row("median", *[""] * (len(steps) + 2), text)
        kept.append(good)
    finish(table, kept)


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--worker" in words:
        tell(measured(words[0]))
    else:
        main(words)
