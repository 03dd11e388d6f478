"""Values that lie on several devices at once: how many bytes a device could do without.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlosharding.ir import Instruction
from hlosharding.plans import is_held
from hlosharding.report.explanations import explanations_view
from hlosharding.report.model import Column, Figure, Kind, Row, Shown, Table, Thread, View, fields_of
from hlosharding.report.places import copies_place, line_place, value_place
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.shardings import path_of_layers
from hlosharding.sharding import HloSharding, spell

_EXPLAINED = 40

_COLUMNS = (
    Column(key="value", heading="value"),
    Column(key="opcode", heading="op", priority=2),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=1),
    Column(key="sharding", heading="sharding", kind=Kind.SHARDING),
    Column(key="copies", heading="copies", kind=Kind.COUNT, priority=1),
    Column(key="times", heading="times", kind=Kind.COUNT, sums=True, priority=2),
    Column(key="bytes", heading="bytes a device", kind=Kind.BYTES, sums=True),
    Column(key="wasted_bytes", heading="to save", kind=Kind.BYTES, sums=True),
    Column(key="location", heading="source", kind=Kind.LOCATION),
)


@dataclass(frozen=True, slots=True)
class Copies:
    """Values of one source line, shape and sharding, each on several devices."""

    first: Instruction
    sharding: HloSharding
    times: int
    copies: int
    """Devices that hold the same piece."""
    tile_bytes: float

    @property
    def nbytes(self) -> float:
        """On one device."""
        return self.tile_bytes * self.times

    @property
    def wasted_bytes(self) -> float:
        """That a device would not hold if the copies were split evenly."""
        return self.nbytes * (1 - 1 / self.copies)

    @property
    def location(self) -> str:
        """The source line, or a parameter's path."""
        return (self.first.op_name if self.first.opcode == "parameter" else "") or self.first.location


def copies_of(about: ReportedProgram) -> list[Copies]:
    """The replicated values of the entry and of loop bodies, alike ones together, the most wasteful first.

    >>> import hlosharding as hs
    >>> text = "HloModule m, num_partitions=4\\nENTRY e {\\n  x = f32[8] parameter(0), sharding={devices=[2,2]<=[4]"
    >>> text += " last_tile_dim_replicate}\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> about = ReportedProgram(hs.partition(hs.load(text)))
    >>> [(one.first.name, one.copies, one.wasted_bytes) for one in copies_of(about)]
    [('x', 2, 8.0)]
    """
    groups: dict[tuple[str, ...], list[tuple[Instruction, HloSharding]]] = {}
    spelled: dict[int, str] = {}  # by identity: those that are equal may be spelled otherwise
    for inst, sharding in _replicated(about):
        place = path_of_layers(inst.op_name) if inst.opcode == "parameter" else inst.location
        if id(sharding) not in spelled:
            spelled[id(sharding)] = spell(sharding, about.mesh)
        key = (place or inst.name, inst.opcode, str(inst.shape), spelled[id(sharding)])
        groups.setdefault(key, []).append((inst, sharding))
    found = (_copies(about, members[0][0], members[-1][1], len(members)) for members in groups.values())
    return sorted((one for one in found if one.copies > 1), key=lambda one: -one.wasted_bytes)


def _replicated(about: ReportedProgram) -> Iterator[tuple[Instruction, HloSharding]]:
    for computation in about.whole.computations:
        for inst in computation.instructions:
            if not inst.shape.dims or not is_held(inst):
                continue
            sharding = about.sharding(inst)
            # What is fused into its readers, or another name of a value, moves no bytes.
            is_stored = inst.opcode == "parameter" or (inst in about.figures and about.figures[inst].bytes > 0)
            if is_stored and sharding is not None and sharding.kind in ("replicated", "tiled"):
                yield inst, sharding


def _copies(about: ReportedProgram, first: Instruction, sharding: HloSharding, times: int) -> Copies:
    copies = max(1, about.partitioned.num_partitions // sharding.num_tiles)
    return Copies(first, sharding, times, copies, first.shape.byte_size / sharding.num_tiles)


def replicated_view(about: ReportedProgram, found: Sequence[Copies]) -> View:
    """The table of `copies_of`; a row opens to why the value is not split."""
    rows = [_row(about, one, explained=number < _EXPLAINED) for number, one in enumerate(found)]
    table = Table(
        key="replicated", columns=_COLUMNS, rows=rows, mesh=about.mesh, total="all",
        empty="every value is split over all devices", detail="detail", thread="thread",
    )  # fmt: skip
    return View((table,))


def _row(about: ReportedProgram, one: Copies, *, explained: bool) -> Row:
    propagation, name = about.partitioned.propagation, one.first.name
    return {
        "value": Shown(f"%{name}", name),
        **fields_of(one.first, "opcode shape"),
        **fields_of(one, "sharding copies times"),
        "bytes": Figure(one.nbytes),
        "wasted_bytes": Figure(one.wasted_bytes),
        "location": one.location,
        "detail": explanations_view([propagation.explain(name)]) if explained and propagation else None,
        "thread": Thread((copies_place(name),), (value_place(name), line_place(one.first.location))),
    }
