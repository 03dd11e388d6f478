"""Resharding between random shardings: bytes against the lower bound, predicted time against live XLA's sequence.

`python -m benchmarks.reshards [COUNT] [--jobs N]`.  Every plan of the objective "bytes" is carried out in numpy and
checked on every device.  For the objective "time" each pair is planned at 1 KB, 1 MB and 100 MB; XLA's partitioner gets
the same reshards in the same run, and both programs, local ops included, are priced alike on H100s.  The work is done
in processes of its own, so that an abort inside XLA costs one chunk, and is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import lcm
from random import Random
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hlosharding as hs
from benchmarks.verdict import finish, judged
from hlosharding.cost import Priced
from hlosharding.ir import Instruction, Module, Shape

DEVICE_COUNTS = (4, 6, 8, 12, 16)
SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "100 MB": 100 << 20}
SMALL = 4096
"""Elements of the arrays that are moved in numpy."""
CHUNK, BATCH = 250, 100
"""Pairs a process, and reshards a module."""
SECONDS_A_CHUNK = 1800
WORST = 10
"""Pairs slower than XLA that are shown."""
MESHES = ((4, 4), (2, 2, 2, 2), (4, 8), (8, 8), (16, 16), (8, 8, 8), (32, 16))
BYTES_LIMIT, TIME_LIMIT, COLLECTIVES_LIMIT, PLANNING_LIMIT = 1.05, 1.0, 6.0, 50.0
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two shardings of arrays of one rank; `weights`: how a size spreads over the dims."""

    devices: int
    source: hs.HloSharding
    target: hs.HloSharding
    weights: tuple[float, ...]
    extra: tuple[int, ...] | None
    """What uneven dims have over a round size; None: dims that all tiles divide."""

    def dims(self, elements: int) -> tuple[int, ...]:
        """Sizes of an array of about so many elements."""
        rough = [max(1.0, elements**weight) for weight in self.weights]
        if self.extra is not None:
            return tuple(round(size) + more for size, more in zip(rough, self.extra, strict=True))
        ways = [lcm(*(s.num_tiles_along(d) for s in (self.source, self.target))) for d in range(len(rough))]
        return tuple(max(1, round(size / n)) * n for size, n in zip(rough, ways, strict=True))


def drawn(seed: int) -> Pair:
    """Two shardings that differ; a third of them in odd device orders, half of the arrays uneven."""
    random = Random(seed)
    devices, rank = random.choice(DEVICE_COUNTS), random.choice((2, 3))
    source, target = (sharding(random, rank, devices) for _ in range(2))
    while target == source:
        target = sharding(random, rank, devices)
    shares = [random.uniform(0.5, 1.5) for _ in range(rank)]
    extra = tuple(random.randrange(4) for _ in range(rank)) if random.random() < 0.5 else None
    return Pair(devices, source, target, tuple(s / sum(shares) for s in shares), extra)


def sharding(random: Random, rank: int, devices: int) -> hs.HloSharding:
    """Tiles over any dims, and copies."""
    counts, left, prime = [1] * (rank + 1), devices, 2
    while left > 1:
        if left % prime:
            prime += 1
        else:
            counts[random.randrange(rank + 1)] *= prime
            left //= prime
    order = np.arange(devices)
    kind = random.random()
    if kind < 1 / 3:
        order = np.array(random.sample(range(devices), devices))
    elif kind < 2 / 3:
        split = random.choice([n for n in range(1, devices + 1) if devices % n == 0])
        order = order.reshape(split, -1).T
    return hs.HloSharding.partial_tile(order.reshape(counts))


