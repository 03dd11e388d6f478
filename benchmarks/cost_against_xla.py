"""Bytes, FLOPs and peak memory of one device for the examples: our program against XLA's as it stands (raw).

Both are read by `hs.cost`: the same formulas and the same liveness for both.
"""

from __future__ import annotations

from rich.table import Table

import hlosharding as hs
from benchmarks import cases, live_xla
from benchmarks.verdict import finish, judged
from examples import devices

LIMITS = {"comm_bytes": 1.0, "flops": 1.05, "peak_memory_bytes": 1.1}


def main() -> None:
    """Print the table; fail where a limit is missed."""
    devices.choose_platform()
    table = Table("program", "one device, one step", "hlosharding", "live XLA", "ratio", title="Cost of the examples")
    kept = []
    for case in cases.example_cases():
        ours = hs.cost(case.traced().propagate().partition().module)
        live = hs.cost(hs.load(live_xla.modules(case.lowered()).partitioned, format="hlo-proto"))
        for quantity, limit in LIMITS.items():
            mine, its = getattr(ours, quantity), getattr(live, quantity)
            text, good = judged(mine / its if its else float(mine > 0), limit)
            table.add_row(case.name, quantity, f"{mine:,.0f}", f"{its:,.0f}", text)
            kept.append(good)
        table.add_section()
    finish(table, kept)


if __name__ == "__main__":
    main()
