"""A program as XLA's executable has it: its memory and its collectives, beside what we planned and what XLA plans.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlosharding.compiler import MEMORY_PARTS, OptimizedProgram, Partitioned
from hlosharding.report.model import Column, Facts, Kind, Row, Shown, Table, Text, View
from hlosharding.spmd import Collective

_WHO = {"planned": "ours, planned", "ours": "ours, compiled", "xla": "XLA's, compiled"}


def executable_view(partitioned: Partitioned, ours: OptimizedProgram, xla: OptimizedProgram, target: str) -> View:
    """XLA's memory analysis of both programs; the collectives of ours as planned, as compiled, and those of XLA's."""
    name, count = partitioned.module.name, partitioned.num_partitions
    head = Text(f"{name} on {count} device{'' if count == 1 else 's'}, compiled for {target}", style="bold")
    facts = Facts({"module": name, "num_partitions": count, "target": target})
    found = {"planned": partitioned.collectives, "ours": ours.collectives, "xla": xla.collectives}
    parts = head, facts, _memory(ours, xla), collectives_by_kind(found, _WHO)
    return View(parts, schema="hlosharding.compile/1")


def _memory(ours: OptimizedProgram, xla: OptimizedProgram) -> Table:
    columns = (
        Column(key="part", heading="bytes of one device"),
        Column(key="ours", heading="ours", kind=Kind.COUNT),
        Column(key="xla", heading="XLA's", kind=Kind.COUNT),
        Column(key="ratio", heading="ratio", kind=Kind.RATIO),
    )
    pairs = {part: (getattr(ours.memory, part), getattr(xla.memory, part)) for part in MEMORY_PARTS}
    rows: list[Row] = [
        {"part": part, "ours": mine, "xla": its, "ratio": mine / its if its else Shown("n/a", None)}
        for part, (mine, its) in pairs.items()
    ]
    return Table(title="Memory, by XLA's own analysis", key="memory", by="part", columns=columns, rows=rows)


def collectives_by_kind(found: Mapping[str, Sequence[Collective]], names: Mapping[str, str]) -> Table:
    """One row for each kind, for each of several programs how often and how much; `names`: of the programs, by key.

    A collective in a loop counts each time.
    """
    columns = [Column(key="kind", heading="kind")]
    for who, heading in names.items():
        columns.append(Column(key=f"{who}_executions", heading=f"{heading}: times", kind=Kind.COUNT, sums=True))
        columns.append(Column(key=f"{who}_bytes", heading="bytes received", kind=Kind.COUNT, sums=True))
    kinds = sorted({one.kind for some in found.values() for one in some})
    rows = [_collectives_row(kind, found) for kind in kinds]
    return Table(title="Collectives of one run", key="collectives", columns=tuple(columns), rows=rows, total="all")


def _collectives_row(kind: str, found: Mapping[str, Sequence[Collective]]) -> Row:
    row: dict[str, float | str] = {"kind": kind}
    for who, some in found.items():
        alike = [one for one in some if one.kind == kind]
        row[f"{who}_executions"] = sum(one.executions for one in alike)
        row[f"{who}_bytes"] = sum(one.bytes_per_device for one in alike)
    return row
