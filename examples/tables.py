"""What a user wants to see of a sharded program, as rich tables: shardings, collectives, costs, losses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

if TYPE_CHECKING:
    from jax.sharding import Mesh

    import hlosharding as hs

LAYER = re.compile(r"\[\d+\]")


def spec(sharding: hs.HloSharding | None, mesh: Mesh) -> str:
    """The sharding as a PartitionSpec over the mesh, or as XLA writes it where no spec says it."""
    if sharding is None:
        return "none"
    try:
        return str(sharding.to_jax(mesh).spec).replace("PartitionSpec", "P")
    except ValueError:
        return str(sharding)


def parameters(propagated: hs.Propagation, mesh: Mesh) -> Table:
    """The sharding found for each parameter; layers that agree share a row."""
    rows = Counter(
        (LAYER.sub("[*]", p.op_name), str(p.shape), spec(propagated.shardings[p.name], mesh))
        for p in propagated.module.entry.parameters
    )
    table = Table("parameter", "shape", "sharding found", "times", title="Parameters")
    for (path, shape, found), times in rows.items():
        table.add_row(path, shape, found, str(times))
    return table


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


def axes_of(collective: hs.Collective, mesh: Mesh) -> str:
    """The mesh axes over which a collective talks; device groups that follow no axes are counted instead."""
    if collective.pairs:
        return _axes_that_differ(collective.pairs, mesh)
    groups = {frozenset(group) for group in collective.groups}
    names = mesh.axis_names
    for axes in (some for count in range(len(names) + 1) for some in combinations(names, count)):
        if groups == set(map(frozenset, _groups_along(axes, mesh))):
            return ", ".join(map(str, axes)) or "none"
    return f"{len(groups)} groups"


def _groups_along(axes: Sequence[Any], mesh: Mesh) -> np.ndarray:
    ids = np.arange(mesh.size).reshape(mesh.devices.shape)
    along = [mesh.axis_names.index(axis) for axis in axes]
    last = range(ids.ndim - len(along), ids.ndim)
    size = int(np.prod([ids.shape[dim] for dim in along]))
    return np.moveaxis(ids, along, last).reshape(-1, size)


def _axes_that_differ(pairs: Iterable[tuple[int, int]], mesh: Mesh) -> str:
    places = [np.unravel_index(pair, mesh.devices.shape) for pair in pairs if pair[0] != pair[1]]
    moving = [axis for dim, axis in enumerate(mesh.axis_names) if any(len(set(at[dim])) > 1 for at in places)]
    return ", ".join(map(str, moving)) or "none"


def collectives(partitioned: hs.Partitioned, mesh: Mesh) -> Table:
    """Who talks, how much, how often, and which line of the program is why; equal ones share a row."""
    rows: Counter[tuple[str, ...]] = Counter()
    volume: Counter[tuple[str, ...]] = Counter()
    for one in partitioned.collectives:
        shape = f"{one.dtype}[{','.join(map(str, one.shape))}]"
        row = (one.kind, axes_of(one, mesh), shape, one.location or "", str(one.cause or ""))
        rows[row] += one.executions
        volume[row] += one.bytes_per_device * one.executions
    table = Table(
        "kind", "axes", "shape", "bytes a device a step", "times", "source", "cause", title="Collectives of one step"
    )
    for row in sorted(rows, key=volume.__getitem__, reverse=True):
        kind, axes, shape, source, cause = row
        table.add_row(kind, axes, shape, f"{volume[row]:,.0f}", str(rows[row]), source, cause)
    table.add_section()
    table.add_row("all", "", "", f"{volume.total():,.0f}", str(rows.total()), "", "")
    return table


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
