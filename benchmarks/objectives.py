"""Is the default the fastest?  Simulated time beside that of every other plan, and of live XLA's, for eight H100s.

`python -m benchmarks.objectives [NAME ...] [--scale N] [--jobs N]`; a name is any part of a program's.  The zoo, deep
models, a classifier that found the old default slow (`sst2.py`), and programs that nobody may profile
(`first_call_programs`), at full size and with abstract arguments, each in a process of its own.  Beside the default
stand propagation's plain choice, the fewest bytes, and what XLA's partitioner makes of the program with GSPMD and with
Shardy: time by one simulator, bytes, collectives, peak memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.verdict import finish
from benchmarks.workers import ask, tell, zoo_arguments

SECONDS_A_PROGRAM = 900
FULL = 16
"""The zoo's scale at which transformers are 1,024 wide."""
DEPTH = 6
"""Layers of the deep models: all kinds of layer, and XLA done in a minute."""
TIME_LIMIT, PEAK_LIMIT = 1.01, 1.1
OURS: dict[str, dict[str, Any]] = {
    "default": {},
    "propagated": {"only_propagated": True},
    "bytes": {"objective": "bytes"},
}
"""The options of each of our programs."""
XLA = ("GSPMD", "Shardy")
OTHERS = ("propagated", "bytes", *XLA)
Row = dict[str, Any]


def main() -> None:
    """Measure in workers, print the table."""
    options = zoo_arguments("The default beside other plans, and XLA's.").parse_args()
    options.scale = FULL if options.scale == 4 else options.scale
    if options.worker:
        tell(measured(options.names[0], options.scale))
    else:
        report(options)


# The worker


def programs(scale: int) -> dict[str, Callable[[], Any]]:
    """By name, what makes the case."""
    from benchmarks import sst2
    from benchmarks.deep_models import ARCHITECTURES
    from benchmarks.first_call_programs import HELD_OUT, case_of
    from benchmarks.zoo import MODELS

    found: dict[str, Callable[[], Any]] = {m.name: lambda m=m: case_of(m, scale) for m in (*MODELS, *sst2.MODELS)}
    found |= {f"deep {name}": lambda make=make: make(DEPTH) for name, make in ARCHITECTURES.items()}
    return found | {f"held out: {name}": make for name, make in HELD_OUT.items()}


def measured(name: str, scale: int) -> Row:
    """All plans of one program."""
    import hlosharding as hs
    from benchmarks import live_xla
    from examples import devices
    from hlosharding.partitioner import PartitionOptions

    devices.choose_platform()
    case, machine = programs(scale)[name](), hs.machines.h100(8)
    propagated = case.traced().propagate().propagation
    row: Row = {"name": name}
    for plan, options in OURS.items():
        row[plan] = of(hs.partition(propagated, machine=machine, options=PartitionOptions(**options)).module)
    for who in XLA:
        dump = live_xla.partitioned_by(case.function, case.arguments, shardy=who == "Shardy", **case.options)
        row[who] = of(hs.load(dump, format="hlo-proto"))
    return row


def of(module: Any) -> dict[str, float]:
    """The figures of one per-device program."""
    import hlosharding as hs

    machine = hs.machines.h100(8)
    report = hs.cost(module, machine=machine)
    return {
        "time": hs.simulate(module, machine).time_s,
        "bytes": report.comm_bytes,
        "collectives": sum(c.executions for c in hs.collectives(module)),
        "peak": report.peak_memory_bytes,
    }


# The parent


def report(options: argparse.Namespace) -> None:
    """Run the workers and print; status 1 where the default is not the fastest."""
    names = [n for n in programs(options.scale) if not options.names or any(part in n for part in options.names)]
    words = ["--scale", str(options.scale)]
    with ThreadPoolExecutor(options.jobs) as pool:
        asked = pool.map(lambda name: ask("objectives", name, words, SECONDS_A_PROGRAM), names)
        rows = list(track(asked, "programs", len(names), console=Console(stderr=True)))
    table = Table("program", "default, µs", *(f"over {plan}" for plan in OTHERS), "bytes, MB", *OTHERS,
                  "collectives", *XLA, "peak over XLA's", title="Eight H100s, one step, simulated")  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    lines = [_line(row) for row in rows]
    for cells, _ in lines:
        table.add_row(*cells)
    table.caption = f"time at most {TIME_LIMIT:g} of any other's, peak at most {PEAK_LIMIT:g}"
    finish(table, [is_kept for _, is_kept in lines])


def _line(row: Row) -> tuple[list[str], bool]:
    """The cells of one program, and whether it keeps every limit."""
    if "default" not in row:
        return [row["name"], f"[red]{row['failed']}[/red]"], False
    mine = row["default"]
    times = [_judged(mine["time"] / row[plan]["time"], TIME_LIMIT) for plan in OTHERS]
    peak, is_lean = _judged(mine["peak"] / max(row[who]["peak"] for who in XLA), PEAK_LIMIT)
    cells = [
        row["name"],
        f"{mine['time'] * 1e6:,.0f}",
        *(text for text, _ in times),
        *(f"{row[plan]['bytes'] / 1e6:,.1f}" for plan in ("default", *OTHERS)),
        *(f"{row[plan]['collectives']:,}" for plan in ("default", *XLA)),
        peak,
    ]
    return cells, is_lean and all(kept for _, kept in times)


def _judged(ratio: float, limit: float) -> tuple[str, bool]:
    return f"[{'green' if ratio <= limit else 'red'}]{ratio:.3f}[/]", ratio <= limit


if __name__ == "__main__":
    main()
