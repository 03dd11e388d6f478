"""Programs of foreign libraries, unmodified, with `hs.jit` where `jax.jit` stands: numbers, bytes, time, memory.

`python -m benchmarks.foreign [NAME ...] [--rounds N]`: a name is any part of a program's or its library's.  Each runs
on eight CPU devices, its arguments laid out by NamedSharding, in two ways: `hs.jit` where the user writes `jax.jit`,
and, where the library itself calls it, with `jax.jit = hs.jit` set before the library is imported ("inside").  Each is
measured in processes of its own, which keep JAX's compilation cache in a folder: the first finds it empty (cold), the
second finds what the first left (warm).  First results are in CPU seconds, imports and arguments not counted; then both
sides' warm processes are called in turns.  Bytes and memory are those of all executables that the first call made, once
each, as XLA compiled them; of the memory that of the largest.  Beside them the bytes that our program lists, over those
of its executable (outside alone): what XLA's passes added or removed.  Needs the extra `foreign`; what is not installed
is left out.  Not in the extra: Hugging Face's Flax models (`transformers<5`, where the extra `onnx-models` has newer),
and MaxText, which wants Python 3.12 and asks for another jax in its own extras: `pip install --no-deps maxtext==0.2.4`,
then what it imports (`omegaconf pathwaysutils tokamax grain drjax tiktoken sentencepiece transformers<5`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import hlosharding as hs
from benchmarks import process_seconds
from benchmarks.foreign_programs import PROGRAMS, Program, programs_named
from benchmarks.verdict import finish
from benchmarks.workers import tell
from benchmarks.zoo_against_xla import rated
from examples import devices
from hlosharding.compiler.optimized import MemoryUse, OptimizedProgram
from hlosharding.frontends import as_numbers

LIMITS = {"bytes": 1.01, "step": 1.2, "warm": 1.0}
LISTED_WITHIN = 0.01
"""Of the executable's bytes; docs/benchmarks.md names the pass of XLA's that makes more."""
LEAST_SIZE = 1e-3
"""Arrays of smaller numbers count as if of this size: the gradient of a bias in front of a norm is rounding alone."""
SECONDS_A_PROCESS, MOST_SECONDS_OF_ROUNDS, SECONDS_A_TURN = 600, 20.0, 0.1
INSIDE, OUTSIDE = "inside", "hs.jit"
BOTH = "ours", "jax.jit"
Row = dict[str, Any]


def main() -> None:
    """Measure in workers; print the table."""
    parser = argparse.ArgumentParser(description="Programs of foreign libraries, hs.jit's against jax.jit's.")
    parser.add_argument("names", nargs="*", help="parts of names; all programs without any")
    parser.add_argument("--rounds", type=int, default=15, help="calls of each program")
    parser.add_argument("--way", choices=(OUTSIDE, INSIDE), help="one of the two")
    parser.add_argument("--by", choices=BOTH, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.names[0], options.way, options.by, options.folder)
    else:
        report(options.names, options.rounds, (options.way,) if options.way else (OUTSIDE, INSIDE))


# The worker: one program, one way, by one compiler


def work(name: str, way: str, by: str, folder: Path) -> None:
    """Tell of the first call, then, for each line of the standard input, the seconds of a call."""
    try:
        call, row = first(name, way, by, folder)
        if by == "ours" and way == OUTSIDE:
            jitted: Any = call.func
            row["listed"] = jitted.lower(*call.args).partitioned.comm_bytes_per_device
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
        tell({"failed": f"{by}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"})
        return
    tell(row)
    for _ in sys.stdin:
        tell({"seconds": turn(call)})


def turn(call: Callable[[], Any]) -> float:
    """The median of some calls one after the other: the first wakes this process's threads."""
    taken: list[float] = []
    while sum(taken) < SECONDS_A_TURN:
        start = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - start)
    return median(taken)


