"""Run every benchmark, each in a process of its own, so that none finds another's caches warm."""

from __future__ import annotations

import subprocess
import sys

QUESTIONS = (
    "import_time",
    "propagation_equality",
    "cost_against_xla",
    "memory_against_xla",
    "zoo_against_xla",
    "propagation_time",
    "pass_time",
    "compile_time",
)


def main() -> None:
    """Status 1 where one missed its limit."""
    missed = 0
    for name in QUESTIONS:
        missed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode != 0
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
