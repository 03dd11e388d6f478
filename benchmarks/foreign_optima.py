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
from importlib.metadata import PackageNotFoundError
from typing import Any

from rich.table import Table

from benchmarks.foreign_programs import PROGRAMS, Program
from benchmarks.verdict import finish, judged
from benchmarks.workers import ask, tell

TIME_LIMIT, SECONDS_A_PROGRAM = 1.0, 1200
_LEAST = 1e-4
"""Numbers are compared with the largest of their array, and no less: gradients that cancel are roundings of such."""


def measured(program: Program) -> dict[str, Any]:
    """All that is known of one program."""
    import hlosharding as hs
    from benchmarks.zoo_optima import unannotated_module
    from examples import devices

    devices.choose_platform()
    machine, axes = hs.machines.h100(8), dict(program.axes)
    own = program.build(_mesh(program, 8))
    partitioned = hs.jit(own.function).trace(*own.arguments).propagate().partition().partitioned
    step = program.build(_mesh(program, 1))
    module, start = unannotated_module(step.function, step.arguments), time.process_time()
    best = hs.find_optimum(module, machine, axes)
    row: dict[str, Any] = {"CPU s": time.process_time() - start, "gap": best.gap, "found": best.time_s}
    row |= {"own": hs.simulate(partitioned.module, machine).time_s, "tolerance": program.tolerance}
    return row | {"off": _distance(best.partitioned.run(*step.arguments), step)}


def _mesh(program: Program, devices: int) -> Any:
    import jax
    import numpy as np
    from jax.sharding import Mesh

    names, sizes = zip(*program.axes, strict=True)
    return Mesh(np.array(jax.devices()[:devices]).reshape(sizes if devices > 1 else [1] * len(sizes)), names)


def _distance(found: Any, step: Any) -> float:
    """From what one device makes: the largest of all arrays; whole numbers differ by as much as they do."""
    import jax

    wanted = jax.jit(step.function)(*step.arguments)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return max((_difference(*map(_numbers, pair)) for pair in pairs), default=0.0)


def _numbers(leaf: Any) -> Any:
    import numpy as np

    from hlosharding.frontends import as_numbers

    return np.asarray(as_numbers(leaf), np.complex128)


def _difference(found: Any, wanted: Any) -> float:
    if not wanted.size:
        return 0.0
    return float(abs(found - wanted).max() / max(abs(wanted).max(), _LEAST))


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
    for program in filter(_is_installed, PROGRAMS):
        if options.names and not any(part in f"{program.name} {program.package}" for part in options.names):
            continue
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


def _is_installed(program: Program) -> bool:
    try:
        return bool(program.library)
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    main()
