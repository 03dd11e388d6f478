"""Models measured each in a process of its own, so that an abort inside XLA costs one row; one line of JSON returns."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.foreign_programs import Program

JOBS = os.cpu_count() or 1
"""Processes at a time, where nothing is timed."""


def zoo_arguments(description: str, *, jobs: int = JOBS, blurs: str = "") -> argparse.ArgumentParser:
    """What benchmarks of the zoo's models take.  `blurs`: what more than one process at a time does harm to."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", help="parts of names; all models without any")
    parser.add_argument("--scale", type=int, default=4, help="sizes of the programs")
    parser.add_argument("--jobs", type=int, default=jobs, help=f"processes at a time{blurs}")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


def zoo_rows(
    benchmark: str, options: argparse.Namespace, seconds: float, settings: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """What the workers tell of the models that `options` name."""
    from benchmarks.zoo import MODELS

    chosen = [m.name for m in MODELS if not options.names or any(part in m.name for part in options.names)]
    words = ["--scale", str(options.scale), *settings]
    with ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(lambda name: ask(benchmark, name, words, seconds), chosen))


def foreign_rows(
    benchmark: str, description: str, measured: Callable[[Program], dict[str, Any]]
) -> Iterator[tuple[Program, dict[str, Any]]]:
    """What the workers tell of the foreign programs that the command names; of a worker nothing: it tells."""
    from benchmarks.foreign_programs import programs_named

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", help="parts of names; all programs without any")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        tell(measured(next(program for program in programs_named(()) if program.name == options.names[0])))
        sys.exit()
    for program in programs_named(options.names):
        yield program, ask(benchmark, program.name, [], _SECONDS_A_PROGRAM)


_SECONDS_A_PROGRAM = 1200
"""Then a worker is given up."""


def tell(row: dict[str, Any]) -> None:
    """To the parent."""
    sys.stdout.write("@" + json.dumps(row) + "\n")
    sys.stdout.flush()


def ask(benchmark: str, name: str, settings: Sequence[str], seconds: float) -> dict[str, Any]:
    """What `python -m benchmarks.<benchmark> NAME --worker` tells of one model; `failed` says why it does not."""
    try:
        rows, errors = told(benchmark, [name, *settings, "--worker"], seconds)
    except subprocess.TimeoutExpired:
        return {"name": name, "failed": f"not done after {seconds:g} s"}
    return rows[-1] if rows else {"name": name, "failed": f"the process died: {errors[-300:]}"}


def told(benchmark: str, words: Sequence[str], seconds: float) -> tuple[list[dict[str, Any]], str]:
    """All that a worker tells, and of what it died ("" if it did not).  Raises subprocess.TimeoutExpired."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *words]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds, check=False)
    rows = [json.loads(line[1:]) for line in ran.stdout.splitlines() if line.startswith("@")]
    return rows, ran.stderr if ran.returncode else ""
