"""Which single annotation would make a program faster: asked of its dearest collectives.

Floor: report.  `hs.suggest` finds and prices annotations; what to ask it is all that is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from hlosharding.errors import PlanError
from hlosharding.report.model import Column, Kind, Row, Shown, Table, Thread, View, fields_of
from hlosharding.report.places import collective_place, remedy_place, value_place
from hlosharding.report.sections.collectives import Alike
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.search import Suggestion, suggest
from hlosharding.sharding import spell

_ASKED = 5
"""Collectives; for each a dozen annotations are partitioned."""

_COLUMNS = (
    Column(key="numbers", heading="#"),
    Column(key="kind", heading="collective"),
    Column(key="annotation", heading="remedy", kind=Kind.CODE),
    Column(key="saved_s", heading="saved", kind=Kind.SECONDS),
    Column(key="saved_bytes", heading="less received", kind=Kind.BYTES),
    Column(key="bytes_received", heading="received then", kind=Kind.BYTES, priority=1),
    Column(key="flops_before", heading="FLOPs now", kind=Kind.LARGE, priority=2),
    Column(key="flops", heading="FLOPs then", kind=Kind.LARGE, priority=2),
    Column(key="location", heading="source", kind=Kind.LOCATION, priority=1),
    Column(key="lines", heading="as a line", kind=Kind.PROSE, priority=1),
)


def remedies_view(about: ReportedProgram, groups: Sequence[Alike]) -> View:
    """For each of the dearest collectives the best annotation near the op that needed it, if one saves time.

    Figures are of the whole program, partitioned anew with that annotation, on one device.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> remedies_view(ReportedProgram(hs.partition(hs.load(text))), []).parts[0].empty
    'no single annotation saves time'
    """
    rows = [_row(about, group, best) for group in groups[:_ASKED] if (best := _best(about, group)) is not None]
    empty = "no single annotation saves time"
    return View((Table(key="remedies", columns=_COLUMNS, rows=rows, mesh=about.mesh, empty=empty, thread="thread"),))


def _best(about: ReportedProgram, group: Alike) -> Suggestion | None:
    program = about.partitioned
    assert program.propagation is not None, "what is split already is not explained"
    found = suggest(
        program.propagation.source, group.first.number, num_partitions=program.num_partitions, machine=program.machine,
        options=program.options, progress=False,
    )  # fmt: skip
    # Another propagation (open results, say) is another program: what helps that one is no answer.
    helpful = (one for one in found if one.time_s < one.time_before_s)
    return next((one for one in helpful if one.bytes_before == program.comm_bytes_per_device), None)


def _lines(about: ReportedProgram, best: Suggestion) -> tuple[str, ...]:
    """To paste; of a function that was traced here, whose source may be read."""
    propagation = about.partitioned.propagation
    if propagation is None or propagation.source.signature is None:
        return ()
    with suppress(PlanError):
        change = best.change_source(propagation.source)
        return (*change.lines, *change.unsaid)
    return ()


def _row(about: ReportedProgram, group: Alike, best: Suggestion) -> Row:
    [(name, sharding)] = best.annotations
    lines, number = _lines(about, best), group.first.number
    verb = "change" if name in best.replaces else "annotate"
    return {
        "numbers": Shown(group.numbers_text, [each.number for each in group.members]),
        "kind": group.first.collective.kind,
        "annotation": Shown(f"{verb} %{name}={spell(sharding, best.mesh)}", {name: sharding}),
        "saved_s": best.time_before_s - best.time_s,
        "saved_bytes": best.bytes_before - best.bytes_received,
        **fields_of(best, "bytes_received flops_before flops"),
        "location": group.first.collective.location,
        "thread": Thread((remedy_place(number),), (collective_place(number), value_place(name))),
        "lines": Shown("; ".join(lines), lines),
    }
