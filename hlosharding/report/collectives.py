"""The table of collectives: who talks, how much, how often, and which line of the program is why.

Floor: report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from hlosharding.cost import CostReport
from hlosharding.report.figures import as_count, as_seconds
from hlosharding.report.tables import add_row, new_table
from hlosharding.spmd import Collective, collectives

_INSTRUCTION = re.compile(r"%\S+ \((\S+)\)")
_Key = tuple[str, str, str, str, str]


@dataclass(slots=True)
class _Row:
    """Collectives that look alike."""

    executions: int = 0
    volume: float = 0.0
    seconds: float = 0.0
    is_exact: bool = field(default=True)


def show_collectives(program: Any, *, cost: CostReport | None = None) -> Table:
    """A table of a program's collectives, largest volume first; equal ones share a row.

    `program`: a Partitioned, a Module, or the collectives themselves.  Bytes are received by a device in one run, mean
    over devices.  The column of priced times is there where the program has a `cost`, or one is given.

    >>> show_collectives([]).row_count
    1
    """
    cost = cost if cost is not None else getattr(program, "cost", None)
    seconds = {row.instruction.name: row.time_s for row in cost.rows} if cost is not None else {}
    rows = _grouped(_found(program), seconds)
    figures = ("bytes a device", "times", "priced") if seconds else ("bytes a device", "times")
    columns = ("kind", "axes", "shape", *figures, "source", "cause")
    table = new_table("Collectives of one run", *columns, figures=figures)
    # On a narrow terminal the cause may fold; "all-red…" and "mlp.p…" would say nothing.
    for column in (table.columns[0], table.columns[-2]):
        column.no_wrap = True
    for key, row in sorted(rows.items(), key=lambda item: -item[1].volume):
        add_row(table, *key[:3], *_figures(row, priced=bool(seconds)), *key[3:])
    table.add_section()
    add_row(table, "all", "", "", *_figures(_total(rows.values()), priced=bool(seconds)), "", "")
    return table


def _found(program: Any) -> Iterable[Collective]:
    if isinstance(program, list | tuple):
        return program
    return program.collectives if hasattr(program, "collectives") else collectives(program)


def _grouped(found: Iterable[Collective], seconds: dict[str, float]) -> dict[_Key, _Row]:
    rows: dict[_Key, _Row] = {}
    for one in found:
        # The name of the op that needed it would keep equal layers apart.
        cause = _INSTRUCTION.sub(r"\1", one.cause)
        row = rows.setdefault((one.kind, one.axes or participants(one), str(one.shape), one.location, cause), _Row())
        row.executions += one.executions
        row.volume += one.bytes_per_device
        row.seconds += seconds.get(one.name, 0.0)
        row.is_exact &= one.is_exact
    return rows


def _total(rows: Iterable[_Row]) -> _Row:
    out = _Row()
    for row in rows:
        out.executions += row.executions
        out.volume += row.volume
        out.seconds += row.seconds
        out.is_exact &= row.is_exact
    return out


def _figures(row: _Row, *, priced: bool) -> tuple[str, ...]:
    # A loop whose trip count cannot be read makes a guess of both figures.
    mark = "" if row.is_exact else "~"
    figures = (f"{mark}{as_count(row.volume)}", f"{mark}{row.executions}")
    return (*figures, as_seconds(row.seconds)) if priced else figures


def participants(collective: Collective) -> str:
    """Who takes part, where no mesh axis says it: "2 groups of 4", "8 pairs"."""
    if collective.groups is None:
        return f"{len(collective.pairs or ())} pairs"
    sizes = sorted({len(group) for group in collective.groups})
    plural = "" if len(collective.groups) == 1 else "s"
    return f"{len(collective.groups)} group{plural} of {' or '.join(map(str, sizes))}"
