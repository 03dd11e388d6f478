"""Models measured each in a process of its own, so that an abort inside XLA costs one row; one line of JSON returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

JOBS = os.cpu_count() or 1
"""Processes at a time, where nothing is timed."""


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
