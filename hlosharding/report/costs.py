"""What a program costs on one device: the totals, where they come from, and two programs side by side.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hlosharding.cost import CostReport, Subtotal
from hlosharding.report.figures import as_bytes, as_seconds
from hlosharding.report.model import Column, Facts, Figure, Kind, Label, Row, Shown, Table, View, fields_of, figures_of

Grouping = Literal["location", "opcode"]
_HEADINGS: dict[Grouping, str] = {"location": "source line", "opcode": "opcode"}


def cost_view(cost: CostReport, *, by: Sequence[Grouping] = ("location", "opcode"), most: int = 20) -> View:
    """The totals of one run on one device, and where they come from: the `most` expensive, the rest summed up.

    A record has both groupings; `by` says which of them are shown.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}")
    >>> [part.title for part in cost_view(hs.cost(module, machine=hs.machines.h100(8))).parts]
    ['One device, one run, on h100(8)', 'Cost by source line', 'Cost by opcode']
    """
    lines = _grouped(cost, "location", cost.by_location, is_shown="location" in by, most=most)
    opcodes = _grouped(cost, "opcode", cost.by_opcode, is_shown="opcode" in by, most=most)
    return View((_totals(cost), lines, opcodes))


def _totals(cost: CostReport) -> Facts:
    is_exact = not cost.guessed_loops
    items: Row = {
        "machine": cost.machine.name,
        **figures_of(cost, "flops comm_bytes memory_traffic_bytes", is_exact=is_exact),
        "peak_memory_bytes": int(cost.peak_memory_bytes),
        "host_memory_bytes": int(cost.host_memory_bytes),
        "peak_at": cost.peak_at,
        "time_s": Figure(cost.time_s, is_exact=is_exact),
        **fields_of(cost, "compute_s comm_s host_s"),
        "num_collectives": len(cost.collectives),
        "num_combined": cost.num_combined,
        "guessed_loops": [loop._asdict() for loop in cost.guessed_loops],
    }
    host = Label("host_memory_bytes", "on the host", f"{as_bytes(cost.host_memory_bytes)}, not in the peak")
    labels = (
        Label("flops", "FLOPs"),
        Label("comm_bytes", "bytes received", f"{as_bytes(cost.comm_bytes)}, mean over devices"),
        Label("memory_traffic_bytes", "memory traffic", as_bytes(cost.memory_traffic_bytes)),
        Label("peak_memory_bytes", "peak memory", _memory_note(cost)),
        *([host] if cost.host_memory_bytes else []),
        Label("time_s", "priced time", _time_note(cost), Kind.SECONDS),
    )
    return Facts(items, f"One device, one run, on {cost.machine.name}", labels)


def _memory_note(cost: CostReport) -> str:
    at = f" at %{cost.peak_at}" if cost.peak_at else ""
    share = cost.peak_memory_bytes / cost.machine.memory_bytes
    return f"{as_bytes(cost.peak_memory_bytes)}{at}, {share:.2%} of {as_bytes(cost.machine.memory_bytes)}"


def _time_note(cost: CostReport) -> str:
    joined = f" ({len(cost.collectives)}, combined {cost.num_combined})" if cost.combined else ""
    moved = f", {as_seconds(cost.host_s)} to the host and back" if cost.host_s else ""
    return f"{as_seconds(cost.compute_s)} kernels, {as_seconds(cost.comm_s)} collectives{joined}{moved}, no overlap"


def _grouped(cost: CostReport, by: Grouping, groups: dict[str, Subtotal], *, is_shown: bool, most: int) -> Table:
    columns = (
        Column(key="name", heading=_HEADINGS[by]),
        Column(key="instructions", heading="ops", kind=Kind.COUNT, sums=True, priority=3),
        Column(key="flops", heading="FLOPs", kind=Kind.COUNT, sums=True, priority=1),
        Column(key="comm_bytes", heading="bytes received", kind=Kind.COUNT, sums=True, priority=1),
        Column(key="memory_traffic_bytes", heading="memory traffic", kind=Kind.COUNT, sums=True, priority=2),
        Column(key="time_s", heading="priced", kind=Kind.SECONDS, sums=True),
        Column(key="share", heading="share", kind=Kind.SHARE, sums=bool(cost.time_s), in_record=False),
    )
    rows = [_subtotal_row(name, part, cost.time_s) for name, part in groups.items()]
    title = f"Cost by {_HEADINGS[by]}"
    return Table(title=title, key=f"by_{by}", by="name", columns=columns, rows=rows, is_shown=is_shown, most=most)


def _subtotal_row(name: str, part: Subtotal, whole_s: float) -> Row:
    return {
        "name": Shown(name or "(unknown)", name),
        "instructions": part.instructions,
        **figures_of(part, "flops comm_bytes", is_exact=part.is_exact),
        "memory_traffic_bytes": Figure(part.bytes, is_exact=part.is_exact),
        "time_s": Figure(part.time_s, is_exact=part.is_exact),
        "share": part.time_s / whole_s if whole_s else None,
    }


def comparison_view(ours: CostReport, theirs: CostReport, *, names: tuple[str, str] = ("ours", "theirs")) -> View:
    """Bytes, FLOPs, peak memory and priced time a device of two programs, read by the same eyes, with the ratio."""
    return View((comparison(ours, theirs, names),))


def comparison(ours: CostReport, theirs: CostReport, names: tuple[str, str]) -> Table:
    """The same as a table, for a view that compares more than costs."""
    figures = (
        ("bytes received", Kind.COUNT, ours.comm_bytes, theirs.comm_bytes),
        ("FLOPs", Kind.COUNT, ours.flops, theirs.flops),
        ("peak memory, bytes", Kind.COUNT, ours.peak_memory_bytes, theirs.peak_memory_bytes),
        ("priced time", Kind.SECONDS, ours.time_s, theirs.time_s),
    )
    columns = (
        Column(key="figure", heading="one device, one run"),
        Column(key="ours", heading=names[0], kind=Kind.COUNT),
        Column(key="theirs", heading=names[1], kind=Kind.COUNT),
        Column(key="ratio", heading="ratio", kind=Kind.RATIO),
    )
    rows: list[Row] = [
        {
            "figure": name,
            "ours": Figure(mine, kind, is_exact=not ours.guessed_loops or name == "peak memory, bytes"),
            "theirs": Figure(its, kind, is_exact=not theirs.guessed_loops or name == "peak memory, bytes"),
            "ratio": mine / its if its else Shown("n/a", None),
        }
        for name, kind, mine, its in figures
    ]
    return Table(title=f"{names[0]} against {names[1]}", key="comparison", columns=columns, rows=rows)
