"""What a device holds over time, and what it holds when it holds most.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.cost import Lifetime, given_lifetimes, lifetimes
from hlosharding.report.figures import as_bytes, as_count, as_seconds
from hlosharding.report.model import Column, Kind, Picture, Row, Shown, Table, View, fields_of
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.shardings import path_of_layers
from hlosharding.report.streams import memory_svg, thin_levels

_MOST_SHOWN = 12
"""Rows, on a terminal."""

_ALIVE = (
    Column(key="location", heading="source, or parameter", kind=Kind.LOCATION),
    Column(key="opcode", heading="op", priority=1),
    Column(key="shape", heading="local shape", kind=Kind.SHAPE),
    Column(key="times", heading="times", kind=Kind.COUNT, sums=True, in_record=False),
    Column(key="bytes", heading="bytes", kind=Kind.BYTES, sums=True),
)


def memory_view(about: ReportedProgram) -> View:
    """What a device holds over time, and what it holds when it holds most."""
    run = about.simulation
    levels = " ".join(f"{as_seconds(moment)} {as_bytes(nbytes)}" for moment, nbytes in thin_levels(run.memory, 12))
    picture = Picture(memory_svg(run), f"over time: {levels}", "Bytes on a device over time")
    return View((picture, _alive_table(*alive_at_worst(about))))


def alive_at_worst(about: ReportedProgram) -> tuple[tuple[float, int], list[Lifetime]]:
    """When a device holds most, how many bytes, and in which values."""
    run, module = about.simulation, about.partitioned.module
    worst = max(run.memory, key=lambda level: level[1], default=(0.0, 0))
    moment, _ = worst
    made = [life for life in lifetimes(module, run.timeline) if life.start <= moment < life.end and life.nbytes]
    return worst, [*made, *given_lifetimes(module, run.time_s)]


def _alive_table(worst: tuple[float, int], alive: Sequence[Lifetime]) -> Table:
    moment, nbytes = worst
    held = f"{as_bytes(nbytes)} in {as_count(len(alive))} values"
    return Table(
        title=f"After {as_seconds(moment)} a device holds most: {held}",
        key="alive",
        columns=_ALIVE,
        rows=[_life_row(life) for life in alive],
        joins=True,
        largest="bytes",
        total="all",
        most=_MOST_SHOWN,
    )


def _life_row(life: Lifetime) -> Row:
    inst = life.instruction
    path = path_of_layers(inst.op_name) if inst.opcode == "parameter" else ""
    return {
        "name": inst.name,
        "location": Shown(path or inst.location or f"%{inst.name}", inst.location),
        **fields_of(inst, "opcode shape"),
        "times": 1,
        "bytes": life.nbytes,
        **fields_of(life, "start end"),
    }