def first(name: str, way: str, by: str, folder: Path) -> tuple[partial[Any], Row]:
    """The first call of a program and what it took; its numbers are left in the folder."""
    devices.choose_platform()
    jax.config.update("jax_compilation_cache_dir", str(folder / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jit = hs.jit if by == "ours" else jax.jit  # here our rooms are imported
    if way == INSIDE:
        jax.jit = jit
    call = called(next(p for p in PROGRAMS if p.name == name), way, jit)
    client = jax.devices()[0].client
    before = client.live_executables()
    start = process_seconds.seconds()
    result = jax.block_until_ready(call())
    row = {"seconds": process_seconds.seconds() - start}
    np.savez(folder / "numbers.npz", *map(numbers, jax.tree.leaves(result)))
    return call, row | figures([e for e in client.live_executables() if not any(e is old for old in before)])


def called(program: Program, way: str, jit: Callable[..., Any]) -> partial[Any]:
    """The program with its arguments."""
    step = program.build(program.mesh(8))
    chosen: Any = jit(step.function) if way == OUTSIDE else step.jitted
    return partial(chosen, *step.arguments)


def numbers(leaf: Any) -> np.ndarray[Any, Any]:
    """Of an array, random keys among them."""
    return np.asarray(as_numbers(leaf))


def figures(executables: list[Any]) -> Row:
    """Bytes that a device receives, and the most memory that one of them takes."""
    found = [
        OptimizedProgram(e.hlo_modules()[0].to_string(), MemoryUse.of(e.get_compiled_memory_stats()))
        for e in executables
    ]
    return {
        "bytes": sum(p.comm_bytes_per_device for p in found),
        "memory": max((p.memory.peak for p in found), default=0),
        "programs": len(found),
    }


# The parent


class Running:
    """A worker that waits to be asked for another call."""

    def __init__(self, program: Program, way: str, by: str, folder: Path) -> None:
        words = ("--way", way, "--by", by, "--folder", str(folder), "--worker")
        command = [sys.executable, "-m", "benchmarks.foreign", program.name, *words]
        # The threads of LAPACK's own, for each of the devices, would wait for each other.
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OPENBLAS_NUM_THREADS": "1"}
        self._by, self._errors = by, folder / "errors.txt"
        with self._errors.open("w") as errors:
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self._process = subprocess.Popen(command, text=True, env=environment, **pipes)
        self._timer = Timer(SECONDS_A_PROCESS, self._process.kill)
        self._timer.start()

    def __enter__(self) -> Running:
        self.row = self._told()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.communicate()

    def seconds(self) -> float:
        """Of one more call."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return self._told()["seconds"]

    def _told(self) -> Row:
        """The next row.  Raises RuntimeError where there is none."""
        assert self._process.stdout is not None
        line = next((line for line in self._process.stdout if line.startswith("@")), None)
        row = json.loads(line[1:]) if line else {"failed": f"{self._by}: died: {self._errors.read_text()[-300:]}"}
        if "failed" in row:
            raise RuntimeError(row["failed"])
        return row


def compared(program: Program, way: str, rounds: int) -> dict[str, Row]:
    """What both told.  Raises RuntimeError where one failed."""
    rows: dict[str, Row] = {}
    with TemporaryDirectory() as place, ExitStack() as stack:
        folders = {by: Path(place) / by.replace(".", "_") for by in BOTH}
        for by, folder in folders.items():
            folder.mkdir()
            with Running(program, way, by, folder) as cold:
                rows[by] = {**cold.row, "cold": cold.row["seconds"]}
        warm = {by: stack.enter_context(Running(program, way, by, folder)) for by, folder in folders.items()}
        steps = in_turns(warm, rounds)
        for by in BOTH:
            rows[by] |= {"warm": warm[by].row["seconds"], "step": median(steps[by])}
        rows["ours"]["error"] = difference(*(np.load(folder / "numbers.npz") for folder in folders.values()))
    return rows


def in_turns(running: dict[str, Running], rounds: int) -> dict[str, list[float]]:
    """Seconds of the calls of each."""
    for process in running.values():
        process.seconds()
    found: dict[str, list[float]] = {by: [] for by in running}
    begin = time.perf_counter()
    while len(found["ours"]) < rounds and time.perf_counter() - begin < MOST_SECONDS_OF_ROUNDS:
        for by, process in running.items():
            found[by].append(process.seconds())
    return found


def difference(ours: Any, theirs: Any) -> float:
    """The largest of any array, over its largest number; infinite where shapes, types or NaN differ."""
    if ours.files != theirs.files:
        return float("inf")
    return max((_difference(ours[name], theirs[name]) for name in ours.files), default=0.0)


def _difference(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if not jnp.issubdtype(ours.dtype, jnp.inexact):
        return 0.0 if np.array_equal(ours, theirs) else float("inf")
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return float("inf")
    largest = np.abs(theirs[finite]).max(initial=LEAST_SIZE)
    return float(np.abs(ours[finite] - theirs[finite]).max(initial=0) / largest)


def over_executed(ours: Row) -> str:
    """The bytes that our program lists, over its executable's."""
    if "listed" not in ours or not ours["bytes"]:
        return ""
    ratio = ours["listed"] / ours["bytes"]
    return f"{ratio:.3f}" if abs(ratio - 1) <= LISTED_WITHIN else f"[yellow]{ratio:.3f}[/yellow]"


def report(parts: list[str], rounds: int, ways: Sequence[str]) -> None:
    """Run the workers and print; status 1 where a limit is missed, or a program failed."""
    title = "Programs of foreign libraries on eight CPU devices: ours / jax.jit's"
    bytes_, step, warm = (f"at most {limit:g}" for limit in LIMITS.values())
    columns = (
        "program",
        "library",
        "jit",
        "error",
        "bytes",
        bytes_,
        "listed",
        "step, ms",
        step,
        "cold, s",
        "warm, s",
        warm,
        "memory",
    )
    table = Table(*columns, title=title)
    for column in table.columns[3:]:
        column.justify = "right"
    kept: list[bool] = []
    for program in programs_named(parts):
        for way in ways:
            if way == INSIDE and not program.calls_jit:
                continue
            cells, good = line(program, way, rounds)
            print(program.name, way, *cells, file=sys.stderr, flush=True)
            table.add_row(program.name, program.library, way, *cells)
            kept.append(good)
    finish(table, kept)


def line(program: Program, way: str, rounds: int) -> tuple[list[str], bool]:
    """The cells behind a program's name, and whether it keeps every limit."""
    try:
        rows = compared(program, way, rounds)
    except RuntimeError as error:
        print(f"{program.name}, {way}: {error}")
        return ["[red]failed[/red]"], False
    ours, theirs = (rows[by] for by in BOTH)
    ratios = {name: rated(ours[name], theirs[name], limit) for name, limit in LIMITS.items()}
    # Of a function that the library lets go of at once hs.jit keeps no executable to be read.
    is_read = ours["programs"] >= theirs["programs"]
    is_equal, is_faster = ours["error"] <= program.tolerance, ours["step"] < theirs["step"]
    cells = [
        f"{ours['error']:.1e}" if is_equal else f"[red]{ours['error']:.1e}[/red]",
        *((f"{ours['bytes']:,.0f} / {theirs['bytes']:,.0f}", ratios["bytes"][0]) if is_read else ("let go", "")),
        over_executed(ours) if is_read else "",
        f"{ours['step'] * 1e3:,.1f} / {theirs['step'] * 1e3:,.1f}", ratios["step"][0],
        f"{ours['cold']:.2f} / {theirs['cold']:.2f}",
        f"{ours['warm']:.2f} / {theirs['warm']:.2f}", ratios["warm"][0],
        f"{ours['memory'] / theirs['memory']:.2f}" if is_read else "",
    ]  # fmt: skip
    is_lean = ratios["bytes"][1] or is_faster or not is_read
    return cells, is_equal and is_lean and ratios["step"][1] and ratios["warm"][1]


if __name__ == "__main__":
    main()
