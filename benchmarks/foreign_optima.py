"""Programs of foreign libraries without annotations: what `hs.find_optimum` makes of them, beside their own.

`python -m benchmarks.foreign_optima [NAME ...]`: a name is any part of a program's or its library's.  Nothing was tuned
on them.  Both programs are ours, on the same mesh of eight H100s, simulated alike; what was found is run on eight CPU
devices and compared with one device.  Seconds are CPU seconds of the answer.  Needs the extra `foreign`
(`benchmarks.foreign`); what is not installed is left out.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from rich.table import Table

from benchmarks.foreign_programs import Program
from benchmarks.foreign_programs.parts import distance_from_one_device
from benchmarks.verdict import finish, judged
from benchmarks.workers import foreign_rows

TIME_LIMIT = 1.0


def measured(program: Program) -> dict[str, Any]:
    """All that is known of one program."""
    import hlosharding as hs
    from benchmarks.zoo_optima import unannotated_module
    from examples import devices

    devices.choose_platform()
    machine, axes = hs.machines.h100(8), dict(program.axes)
    own = program.build(program.mesh(8))
    partitioned = hs.jit(own.function).trace(*own.arguments).propagate().partition().partitioned
    step = program.build(program.mesh(1))
    module, start = unannotated_module(step.function, step.arguments), time.process_time()
    best = hs.find_optimum(module, machine, axes)
    row: dict[str, Any] = {"CPU s": time.process_time() - start, "gap": best.gap, "found": best.time_s}
    row |= {"own": hs.simulate(partitioned.module, machine).time_s, "tolerance": program.tolerance}
    return row | {"off": distance_from_one_device(best.partitioned.run(*step.arguments), step)}


def main() -> None:
    """Measure each in a process of its own; fail where its own annotations are faster, or numbers are others."""
    table, kept = Table("program", "time of its own annotations'", "us", "gap", "CPU s", "right"), list[bool]()
    ratios = list[float]()
    for program, row in foreign_rows(
        "foreign_optima", "What is found of foreign programs, beside their own annotations.", measured
    ):
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
