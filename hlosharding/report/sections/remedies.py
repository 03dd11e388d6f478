"""Which single annotation would make a program receive fewer bytes: asked of the ops behind its dearest collectives.

Floor: report.  `hs.suggest` finds and prices annotations; what to ask it is all that is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlosharding.compiler import CollectiveExplanation
from hlosharding.errors import AnnotationError
from hlosharding.report.model import Column, Kind, Row, Shown, Table, Thread, View
from hlosharding.report.places import collective_place, remedy_place, value_place
from hlosharding.report.sections.collectives import Alike
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.search import Suggestion, suggest
from hlosharding.sharding import spell

_ASKED = 5
"""Collectives; for each some sixty annotations are propagated, and those that help are partitioned."""

_COLUMNS = (
    Column(key="numbers", heading="#"),
    Column(key="kind", heading="collective"),
    Column(key="annotation", heading="remedy", kind=Kind.CODE),
    Column(key="saved_bytes", heading="saved", kind=Kind.BYTES),
    Column(key="bytes_received", heading="received then", kind=Kind.BYTES, priority=1),
    Column(key="flops_before", heading="FLOPs now", kind=Kind.LARGE, priority=2),
    Column(key="flops", heading="FLOPs then", kind=Kind.LARGE, priority=2),
    Column(key="location", heading="source", kind=Kind.LOCATION, priority=1),
)


def remedies_view(about: ReportedProgram, groups: Sequence[Alike]) -> View:
    """For each of the dearest collectives the best annotation near the op that needed it, if one saves bytes.

    Figures are of the whole program, partitioned anew with that annotation, on one device.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> remedies_view(ReportedProgram(hs.partition(hs.load(text))), []).parts[0].empty
    'no single annotation saves bytes'
    """
    rows = [_row(group, best) for group in groups[:_ASKED] if (best := _best(about, group)) is not None]
    empty = "no single annotation saves bytes"
    return View(
        (Table(title="", key="remedies", columns=_COLUMNS, rows=rows, mesh=about.mesh, empty=empty, thread="thread"),)
    )


def _best(about: ReportedProgram, group: Alike) -> Suggestion | None:
    program = about.partitioned
    [why] = program.explain_collectives(group.first.number, priced=False)
    found = [one for name in _asked(why) for one in _suggested(about, name)]
    # Another propagation (open results, say) is another program: what helps that one is no answer.
    found = [one for one in found if one.bytes_received < one.bytes_before == program.comm_bytes_per_device]
    return min(found, key=lambda one: (one.flops > one.flops_before, one.bytes_received), default=None)


def _asked(why: CollectiveExplanation) -> Iterator[str]:
    """The op that needed the collective, and what it reads."""
    if why.needed_by is not None:
        yield why.needed_by.name
    yield from dict.fromkeys(operand.links[0].name for _, operand in why.operands)


def _suggested(about: ReportedProgram, name: str) -> list[Suggestion]:
    program = about.partitioned
    if program.propagation is None:
        return []
    try:
        return suggest(
            program.propagation.source, name, at_once=1, num_partitions=program.num_partitions, machine=program.machine,
            options=program.options, progress=False,
        )  # fmt: skip
    except AnnotationError:
        return []  # it is split, and no offer to it lost


def _row(group: Alike, best: Suggestion) -> Row:
    [(name, sharding)] = best.annotations
    verb = "change" if name in best.replaces else "annotate"
    return {
        "numbers": Shown(group.numbers_text, [each.number for each in group.members]),
        "kind": group.first.collective.kind,
        "annotation": Shown(f"{verb} %{name}={spell(sharding, best.mesh)}", {name: sharding}),
        "saved_bytes": best.bytes_before - best.bytes_received,
        "bytes_received": best.bytes_received,
        "flops_before": best.flops_before,
        "flops": best.flops,
        "location": group.first.collective.location,
        "thread": Thread(
            (remedy_place(group.first.number),), (collective_place(group.first.number), value_place(name))
        ),
    }
