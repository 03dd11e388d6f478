"""Every model of the zoo: bytes, FLOPs, peak memory and priced time against live XLA, and is the result right?

`python -m benchmarks.zoo_against_xla [NAME ...] [--scale N] [--jobs N]`; a name is any part of a model's.  Each model
is measured in a process of its own, so that an abort costs one row.  Figures are of abstract arguments at `--scale`;
results are compared at the smallest sizes, on eight devices against one.  XLA runs with GSPMD and with Shardy; both are
counted as `ideal.py` says, and ratios are to the one that moves fewer bytes, then has less time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.workers import tell, zoo_arguments, zoo_rows

LIMITS = {"bytes": 1.0, "flops": 1.05, "peak": 1.1, "time": 1.0}
TOTAL_LIMIT = 0.55
SECONDS_A_MODEL = 900
QUANTITIES = ("bytes", "flops", "peak", "time")
OTHERS = ("GSPMD", "Shardy")
Row = dict[str, Any]


def main() -> None:
    """Measure in workers, print the table."""
    options = zoo_arguments("The zoo against live XLA.").parse_args()
    if options.worker:
        tell(measured(options.names[0], options.scale))
    else:
        sys.exit(report(options))


# The worker: one model, one line of JSON


def measured(name: str, scale: int) -> Row:
    """All that is known of one model; what fails is said in its place."""
    from benchmarks.zoo import MODELS
    from examples import devices

    devices.choose_platform()
    [model] = [m for m in MODELS if m.name == name]
    row: Row = {"name": name}
    for part in (figures, verdict):
        try:
            row |= part(model, scale)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
            row[part.__name__] = f"{type(error).__name__}: {str(error)[:300]}"
    return row


def figures(model: Any, scale: int) -> Row:
    """Ours and live XLA's, with each of its two propagations, under one set of formulas."""
    import jax

    import hlosharding as hs
    from benchmarks import cases, live_xla
    from benchmarks.ideal import ideal_bytes

    mesh = model.mesh()
    program = model.build(mesh, scale)
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.arguments)
    case = cases.Case(
        name=model.name, function=program.function, arguments=arguments, mesh=mesh, options=program.options
    )
    start = time.perf_counter()
    ours = case.traced().propagate().partition().partitioned
    row: Row = {"seconds": time.perf_counter() - start, "warnings": list(ours.warnings), "ours": of(ours.module)}
    for who in OTHERS:
        dump = live_xla.partitioned_by(case.function, arguments, shardy=who == "Shardy", **case.options)
        live = hs.load(dump, format="hlo-proto")
        found = of(live)
        row[who] = found | {"raw": found["bytes"], "bytes": ideal_bytes(live)}
    return row


def of(module: Any) -> dict[str, float]:
    """The quantities of one per-device program."""
    import hlosharding as hs

    report = hs.cost(module)
    return {
        "bytes": report.comm_bytes,
        "flops": report.flops,
        "peak": report.peak_memory_bytes,
        "time": hs.simulate(module, hs.machines.h100(8)).time_s,
    }


def verdict(model: Any, _: int) -> Row:
    """How far the result on eight devices is from one device's, and how far it may be."""
    import jax

    import hlosharding as hs

    mesh, alone = model.mesh(), model.mesh(alone=True)
    program, twin = model.build(mesh, 1), model.build(alone, 1)
    found = hs.jit(program.function, mesh=mesh, **program.options)(*program.arguments)
    wanted = jax.jit(twin.function, **twin.options)(*twin.arguments)
    worst = max(map(distance, jax.tree.leaves(found), jax.tree.leaves(wanted)))
    return {"off": worst, "right": worst <= (1e-4 if model.is_long else 1e-5)}


def distance(found: Any, wanted: Any) -> float:
    """The largest difference relative to the largest magnitude; integers are right or infinitely wrong."""
    import numpy as np

    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind in "iub":
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    if not np.array_equal(np.isfinite(found), np.isfinite(wanted)):
        return float("inf")
    magnitude = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(found - wanted).max(initial=0.0)) / magnitude


