"""Training steps on D x T x P devices in K microbatches under each schedule: is every result that of one device?

`python -m benchmarks.pipeline_runs [PROGRAM ...] [--cover]`: a scan-based transformer with Adam and a perceptron of
explicit layers, all D, T, P of at most eight CPU devices, K up to 4; `--cover` runs but so many that each pair of
settings is among them, as the tests do.  A row's errors are those of the worst result, relative to its largest number.
The scan over the transformer's eight layers is cut between its trips.
"""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.verdict import finish

if TYPE_CHECKING:
    from tests.support.pipeline_runs import Plan, Run

LIMIT = 1e-5


def main() -> None:
    """Run the plans, print the table."""
    from examples import devices

    devices.choose_platform()
    from tests.support import pipeline_runs
    from tests.support.pairwise import pairwise

    parser = argparse.ArgumentParser(description="Cut training steps, run on eight CPU devices, against one device.")
    parser.add_argument("programs", nargs="*", choices=[[], *pipeline_runs.PROGRAMS], help="all without any")
    parser.add_argument("--cover", action="store_true", help="each pair of settings once or more, not all together")
    options = parser.parse_args()
    plans = pipeline_runs.plans(options.programs or list(pipeline_runs.PROGRAMS))
    chosen = pairwise(plans) if options.cover else plans
    outcomes = {plan: outcome(plan) for plan in track(chosen, "plans", console=Console(stderr=True))}
    finish(table(outcomes), [is_right(found) for found in outcomes.values()])


def outcome(plan: Plan) -> Run | str:
    """What became of it; of a failure what it says."""
    from tests.support import pipeline_runs

    try:
        return pipeline_runs.run(plan)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
        return f"{type(error).__name__}: {str(error)[:300]}"


def is_right(found: Run | str) -> bool:
    """Does it run, with the numbers of one device?"""
    return not isinstance(found, str) and found.error <= LIMIT


def table(outcomes: dict[Plan, Run | str]) -> Table:
    """A row for each way to cut a program, a column for each schedule."""
    from tests.support.pipeline_runs import SCHEDULES

    made = Table(title=f"Largest relative error against one device (at most {LIMIT:g}), {len(outcomes)} runs")
    for name in ("program", "D", "T", "P", "K", "stages with work", *SCHEDULES):
        made.add_column(name, justify="left" if name == "program" else "right")
    for way, plans in groupby(sorted(outcomes), key=lambda plan: plan[:5]):
        runs = {plan.schedule: outcomes[plan] for plan in plans}
        stages = {str(run.stages) for run in runs.values() if not isinstance(run, str)}
        made.add_row(*map(str, way), ", ".join(sorted(stages)), *(cell(runs.get(name)) for name in SCHEDULES))
    return made


def cell(found: Run | str | None) -> str:
    """An error with its colour; nothing where it did not run."""
    if found is None:
        return ""
    colour = "green" if is_right(found) else "red"
    return f"[{colour}]{found if isinstance(found, str) else f'{found.error:.1e}'}[/{colour}]"


if __name__ == "__main__":
    main()
