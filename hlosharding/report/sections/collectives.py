"""The collectives of a program, the dearest first: each with its source line, its causes, and what would remove it.

Floor: report.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hlosharding.report.collectives import participants
from hlosharding.report.explanations import collective_explanations_view
from hlosharding.report.model import Column, Figure, Kind, Row, Shown, Table, View
from hlosharding.report.sections.reported import Numbered, ReportedProgram

_INSTRUCTION = re.compile(r" for %\S+ \((\S+)\)$")
_EXPLAINED = 40
"""Rows whose causes are told."""
_MOST_INSTRUCTIONS = 30_000
"""Of a larger program no other splits are priced here: `explain` does it, for one collective at a time."""

_COLUMNS = (
    Column(key="numbers", heading="#"),
    Column(key="kind", heading="collective"),
    Column(key="time_s", heading="predicted", kind=Kind.SECONDS, sums=True),
    Column(key="share", heading="of all", kind=Kind.SHARE, sums=True, priority=3),
    Column(key="bytes_per_device", heading="received", kind=Kind.BYTES, sums=True),
    Column(key="executions", heading="times", kind=Kind.COUNT, sums=True, priority=1),
    Column(key="axes", heading="over", priority=2),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=2),
    Column(key="location", heading="source", kind=Kind.LOCATION),
    Column(key="cause", heading="why", kind=Kind.PROSE),
)


@dataclass(frozen=True, slots=True)
class Alike:
    """Collectives that read alike: of one kind, place, shape and cause."""

    members: tuple[Numbered, ...]

    @property
    def first(self) -> Numbered:
        return self.members[0]

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.members)

    @property
    def nbytes(self) -> float:
        return sum(one.collective.bytes_per_device for one in self.members)

    @property
    def executions(self) -> int:
        return sum(one.collective.executions for one in self.members)

    @property
    def is_exact(self) -> bool:
        return all(one.collective.is_exact for one in self.members)

    @property
    def numbers_text(self) -> str:
        """#3, or "#3 +7" for it and seven more."""
        more = len(self.members) - 1
        return f"#{self.first.number}" + (f" +{more}" if more else "")


def rank_collectives(about: ReportedProgram) -> list[Alike]:
    """Those that read alike together, the dearest first."""
    groups: dict[tuple[str, ...], list[Numbered]] = {}
    for one in about.collectives:
        found = one.collective
        key = (found.kind, found.axes or participants(found), str(found.shape), found.location, _why(found.cause))
        groups.setdefault(key, []).append(one)
    return sorted((Alike(tuple(members)) for members in groups.values()), key=lambda group: -group.seconds)


def ranked_collectives_view(about: ReportedProgram, groups: Sequence[Alike]) -> View:
    """The table of such collectives; a row opens to the op that needed the collective, the causes of both sides, and
    what would remove it.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> about = ReportedProgram(hs.partition(hs.load(text)))
    >>> ranked_collectives_view(about, rank_collectives(about)).parts[0].empty
    'there are none'
    """
    whole_s = sum(one.seconds for one in about.collectives)
    details = _details(about, [group.first.number for group in groups[:_EXPLAINED]])
    table = Table(
        title="",
        key="collectives",
        columns=_COLUMNS,
        rows=[{**_row(group, whole_s), "detail": details.get(group.first.number)} for group in groups],
        mesh=about.mesh,
        total="all",
        empty="there are none",
        detail="detail",
    )
    return View((table,))


def _details(about: ReportedProgram, numbers: Sequence[int]) -> dict[int, View]:
    if not about.is_explained or not numbers:
        return {}
    priced = len(about.whole.instructions) <= _MOST_INSTRUCTIONS
    told = about.partitioned.explain_collectives(*numbers, priced=priced)
    return {one.number: collective_explanations_view([one]) for one in told if one.number is not None}


def _row(group: Alike, whole_s: float) -> Row:
    one = group.first.collective
    return {
        "numbers": Shown(group.numbers_text, [each.number for each in group.members]),
        "kind": one.kind,
        "axes": Shown(one.axes or participants(one), one.axes),
        "shape": str(one.shape),
        "executions": Figure(group.executions, is_exact=group.is_exact),
        "bytes_per_device": Figure(group.nbytes, is_exact=group.is_exact),
        "time_s": Figure(group.seconds, is_exact=group.is_exact),
        "share": group.seconds / whole_s if whole_s else 0.0,
        "location": one.location,
        "cause": _why(one.cause),
    }


def _why(cause: str) -> str:
    """Without the name of the op, which would keep equal layers apart."""
    return _INSTRUCTION.sub(r" for \1", cause)
