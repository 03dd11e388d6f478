"""What do very large programs and meshes cost, and does any cost grow faster than what is given?

Each row is measured in a process of its own, with nothing remembered but what importing leaves: a small program goes
first.  Seconds are of one run, the least of three; memory is the most that the process held beyond that.  The second
table is of growth: the exponent of the time between the two largest sizes (1: it grows as the program does).
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hlosharding as hs
from benchmarks import large_programs as large
from benchmarks.graphs import ALONE
from benchmarks.verdict import finish, judged
from examples import devices
from hlosharding.search.stages import RunPrices, divide_layers

Run = Callable[[], object]
MANY_ARRAYS, MANY_DEVICES, CLUSTER = 10_000, 4096, 100_000
EXPONENT = 1.3
REPEATS = 3
CONSTANT_MB = 200
_SMALL = large.results(2)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: its limit in seconds, and how to get at what is timed."""

    limit: float
    prepare: Callable[[], Run]
    unit: str = "s"


def _partition(text: str, devices: int = 8) -> Callable[[], Run]:
    def prepared() -> Run:
        module, machine = hs.load(text), hs.machines.h100(devices)
        return lambda: hs.partition(module, num_partitions=devices, machine=machine)

    return prepared


def _as_python(text: str, devices: int = 8) -> Callable[[], Run]:
    def prepared() -> Run:
        local = hs.partition(hs.load(text), num_partitions=devices, machine=hs.machines.h100(devices))
        return local.as_python

    return prepared


def _load(text: str) -> Callable[[], Run]:
    return lambda: lambda: hs.load(text)


def _propagate(text: str) -> Callable[[], Run]:
    def prepared() -> Run:
        module = hs.load(text)
        return lambda: hs.propagate(module)

    return prepared


def _explained(text: str) -> Callable[[], Run]:
    def prepared() -> Run:
        found = hs.propagate(hs.load(text))
        return lambda: (found.conflicts, str(found.explain(found.module.entry.root.name)))

    return prepared


def _plan(source: str, target: str) -> Callable[[], Run]:
    machine = hs.machines.h100(CLUSTER)
    return lambda: lambda: hs.plan_reshard((CLUSTER, CLUSTER), "f32", source, target, machine=machine)


def _mobilenet(*sizes: int) -> Callable[[], Run]:
    def prepared() -> Run:
        import jax
        import numpy as np
        from jax.sharding import Mesh

        from benchmarks import mobilenet

        mesh = Mesh(np.array(jax.devices()[:8]).reshape(sizes), ("batch", "channel")[: len(sizes)])
        module = hs.load(mobilenet.lowered(mesh))
        return lambda: hs.partition(module)

    return prepared


def _constant() -> Run:
    """How many times as long as XLA takes to convert and serialize it: a program that holds one large constant."""
    import jax
    import numpy as np

    rows = CONSTANT_MB // 4
    values = np.random.default_rng(0).standard_normal((rows, 1000, 1000), dtype=np.float32)
    lowered = jax.jit(lambda x: x + values).lower(jax.ShapeDtypeStruct(values.shape, values.dtype))

    def converted() -> Any:
        computation: Any = lowered.compiler_ir("hlo")
        return computation.as_serialized_hlo_module_proto()

    xla = min(_seconds(converted) for _ in range(REPEATS))
    ours = min(_seconds(lambda: hs.load(lowered)) for _ in range(REPEATS))

    def ratio() -> float:
        return ours / xla

    return ratio


def many_divisions() -> RunPrices:
    """Of 16 layers on 64 devices: submeshes of eleven sizes, each with four plans."""
    random = np.random.default_rng(0)
    sizes = [size for size in (1, 2, 4, *range(8, 65, 8)) for _ in range(4)]
    figures = {name: random.uniform(1, 2, (len(sizes), 16)) / np.array(sizes)[:, None] for name in ("seconds", "once")}
    held = random.uniform(1, 2, (len(sizes), 16)) / np.array(sizes)[:, None]
    return RunPrices.of_layers(sizes, **figures, kept=4 * held, held=held, scratch=held)


def _divided() -> Run:
    prices = many_divisions()
    return lambda: divide_layers(prices, devices=64, microbatches=128, memory_bytes=8)


