"""What clusters took for public training steps, beside what the simulator says: nothing is fitted.

`python -m benchmarks.published_runs DIR [--table NAME] [--only N]`: DIR holds the tables as CSV files, by the names of
`benchmarks.published.runs.TABLES`; N rows of each, spread evenly.  Rows that cannot be said or priced are counted with
the reason.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.published.planning import planner_of
from benchmarks.published.runs import TABLES, Run, UnsaidError, runs
from hlosharding.cost import machines
from hlosharding.errors import HloShardingError
from hlosharding.search.rank_figures import median_error, spearman


def priced(run: Run) -> tuple[float, float]:
    """Seconds and gibibytes of a device."""
    machine = getattr(machines, run.machine)(run.plan.num_devices)
    found = planner_of(run.config, run.batch).schedule(run.plan, machine).simulate(machine)
    return found.time_s, found.peak_memory_bytes / 2**30


def show_table(name: str, rows: list[Run | UnsaidError], only: int) -> None:
    """Price as many rows and print them, then what the others lack."""
    said = [row for row in rows if isinstance(row, Run)]
    reasons = Counter(str(row) for row in rows if isinstance(row, UnsaidError))
    table = Table("plan", "predicted, s", "measured, s", "ratio", "GiB", "measured", title=name)
    pairs: list[tuple[float, float]] = []
    for run in said[:: max(1, len(said) // only)][:only] if only else said:
        try:
            seconds, memory = priced(run)
        except HloShardingError as error:
            reasons[str(error)] += 1
            continue
        pairs.append((seconds, run.seconds))
        figures = f"{seconds:.4g}", f"{run.seconds:.4g}", f"{seconds / run.seconds:.2f}", f"{memory:.1f}"
        table.add_row(str(run.plan), *figures, f"{run.gibibytes or ''}")
    lacking = [f"{count} rows cannot be said: {reason}" for reason, count in reasons.items()]
    table.caption = "\n".join(
        [f"{len(said)} of {len(rows)} rows are said, {len(pairs)} priced", *_errors(pairs), *lacking]
    )
    Console().print(table)


def _errors(pairs: list[tuple[float, float]]) -> list[str]:
    if not pairs:
        return []
    error = mean(abs(predicted / measured - 1) for predicted, measured in pairs)
    rank = f", rank correlation {spearman(pairs):.2f}" if len(pairs) > 2 else ""
    return [f"error: mean {error:.1%}, median {median_error(pairs):.1%}{rank}"]


def main() -> None:
    """Print each table."""
    parser = argparse.ArgumentParser(description="Published training steps, predicted and measured.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", choices=TABLES, action="append")
    parser.add_argument("--only", type=int, default=0, help="so many rows of each table; 0: all")
    given = parser.parse_args()
    for name in given.table or TABLES:
        show_table(name, list(runs(given.folder, name)), given.only)


if __name__ == "__main__":
    main()
