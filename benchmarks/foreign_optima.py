"""Programs of foreign libraries without annotations: what `hs.find_optimum` makes of them, beside their own.

`python -m benchmarks.foreign_optima [NAME ...]`: a name is any part of a program's or its library's.  Nothing was tuned
on them.  Both programs are ours, on the same mesh of eight H100s, simulated alike; what was found is run on eight CPU
devices and compared with one device.  Seconds are CPU seconds of the answer.  Needs the extra `foreign`
(`benchmarks.foreign`); what is not installed is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from rich.table import Table

from benchmarks.foreign_programs import PROGRAMS, Program, programs_named
from benchmarks.foreign_programs.parts import distance_from_one_device
from benchmarks.verdict import finish, judged
from benchmarks.workers import ask, tell

TIME_LIMIT, SECONDS_A_PROGRAM = 1.0, 1200


def measured(program: Program) -> dict[str, Any]:
    """All that is known of one program."""
    import hlosharding as hs
    from benchmarks.zoo_optima import unannotated_module
    from examples import devices

    devices.choose_platform()
    machine, axes = hs.machines.h100(8), dict(program.axes)
    own = program.build(mesh_of(program, 8))
    partitioned = hs.jit(own.function).trace(*own.arguments).propagate().partition().partitioned
    step = program.build(mesh_of(program, 1))
    module, start = unannotated_module(step.function, step.arguments), time.process_time()
    best = hs.find_optimum(module, machine, axes)
    row: dict[str, Any] = {"CPU s": time.process_time() - start, "gap": best.gap, "found": best.time_s}
    row |= {"own": hs.simulate(partitioned.module, machine).time_s, "tolerance": program.tolerance}
    return row | {"off": distance_from_one_device(best.partitioned.run(*step.arguments), step)}


def mesh_of(program: Program, devices: int) -> Any:
    """Its axes over so many devices: eight, or one."""
    import jax
    import numpy as np
    from jax.sharding import Mesh

    names, sizes = zip(*program.axes, strict=True)
    return Mesh(np.array(jax.devices()[:devices]).reshape(sizes if devices > 1 else [1] * len(sizes)), names)


def main() -> None:
    """Measure each in a process of its own; fail where its own annotations are faster, or numbers are others."""
    parser = argparse.ArgumentParser(description="What is found of foreign programs, beside their own annotations.")
    parser.add_argument("names", nargs="*", help="parts of names; all programs without any")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        tell(measured(next(program for program in PROGRAMS if program.name == options.names[0])))
        return
    table, kept = Table("program", "time of its own annotations'", "us", "gap", "CPU s", "right"), list[bool]()
    ratios = list[float]()
    for program in programs_named(options.names):
        row = ask("foreign_optima", program.name, [], SECONDS_A_PROGRAM)
        if "failed" in row:
            table.add_row(program.name, row["failed"], *[""] * 4)
            kept.append(False)
            continue
        ratios.append(row["found"] / row["own"])
        text, is_kept = judged(ratios[-1], TIME_LIMIT)
        is_right = row["off"] <= row["tolerance"]
        times = f"{row['own'] * 1e6:.0f} -> {row['found'] * 1e6:.0f}"
        right = "yes" if is_right else f"off by {row['off']:.2g}"
        table.add_row(program.name, text, times, f"{row['gap']:.1%}", f"{row['CPU s']:.1f}", right)
        kept += [is_kept, is_right]
    table.add_row("median", f"{statistics.median(ratios):.3f}" if ratios else "", *[""] * 4)
    finish(table, kept)


if __name__ == "__main__":
    main()
