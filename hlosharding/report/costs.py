"""What a program costs on one device: the totals, where they come from, and two programs side by side.

Floor: report.
"""

from __future__ import annotations

from typing import Literal

from rich.table import Table

from hlosharding.cost import CostReport, Subtotal
from hlosharding.report.figures import as_bytes, as_count, as_seconds
from hlosharding.report.tables import add_row, new_table


def show_cost(cost: CostReport) -> Table:
    """The totals of one run on one device: work, traffic, memory, priced time."""
    table = new_table(f"One device, one run, on {cost.machine.name}", "", "figure", " ", figures=("figure",))
    for name, value, note in (
        ("FLOPs", as_count(cost.flops), ""),
        ("bytes received", as_count(cost.comm_bytes), f"{as_bytes(cost.comm_bytes)}, mean over devices"),
        ("memory traffic", as_count(cost.memory_traffic_bytes), as_bytes(cost.memory_traffic_bytes)),
        ("peak memory", as_count(cost.peak_memory_bytes), _memory_note(cost)),
        ("on the host", as_count(cost.host_memory_bytes), f"{as_bytes(cost.host_memory_bytes)}, not in the peak"),
        ("priced time", as_seconds(cost.time_s), _time_note(cost)),
    ):
        if name != "on the host" or cost.host_memory_bytes:
            add_row(table, name, value, note)
    return table


def _memory_note(cost: CostReport) -> str:
    at = f" at %{cost.peak_at}" if cost.peak_at else ""
    share = cost.peak_memory_bytes / cost.machine.memory_bytes
    return f"{as_bytes(cost.peak_memory_bytes)}{at}, {share:.2%} of {as_bytes(cost.machine.memory_bytes)}"


def _time_note(cost: CostReport) -> str:
    return f"{as_seconds(cost.compute_s)} kernels, {as_seconds(cost.comm_s)} collectives, no overlap"


def show_cost_by(cost: CostReport, by: Literal["opcode", "location"] = "location", *, most: int = 20) -> Table:
    """Where the cost comes from, by source line or by opcode: the `most` expensive ones, the rest summed up."""
    groups = cost.by_location if by == "location" else cost.by_opcode
    head = "source line" if by == "location" else "opcode"
    table = _figures_table(
        f"Cost by {head}", head, "ops", "FLOPs", "bytes received", "memory traffic", "priced", "share"
    )
    shown = list(groups.items())
    rest = shown[most:]
    for name, part in shown[:most]:
        add_row(table, name or "(unknown)", *_row(part, cost.time_s))
    if rest:
        table.add_section()
        add_row(table, f"{len(rest)} others", *_row(_sum([part for _, part in rest]), cost.time_s))
    return table


def _row(part: Subtotal, whole_s: float) -> tuple[str, ...]:
    share = f"{part.time_s / whole_s:.1%}" if whole_s else ""
    figures = (part.instructions, part.flops, part.comm_bytes, part.bytes)
    return (*map(as_count, figures), as_seconds(part.time_s), share)


def _sum(parts: list[Subtotal]) -> Subtotal:
    return Subtotal(
        sum(p.instructions for p in parts),
        sum(p.flops for p in parts),
        sum(p.bytes for p in parts),
        sum(p.comm_bytes for p in parts),
        sum(p.time_s for p in parts),
    )


def show_comparison(ours: CostReport, theirs: CostReport, *, names: tuple[str, str] = ("ours", "theirs")) -> Table:
    """Bytes, FLOPs, peak memory and priced time a device of two programs, read by the same eyes, with the ratio."""
    table = _figures_table(f"{names[0]} against {names[1]}", "one device, one run", *names, "ratio")
    for name, mine, its, write in (
        ("bytes received", ours.comm_bytes, theirs.comm_bytes, as_count),
        ("FLOPs", ours.flops, theirs.flops, as_count),
        ("peak memory, bytes", ours.peak_memory_bytes, theirs.peak_memory_bytes, as_count),
        ("priced time", ours.time_s, theirs.time_s, as_seconds),
    ):
        add_row(table, name, write(mine), write(its), f"{mine / its:.3f}" if its else "n/a")
    return table


def _figures_table(title: str, first: str, *columns: str) -> Table:
    return new_table(title, first, *columns, figures=columns)
