"""Every model of the zoo without its annotations: what `hs.find_optimum` makes of it, beside its hand-written plan.

`python -m benchmarks.zoo_optima [NAME ...] [--scale N] [--jobs N]`; a name is any part of a model's.  Both programs are
ours, on the same mesh of eight H100s, simulated alike; seconds are CPU seconds of the answer.  At the smallest sizes
what was found is run on eight CPU devices and compared with one device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.verdict import judged
from benchmarks.workers import tell, zoo_arguments, zoo_rows

TIME_LIMIT, MEDIAN_LIMIT = 1.0, 0.85
SECONDS_A_MODEL = 1200
STEPS = 24
"""Changes of single arguments that are tried at the end."""
Row = dict[str, Any]


def measured(name: str, scale: int) -> Row:
    """All that is known of one model."""
    import hlosharding as hs
    from benchmarks.zoo import MODELS
    from examples import devices

    devices.choose_platform()
    [model] = [m for m in MODELS if m.name == name]
    machine = hs.machines.h100(8)
    by_hand = written_by_hand(model, scale)
    module, start = unannotated(model, scale), time.process_time()
    best = hs.find_optimum(module, machine, dict(model.axes)).improved(STEPS)
    row: Row = {"name": name, "CPU s": time.process_time() - start, "gap": best.gap}
    row |= {"hand": hs.simulate(by_hand.module, machine).time_s, "found": best.time_s}
    row |= {"hand MB": by_hand.peak_memory_bytes / 1e6, "found MB": best.simulation.peak_memory_bytes / 1e6}
    return row | {"off": _distance(model)}


def _shapes(arguments: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(jnp.shape(a), jnp.result_type(a)), arguments)


def written_by_hand(model: Any, scale: int) -> Any:
    """The program that its annotations make of it."""
    import hlosharding as hs

    mesh = model.mesh()
    program = model.build(mesh, scale)
    given = hs.jit(program.function, mesh=mesh, **program.options).trace(*_shapes(program.arguments))
    return given.propagate().partition().partitioned


def unannotated(model: Any, scale: int) -> Any:
    """The program as one device runs it, without its constraints."""
    program = model.build(model.mesh(alone=True), scale)
    return unannotated_module(program.function, program.arguments)


def unannotated_module(function: Any, arguments: Any) -> Any:
    """A function, traced, without its constraints."""
    import hlosharding as hs
    from hlosharding.schedule import without_layout_calls

    module = without_layout_calls(hs.trace(function)(*_shapes(arguments)))
    module.shardings, module.mesh, module.num_partitions = {}, None, 1
    return module


def _distance(model: Any) -> float:
    """How far what eight devices compute is from what one does, over what may be."""
    import jax

    import hlosharding as hs
    from benchmarks.zoo_against_xla import distance

    program = model.build(model.mesh(alone=True), 1)
    best = hs.find_optimum(unannotated(model, 1), hs.machines.h100(8), dict(model.axes))
    found = jax.tree.leaves(best.partitioned.run(*jax.tree.leaves(program.arguments)))
    wanted = jax.tree.leaves(jax.jit(program.function)(*program.arguments))
    worst = max(map(distance, found, wanted))
    return worst / (1e-4 if model.is_long else 1e-5)


def report(options: argparse.Namespace) -> int:
    """Run the workers and print; 1 where a limit is missed."""
    rows = zoo_rows("zoo_optima", options, SECONDS_A_MODEL)
    table = Table("model", "time of the hand-written plan's", "us", "MB", "gap", "CPU s", "right")
    kept = list[bool]()
    for row in rows:
        if "failed" in row:
            table.add_row(row["name"], row["failed"], *[""] * 5)
            kept.append(False)
            continue
        text, is_kept = judged(row["found"] / row["hand"], TIME_LIMIT)
        times = f"{row['hand'] * 1e6:.0f} -> {row['found'] * 1e6:.0f}"
        memory = f"{row['hand MB']:.1f} -> {row['found MB']:.1f}"
        right = "yes" if row["off"] <= 1 else f"off by {row['off']:.2g} of what may be"
        table.add_row(row["name"], text, times, memory, f"{row['gap']:.1%}", f"{row['CPU s']:.1f}", right)
        kept += [is_kept, row["off"] <= 1]
    ratios = [row["found"] / row["hand"] for row in rows if "failed" not in row]
    median, is_kept = judged(statistics.median(ratios) if ratios else float("inf"), MEDIAN_LIMIT)
    table.add_row("median", median, *[""] * 5)
    Console(width=max(140, Console().width)).print(table)
    return int(not all([*kept, is_kept]))


def main() -> None:
    """Measure in workers, print the table."""
    options = zoo_arguments("What is found of the zoo, beside plans written by hand.").parse_args()
    if options.worker:
        tell(measured(options.names[0], options.scale))
    else:
        sys.exit(report(options))


if __name__ == "__main__":
    main()
