"""What is worst about a program, the worst first: each finding leads to its row, its line, its causes and its remedy.

Floor: report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hlosharding.compiler import CollectiveExplanation
from hlosharding.cost import unfused_attention
from hlosharding.propagation import LostOffer, origin
from hlosharding.report.accidents import accidents_of
from hlosharding.report.explanations import collective_explanations_view, explanations_view
from hlosharding.report.figures import as_bytes, as_count, as_seconds
from hlosharding.report.model import Cell, Column, Kind, Lines, Row, Shown, Table, Thread, Tree, View
from hlosharding.report.places import collective_place, copies_place, line_place, value_place
from hlosharding.report.sections.collectives import Alike
from hlosharding.report.sections.replicated import Copies
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.sharding import spell

_MOST = 5
"""Collectives; of the other kinds fewer."""
_LEAST = 0.005
"""Of the time: what takes less is no finding."""

_FINDINGS = (
    Column(key="what", heading="what is worst"),
    Column(key="figure", heading="how much", kind=Kind.NUMBER),
    Column(key="share", heading="of the time", kind=Kind.SHARE, priority=3),
    Column(key="which", heading="which", kind=Kind.PROSE),
    Column(key="location", heading="source", kind=Kind.LOCATION, priority=1),
    Column(key="remedy", heading="what would help", kind=Kind.PROSE, priority=2),
)
_FUSED = {"gpu": 'jax.nn.dot_product_attention(implementation="cudnn")', "tpu": "a splash attention kernel"}
"""By the platform of a machine, what has attention as one kernel."""


def findings_view(
    about: ReportedProgram,
    groups: Sequence[Alike],
    copies: Sequence[Copies],
    told: Mapping[int, CollectiveExplanation],
    remedies: View | None = None,
) -> View:
    """What takes most time, the longest first; then what wastes most memory.

    `groups`, `copies`: its collectives, and its replicated values, each the worst first; `told`: why collectives are
    there, by number; `remedies`: of `remedies_view`.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> view = findings_view(ReportedProgram(hs.partition(hs.load(text))), [], [], {})
    >>> [(row["what"], row["share"]) for row in view.parts[0].rows]
    [('launch-bound kernels', 1.0)]
    """
    whole_s = about.partitioned.cost.time_s
    dearest = tuple(collective_place(group.first.number) for group in groups[:_MOST])
    timed = [
        *_collectives(about, groups, told, _by_number(remedies)),
        *_conflicts(about),
        *_launches(about),
        *_idle(about, dearest),
        *_attention(about),
    ]
    found = [row for seconds, row in sorted(timed, key=lambda each: -each[0]) if seconds > _LEAST * whole_s]
    rows = [*found, *_accidents(about), *_replicated(about, copies), *_warnings(about)]
    table = Table(key="worst", columns=_FINDINGS, rows=rows, detail="detail", thread="thread", empty="nothing")
    return View((table,))


def _finding(what: str, figure: Shown, which: str, **more: Cell) -> Row:
    """What is left out says nothing."""
    row = {"what": what, "figure": figure, "share": None, "which": which}
    return {"location": "", "remedy": "", "detail": None, "thread": None, **row, **more}


def _timed(about: ReportedProgram, what: str, seconds: float, which: str, **more: Cell) -> tuple[float, Row]:
    """What takes time, and how much."""
    figure, share = Shown(as_seconds(seconds), seconds), about.share_of_time(seconds)
    return seconds, _finding(what, figure, which, share=share, **more)


def _by_number(remedies: View | None) -> dict[int, Mapping[str, Any]]:
    tables = [part for part in (remedies.parts if remedies else ()) if isinstance(part, Table)]
    rows: list[Mapping[str, Any]] = [row for table in tables for row in table.rows]
    return {row["numbers"].raw[0]: row for row in rows}


def _collectives(
    about: ReportedProgram,
    groups: Sequence[Alike],
    told: Mapping[int, CollectiveExplanation],
    remedies: Mapping[int, Mapping[str, Any]],
) -> Iterator[tuple[float, Row]]:
    for group in groups[:_MOST]:
        one, number = group.first.collective, group.first.number
        why, remedy = told.get(number), remedies.get(number)
        offered = f"{remedy['annotation'].text} saves {as_seconds(remedy['saved_s'])}" if remedy else ""
        yield _timed(
            about,
            "collective",
            group.seconds,
            f"{group.numbers_text} {one.kind} {one.shape}, {as_bytes(group.nbytes)}: {group.cause}",
            location=one.location,
            remedy=offered or next(iter(why.removals if why else ()), ""),
            detail=collective_explanations_view([why]) if why else None,
            thread=Thread((f"worst-{collective_place(number)}",), (collective_place(number),)),
        )


def _conflicts(about: ReportedProgram) -> Iterator[tuple[float, Row]]:
    """Two annotations that would have one value lie in two ways, with what moves because of that; those of two lines
    together, however many layers stand there.
    """
    pairs: dict[tuple[str, ...], list[LostOffer]] = {}
    for lost in about.conflicts:
        if lost.held_since.is_given and lost.offered_since.is_given:
            ends = lost.held_since, lost.offered_since
            pairs.setdefault(tuple(sorted(end.location or end.title for end in ends)), []).append(lost)
    found = [(about.moved_between(offers), offers) for offers in pairs.values()]
    for moved, offers in sorted(found, key=lambda each: -sum(one.seconds for one in each[0]))[:_MOST]:
        first = offers[0]
        at = f" and {as_count(len(offers) - 1)} more" if len(offers) > 1 else ""
        related = map(collective_place, (one.number for one in moved))
        yield _timed(
            about,
            "conflict between annotations",
            sum(one.seconds for one in moved),
            f"{first.winner.title}{at}: {origin(first.held_since)} against {origin(first.offered_since)}",
            location=first.winner.location or first.loser.location,
            remedy=f"the same on both sides: {first.winner.title}={spell(first.offered, first.winner.mesh)}",
            detail=View(tuple(Tree(str(lost)) for lost in offers[:_MOST])),
            thread=Thread((f"worst-{value_place(first.winner.name)}",), (value_place(first.loser.name), *related)),
        )


def _launches(about: ReportedProgram) -> Iterator[tuple[float, Row]]:
    """Kernels that take longer to start than to run; the line that has most of them."""
    lines, seconds = Counter[str](), about.simulation.breakdown.launch_s
    for row in about.partitioned.cost.rows:
        if row.part == "launch_s":
            lines[row.instruction.location] += row.executions
    if lines:
        (line, most), count = lines.most_common(1)[0], lines.total()
        yield _timed(
            about,
            "launch-bound kernels",
            seconds,
            f"{as_count(count)} of them, {as_count(most)} at one line",
            location=line,
            remedy="more work a device: a larger batch, or fewer devices",
            thread=Thread(("worst-launches",), (line_place(line),)),
        )


def _idle(about: ReportedProgram, dearest: tuple[str, ...]) -> Iterator[tuple[float, Row]]:
    """While a device computes nothing."""
    parts = about.simulation.breakdown
    yield _timed(
        about,
        "waiting for communication",
        parts.exposed_s,
        f"of {as_seconds(about.simulation.comm_s)} of collectives, what no computing hides",
        thread=Thread(("worst-waiting",), dearest),
    )
    yield _timed(about, "idle", parts.idle_s + parts.waiting_s, "the device waits for launches, or for other stages")


def _attention(about: ReportedProgram) -> Iterator[tuple[float, Row]]:
    cost = about.partitioned.cost
    for found in unfused_attention(about.partitioned.module, cost)[:1]:
        yield _timed(
            about,
            "attention not fused",
            found.saved_s,
            f"to save: {as_seconds(found.time_s - found.fused_s)} and {as_bytes(found.saved_bytes)} moved",
            location=found.location or "(unknown)",
            remedy=f"{_FUSED[cost.machine.platform]} takes {as_seconds(found.fused_s)}, not {as_seconds(found.time_s)}",
            thread=Thread(("worst-attention",), (line_place(found.location),)),
        )


def _replicated(about: ReportedProgram, copies: Sequence[Copies]) -> Iterator[Row]:
    propagation = about.partitioned.propagation
    for most in copies[: _MOST - 2]:
        name = most.first.name
        yield {
            "what": "replicated value",
            "figure": Shown(as_bytes(most.wasted_bytes), most.wasted_bytes),
            "share": None,
            "which": f"%{name}: {as_count(most.times)} x {most.first.opcode} {most.first.shape}, {most.copies} copies",
            "location": most.location,
            "remedy": f"split over these devices it saves {as_bytes(most.wasted_bytes)} of memory",
            "detail": explanations_view([propagation.explain(name)]) if propagation is not None else None,
            "thread": Thread((f"worst-{copies_place(name)}",), (copies_place(name), value_place(name))),
        }


def _accidents(about: ReportedProgram) -> Iterator[Row]:
    for worst in accidents_of(about.partitioned)[:1]:
        name = worst.first.name
        yield _finding(
            "whole, and nobody asked",
            Shown(as_bytes(worst.nbytes), worst.nbytes),
            f"{worst.name} {worst.first.shape}, on every device",
            location=worst.location,
            remedy=worst.remedy,
            thread=Thread((f"worst-whole-{value_place(name)}",), (value_place(name),)),
        )


def _warnings(about: ReportedProgram) -> Iterator[Row]:
    warnings = about.partitioned.warnings
    if warnings:
        figure = Shown(as_count(len(warnings)), len(warnings))
        yield _finding("warnings", figure, warnings[0], detail=View((Lines("", warnings),)))
