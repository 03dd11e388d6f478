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
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", name, *settings, "--worker"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "failed": f"not done after {seconds:g} s"}
    said = [line for line in ran.stdout.splitlines() if line.startswith("@")]
    if not said:
        return {"name": name, "failed": f"the process died: {ran.stderr[-300:]}"}
    return json.loads(said[-1][1:])
