"""What bounds each group of ops: arithmetic, memory, or the launch of its kernels; as a roofline.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from hlosharding.cost import PARTS, Machine, Priced, hardware_flops
from hlosharding.ir import PRODUCTS, collective_kind
from hlosharding.report.figures import as_large, as_seconds
from hlosharding.report.model import Column, Kind, Picture, Row, Table, Text, Thread, View, fields_of
from hlosharding.report.places import function_place, group_place, line_place, spelled
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.streams import COLOURS
from hlosharding.report.svg import LogScale, label, line_down, line_right, place, svg_image

_LEFT, _TOP, _WIDTH, _HEIGHT = 106, 16, 780, 260
_SMALLEST, _LARGEST = 3.0, 22.0
"""Radii, in pixels: of groups that take no time, and of one that takes all."""
_MOST_DRAWN = 200
_GROUPS = (
    Column(key="group", heading="ops"),
    Column(key="flops", heading="FLOPs", kind=Kind.LARGE, sums=True),
    Column(key="bytes", heading="read and written", kind=Kind.BYTES, sums=True, priority=2),
    Column(key="intensity", heading="FLOPs a byte", kind=Kind.RATIO, priority=1),
    Column(key="rate", heading="FLOP/s", kind=Kind.LARGE),
    Column(key="of_roof", heading="of the roof", kind=Kind.SHARE),
    Column(key="bound", heading="bound by"),
    Column(key="time_s", heading="predicted", kind=Kind.SECONDS, sums=True),
    Column(key="share", heading="of computing", kind=Kind.SHARE, sums=True, priority=2),
)


@dataclass(slots=True)
class Group:
    """The products of a function, or its other ops: on one device, in one step."""

    name: str
    is_product: bool
    function: str
    flops: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    bounds: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by what bounds them."""
    lines: set[str] = field(default_factory=set[str])

    def add(self, row: Priced) -> None:
        """One more of its ops."""
        self.flops += row.flops
        self.bytes += row.bytes
        self.seconds += row.time_s
        bound = PARTS[row.part][1]
        self.bounds[bound] = self.bounds.get(bound, 0.0) + row.time_s
        self.lines.add(row.instruction.location)

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def rate(self) -> float:
        """FLOPs a second."""
        return self.flops / self.seconds if self.seconds else 0.0


def groups_of(about: ReportedProgram) -> list[Group]:
    """Those that compute, the longest first.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> [(group.name, group.intensity) for group in groups_of(ReportedProgram(hs.partition(hs.load(text))))]
    [('other ops', 0.125)]
    """
    found: dict[tuple[str, bool], Group] = {}
    for row in about.partitioned.cost.rows:
        inst = row.instruction
        if collective_kind(inst.opcode) is not None:
            continue
        function, is_product = inst.frames.function_name, inst.opcode in PRODUCTS
        kind = "products" if is_product else "other ops"
        name = f"{function}: {kind}" if function else kind
        found.setdefault((function, is_product), Group(name, is_product, function)).add(row)
    return sorted((group for group in found.values() if group.seconds), key=lambda group: -group.seconds)


def roofline_view(about: ReportedProgram) -> View:
    """The picture, the utilization of the whole step, and a row for each group."""
    groups, machine = groups_of(about), about.partitioned.machine
    types = hardware_flops(about.partitioned.module)
    peak = machine.flops(max(types, key=types.__getitem__)) if types else machine.vector_flops
    whole_s = sum(group.seconds for group in groups)
    drawn = [group for group in groups if group.flops and group.bytes][:_MOST_DRAWN]
    svg = roofline_svg(drawn, machine, peak, whole_s)
    picture = Picture(svg, title="FLOPs a second over FLOPs a byte, with the roof")
    rows = [_row(group, machine, peak, whole_s) for group in groups]
    table = Table(key="groups", columns=_GROUPS, rows=rows, total="all", thread="thread")
    return View((*([picture] if drawn else []), Text(about.simulation.figures), table))


