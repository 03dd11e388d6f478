"""A program beside another one, XLA's own among them: costs, collectives by kind, and the lines that differ most.

Floor: report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hlosharding.compiler import CollectiveExplanation, OptimizedProgram
from hlosharding.cost import CostReport, Subtotal, cost
from hlosharding.report.costs import comparison
from hlosharding.report.executables import collectives_by_kind
from hlosharding.report.explanations import collective_explanations_view
from hlosharding.report.model import Column, Figure, Kind, Shown, Table, View
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.spmd import Collective

_NOTHING = Subtotal()
_LINES_SHOWN = 12
"""On a terminal."""
_EXPLAINED = 40
"""Collectives of XLA's."""
_OF_XLA = (
    Column(key="number", heading="#"),
    Column(key="kind", heading="collective"),
    Column(key="bytes_per_device", heading="received", kind=Kind.BYTES),
    Column(key="needed_by", heading="for", priority=1),
    Column(key="location", heading="source", kind=Kind.LOCATION),
    Column(key="ours", heading="ours there", kind=Kind.PROSE),
)


def comparison_section(about: ReportedProgram, other: Any, names: tuple[str, str]) -> View:
    """Read by the same eyes: `other` is a Partitioned, a per-device Module, or what XLA made of a program.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> ours = hs.partition(hs.load(text))
    >>> view = comparison_section(ReportedProgram(ours), ours, ("this", "that"))
    >>> [row["ratio"] for row in view.parts[0].rows][-1]
    1.0
    """
    module = other.module if isinstance(other, OptimizedProgram) else other
    ours, theirs = about.partitioned.cost, cost(module, about.partitioned.machine)
    found = {"ours": ours.collectives, "theirs": theirs.collectives}
    kinds = collectives_by_kind(found, dict(zip(found, names, strict=True)))
    lines = [_by_line(ours, theirs, names)] if any(theirs.by_location) else []  # compiled programs may name none
    their_own = [_of_xla(about, other.collectives)] if isinstance(other, OptimizedProgram) else []
    return View((comparison(ours, theirs, names), kinds, *their_own, *lines))


def _of_xla(about: ReportedProgram, theirs: Sequence[Collective]) -> Table:
    """The collectives of XLA's own program, those that receive most first, each by the op for which XLA made it."""
    order = sorted(range(len(theirs)), key=lambda number: -theirs[number].bytes_per_device)
    found = about.partitioned.explain_collectives(*order[:_EXPLAINED], of=theirs, priced=False)
    return Table(
        title="XLA's own collectives, by the op for which XLA made each",
        key="xla",
        columns=_OF_XLA,
        rows=[_xla_row(one) for one in found],
        most=_LINES_SHOWN,
        detail="detail",
        empty="there are none",
    )


def _xla_row(one: CollectiveExplanation) -> dict[str, Any]:
    found, op = one.collective, one.needed_by
    times = Counter(f"{each.kind} {each.shape}" for each in one.ours or ())
    ours = ", ".join(f"{count} x {text}" if count > 1 else text for text, count in times.items())
    name = op.name if op is not None else None
    return {
        "number": Shown(f"xla#{one.number}", one.number),
        "kind": found.kind,
        "bytes_per_device": Figure(found.bytes_per_device, is_exact=found.is_exact),
        "needed_by": Shown(f"%{name}" if name else "no op that XLA names", name),
        "location": found.location or (op.location if op is not None else ""),
        "ours": Shown(ours or ("none" if name else "not known"), [each.name for each in one.ours or ()]),
        "detail": collective_explanations_view([one]) if op is not None else None,
    }


def _by_line(ours: CostReport, theirs: CostReport, names: Sequence[str]) -> Table:
    columns = (
        Column(key="location", heading="source line", kind=Kind.LOCATION),
        Column(key="ours_bytes", heading=f"{names[0]}: received", kind=Kind.BYTES, sums=True),
        Column(key="theirs_bytes", heading=f"{names[1]}: received", kind=Kind.BYTES, sums=True),
        Column(key="ours_s", heading=f"{names[0]}: priced", kind=Kind.SECONDS, sums=True, priority=1),
        Column(key="theirs_s", heading=f"{names[1]}: priced", kind=Kind.SECONDS, sums=True, priority=1),
    )
    lines = {*ours.by_location, *theirs.by_location}
    rows = [_line(line, ours.by_location.get(line, _NOTHING), theirs.by_location.get(line, _NOTHING)) for line in lines]
    rows.sort(key=lambda row: (-abs(row["ours_bytes"].value - row["theirs_bytes"].value), row["location"].text))
    return Table(
        title="Lines, those first that differ most in bytes",
        key="lines",
        columns=columns,
        rows=rows,
        most=_LINES_SHOWN,
        total="all",
    )


def _line(line: str, mine: Subtotal, its: Subtotal) -> dict[str, Any]:
    return {
        "location": Shown(line or "(unknown)", line),
        "ours_bytes": Figure(mine.comm_bytes, is_exact=mine.is_exact),
        "theirs_bytes": Figure(its.comm_bytes, is_exact=its.is_exact),
        "ours_s": Figure(mine.time_s, is_exact=mine.is_exact),
        "theirs_s": Figure(its.time_s, is_exact=its.is_exact),
    }
