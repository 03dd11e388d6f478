"""The walk that every example takes: trace, propagate, partition, show, write the program, compare with live XLA."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from rich.console import Console

import hlosharding as hs
from benchmarks import live_xla
from examples import tables
from examples.progress import doing
from hlosharding.report import collectives_view, comparison_view, parameters_view, show, warnings_view

OUT = Path("out")
STEPS = 20
# A training step's sums are long: DESIGN's bound for f32.
AGREE = 1e-4


def wide_console() -> Console:
    """As wide as the terminal, and wide enough for the tables where the output is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 160)


def show_program(
    console: Console,
    name: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    mesh: Mesh,
    *,
    why: str,
    **options: Any,
) -> None:
    """Print what propagation found and what partitioning makes of it; write the generated program to out/.

    `why` is the parameter whose sharding is explained.
    """
    with doing("trace and propagate"):
        stage = hs.jit(function, mesh=mesh, **options).trace(*arguments).propagate()
    with doing("partition"):
        propagated, partitioned = stage.propagation, stage.partition().partitioned
    show_wide = partial(show, width=console.width)
    show_wide(parameters_view(propagated, mesh), tables.activations(propagated, mesh))
    asked = next(p.name for p in propagated.module.entry.parameters if p.op_name == why)
    console.print(f"Why is {why} split as it is?\n{propagated.explain(asked)}\n", markup=False, highlight=False)
    show_wide(collectives_view(partitioned), warnings_view(partitioned))
    OUT.mkdir(exist_ok=True)
    program = OUT / f"{name}.py"
    program.write_text(partitioned.as_python())
    console.print(f"The generated program: [bold]{program}[/bold] ({len(program.read_text().splitlines()):,} lines)\n")
    if mesh.size > 1:
        with doing("compile XLA's own program, to compare with"):
            live = live_xla.modules(live_xla.lower(function, arguments, **options)).partitioned
            xla = hs.load(live, format="hlo-proto")
        names = ("hlosharding", "live XLA")
        show_wide(comparison_view(hs.cost(partitioned.module), hs.cost(xla), names=names))


def _followed(losses: Iterable[float], what: str) -> list[float]:
    """The first losses, as they come."""
    found: list[float] = []
    with doing(what, STEPS) as advance:
        for loss in islice(losses, STEPS):
            found.append(loss)
            advance()
    return found


def show_losses(console: Console, many: Iterable[float], one: Iterable[float], mesh: Mesh) -> None:
    """Run both trainings, print the losses, and fail where they do not agree."""
    sharded = _followed(many, f"compile, and train on {mesh.size} devices")
    single = _followed(one, "compile, and train on one")
    show(tables.losses(sharded, single, mesh.size), width=console.width)
    apart = max(abs(a - b) for a, b in zip(sharded, single, strict=True)) / max(map(abs, single))
    console.print(f"Largest difference: {apart:.1e} of the largest loss")
    if apart > AGREE:
        raise SystemExit(f"the losses differ by more than {AGREE}")
