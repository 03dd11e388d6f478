"""What a user wants to see of a sharded program, as rich tables: shardings, collectives, costs, losses."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from jax.sharding import Mesh

    import hlosharding as hs

LAYER = re.compile(r"\[\d+\]")
ROOT = re.compile(r"^[\w.]+(\[\d+\])*")
INSTRUCTION = re.compile(r"%\S+ \((\S+)\)")
Row = tuple[str, str, str]


def spec(sharding: hs.HloSharding | None, mesh: Mesh) -> str:
    """The sharding as a PartitionSpec over the mesh, or as XLA writes it where no spec says it."""
    if sharding is None:
        return "none"
    try:
        return str(sharding.to_jax(mesh).spec).replace("PartitionSpec", "P")
    except ValueError:
        return str(sharding)


def parameters(propagated: hs.Propagation, mesh: Mesh) -> Table:
    """The sharding found for each parameter; layers that agree share a row, and so do the optimizer's moments."""
    rows: Counter[Row] = Counter()
    for parameter in propagated.module.entry.parameters:
        row = (parameter.op_name, str(parameter.shape), spec(propagated.shardings[parameter.name], mesh))
        rows[_row_of(row, rows)] += 1
    table = Table("parameter", "shape", "sharding found", "times", title="Parameters, with their layers and moments")
    for (path, shape, found), times in rows.items():
        table.add_row(path, shape, found, str(times))
    return table


def _row_of(row: Row, rows: Iterable[Row]) -> Row:
    """The earlier row of the same parameter (other layer, or whose moment this is), else a new one."""
    path, *rest = row
    tail = ROOT.sub("", path)
    path = path.removesuffix(tail) + LAYER.sub("[*]", tail)
    for known in rows:
        tail = ROOT.sub("", known[0])
        if tail and path.endswith(tail) and [*known[1:]] == rest:
            return known
    return path, *row[1:]


def activations(propagated: hs.Propagation, mesh: Mesh, opcodes: Sequence[str] = ("dot", "convolution")) -> Table:
    """The sharding found for the results of the forward pass's large operations; equal ones share a row."""
    rows = Counter(
        (inst.location, inst.opcode, str(inst.shape), spec(propagated.shardings[inst.name], mesh))
        for inst in propagated.module.entry.instructions
        if inst.opcode in opcodes and "transpose(" not in inst.op_name
    )
    table = Table("source", "operation", "shape", "sharding found", "times", title="Activations, forward pass")
    for row, times in rows.items():
        table.add_row(*row, str(times))
    return table


def collectives(partitioned: hs.Partitioned) -> Table:
    """Who talks, how much, how often, and which line of the program is why; equal ones share a row."""
    rows: Counter[tuple[str, ...]] = Counter()
    volume: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for one in partitioned.collectives:
        cause = INSTRUCTION.sub(r"\1", one.cause)
        row = (one.kind, one.axes or _participants(one), str(one.shape), one.location, cause)
        rows[row] += one.executions
        volume[row] += one.bytes_per_device
    table = Table(
        "kind", "axes", "shape", "bytes a device a step", "times", "source", "cause", title="Collectives of one step"
    )
    for row in sorted(rows, key=volume.__getitem__, reverse=True):
        kind, axes, shape, source, cause = row
        table.add_row(kind, axes, shape, f"{volume[row]:,.0f}", str(rows[row]), source, cause)
    table.add_section()
    table.add_row("all", "", "", f"{sum(volume.values()):,.0f}", str(rows.total()), "", "")
    return table


def _participants(collective: hs.Collective) -> str:
    pairs, groups = collective.pairs, collective.groups
    return f"{len(pairs)} pairs" if pairs is not None else f"{len(groups or ())} groups"


def against_xla(ours: hs.CostReport, live: hs.CostReport) -> Table:
    """Bytes, FLOPs and peak memory a device, ours and live XLA's, read by the same eyes."""
    table = Table(
        "one device, one step", "hlosharding", "live XLA", "ratio", title="Against live XLA, same annotations"
    )
    for name, mine, its in (
        ("bytes received", ours.comm_bytes, live.comm_bytes),
        ("FLOPs", ours.flops, live.flops),
        ("peak memory, bytes", ours.peak_memory_bytes, live.peak_memory_bytes),
    ):
        table.add_row(name, f"{mine:,.0f}", f"{its:,.0f}", f"{mine / its:.3f}" if its else "n/a")
    return table


def losses(many: Sequence[float], one: Sequence[float], devices: int) -> Table:
    """The loss at every step, on all devices and on one."""
    table = Table("step", f"{devices} devices", "one device", "relative difference", title="Loss")
    for step, (sharded, single) in enumerate(zip(many, one, strict=True), 1):
        table.add_row(str(step), f"{sharded:.6f}", f"{single:.6f}", f"{abs(sharded / single - 1):.1e}")
    return table
