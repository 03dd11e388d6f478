"""The collectives of a program, the dearest first: each with its source line, its causes, and what would remove it.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlosharding.compiler import CollectiveExplanation
from hlosharding.report.collectives import participants
from hlosharding.report.explanations import collective_explanations_view
from hlosharding.report.model import Cell, Column, Figure, Kind, Shown, Table, Thread, View
from hlosharding.report.places import collective_place, line_place, remedy_place, value_place
from hlosharding.report.sections.reported import Numbered, ReportedProgram

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
    def cause(self) -> str:
        """Without the name of the op, which would keep equal layers apart."""
        return self.first.collective.kind_of_cause

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
        key = (found.kind, found.axes or participants(found), str(found.shape), found.location, found.kind_of_cause)
        groups.setdefault(key, []).append(one)
    return sorted((Alike(tuple(members)) for members in groups.values()), key=lambda group: -group.seconds)


def explain_dearest(about: ReportedProgram, groups: Sequence[Alike]) -> dict[int, CollectiveExplanation]:
    """Why the first of each group is there, of the dearest groups, by its number."""
    numbers = [group.first.number for group in groups[:_EXPLAINED]]
    if not about.is_explained or not numbers:
        return {}
    priced = len(about.whole.instructions) <= _MOST_INSTRUCTIONS
    told = about.partitioned.explain_collectives(*numbers, priced=priced)
    return {one.number: one for one in told if one.number is not None}


def ranked_collectives_view(
    about: ReportedProgram, groups: Sequence[Alike], told: Mapping[int, CollectiveExplanation]
) -> View:
    """The table of such collectives; a row opens to the op that needed the collective, the causes of both sides, and
    what would remove it (`told`, by `explain_dearest`).

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> about = ReportedProgram(hs.partition(hs.load(text)))
    >>> ranked_collectives_view(about, rank_collectives(about), {}).parts[0].empty
    'there are none'
    """
    whole_s = sum(one.seconds for one in about.collectives)
    details = {number: collective_explanations_view([one]) for number, one in told.items()}
    table = Table(
        key="collectives",
        columns=_COLUMNS,
        rows=[_row(about, group, whole_s) | {"detail": details.get(group.first.number)} for group in groups],
        mesh=about.mesh,
        total="all",
        empty="there are none",
        detail="detail",
        thread="thread",
    )
    return View((table,))


def _row(about: ReportedProgram, group: Alike, whole_s: float) -> dict[str, Cell]:
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
        "cause": group.cause,
        "thread": _thread(about, group),
    }


def _thread(about: ReportedProgram, group: Alike) -> Thread:
    """With the ops that needed them, and the loops in which these are."""
    names = dict.fromkeys(one.collective.needed_by for one in group.members)
    found = [op for name in names if (op := about.whole.find(name)) is not None]
    ops = dict.fromkeys(value_place(each.name) for op in found for each in (op, *about.loops_of(op)))
    numbers = [one.number for one in group.members]
    places = line_place(group.first.collective.location), remedy_place(numbers[0])
    return Thread(tuple(map(collective_place, numbers)), (*ops, *places))
