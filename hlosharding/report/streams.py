"""A simulated step: its figures, and pictures of computing above communicating, and of what a device holds meanwhile.

Floor: report.  However many ops: what is narrower than a pixel is drawn together with its neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from hlosharding.cost import Event, Simulation, StepFigures, streams_of
from hlosharding.ir import CONTROL_FLOW, PRODUCTS, collective_kind
from hlosharding.printable import printable
from hlosharding.report.figures import as_bytes, as_seconds
from hlosharding.report.model import Column, Facts, Figure, Kind, Picture, Table, Text, View, fields_of
from hlosharding.report.places import spelled
from hlosharding.report.svg import label, line_down, line_right, svg_image

_LEFT, _WIDTH, _LANE, _GAP, _CURVE = 118, 842, 34, 10, 150  # pixels
_TICKS = 8
_NEARER = 16

COLOURS = {
    "products": "hsl(214,65%,54%)",
    "other ops": "hsl(196,45%,62%)",
    "loops and calls": "hsl(250,40%,62%)",
    "all-reduce": "hsl(12,78%,56%)",
    "all-gather": "hsl(38,88%,52%)",
    "reduce-scatter": "hsl(338,62%,59%)",
    "all-to-all": "hsl(282,45%,58%)",
    "collective-permute": "hsl(96,42%,44%)",
    "other transfers": "hsl(0,0%,55%)",
}


def simulation_view(simulation: Simulation, *, most: int = 10) -> View:
    """A simulated step: its figures, and the `most` longest events of its critical path, in order of time."""
    # By identity: an event holds its cause, so to hash one by its fields would walk the whole chain before it.
    critical = {id(event) for event in simulation.critical_path}
    facts = Facts.of(
        machine=simulation.machine.name,
        **fields_of(simulation, "time_s compute_s comm_s host_s exposed_comm_s"),
        peak_memory_bytes=int(simulation.peak_memory_bytes),
        host_memory_bytes=int(simulation.host_memory_bytes),
        guessed_loops=[loop._asdict() for loop in simulation.guessed_loops],
        **step_record(simulation.figures),
    )
    every = [_event_row(event) | {"is_critical": id(event) in critical} for event in simulation.timeline]
    path = sorted(simulation.critical_path, key=lambda event: -event.seconds)[:most]
    columns = (
        Column(key="start", heading="start", kind=Kind.SECONDS),
        Column(key="takes", heading="takes", kind=Kind.SECONDS, in_record=False),
        Column(key="stream", heading="stream", priority=2),
        Column(key="opcode", heading="op"),
        Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=3),
        Column(key="location", heading="source", kind=Kind.LOCATION, priority=1),
    )
    title = f"Critical path: {len(path)} longest of {len(simulation.critical_path)} steps"
    timeline = Table(title="Timeline", key="timeline", columns=columns, rows=every, is_shown=False)
    longest = Table(title=title, columns=columns, rows=[_event_row(e) for e in sorted(path, key=lambda e: e.start)])
    drawn = Picture(simulation_svg(simulation), printable(simulation.headline), "One step on a device")
    return View((facts, timeline, drawn, Text(simulation.figures), longest), schema="hlosharding.simulation/1")


def step_record(figures: StepFigures) -> dict[str, Any]:
    """What a record says of a predicted step beside its time."""
    return {
        "utilization": figures.utilization,
        "utilization_kind": figures.kind,
        "tokens_per_s": figures.tokens_per_s,
        "bound": figures.breakdown.bound,
        "breakdown": asdict(figures.breakdown),
        "error": asdict(figures.error) if figures.error else None,
    }


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "name": event.instruction.name,
        "joined": [op.name for op in event.joined],
        "opcode": event.instruction.opcode,
        "shape": str(event.instruction.shape),
        "location": event.instruction.location,
        **fields_of(event, "stream start end"),
        "takes": event.seconds,
        "received_bytes": event.nbytes,
        "trips": Figure(event.trips, is_exact=event.is_exact),
        "is_exact": event.is_exact,
    }


def simulation_svg(run: Simulation) -> str:
    """The streams of a device as bars over time.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> simulation_svg(hs.simulate(hs.load(text))).count("<rect")
    2
    """
    seconds: dict[str, float] = defaultdict(float)
    for event in run.timeline:
        seconds[_kind(event)] += event.seconds
    parts, top = list(_legend(seconds)), 34
    for stream in streams_of(run.timeline):
        parts.append(label(4, top + 21, stream))
        parts += [_bar(run, some, top) for some in _together(run, [e for e in run.timeline if e.stream == stream])]
        top += _LANE + _GAP
    parts += _time_axis(run.time_s, 34, top)
    return svg_image(_LEFT + _WIDTH + 24, top + 24, parts)


def _kind(event: Event) -> str:
    opcode = event.instruction.opcode
    if event.stream == "host":
        return "other transfers"
    if event.stream == "communication":
        kind = collective_kind(opcode) or ""
        return kind if kind in COLOURS else "other transfers"
    if opcode in PRODUCTS:
        return "products"
    return "loops and calls" if opcode in CONTROL_FLOW else "other ops"


def _legend(seconds: dict[str, float]) -> Iterator[str]:
    x = float(_LEFT)
    for kind in (kind for kind in COLOURS if seconds.get(kind)):
        text = f"{kind} {as_seconds(seconds[kind])}"
        yield f'<rect x="{x:.0f}" y="6" width="11" height="11" rx="2" fill="{COLOURS[kind]}"/>'
        yield label(x + 16, 16, text)
        x += 16 + 7.3 * len(text) + 18


def _x(moment: float, whole: float) -> float:
    return _LEFT + (moment / whole * _WIDTH if whole else 0.0)


def _together(run: Simulation, events: Sequence[Event], narrow: float = 1.0) -> Iterator[list[Event]]:
    """Each event, or neighbours that are narrower than so many pixels together."""
    group: list[Event] = []
    for event in events:
        if group and _x(event.end, run.time_s) - _x(group[0].start, run.time_s) >= narrow:
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def _bar(run: Simulation, some: Sequence[Event], top: int) -> str:
    x, end = _x(some[0].start, run.time_s), _x(some[-1].end, run.time_s)
    main = max(some, key=lambda event: event.seconds)
    inst, more = main.instruction, f" and {len(some) - 1} more" if len(some) > 1 else ""
    where = f" at {inst.location}" if inst.location else ""
    said = f"{inst.opcode} %{inst.name}{more}{where}: {as_seconds(sum(event.seconds for event in some))}"
    box = f'<rect x="{x:.2f}" y="{top}" width="{max(0.4, end - x - 0.25):.2f}" height="{_LANE}"'
    return f'{box} fill="{COLOURS[_kind(main)]}"><title>{escape(printable(said))}</title></rect>'


def _time_axis(whole: float, top: int, bottom: int) -> Iterator[str]:
    for moment in _ticks(whole):
        yield line_down(_x(moment, whole), top, bottom, as_seconds(moment), below=14, opacity=0.18)


def _ticks(whole: float) -> list[float]:
    """Round numbers from 0 to `whole`, at most eight.

    >>> _ticks(7.0)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    if whole <= 0:
        return []
    power = 10.0 ** int(f"{whole:e}".partition("e")[2])
    sizes = power / 5, power / 2, power, 2 * power
    # The quotient may come out just below a whole number, and the end would have no tick.
    step, last = next((size, n) for size in sizes if (n := int(whole / size + 1e-9)) < _TICKS)
    return [round(number * step, 15) for number in range(last + 1)]


