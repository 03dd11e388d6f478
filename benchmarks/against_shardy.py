"""Shardy, as jaxlib brings it, beside this package: its propagation and its sequences of collectives for reshards.

`python -m benchmarks.against_shardy [PAIRS]`.  Both propagate the same annotated programs, the models of the zoo and
random ones; values are compared one by one.  Reshards go between random shardings over the axes of meshes, of arrays
that divide: bytes received and peak memory of Shardy's `sdy-reshard-to-collectives` and of our leanest plan.  Its peak
is the largest sum of a step's operand and result; ours counts buffers of a step, too.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hlosharding as hs
from hlosharding.ir import Module, rewrite
from hlosharding.sharding import uneven_dims
from hlosharding.xla_bridge import shardy_passes

MESHES = ("a=2,b=4", "a=2,b=2,c=2", "a=4,b=4", "a=2,b=3", "a=2,b=2,c=2,d=2")
DIMS = (24, 48, 96)
RANDOM_PROGRAMS = 60
_TAG = "benchmark.name"
_LINE = re.compile(rf'{_TAG} = "(?P<name>[^"]+)"')
_SAID = re.compile(
    r"sdy\.sharding = #sdy\.sharding(?:_per_value<\[)?(?P<text><@mesh\w*, .*?\](?:, \w+=\w*\{[^}]*\})*>)"
)
_STEP = re.compile(r"sdy\.(?P<op>\w+) .*?out_sharding=(?P<to><@mesh, .*\]>)")


# Propagation


@dataclass
class Agreement:
    """How many values of some programs the two lay out alike."""

    programs: int = 0
    equal: int = 0
    ours_finer: int = 0
    its_finer: int = 0
    other: int = 0
    opcodes: Counter[str] = field(default_factory=Counter[str])
    """Of the values that differ."""

    @property
    def values(self) -> int:
        """Those compared."""
        return self.equal + self.ours_finer + self.its_finer + self.other

    def add(self, module: Module) -> None:
        """Propagate an annotated module by both."""
        ours, its = hs.propagate(module), shardys(module)
        self.programs += 1
        for name, text in its.items():
            inst = ours.module.by_name(name)
            mine = ours.module.sharding(inst) or hs.HloSharding.replicate()
            theirs = hs.convert(text, "hlo") if text else hs.HloSharding.replicate()
            if mine == theirs:
                self.equal += 1
                continue
            self.opcodes[inst.opcode] += 1
            more = mine.num_tiles - theirs.num_tiles
            if more:
                self.ours_finer, self.its_finer = self.ours_finer + (more > 0), self.its_finer + (more < 0)
            else:
                self.other += 1


def shardys(module: Module) -> dict[str, str]:
    """By name what Shardy says of each array that an op makes; "" for one that it leaves whole."""
    tagged = module.clone()
    for inst in tagged.instructions:
        if inst.shape.is_array and inst.opcode not in ("parameter", "get-tuple-element", "constant"):
            said = {**inst.frontend_attributes, _TAG: inst.name}
            rewrite.set_attributes(inst, frontend_attributes=said)
    found = shardy_passes(hs.to_sdy_text(tagged), "sdy-propagation-pipeline")
    meshes = " ".join(line.split(" {stablehlo")[0].strip() for line in found.splitlines() if "sdy.mesh @" in line)
    names: dict[str, str] = {}
    for line in found.splitlines():
        tag, said = _LINE.search(line), _SAID.search(line)
        if tag is not None:
            names[tag["name"]] = f"{meshes} #sdy.sharding{said['text']}" if said is not None else ""
    return names


def zoo() -> Iterator[Module]:
    """The models, with the annotations that a user of `jax.jit` writes."""
    from benchmarks.zoo import MODELS

    for model in MODELS:
        mesh = model.mesh()
        program = model.build(mesh, 1)
        yield hs.jit(program.function, mesh=mesh, **program.options).trace(*program.arguments).module


def random_modules() -> Iterator[Module]:
    """Random programs whose parameters and results divide evenly, as Shardy wants them."""
    from tests.support.random_programs.programs import random_program

    for seed in range(RANDOM_PROGRAMS):
        module = random_program(Random(seed)).module
        for inst in (*module.entry.parameters, module.entry.root):
            sharding = module.sharding(inst)
            leaves = sharding.leaves if sharding is not None else ()
            if any(uneven_dims(s, shape.dims) for s, shape in zip(leaves, inst.shape.leaves, strict=False)):
                del module.shardings[inst.id]
        yield module


def propagation_table() -> Table:
    """A row for the zoo, one for random programs."""
    table = Table("programs", "taken", "values", "equal", "ours finer", "Shardy finer", "other", "most differ in")
    for label, modules in (("zoo", zoo()), ("random", random_modules())):
        found, refused = Agreement(), 0
        for module in track(modules, description=f"propagating {label}"):
            try:
                found.add(module)
            except (hs.LoadError, hs.ShardingError):
                refused += 1
        worst = ", ".join(f"{opcode} {count}" for opcode, count in found.opcodes.most_common(5))
        table.add_row(
            label, f"{found.programs} of {found.programs + refused}", str(found.values),
            f"{found.equal / max(1, found.values):.1%}", str(found.ours_finer), str(found.its_finer), str(found.other),
            worst,
        )  # fmt: skip
    return table


# Reshards


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


def drawn(random: Random) -> tuple[str, tuple[int, ...], str, str]:
    """A mesh, an array and two shardings over whole axes."""
    mesh, rank = random.choice(MESHES), random.choice((2, 3))
    names = [axis.split("=")[0] for axis in mesh.split(",")]
    return mesh, DIMS[:rank], _spec(random, names, rank), _spec(random, names, rank)


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


def reshard_table(pairs: int) -> Table:
    """Sums over all pairs, and how often each beats Shardy."""
    labels = ("Shardy", "ours", "ours, within Shardy's peak where that can be")
    table = Table("of random reshards", *labels)
    found: list[tuple[Moved, ...]] = []
    bounds: list[float] = []
    random = Random(0)
    for _ in track(range(pairs), description="resharding"):
        mesh, dims, source, target = drawn(random)
        a, b = tiles(source, mesh), tiles(target, mesh)
        if a != b:
            its = shardys_sequence(mesh, dims, source, target)
            found.append((its, ours(dims, a, b), ours(dims, a, b, its.peak)))
            bounds.append(step_bytes("", a, b, dims))
    for label, of in (("received", "received"), ("at the peak", "peak")):
        rows = [[float(getattr(m, of)) for m in column] for column in zip(*found, strict=True)]
        table.add_row(f"elements {label}, sum", *(f"{sum(row):,.0f}" for row in rows))
        for word, sign in (("fewer", 1), ("more", -1)):
            counts = [sum(sign * (its - m) > 0.5 for its, m in zip(rows[0], row, strict=True)) for row in rows[1:]]
            table.add_row(f"{word} elements {label} than Shardy's", "", *(f"{n} of {len(found)}" for n in counts))
    columns = [
        [m.received / bound for m, bound in zip(c, bounds, strict=True) if bound] for c in zip(*found, strict=True)
    ]
    table.add_row("received over the lower bound, mean", *(f"{statistics.fmean(c):.3f}" for c in columns))
    table.add_row("received over the lower bound, worst", *(f"{max(c):.3f}" for c in columns))
    return table


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Shardy's propagation and reshards beside ours.")
    parser.add_argument("pairs", nargs="?", type=int, default=1000)
    options = parser.parse_args()
    console = Console(width=max(120, Console().width))
    console.print(reshard_table(options.pairs))
    console.print(propagation_table())


if __name__ == "__main__":
    import conftest

    conftest.set_environment()
    main()
