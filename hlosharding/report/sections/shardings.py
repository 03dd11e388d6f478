"""Which shardings a program has, how much lies in each, and which devices hold which piece.

Floor: report.
"""

from __future__ import annotations

from collections import defaultdict

from hlosharding.ir import Instruction
from hlosharding.report.model import Column, Drawing, Kind, Part, Row, Table, View
from hlosharding.report.programs import overrides_view
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.shardings import parameters_view
from hlosharding.sharding import HloSharding

_DRAWN = 60
_SHOWN = 12
"""On a terminal."""
_COLUMNS = (
    Column(key="sharding", heading="sharding", kind=Kind.SHARDING),
    Column(key="values", heading="values", kind=Kind.COUNT, sums=True),
    Column(key="bytes", heading="bytes a device", kind=Kind.BYTES, sums=True),
    Column(key="shape", heading="the largest", kind=Kind.SHAPE, priority=1),
)


def shardings_view(about: ReportedProgram) -> View:
    """Each sharding, which opens to a drawing; those of the parameters; those that are not the propagated ones.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}\\n"
    >>> text += "  ROOT y = f32[8] negate(x), sharding={devices=[2]<=[2]}\\n}"
    >>> [row["values"] for row in shardings_view(ReportedProgram(hs.partition(hs.load(text)))).parts[0].rows]
    [2]
    """
    parts: list[Part] = [_table(about)]
    propagation = about.partitioned.propagation
    if propagation is not None:
        parts += parameters_view(propagation).parts
    if about.partitioned.sharding_overrides:
        parts += overrides_view(about.partitioned, most=_SHOWN).parts
    return View(tuple(parts))


def _table(about: ReportedProgram) -> Table:
    groups: dict[HloSharding, list[Instruction]] = defaultdict(list)
    for inst in about.whole.instructions:
        sharding = about.sharding(inst)
        if sharding is not None and inst.shape.is_array and not sharding.is_tuple():
            groups[sharding].append(inst)
    held = sorted(groups.items(), key=lambda group: -_bytes(*group))
    rows = [_row(*group, drawn=number < _DRAWN) for number, group in enumerate(held)]
    return Table(
        key="shardings", columns=_COLUMNS, mesh=about.mesh, most=_SHOWN, empty="none", detail="detail",
        rows=rows,
    )  # fmt: skip


def _bytes(sharding: HloSharding, members: list[Instruction]) -> float:
    """On one device."""
    return sum(inst.shape.byte_size for inst in members) / max(1, sharding.num_tiles)


def _row(sharding: HloSharding, members: list[Instruction], *, drawn: bool) -> Row:
    largest = max(members, key=lambda inst: inst.shape.byte_size)
    drawing = Drawing(sharding, largest.shape.dims, f"{largest.shape} %{largest.name}")
    return {
        "sharding": sharding,
        "values": len(members),
        "bytes": _bytes(sharding, members),
        "shape": largest.shape,
        "detail": View((drawing,)) if drawn else None,
    }
