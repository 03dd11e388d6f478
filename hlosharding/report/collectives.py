"""The collectives of a program: who talks, how much, how often, and which line of the program is why.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hlosharding.cost import CostReport
from hlosharding.printable import printable
from hlosharding.report.model import Column, Facts, Figure, Kind, Shown, Table, Text, View
from hlosharding.spmd import Collective, collectives

_COLUMNS = (
    Column(key="kind", heading="kind"),
    Column(key="axes", heading="axes", priority=2),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=3),
    Column(key="bytes_per_device", heading="bytes a device", kind=Kind.COUNT, sums=True),
    Column(key="executions", heading="times", kind=Kind.COUNT, sums=True),
    Column(key="priced", heading="priced", kind=Kind.SECONDS, sums=True, in_record=False),
    Column(key="location", heading="source", kind=Kind.LOCATION),
    Column(key="cause", heading="cause", kind=Kind.PROSE),
)


def collectives_view(program: Any, *, cost: CostReport | None = None) -> View:
    """A program's collectives, largest volume first; in the table equal ones share a row.

    `program`: a Partitioned, a Module, or the collectives themselves.  Bytes are received by a device in one run, mean
    over devices.  The column of priced times is there where the program has a `cost`, or one is given; of those that
    XLA's combiner makes one, each has its share of the time.

    >>> collectives_view([]).parts[0].total
    'all'
    """
    cost = cost if cost is not None else getattr(program, "cost", None)
    rows = cost.rows if cost is not None else ()
    seconds = {row.instruction.name: Figure(row.time_s, is_exact=row.is_exact) for row in rows}
    table = Table(
        title=_title(cost),
        key="collectives",
        columns=tuple(column for column in _COLUMNS if seconds or column.key != "priced"),
        rows=[_row(one) | {"priced": seconds.get(one.name, 0.0)} for one in _found(program)],
        joins=True,
        largest="bytes_per_device",
        total="all",
    )
    return View((table,))


def collective_view(one: Collective) -> View:
    """One collective; bytes are those of all its executions."""
    return View((Facts(_row(one)), Text(printable(str(one)))))


def _title(cost: CostReport | None) -> str:
    """Says, too, how many are left behind XLA's combiner, where it finds some to join."""
    if cost is None or not cost.combined:
        return "Collectives of one run"
    return f"Collectives of one run: {len(cost.collectives)} as planned, {cost.num_combined} as XLA combines them"


def _found(program: Any) -> Iterable[Collective]:
    if isinstance(program, list | tuple):
        return program
    return program.collectives if hasattr(program, "collectives") else collectives(program)


def _row(one: Collective) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "axes": Shown(one.axes or participants(one), one.axes),
        "groups": one.groups,
        "pairs": one.pairs,
        "shape": str(one.shape),
        # A loop whose trip count cannot be read makes a guess of both figures.
        "bytes_per_device": Figure(one.bytes_per_device, is_exact=one.is_exact),
        "executions": Figure(one.executions, is_exact=one.is_exact),
        "is_exact": one.is_exact,
        # The name of the op that needed it would keep equal layers apart.
        "cause": Shown(one.kind_of_cause, one.cause),
        "location": one.location,
    }


def participants(collective: Collective) -> str:
    """Who takes part, where no mesh axis says it: "2 groups of 4", "8 pairs"."""
    if collective.groups is None:
        return f"{len(collective.pairs or ())} pairs"
    sizes = sorted({len(group) for group in collective.groups})
    plural = "" if len(collective.groups) == 1 else "s"
    return f"{len(collective.groups)} group{plural} of {' or '.join(map(str, sizes))}"
