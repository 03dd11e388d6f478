"""Resharding over the axes of meshes: the lower bound, our leanest plan, live XLA's sequence and Shardy's

`python -m benchmarks.mesh_reshards [PAIRS]`.  Random shardings over whole axes, of arrays most of which divide: what
Shardy's `sdy-reshard-to-collectives` can say.  XLA is GSPMD.  Shardy's peak is the largest sum of a step's operand and
result; ours counts buffers of a step, too; XLA's is not taken.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hlosharding as hs
from benchmarks import reshards
from hlosharding.ir import Shape
from hlosharding.xla_bridge import shardy_passes

MESHES = ("a=2,b=4", "a=2,b=2,c=2", "a=4,b=4", "a=2,b=3", "a=2,b=2,c=2,d=2")
DIMS = (24, 48, 96)
_STEP = re.compile(r"sdy\.(?P<op>\w+) .*?out_sharding=(?P<to><@mesh, .*\]>)")


@dataclass(frozen=True, slots=True)
class Moved:
    """What one sequence costs a device in the mean, in elements."""

    received: float
    peak: float


def shardys_sequence(mesh: str, dims: tuple[int, ...], source: str, target: str) -> Moved:
    """By its pass: each collective is taken from the sharding before to the one behind."""
    shape = "x".join(map(str, dims))
    axes = hs.convert("P()", to="sdy", mesh=mesh, ndim=1).partition("mesh")[2].partition(", [{")[0]
    text = f"""sdy.mesh @mesh = {axes}
