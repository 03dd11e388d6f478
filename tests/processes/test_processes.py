"""Real processes with eight CPU devices between them run programs and schedules together, as hosts of a cluster do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.processes import cases, moves, schedules
from tests.processes.cases import Case

SECONDS = 150
ROOT = Path(__file__).parents[2]
RUNS: dict[tuple[str, int], Mapping[str, Case]] = {
    ("cases", 2): cases.CASES,
    ("moves", 2): moves.CASES,
    ("schedules", 2): schedules.CASES,
    ("schedules", 4): schedules.CASES,
}
"""Cases by their module, and the number of processes."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@cache
def outcomes(module: str, processes: int) -> list[dict[str, Any]]:
    """What became of each case, by process.  They hash strings differently, as processes do."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.json" for number in range(processes)]
        said = _run(module, files)
        assert all(file.exists() for file in files), "\n".join(said)[-5000:]
        return [json.loads(file.read_text()) for file in files]


def _run(module: str, files: list[Path]) -> list[str]:
    port, running = str(free_port()), list[subprocess.Popen[str]]()
    for number, file in enumerate(files):
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONHASHSEED": str(number + 1)}
        words = [module, port, str(len(files)), str(number), str(file)]
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.processes.worker", *words],
                cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    try:
        return [process.communicate(timeout=SECONDS)[0] for process in running]
    finally:
        for process in running:
            process.kill()


@pytest.mark.parametrize(
    ("module", "processes", "name"), [(*run, name) for run, known in RUNS.items() for name in known]
)
def test_every_process_gets_the_same(module: str, processes: int, name: str) -> None:
    case = RUNS[module, processes][name]
    for outcome in (of_process[name] for of_process in outcomes(module, processes)):
        if case.error is None:
            assert outcome.get("result") == case.result, outcome.get("traceback")
        else:
            assert case.error in outcome.get("error", ""), outcome
