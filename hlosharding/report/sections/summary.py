"""The first thing a report says: what a step takes, and what is worst about it.

Floor: report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hlosharding.cost import unfused_attention
from hlosharding.propagation import LostOffer, origin
from hlosharding.report.accidents import accidents_of
from hlosharding.report.figures import as_bytes, as_count, as_seconds
from hlosharding.report.model import Column, Facts, Figure, Kind, Label, Row, Shown, Table, View
from hlosharding.report.sections.collectives import Alike
from hlosharding.report.sections.replicated import Copies
from hlosharding.report.sections.reported import ReportedProgram

_FINDINGS = (
    Column(key="what", heading="what is worst"),
    Column(key="figure", heading="how much"),
    Column(key="share", heading="of the time", kind=Kind.SHARE),
    Column(key="which", heading="which", kind=Kind.PROSE),
    Column(key="location", heading="source", kind=Kind.LOCATION, priority=1),
)
_FUSED = {"gpu": 'jax.nn.dot_product_attention(implementation="cudnn")', "tpu": "a splash attention kernel"}
"""By the platform of a machine, what has attention as one kernel."""


def summary_view(about: ReportedProgram, groups: Sequence[Alike], copies: Sequence[Copies]) -> View:
    """Time, memory, bytes and FLOPs of one device in one step; then the worst of each.

    `groups`, `copies`: its collectives, and its replicated values, each the worst first.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> view = summary_view(ReportedProgram(hs.partition(hs.load(text))), [], [])
    >>> [label.name for label in view.parts[0].labels]
    ['step', 'exposed communication', 'peak memory', 'bytes received', 'FLOPs']
    """
    findings = list(_findings(about, groups, copies))
    table = Table(title="", key="worst", columns=_FINDINGS, rows=findings, is_shown=bool(findings))
    return View((_totals(about), table))


def _totals(about: ReportedProgram) -> Facts:
    run, cost = about.simulation, about.partitioned.cost
    is_exact = not run.guessed_loops
    share = run.exposed_comm_s / run.time_s if run.time_s else 0.0
    items: Row = {
        "machine": run.machine.name,
        "time_s": Figure(run.time_s, is_exact=is_exact),
        "exposed_comm_s": Figure(run.exposed_comm_s, is_exact=is_exact),
        "peak_memory_bytes": int(cost.peak_memory_bytes),
        "comm_bytes": Figure(cost.comm_bytes, is_exact=is_exact),
        "flops": Figure(cost.flops, is_exact=is_exact),
    }
    computing, talking = as_seconds(run.compute_s), as_seconds(run.comm_s)
    memory, number = cost.peak_memory_bytes / run.machine.memory_bytes, len(cost.collectives)
    labels = (
        Label("time_s", "step", f"simulated on {run.machine.name}: {computing} computing", Kind.SECONDS),
        Label("exposed_comm_s", "exposed communication", f"{share:.0%} of the step, of {talking}", Kind.SECONDS),
        Label("peak_memory_bytes", "peak memory", f"{memory:.2%} of a device", Kind.BYTES),
        Label(
            "comm_bytes", "bytes received", f"in {as_count(number)} collective{'' if number == 1 else 's'}", Kind.BYTES
        ),
        Label("flops", "FLOPs", "of one device", Kind.LARGE),
    )
    return Facts(items, f"One device, one step, on {run.machine.name}", labels)


def _dearest_conflict(about: ReportedProgram) -> list[tuple[LostOffer, float]]:
    """That between two annotations for whose ops collectives take longest, and how long."""
    propagation = about.partitioned.propagation
    if propagation is None or not about.is_explained:
        return []
    seconds = Counter[str]()
    for one in about.collectives:
        seconds[one.collective.needed_by] += one.seconds
    found = [
        (lost, sum(seconds[name] for name in lost.pair))
        for lost in propagation.conflicts
        if lost.held_since.is_given and lost.offered_since.is_given
    ]
    return [max(found, key=lambda each: each[1])] if any(each[1] for each in found) else []


def _findings(about: ReportedProgram, groups: Sequence[Alike], copies: Sequence[Copies]) -> Iterator[Row]:
    cost = about.partitioned.cost
    for group in groups[:1]:
        one = group.first.collective
        yield {
            "what": "dearest collective",
            "figure": Shown(as_seconds(group.seconds), group.seconds),
            "share": group.seconds / cost.time_s if cost.time_s else 0.0,
            "which": f"{group.numbers_text} {one.kind} {one.shape}, {as_bytes(group.nbytes)}",
            "location": one.location,
        }
    for line, part in list(cost.by_location.items())[:1]:
        yield {
            "what": "dearest source line",
            "figure": Shown(as_seconds(part.time_s), part.time_s),
            "share": part.time_s / cost.time_s if cost.time_s else 0.0,
            "which": f"{as_count(part.instructions)} ops, {as_bytes(part.comm_bytes)} received",
            "location": line or "(unknown)",
        }
    for found in unfused_attention(about.partitioned.module, cost)[:1]:
        yield {
            "what": "attention not fused",
            "figure": Shown(as_seconds(found.saved_s), found.saved_s),
            "share": found.saved_s / cost.time_s,
            "which": f"to save: {_FUSED[cost.machine.platform]} takes {as_seconds(found.fused_s)}, not"
            f" {as_seconds(found.time_s)}, and moves {as_bytes(found.saved_bytes)} less",
            "location": found.location or "(unknown)",
        }
    for most in copies[:1]:
        yield {
            "what": "largest replicated value",
            "figure": Shown(as_bytes(most.wasted_bytes), most.wasted_bytes),
            "share": None,
            "which": f"to save of {as_count(most.times)} x {most.first.opcode} {most.first.shape}",
            "location": most.location,
        }
    for lost, seconds in _dearest_conflict(about):
        yield {
            "what": "annotations that disagree",
            "figure": Shown(as_seconds(seconds), seconds),
            "share": seconds / cost.time_s,
            "which": f"{origin(lost.held_since)}, and {origin(lost.offered_since)}: they meet at {lost.winner.title}"
            f" and {lost.loser.title}",
            "location": lost.winner.location or lost.loser.location,
        }
    for worst in accidents_of(about.partitioned)[:1]:
        yield {
            "what": "whole, and nobody asked",
            "figure": Shown(as_bytes(worst.nbytes), worst.nbytes),
            "share": None,
            "which": f"{worst.name} {worst.first.shape}, on every device{worst.remedy and f'; {worst.remedy}'}",
            "location": worst.location,
        }
    if about.partitioned.warnings:
        count = len(about.partitioned.warnings)
        yield {"what": "warnings", "figure": Shown(as_count(count), count), "share": None,
               "which": about.partitioned.warnings[0], "location": ""}  # fmt: skip
