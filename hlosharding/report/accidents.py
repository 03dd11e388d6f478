"""Values that are whole on every device though no annotation asks for it, each with an annotation that splits it.

Floor: report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hlosharding.compiler import Partitioned
from hlosharding.ir import Instruction
from hlosharding.plans import REPLICATED_OVER, ReplicatedValue, replicated_by_accident
from hlosharding.report.model import Column, Figure, Kind, Row, Shown, Table, View
from hlosharding.report.shardings import path_of_layers
from hlosharding.search import nearest_split
from hlosharding.sharding import spell

_COLUMNS = (
    Column(key="value", heading="whole by accident"),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=1),
    Column(key="times", heading="times", kind=Kind.COUNT, sums=True, priority=2),
    Column(key="bytes", heading="bytes a device", kind=Kind.BYTES, sums=True),
    Column(key="location", heading="source", kind=Kind.LOCATION, priority=1),
    Column(key="remedy", heading="splits it", kind=Kind.PROSE),
)


@dataclass(frozen=True, slots=True)
class Accident:
    """Values of one path or line and shape."""

    values: Sequence[ReplicatedValue]
    remedy: str
    """An annotation that splits the first; "" where no split would be even."""

    @property
    def first(self) -> Instruction:
        """Of the whole program."""
        return self.values[0].instruction

    @property
    def name(self) -> str:
        """Of arguments the path, of all layers."""
        return path_of_layers(self.values[0].name)

    @property
    def location(self) -> str:
        """The source line."""
        return self.values[0].location

    @property
    def nbytes(self) -> int:
        """On each device."""
        return sum(value.nbytes for value in self.values)


def accidents_of(partitioned: Partitioned, *, over: int = REPLICATED_OVER) -> list[Accident]:
    """Those of more than `over` bytes, alike ones together, the largest first."""
    groups = defaultdict[tuple[str, str, str], list[ReplicatedValue]](list)
    for value in replicated_by_accident(partitioned, over=over):
        groups[path_of_layers(value.name), value.location, str(value.instruction.shape)].append(value)
    found = [Accident(values, _remedy(partitioned, values[0].instruction)) for values in groups.values()]
    return sorted(found, key=lambda one: -one.nbytes)


def _remedy(partitioned: Partitioned, inst: Instruction) -> str:
    propagation = partitioned.propagation
    split = nearest_split(propagation, propagation.source.by_name(inst.name)) if propagation is not None else None
    return f"annotate %{inst.name}={spell(split, inst.module.mesh)}" if split is not None else ""


def accidents_view(partitioned: Partitioned, *, over: int = REPLICATED_OVER) -> View:
    """The table of `accidents_of`.

    >>> import hlosharding as hs
    >>> text = "HloModule m, num_partitions=2\\nENTRY e {\\n  ROOT x = f32[8] parameter(0)\\n}"
    >>> [row["remedy"] for row in accidents_view(hs.partition(hs.load(text)), over=0).parts[0].rows]
    ['annotate %x={devices=[2]<=[2]}']
    """
    rows = [_row(one) for one in accidents_of(partitioned, over=over)]
    empty = f"no value of more than {over:,} bytes is whole by accident"
    table = Table(key="accidents", columns=_COLUMNS, rows=rows, mesh=partitioned.module.mesh, empty=empty)
    return View((table,))


def _row(one: Accident) -> Row:
    return {
        "value": Shown(one.name, one.first.name),
        "shape": one.first.shape,
        "times": len(one.values),
        "bytes": Figure(one.nbytes),
        "location": one.location,
        "remedy": one.remedy,
    }
