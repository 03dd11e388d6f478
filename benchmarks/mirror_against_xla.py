"""Are the counterparts of XLA's partitioner tests right, with no more bytes than XLA's programs?

XLA's figures are recorded (`tests/xla_mirror/partitioner/record.py`): its bare partitioner cannot be reached through
public JAX.  Ours are taken anew; the objective is bytes, and the shardings are as the tests give them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import conftest
from benchmarks.verdict import finish, judged
from tests.xla_mirror.partitioner.cases import Case, all_cases
from tests.xla_mirror.partitioner.standing import Standing, recorded, standing


def main() -> None:
    """A line a topic, then every case that is not as it should be, exempt, or not run."""
    conftest.set_environment()
    answers = recorded()
    found: dict[str, list[tuple[Case, Standing]]] = defaultdict(list)
    for case in track(list(all_cases()), console=Console(stderr=True)):
        found[case.topic].append((case, standing(case, answers[case.name])))
    table = Table(
        *("topic", "cases", "run and right", "not run", "fewer bytes", "equal", "more", "short", "bytes / XLA's ideal"),
        title="Counterparts of XLA's partitioner tests",
    )
    kept: list[bool] = []
    for topic, cases in found.items():
        table.add_row(topic, *_cells(cases, answers))
        kept += [not s.known for _, s in cases]
    table.add_section()
    table.add_row("all", *_cells([pair for cases in found.values() for pair in cases], answers))
    console = Console(width=max(120, Console().width))
    for topic, cases in found.items():
        for case, s in cases:
            if s.known or case.exempt:
                what = s.known or "exempt"
                console.print(f"{topic} {case.name} ({case.mirrors}): {what}: {s.behind}", markup=False)
            if case.unrun:
                console.print(f"{topic} {case.name} ({case.mirrors}): not run: {case.unrun}", markup=False)
    finish(table, kept)


def _cells(cases: list[tuple[Case, Standing]], answers: dict[str, Any]) -> list[str]:
    """Counts and the ratio of the bytes of all cases that both have a program for."""
    both = [
        (s.ours.received_bytes, answers[c.name]["ideal"]) for c, s in cases if s.ours and "ideal" in answers[c.name]
    ]
    fewer = sum(ours < ideal - 1e-6 for ours, ideal in both)
    more = sum(ours > ideal + 1e-6 for ours, ideal in both)
    ratio = sum(o for o, _ in both) / (sum(i for _, i in both) or 1)
    short = [s for _, s in cases if s.known]
    unrun = sum(bool(c.unrun) for c, _ in cases)
    refused = sum(s.known.startswith("refused") for s in short)
    wrong = sum(s.known in ("wrong result", "accepted") for s in short)
    counts = (
        len(cases),
        len(cases) - unrun - refused - wrong,
        unrun,
        fewer,
        len(both) - fewer - more,
        more,
        len(short),
    )
    return [*map(str, counts), judged(ratio, 1.0)[0]]


if __name__ == "__main__":
    main()