def _row(group: Group, machine: Machine, peak: float, whole_s: float) -> Row:
    roof, lines = roof_at(group, machine, peak), map(line_place, sorted(group.lines))
    return {
        "group": group.name,
        **fields_of(group, "flops bytes intensity rate"),
        "of_roof": group.rate / roof if roof else 0.0,
        "bound": max(group.bounds, key=group.bounds.__getitem__),
        "time_s": group.seconds,
        "share": group.seconds / whole_s if whole_s else 0.0,
        "thread": Thread((group_place(group.name),), (function_place(group.function), *lines)),
    }


def roof_at(group: Group, machine: Machine, peak: float) -> float:
    """FLOP/s that a device could reach at most with so many FLOPs a byte; `peak`: of its products."""
    return min(peak if group.is_product else machine.vector_flops, group.intensity * machine.memory_bandwidth)


def roofline_svg(groups: Sequence[Group], machine: Machine, peak: float, whole_s: float) -> str:
    """A circle for each group, as large as the time it takes; the roof is what the chip can do."""
    if not groups:
        return svg_image(_LEFT + _WIDTH, _TOP, [])
    ridge, bandwidth = peak / machine.memory_bandwidth, machine.memory_bandwidth
    across = LogScale([ridge, *(group.intensity for group in groups)], _LEFT, _LEFT + _WIDTH)
    up = LogScale([peak, machine.vector_flops, *(group.rate for group in groups)], _TOP + _HEIGHT, _TOP)
    parts = [*_axes(across, up), *_roof(across, up, peak, machine.vector_flops, bandwidth)]
    parts += [_circle(group, across, up, whole_s) for group in groups]
    return svg_image(_LEFT + _WIDTH + 24, _TOP + _HEIGHT + 40, parts)


def _axes(across: LogScale, up: LogScale) -> Iterator[str]:
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    for value in _powers(across):
        yield line_down(across.at(value), _TOP, bottom, f"{value:g}", below=15)
    for value in _powers(up):
        yield line_right(up.at(value), _LEFT, right, f"{as_large(value)}FLOP/s")
    yield label(_LEFT + _WIDTH / 2, bottom + 32, "FLOPs a byte of memory", "middle")


def _powers(scale: LogScale) -> list[float]:
    """Of ten; not too many of them."""
    powers = [tick for tick in scale.ticks if f"{tick:e}".startswith("1.0")]
    # Without any power the quotient is 0, which is no step.
    return powers[:: -(-len(powers) // 8) or 1]


def _roof(across: LogScale, up: LogScale, peak: float, vector: float, bandwidth: float) -> Iterator[str]:
    right, left = 10**across.high, max(10**across.low, 10**up.low / bandwidth)
    for top, name in ((peak, "products"), (vector, "other ops")):
        corners = [(left, left * bandwidth), (top / bandwidth, top), (right, top)]
        line = " ".join(f"{across.at(x):.1f},{up.at(min(y, top)):.1f}" for x, y in corners if x >= left)
        yield f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'
        yield label(_LEFT + _WIDTH, up.at(top) - 5, f"{name}: {as_large(top)}FLOP/s", "end")


def _circle(group: Group, across: LogScale, up: LogScale, whole_s: float) -> str:
    # The root, since what one sees of a circle is its area.
    radius = _SMALLEST + (_LARGEST - _SMALLEST) * (group.seconds / whole_s) ** 0.5
    colour = COLOURS["products" if group.is_product else "other ops"]
    said = f"{spelled(group.name)}: {as_seconds(group.seconds)}, {as_large(group.rate)}FLOP/s"
    at = f'cx="{across.at(group.intensity):.1f}" cy="{up.at(group.rate):.1f}" r="{radius:.1f}"'
    circle = f'<circle {at} fill="{colour}" fill-opacity="0.6"><title>{escape(said)}</title></circle>'
    return place(group_place(group.name), [circle])
