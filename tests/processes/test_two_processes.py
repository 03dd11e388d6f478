"""Two real processes with four CPU devices each run one program, as two hosts of a cluster do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes.cases import CASES

PROCESSES = 2
SECONDS = 300
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of each case, by process.  They hash strings differently, as processes do."""
    port, folder = free_port(), tmp_path_factory.mktemp("processes")
    files = [folder / f"{number}.json" for number in range(PROCESSES)]
    running: list[subprocess.Popen[str]] = []
    for number, file in enumerate(files):
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONHASHSEED": str(number + 1)}
        command = [sys.executable, "-m", "tests.processes.worker", str(port), str(PROCESSES), str(number), str(file)]
        running.append(
            subprocess.Popen(
                command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        )
    try:
        said = [process.communicate(timeout=SECONDS)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert all(file.exists() for file in files), "\n".join(said)[-5000:]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("name", CASES)
def test_every_process_gets_the_same(name: str, outcomes: list[dict[str, Any]]) -> None:
    case = CASES[name]
    for outcome in (of_process[name] for of_process in outcomes):
        if case.error is None:
            assert outcome.get("result") == case.result, outcome.get("traceback")
        else:
            assert case.error in outcome.get("error", ""), outcome
