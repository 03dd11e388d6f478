"""The values that the partitioner sharded otherwise than propagation had: which, how, and why.

Floor: report.
"""

from __future__ import annotations

from collections import Counter

from rich.table import Table

from hlosharding.compiler import Partitioned
from hlosharding.report.tables import add_row, new_table
from hlosharding.sharding import spell_short


def show_sharding_overrides(partitioned: Partitioned, *, limit: int | None = None) -> Table:
    """A row a sharding override; those of one source line that are alike share it.

    A chosen sharding with `unreduced` is one of partial sums: each device has its own, to be added up later.  `limit`:
    rows shown at most; one more says how many values the others are.
    """
    mesh = partitioned.module.mesh
    rows = Counter(
        (one.location or f"%{one.name}", one.opcode, one.shape, *(spell_short(s, mesh) for s in sides), one.why)
        for one in partitioned.sharding_overrides
        for sides in [(one.propagated, one.chosen)]
    )
    columns = ("source", "operation", "shape", "propagated", "chosen", "times", "why")
    table = new_table("Sharded otherwise than propagated", *columns, figures=("times",))
    shown = list(rows.items())[:limit]
    for (*cells, why), times in shown:
        add_row(table, *cells, str(times), why)
    more = rows.total() - sum(times for _, times in shown)
    if more or not rows:
        add_row(table, "others" if more else "none", "", "", "", "", str(more or ""), "")
    return table