# The parent


def report(options: argparse.Namespace) -> int:
    """Run the workers and print; 1 where a limit is missed."""
    rows = zoo_rows("zoo_against_xla", options, SECONDS_A_MODEL)
    console = Console(width=max(170, Console().width))
    table, kept = tabulated(rows)
    console.print(table)
    for row in rows:
        failures = [f"{what}: {row[what]}" for what in ("failed", "figures", "verdict") if what in row]
        for remark in failures + row.get("warnings", []):
            console.print(f"{row['name']}: {remark}", markup=False, highlight=False)
    return int(not kept)


def tabulated(rows: Iterable[Row]) -> tuple[Table, bool]:
    """The table with its totals, and whether every limit is kept."""
    table = Table(
        "model", "bytes", *OTHERS, "raw", "of", "ratio", "FLOPs", "peak", "time, µs", "ratio", "right",
        title="The zoo: one device, one step; ratios of ours to live XLA's, GSPMD or Shardy, whichever is better",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    rows = list(rows)
    all_kept = True
    for row in rows:
        cells, kept = line(row)
        all_kept &= kept
        table.add_row(row["name"], *cells)
    table.add_section()
    cells, kept = totals([row for row in rows if "ours" in row])
    table.add_row("all", *cells)
    return table, all_kept and kept


def totals(rows: Sequence[Row]) -> tuple[list[str], bool]:
    """The cells of the sums, and whether bytes keep the limit."""
    ours = sum(row["ours"]["bytes"] for row in rows)
    others = [sum(row[who]["bytes"] for row in rows) for who in OTHERS]
    best = [row[better(row)] for row in rows]
    ratio, kept = rated(ours, sum(other["bytes"] for other in best), TOTAL_LIMIT)
    raw = sum(other["raw"] for other in best)
    return [*(f"{amount:,.0f}" for amount in (ours, *others, raw)), "", ratio, *[""] * 5], kept


def better(row: Row) -> str:
    """GSPMD or Shardy: whichever moves fewer bytes, then has less time.

    >>> better({"GSPMD": {"bytes": 2, "time": 1}, "Shardy": {"bytes": 1, "time": 3}})
    'Shardy'
    """
    return min(OTHERS, key=lambda who: (row[who]["bytes"], row[who]["time"]))


def line(row: Row) -> tuple[list[str], bool]:
    """The cells of one model behind its name, and whether it keeps every limit."""
    right = _right(row)
    if "ours" not in row:
        return ["[red]failed[/red]", *[""] * 9, right], False
    who = better(row)
    ours, xla = row["ours"], row[who]
    texts = {q: rated(ours[q], xla[q], LIMITS[q]) for q in QUANTITIES}
    cells = [
        f"{ours['bytes']:,.0f}",
        *(f"{row[other]['bytes']:,.0f}" for other in OTHERS),
        f"{xla['raw']:,.0f}",
        who,
        texts["bytes"][0],
        texts["flops"][0],
        texts["peak"][0],
        f"{ours['time'] * 1e6:,.0f}",
        texts["time"][0],
        right,
    ]
    return cells, row.get("right", False) and all(kept for _, kept in texts.values())


def _right(row: Row) -> str:
    if "right" not in row:
        return "[red]failed[/red]"
    return f"[green]{row['off']:.0e}[/green]" if row["right"] else f"[red]wrong: {row['off']:.0e}[/red]"


def rated(mine: float, its: float, limit: float) -> tuple[str, bool]:
    """The ratio, green where it is within the limit; nothing against nothing is 1.

    >>> rated(1.0, 2.0, 1.0)
    ('[green]0.500[/green]', True)
    """
    ratio = mine / its if its else (1.0 if not mine else float("inf"))
    # A ratio of sums of floats: an ulp above the limit is the limit.
    kept = ratio <= limit + 1e-9
    return f"[{'green' if kept else 'red'}]{ratio:.3f}[/]" if not kept else f"[green]{ratio:.3f}[/green]", kept


if __name__ == "__main__":
    main()