def main() -> None:
    """Measure in workers, print the table."""
    parser = argparse.ArgumentParser(description="Resharding against the lower bound and live XLA.")
    parser.add_argument("count", nargs="?", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        for row in measured(range(options.worker, options.worker + options.count)):
            sys.stdout.write("@" + json.dumps(row) + "\n")
            sys.stdout.flush()
    else:
        report(options.count, options.jobs)


# The worker


def measured(seeds: Sequence[int]) -> Iterator[Row]:
    """A row a pair."""
    pairs = [drawn(seed) for seed in seeds]
    rows = [{"seed": seed, "devices": p.devices} | moved(p) for seed, p in zip(seeds, pairs, strict=True)]
    for label, nbytes in SIZES.items():
        for devices in DEVICE_COUNTS:
            mine = [(row, p) for row, p in zip(rows, pairs, strict=True) if p.devices == devices]
            for start in range(0, len(mine), BATCH):
                batch = mine[start : start + BATCH]
                timed = against_xla([p for _, p in batch], nbytes // 4)
                for (row, _), figures in zip(batch, timed, strict=True):
                    row[label] = figures
    yield from rows


def moved(pair: Pair) -> Row:
    """Bytes of the leanest plan, its bound, and whether every device ends with its tile."""
    dims = pair.dims(SMALL)
    plan = hs.plan_reshard(dims, "f32", pair.source, pair.target, objective="bytes")
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    right = all(
        np.array_equal(tile[tuple(slice(0, n) for n in wanted.shape)], wanted)
        for device, tile in enumerate(plan.run(array))
        for wanted in [array[tuple(slice(a, b) for a, b in bounds(pair.target, dims, device))]]
    )
    return {"bytes": plan.mean_received_bytes, "bound": plan.lower_bound, "right": right}


def bounds(sharding: hs.HloSharding, dims: tuple[int, ...], device: int) -> list[tuple[int, int]]:
    """Start and end of a device's tile along each dim."""
    if sharding.kind != "tiled":
        return [(0, size) for size in dims]
    places = zip(sharding.tile_index(device), sharding.tile_shape(dims), dims, strict=True)
    return [(min(size, i * step), min(size, (i + 1) * step)) for i, step, size in places]


def against_xla(pairs: list[Pair], elements: int) -> list[tuple[float, float, int]]:
    """(our seconds, XLA's, our collectives) of each reshard, all of one device count."""
    if not pairs:
        return []
    machine = hs.machines.h100(pairs[0].devices)
    shapes = [Shape.array("f32", p.dims(elements)) for p in pairs]
    ours = our_module(pairs, shapes, machine)
    out: list[tuple[float, float, int]] = []
    prices = priced(ours, machine)
    for mine, theirs in zip(ours.entry.root.operands, xla_steps(pairs, shapes, machine), strict=True):
        steps = [prices[op] for op in upwards(mine.operands[0], "negate") if op.opcode != "negate" and op in prices]
        sent = sum(step.comm_bytes > 0 for step in steps)
        out.append((sum(step.time_s for step in steps), sum(step.time_s for step in theirs), sent))
    return out


def xla_steps(pairs: list[Pair], shapes: list[Shape], machine: hs.Machine) -> Iterator[list[Priced]]:
    """Of each reshard the ops of live XLA's sequence, priced."""
    live = xla_module(pairs, shapes)
    prices = priced(live, machine)
    for result in live.entry.root.operands[:-1]:
        # An annotation leaves a copy, and the reshard stands between two of them.
        last = next(op for op in upwards(result) if op.opcode == "copy")
        steps = (op for op in upwards(last.operands[0], "negate") if not is_annotation(op))
        yield [prices[op] for op in steps if op in prices]


def priced(module: Module, machine: hs.Machine) -> dict[Instruction, Priced]:
    """Each reshard alone: XLA's combiner would join those of different pairs."""
    return {row.instruction: row for row in hs.cost(module, machine, combine=False).rows}


def is_annotation(op: Instruction) -> bool:
    """The negated source, or the copy of it that is its annotation?  (A copy further on writes what XLA cut first.)"""
    return "negate" in (op.opcode, *(o.opcode for o in op.operands if op.opcode == "copy"))


def upwards(op: Instruction, until: str = "parameter") -> Iterator[Instruction]:
    """An instruction and all it is made of, nearest first, not beyond any `until`."""
    seen, front = {op: None}, [op]
    for one in front:
        yield one
        if one.opcode != until:
            front += [o for o in dict.fromkeys(one.operands) if o not in seen]
            seen.update(dict.fromkeys(one.operands))


def our_module(pairs: list[Pair], shapes: list[Shape], machine: Any) -> Module:
    """The local program of all reshards, planned for time: each between two negations, as in XLA's."""
    from hlosharding.compiler import best_program
    from hlosharding.partitioner import PartitionOptions

    lines: list[str] = []
    for n, (pair, shape) in enumerate(zip(pairs, shapes, strict=True)):
        source, target = f", sharding={pair.source}", f", sharding={pair.target}"
        lines += [
            f"x{n} = {shape} parameter({n}){source}",
            f"before{n} = {shape} negate(x{n}){source}",
            f"moved{n} = {shape} copy(before{n}){target}",
            f"after{n} = {shape} negate(moved{n}){target}",
        ]
    types, names = ", ".join(map(str, shapes)), ", ".join(f"after{n}" for n in range(len(pairs)))
    targets = ", ".join(str(p.target) for p in pairs)
    lines.append(f"ROOT all = ({types}) tuple({names}), sharding={{{targets}}}")
    module = hs.load("HloModule reshards\n\nENTRY main {\n" + "\n".join(lines) + "\n}\n", format="hlo")
    options = PartitionOptions(objective="time")
    return best_program(module, num_partitions=pairs[0].devices, machine=machine, options=options).module


def xla_module(pairs: list[Pair], shapes: list[Shape]) -> Module:
    """Live XLA's: of each array once in the source's sharding, and once in the target's."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from benchmarks import live_xla

    mesh = Mesh(np.array(jax.devices()[: pairs[0].devices]), ("d",))
    whole = NamedSharding(mesh, PartitionSpec())

    def resharded(arrays: list[Any]) -> list[Any]:
        # Annotated twice: what has no annotation of its own XLA may split further, before the reshard.
        placed = [-hs.with_sharding(x, p.source) for x, p in zip(arrays, pairs, strict=True)]
        placed = [hs.with_sharding(x, p.source) for x, p in zip(placed, pairs, strict=True)]
        moved = [-hs.with_sharding(x, p.target) for x, p in zip(placed, pairs, strict=True)]
        # Nobody has such a function, which XLA notices before it makes code of all the rest: 5 times faster.
        return [*moved, jax.ffi.ffi_call("unheard_of", jax.ShapeDtypeStruct((), np.float32))(np.float32(0))]

    arguments = [jax.ShapeDtypeStruct(s.dims, np.float32) for s in shapes]
    lowered = live_xla.lower(resharded, (arguments,), in_shardings=(whole,), out_shardings=whole)
    return hs.load(live_xla.partitioned_only(lowered), format="hlo-proto")


# The parent


@dataclass
class Sums:
    """What a line of the table sums up."""

    rows: list[Row] = field(default_factory=list)

    def cells(self) -> tuple[list[str], list[bool]]:
        """Its figures, and whether each limit is kept."""
        rows = self.rows
        right = sum(row["right"] for row in rows)
        verdicts = [judged(sum(r["bytes"] for r in rows) / sum(r["bound"] for r in rows), BYTES_LIMIT)]
        at_bound = sum(row["bytes"] <= row["bound"] * 1.0001 for row in rows)
        cells = [f"{len(rows):,}", f"{right:,}", verdicts[0][0], f"{at_bound / len(rows):.0%}"]
        for label in SIZES:
            ratios = [ratio(*row[label][:2]) for row in rows]
            verdicts.append(judged(max(ratios), TIME_LIMIT))
            slower = sum(r > TIME_LIMIT for r in ratios)
            cells += [f"{statistics.median(ratios):.2f}", verdicts[-1][0], f"{slower:,}"]
        verdicts.append(judged(statistics.mean(row[label][2] for row in rows for label in SIZES), COLLECTIVES_LIMIT))
        return [*cells, verdicts[-1][0]], [right == len(rows), *(kept for _, kept in verdicts)]


def report(count: int, jobs: int) -> None:
    """Run the workers and print."""
    starts = range(0, count, CHUNK)
    chunks = [(start, min(CHUNK, count - start)) for start in starts]
    with ThreadPoolExecutor(jobs) as pool:
        answers = pool.map(lambda chunk: ask(*chunk), chunks)
        found = list(track(answers, total=len(chunks), description="pairs", console=Console(stderr=True)))
    title = "Resharding: bytes over the lower bound; predicted time over XLA's (median, worst, how many slower)"
    table = Table(title=title)
    for name in ("devices", "pairs", "right", "bytes / bound", "at it", *headings(), "collectives"):
        table.add_column(name, justify="right")
    rows = [row for answer in found if isinstance(answer, list) for row in answer]
    kept = [isinstance(answer, list) for answer in found]
    for devices in DEVICE_COUNTS:
        mine = [row for row in rows if row["devices"] == devices]
        if mine:
            cells, _ = Sums(mine).cells()
            table.add_row(str(devices), *cells)
    table.add_section()
    cells, verdicts = Sums(rows).cells()
    table.add_row("all", *cells)
    console = Console(width=max(170, Console().width))
    for row in sorted(rows, key=worst_ratio, reverse=True)[:WORST]:
        if worst_ratio(row) > TIME_LIMIT:
            pair, figures = drawn(row["seed"]), [f"{1e6 * t:.1f}" for label in SIZES for t in row[label][:2]]
            text = f"seed {row['seed']}: {pair.source} to {pair.target}, {pair.dims(SMALL)}: {' '.join(figures)}"
            console.print(text, markup=False, highlight=False)
    for answer in found:
        if isinstance(answer, str):
            console.print(answer, markup=False, highlight=False)
    worst, text = planning()
    console.print(text)
    finish(table, [*kept, *verdicts, worst])


def worst_ratio(row: Row) -> float:
    """Our time over XLA's, at the size where that is largest."""
    return max(ratio(*row[label][:2]) for label in SIZES)


def ratio(ours: float, xla: float) -> float:
    """Times as a ratio, to five places (the same prices added up in another order differ); nothing for nothing is 0."""
    return round(ours / xla, 5) if xla else float("inf") if ours else 0.0


def headings() -> Iterable[str]:
    """Of the columns of each size."""
    return (heading for label in SIZES for heading in (label, "worst", ">"))


def ask(start: int, count: int) -> list[Row] | str:
    """What a worker finds, or how it ended."""
    command = [sys.executable, "-m", "benchmarks.reshards", str(count), "--worker", str(start)]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={max(DEVICE_COUNTS)}"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=SECONDS_A_CHUNK, check=False
        )
    except subprocess.TimeoutExpired:
        return f"seeds from {start}: not done after {SECONDS_A_CHUNK} s"
    rows = [json.loads(line[1:]) for line in ran.stdout.splitlines() if line.startswith("@")]
    return rows if len(rows) == count else f"seeds from {start}: the process died: {ran.stderr[-500:]}"


def planning() -> tuple[bool, str]:
    """Milliseconds (of this process) of planning between mesh shardings of up to 512 devices, cold."""
    random, found = Random(0), []
    hs.plan_reshard((8, 8), "f32", "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}", objective="time")  # imports
    for dims in MESHES * 10:
        both = [on_mesh(random, dims) for _ in range(2)]
        for objective in ("bytes", "time"):
            start = time.process_time()
            hs.plan_reshard((1 << 12, 1 << 11, 96), "f32", *both, objective=objective)
            found.append(1e3 * (time.process_time() - start))
    text, kept = judged(max(found), PLANNING_LIMIT)
    largest = max(int(np.prod(dims)) for dims in MESHES)
    what = f"planning between mesh shardings, up to {largest} devices"
    return kept, f"{what}: median {statistics.median(found):.1f} ms, worst {text} ms"


def on_mesh(random: Random, axes: tuple[int, ...]) -> hs.HloSharding:
    """Every axis of the mesh splits one of three dims, or none."""
    devices, dims = np.arange(np.prod(axes)).reshape(axes), [random.randrange(4) for _ in axes]
    order = sorted(range(len(axes)), key=lambda a: dims[a])
    counts = [int(np.prod([n for n, d in zip(axes, dims, strict=True) if d == dim])) for dim in range(4)]
    return hs.HloSharding.partial_tile(devices.transpose(order).reshape(counts))


if __name__ == "__main__":
    main()
