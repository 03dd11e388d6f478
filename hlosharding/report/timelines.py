"""A simulated schedule as a picture: who works when, and what each holds, as text and as SVG.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from typing import Any

from hlosharding.printable import printable
from hlosharding.report.figures import as_bytes, as_seconds
from hlosharding.report.model import Column, Facts, Kind, Shown, Table, Text, View, fields_of
from hlosharding.report.streams import area_points, step_record
from hlosharding.report.svg import label, svg_image
from hlosharding.schedule import ScheduleSimulation, StepEvent, Usage, devices_text

_ROW, _MEMORY, _LEFT, _WIDTH = 22, 40, 90, 900  # pixels: a lane, its memory, headings, the whole


def timeline_text(run: ScheduleSimulation, width: int = 100) -> str:
    """A line for each group of devices that do the same: digits are the microbatches of forward passes, letters those
    of backward passes (a is 0), `+` what belongs to none, blanks are idle.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.schedule import UserOp, parse_schedule
    >>> op = UserOp("forward", lambda x: x, seconds=1.0)
    >>> steps = "%y_0 = @forward(%x)\\n%y_1 = @forward(%x)\\nreturn %y_0, %y_1"
    >>> schedule = parse_schedule(f"func @main(%x: f32[4] on {{0}}) {{\\n{steps}\\n}}", {"forward": op})
    >>> print(timeline_text(schedule.simulate(machines.h100(1)), 10))
    {0}  0000011111
    """
    names = [devices_text(devices) for devices in run.classes.members]
    head = max(map(len, names), default=0)
    lines: list[str] = []
    for row, name in enumerate(names):
        cells = [" "] * width
        for event in _computing(run, row):
            first, last = (int(moment / run.time_s * width) for moment in (event.start, event.end))
            # What is too short for a character has one all the same; at the very end that is one too many, cut off
            # below.
            cells[first : max(last, first + 1)] = _sign(event) * (max(last, first + 1) - first)
        lines.append(f"{name:<{head}}  {''.join(cells[:width])}".rstrip())
    return "\n".join(lines)


def _computing(run: ScheduleSimulation, row: int) -> Iterator[StepEvent]:
    """What the devices of a class compute, in order."""
    for event in run.timeline:
        if not event.is_communication and event.end > event.start and row in run.classes.of(event.devices):
            yield event


def _sign(event: StepEvent) -> str:
    """One character for a pass of a microbatch, which the name of its first result ends in."""
    results, _, call = event.text.partition(" = ")
    op, number = call.partition("(")[0], results.partition(",")[0].rpartition("_")[2]
    if not number.isdecimal() or op.startswith("@after"):
        return "+"
    if op.startswith(("@backward", "@weights")):
        return chr(ord("a") + int(number) % 26)
    return str(int(number) % 10)


def timeline_svg(run: ScheduleSimulation) -> str:
    """The same as one SVG image, with what each group of devices holds over time below its lane."""
    parts: list[str] = []
    peak = max((level.peak for level in run.memory), default=0.0) or 1.0
    for row, devices in enumerate(run.classes.members):
        top = 24 + row * (_ROW + _MEMORY + 10)
        parts.append(label(4, top + 15, devices_text(devices)))
        parts += [_box(run, event, top) for event in _computing(run, row)]
        parts.append(_memory(run, row, top + _ROW + _MEMORY, peak))
        parts.append(label(4, top + _ROW + _MEMORY - 4, as_bytes(run.memory[row].peak)))
    height = 24 + len(run.classes.members) * (_ROW + _MEMORY + 10)
    title = label(_LEFT, 14, f"{_title(run)}; below each lane its memory")
    return svg_image(_LEFT + _WIDTH + 8, height, [title, *parts])


def _title(run: ScheduleSimulation) -> str:
    return f"{as_seconds(run.time_s)} on {run.machine.name} ({run.semantics})"


def _x(run: ScheduleSimulation, moment: float) -> float:
    return _LEFT + (moment / run.time_s * _WIDTH if run.time_s else 0.0)


def _box(run: ScheduleSimulation, event: StepEvent, top: int) -> str:
    x, end = _x(run, event.start), _x(run, event.end)
    sign = _sign(event)
    hue = 210 if sign.isdecimal() else 30 if sign.isalpha() else 120
    light = 55 + (ord(sign) % 5) * 7
    box = f'<rect x="{x:.1f}" y="{top}" width="{max(0.5, end - x):.1f}" height="{_ROW}" fill="hsl({hue},60%,{light}%)">'
    return f"{box}<title>{escape(printable(event.text))}: {as_seconds(event.end - event.start)}</title></rect>"


def _memory(run: ScheduleSimulation, row: int, bottom: int, peak: float) -> str:
    level = run.memory[row]
    changes = zip(level.times, level.nbytes, strict=True)
    heights = ((_x(run, float(when)), float(nbytes) / peak * _MEMORY) for when, nbytes in changes)
    points = area_points(heights, _LEFT, _LEFT + _WIDTH, bottom)
    return f'<polygon points="{points}" fill="hsl(210,30%,70%)" fill-opacity="0.5"/>'


def schedule_view(run: ScheduleSimulation, *, most: int = 10) -> View:
    """A simulated schedule: its timeline, how devices spend the time, the longest steps of the critical path, and the
    source lines in which these spend theirs.
    """
    facts = Facts.of(
        machine=run.machine.name,
        **fields_of(run, "semantics time_s"),
        peak_memory_bytes=int(run.peak_memory_bytes),
        **step_record(run.figures),
    )
    usage = Table(
        title=_title(run),
        key="usage",
        columns=(
            Column(key="devices", heading="devices"),
            Column(key="share", heading="busy", kind=Kind.SHARE),
            Column(key="busy_s", heading="computing", kind=Kind.SECONDS),
            Column(key="exposed_s", heading="of that communicating", kind=Kind.SECONDS, priority=2),
            Column(key="idle_s", heading="idle", kind=Kind.SECONDS),
            Column(key="peak_memory_bytes", heading="peak memory", kind=Kind.BYTES),
        ),
        rows=[_usage(use) for use in run.usage],
    )
    longest = sorted(run.critical_path, key=lambda event: event.start - event.end)[:most]
    columns = (
        Column(key="start", heading="start", kind=Kind.SECONDS),
        Column(key="takes", heading="takes", kind=Kind.SECONDS),
        Column(key="devices", heading="devices"),
        Column(key="step", heading="step", kind=Kind.PROSE),
        Column(key="source_lines", heading="costliest source lines", kind=Kind.PROSE, priority=1),
    )
    every = [_step(run, event) for event in run.critical_path]
    path = Table(title="Critical path", key="critical_path", columns=columns, rows=every, is_shown=False)
    title = f"Critical path: {len(longest)} longest of {len(every)} steps"
    in_order = sorted(longest, key=lambda event: event.start)
    steps = Table(title=title, columns=columns, rows=[_step(run, event) for event in in_order])
    said = Text(timeline_text(run)), Text(run.figures)
    return View((facts, *said, usage, path, steps), schema="hlosharding.schedule-simulation/1")


def _usage(use: Usage) -> dict[str, Any]:
    said = {"devices": devices_text(use.devices), "peak_memory_bytes": int(use.peak_bytes)}
    return said | fields_of(use, "busy_s exposed_s idle_s waiting_s share") | {"breakdown": asdict(use.breakdown)}


def _step(run: ScheduleSimulation, event: StepEvent) -> dict[str, Any]:
    lines = run.source_lines(event)
    return {
        "start": event.start,
        "takes": event.end - event.start,
        "devices": devices_text(event.devices),
        "step": event.text,
        "source_lines": Shown(", ".join(f"{line or '(unknown)'} {as_seconds(s)}" for line, s in lines.items()), lines),
    }