func.func @main(%x: tensor<{shape}xf32> {{sdy.sharding = #sdy.sharding{source}}}) -> tensor<{shape}xf32> {{
  %0 = sdy.reshard %x {target} : tensor<{shape}xf32>
  return %0 : tensor<{shape}xf32>
}}"""
    found = shardy_passes(text, "func.func(sdy-reshard-to-collectives)")
    at, received, peak = tiles(source, mesh), 0.0, 0.0
    for line in found.splitlines():
        if step := _STEP.search(line):
            to = tiles(step["to"], mesh)
            received += step_bytes(step["op"], at, to, dims)
            peak = max(peak, size(at, dims) + size(to, dims))
            at = to
    assert at == tiles(target, mesh), found
    return Moved(received, peak)


def tiles(text: str, mesh: str) -> hs.HloSharding:
    """Of Shardy's text over `@mesh`."""
    return hs.convert(text, "hlo", mesh=mesh, source="sdy").without_names()


def size(sharding: hs.HloSharding, dims: tuple[int, ...]) -> int:
    """Elements of a tile."""
    return int(np.prod(sharding.tile_shape(dims)))


def step_bytes(op: str, at: hs.HloSharding, to: hs.HloSharding, dims: tuple[int, ...]) -> float:
    """Elements received, mean over devices: what a tile lacks; of a permute the tile, unless it stays."""
    devices = at.num_devices or to.num_devices or 1
    lacking = [_lacks(at, to, dims, device) for device in range(devices)]
    if op == "collective_permute":
        return sum(size(to, dims) for lack in lacking if lack) / devices
    return sum(lacking) / devices


def _lacks(at: hs.HloSharding, to: hs.HloSharding, dims: tuple[int, ...], device: int) -> int:
    held, wanted = (_bounds(s, dims, device) for s in (at, to))
    common = [max(0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in zip(held, wanted, strict=True)]
    return int(np.prod([b - a for a, b in wanted]) - np.prod(common))


def _bounds(sharding: hs.HloSharding, dims: tuple[int, ...], device: int) -> list[tuple[int, int]]:
    if sharding.is_replicated():
        return [(0, n) for n in dims]
    return list(zip(sharding.tile_offset(dims, device), sharding.tile_limit(dims, device), strict=True))


@dataclass(frozen=True, slots=True)
class Reshard:
    """A mesh, the dims of an array, and two shardings over whole axes, as Shardy says them."""

    mesh: str
    dims: tuple[int, ...]
    source: str
    target: str

    @property
    def ends(self) -> tuple[hs.HloSharding, hs.HloSharding]:
        """Both shardings as tiles."""
        return tiles(self.source, self.mesh), tiles(self.target, self.mesh)

    @property
    def devices(self) -> int:
        """Of the mesh."""
        return prod(int(size) for size in re.findall(r"\d+", self.mesh))


def drawn(random: Random) -> Reshard:
    """Any mesh, and any two shardings over it."""
    mesh, rank = random.choice(MESHES), random.choice((2, 3))
    names = [axis.split("=")[0] for axis in mesh.split(",")]
    return Reshard(mesh, DIMS[:rank], _spec(random, names, rank), _spec(random, names, rank))


def _spec(random: Random, names: list[str], rank: int) -> str:
    dims: list[list[str]] = [[] for _ in range(rank + 1)]
    for name in random.sample(names, len(names)):
        random.choice(dims).append(f'"{name}"')
    return f"<@mesh, [{', '.join('{' + ', '.join(axes) + '}' for axes in dims[:rank])}]>"


def ours(dims: tuple[int, ...], a: hs.HloSharding, b: hs.HloSharding, limit: float | None = None) -> Moved:
    """By our leanest plan, within a peak if that can be."""
    try:
        bytes_limit = None if limit is None else int(4 * limit)
        plan = hs.plan_reshard(dims, "f32", a, b, objective="bytes", memory_limit=bytes_limit)
    except hs.HloShardingError:
        return ours(dims, a, b)
    return Moved(plan.mean_received_bytes / 4, plan.peak_bytes / 4)


def xlas(asked: list[Reshard]) -> list[float]:
    """Elements that live XLA's sequences have a device receive, in the mean."""
    received: dict[int, float] = {}
    for devices in sorted({one.devices for one in asked}):
        mine = [number for number, one in enumerate(asked) if one.devices == devices]
        for start in range(0, len(mine), reshards.BATCH):
            batch = mine[start : start + reshards.BATCH]
            pairs = [reshards.Pair(devices, *asked[number].ends, (), None) for number in batch]
            shapes = [Shape.array("f32", asked[number].dims) for number in batch]
            steps = reshards.xla_steps(pairs, shapes, hs.machines.h100(devices))
            for number, found in zip(batch, steps, strict=True):
                received[number] = sum(step.comm_bytes for step in found) / 4
    return [received[number] for number in range(len(asked))]


def reshard_table(pairs: int) -> Table:
    """Sums over all pairs, and how often each beats Shardy."""
    random = Random(0)
    asked = [one for one in (drawn(random) for _ in range(pairs)) if one.ends[0] != one.ends[1]]
    its, plans, lean = list[Moved](), list[Moved](), list[Moved]()
    for one in track(asked, description="resharding", console=Console(stderr=True)):
        its.append(shardys_sequence(one.mesh, one.dims, one.source, one.target))
        plans.append(ours(one.dims, *one.ends))
        lean.append(ours(one.dims, *one.ends, its[-1].peak))
    bounds = [step_bytes("", *one.ends, one.dims) for one in asked]
    table = Table("of random reshards", "lower bound", "ours", "ours, within Shardy's peak", "XLA", "Shardy")
    received = [bounds, *([m.received for m in column] for column in (plans, lean)), xlas(asked)]
    _add_rows(table, "received", received, [m.received for m in its])
    for word, of in (("mean", statistics.fmean), ("worst", max)):
        columns = (over(column, bounds) for column in (*received, [m.received for m in its]))
        table.add_row(f"received over the lower bound, {word}", *(f"{of(column):.3f}" for column in columns))
    peaks = [None, *([m.peak for m in column] for column in (plans, lean)), None]
    _add_rows(table, "at the peak", peaks, [m.peak for m in its])
    return table


def over(column: list[float], bounds: list[float]) -> list[float]:
    """Ratios, where something must move."""
    return [figure / bound for figure, bound in zip(column, bounds, strict=True) if bound]


def _add_rows(table: Table, what: str, columns: Sequence[list[float] | None], its: list[float]) -> None:
    """The sum of each column, and how often it is below Shardy's, or above."""
    sums = ("" if column is None else f"{sum(column):,.0f}" for column in columns)
    table.add_row(f"elements {what}, sum", *sums, f"{sum(its):,.0f}")
    for word, sign in (("fewer", 1), ("more", -1)):
        cells = ("" if column is None else f"{_below(column, its, sign)} of {len(its)}" for column in columns)
        table.add_row(f"{word} elements {what} than Shardy's", *cells, "")


def _below(column: list[float], its: list[float], sign: int) -> int:
    return sum(sign * (other - own) > 0.5 for own, other in zip(column, its, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Resharding over mesh axes: ours, XLA's and Shardy's sequences.")
    parser.add_argument("pairs", nargs="?", type=int, default=1000)
    options = parser.parse_args()
    Console(width=max(140, Console().width)).print(reshard_table(options.pairs))


if __name__ == "__main__":
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={max(reshards.DEVICE_COUNTS)}"
    os.environ.update(XLA_FLAGS=flags, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
    main()