ROWS: dict[str, Row] = {
    "stages of 16 layers on 64 devices": Row(0.1, _divided),
    f"as_python, {MANY_DEVICES:,} devices": Row(2.0, _as_python(large.over_devices(MANY_DEVICES), MANY_DEVICES)),
    "partition a reshape, 24,576 devices": Row(2.0, _partition(large.RESHAPE_OVER_24576, 24576)),
    "plan_reshard, 100,000 devices, transposed": Row(
        1.0, _plan("{devices=[250,400]<=[100000]}", "{devices=[250,400]<=[400,250]T(1,0)}")
    ),
    "plan_reshard, 100,000 devices, rows to columns": Row(
        1.0, _plan("{devices=[100000,1]<=[100000]}", "{devices=[1,100000]<=[100000]}")
    ),
    **{
        f"{what} {MANY_ARRAYS:,} {name}": Row(3.0, prepare(text(MANY_ARRAYS)))
        for name, text in (
            ("carried arrays", large.carried),
            ("results", large.results),
            ("arrays through branches", large.branches),
            ("arguments of a call", large.called),
        )
        for what, prepare in (
            ("load", _load), ("propagate", _propagate), ("partition", _partition), ("as_python of", _as_python)
        )
    },
    f"conflicts and explain, {MANY_ARRAYS:,} arrays read apart": Row(3.0, _explained(large.read_apart(MANY_ARRAYS))),
    "partition MobileNet, batch over 8": Row(1.0, _mobilenet(8)),
    "partition MobileNet, batch x channel over 2x4": Row(2.0, _mobilenet(2, 4)),
    f"load a constant of {CONSTANT_MB} MB": Row(1.5, _constant, "times XLA's"),
}  # fmt: skip

GROWTH: dict[str, tuple[tuple[int, ...], Callable[[int], Callable[[], Run]]]] = {
    "partition, devices": ((64, 1024, 4096, 16384), lambda n: _partition(large.over_devices(n), n)),
    "as_python, devices": ((64, 1024, 4096, 16384), lambda n: _as_python(large.over_devices(n), n)),
    "partition, carried arrays": ((1000, 5000, 10_000), lambda n: _partition(large.carried(n))),
    "as_python, carried arrays": ((1000, 5000, 10_000), lambda n: _as_python(large.carried(n))),
    "propagate, arrays read apart": ((1000, 5000, 10_000), lambda n: _propagate(large.read_apart(n))),
    "partition, chain": ((1000, 25_000, 50_000), lambda n: _partition(large.chain(n))),
    "as_python, chain": ((1000, 25_000, 50_000), lambda n: _as_python(large.chain(n))),
    "partition, nested loops": ((25, 50, 100), lambda n: _partition(large.nested(n))),
}


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(prepare: Callable[[], Run]) -> Iterator[float]:
    """(seconds, or what the run itself gives; megabytes that it added), of this process."""
    devices.choose_platform()
    hs.partition(hs.load(_SMALL), num_partitions=8, machine=hs.machines.h100(8)).as_python()
    run, before = prepare(), _megabytes()
    start = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - start
    yield found if isinstance(found, float) else seconds
    yield _megabytes() - before


def _alone(kind: str, name: str, *more: str) -> tuple[float, float]:
    """The least seconds of some processes, and the most memory."""
    command = [sys.executable, "-m", "benchmarks.scale", ALONE, kind, name, *more]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(REPEATS)]
    seconds, megabytes = zip(*(map(float, run) for run in runs), strict=True)
    return min(seconds), max(megabytes)


def main() -> None:
    """Print both tables; fail where a limit is missed."""
    rows = Table("what", "measured", "MB", title="Large programs and meshes: seconds of one run in a fresh process")
    kept: list[bool] = []
    for name, row in ROWS.items():
        found, megabytes = _alone("row", name)
        text, is_kept = judged(found, row.limit)
        rows.add_row(name, f"{text} {row.unit}", f"{megabytes:,.0f}")
        kept.append(is_kept)
    Console(width=120).print(rows)
    growth = Table("what", "sizes", "seconds", "exponent", title="Growth between the two largest sizes")
    for name, (sizes, _) in GROWTH.items():
        seconds = [_alone("growth", name, str(size))[0] for size in sizes]
        exponent = math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])
        text, is_kept = judged(exponent, EXPONENT)
        growth.add_row(name, ", ".join(f"{n:,}" for n in sizes), ", ".join(f"{s:.3f}" for s in seconds), text)
        kept.append(is_kept)
    finish(growth, kept)


def _answer(kind: str, name: str, *more: str) -> Any:
    prepare = ROWS[name].prepare if kind == "row" else GROWTH[name][1](int(more[0]))
    return measure(prepare)


if __name__ == "__main__":
    if sys.argv[1:2] == [ALONE]:
        print(*_answer(*sys.argv[2:]))
    else:
        main()