def timeline_bars(run: Simulation, numbers: Mapping[str, int]) -> dict[str, Any]:
    """The same as data, `_NEARER` times as fine: of each bar its stream, kind, start and length in seconds, its op's
    name or its collectives' numbers, its source line, and how many ops are drawn together.

    `numbers`: of the collectives, by name.
    """
    streams, kinds, lines = streams_of(run.timeline), list(COLOURS), dict[str, int]()
    bars: list[list[Any]] = []
    for lane, stream in enumerate(streams):
        for some in _together(run, [event for event in run.timeline if event.stream == stream], 1 / _NEARER):
            main = max(some, key=lambda event: event.seconds)
            found = [numbers[op.name] for op in main.instructions if op.name in numbers]
            # Numbers in place of texts, here and for kinds: a page may have thousands of bars, and few lines.
            line = lines.setdefault(spelled(main.instruction.location), len(lines))
            bar = [lane, kinds.index(_kind(main)), _rounded(some[0].start), _rounded(some[-1].end - some[0].start)]
            bars.append([*bar, found or spelled(main.instruction.name), line, *([len(some)] if len(some) > 1 else [])])
    used = sorted({bar[1] for bar in bars})
    for bar in bars:
        bar[1] = used.index(bar[1])
    return {
        "end": run.time_s,
        "streams": streams,
        "kinds": [[kinds[kind], COLOURS[kinds[kind]]] for kind in used],
        "lines": list(lines),
        "bars": bars,
    }


# Six digits: a page may have thousands of bars, and Python writes up to seventeen for each number.
def _rounded(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def memory_svg(run: Simulation) -> str:
    """Bytes on a device over time, as an area."""
    peak = max((nbytes for _, nbytes in run.memory), default=0) or 1
    top, bottom = 14, 14 + _CURVE
    levels = [(_x(moment, run.time_s), nbytes / peak * _CURVE) for moment, nbytes in thin_levels(run.memory, _WIDTH)]
    points = area_points(levels, _LEFT, _LEFT + _WIDTH, bottom)
    parts = [f'<polygon points="{points}" fill="{COLOURS["products"]}" fill-opacity="0.45"/>']
    for share in (0.0, 0.5, 1.0):
        y, size = bottom - share * _CURVE, as_bytes(share * peak)
        parts.append(line_right(y, _LEFT, _LEFT + _WIDTH, size, before=8, opacity=0.18))
    parts += _time_axis(run.time_s, top, bottom)
    return svg_image(_LEFT + _WIDTH + 24, bottom + 24, parts)


def area_points(levels: Iterable[tuple[float, float]], left: int, right: int, bottom: int) -> str:
    """The corners of the area below a level, from pixel `left` to `right`: (x, height) wherever it changes.

    >>> area_points([(2, 5.0)], 0, 9, 10)
    '0,10 2.0,10.0 2.0,5.0 9,5.0 9,10'
    """
    points, before = [f"{left},{bottom}"], 0.0
    for x, height in levels:
        points += [f"{x:.1f},{bottom - before:.1f}", f"{x:.1f},{bottom - height:.1f}"]
        before = height
    return " ".join([*points, f"{right},{bottom - before:.1f}", f"{right},{bottom}"])


def thin_levels(levels: Sequence[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    """At most so many levels, over equal times: the highest of each."""
    if len(levels) <= most:
        return list(levels)
    last = levels[-1][0] or 1.0
    found: dict[int, tuple[float, int]] = {}
    for moment, nbytes in levels:
        place = min(most - 1, int(moment / last * most))
        # The highest, and not the mean or the last: a peak must not vanish.
        if place not in found or nbytes > found[place][1]:
            found[place] = (moment, nbytes)
    return [found[place] for place in sorted(found)]
