"""What `python -m benchmarks.clusters` found, as Markdown: a line a set, then of each set its machines and its rows.

A set that was priced anew takes the place of what stood there of it; the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import isnan
from typing import Any

from benchmarks.published.figures import Told, line_of, told_of, untold
from benchmarks.published.pricing import Outcome, Prediction, machine_of_run, utilization
from benchmarks.published.runs import Run, UnsaidError
from benchmarks.published.sets import SETS, RunSet
from hlosharding.cost import Machine

Rows = Sequence[tuple[Run | UnsaidError, Outcome]]
MARK = "<!-- `python -m benchmarks.clusters --markdown` writes what follows -->\n"
_MOST_ROWS = 48
_SETS = tuple(
    "set|rows told|error: median|worst|mean|memory|rank correlation|within groups|regret: mean|worst|aim|others".split(
        "|"
    )
)
_MACHINES = tuple(
    "machine|products at best, TFLOP/s|memory|a link inside a node|between nodes|a launch|eagerly".split("|")
)
_ROWS = tuple(
    "model|plan|batch|sequence|machine|measured, s|predicted, s|ratio|GiB, measured|predicted|MFU, measured|predicted"
    "|computing|communicating|launching|idle".split("|")
)


def page(found: Mapping[str, Rows], stamp: str, before: str) -> str:
    """All of it, of sets by name.  `before`: the page as it was."""
    above, _, below = before.partition(MARK)
    sections = dict(re.findall(r"<!-- set (\w+) -->\n(.*?)(?=<!-- set |\Z)", below, re.DOTALL))
    sections |= {name: _section(SETS[name], name, rows, stamp) for name, rows in found.items()}
    kept = [name for name in SETS if name in sections]
    lines = [
        re.findall(rf"^\| {re.escape(_title(SETS[name], name))} \|.*$", sections[name], re.MULTILINE)[0]
        for name in kept
    ]
    table = "\n".join([_table(_SETS, []).rstrip(), *lines])
    return above + MARK + "\n".join([table, *(f"\n<!-- set {name} -->\n{sections[name].strip()}" for name in kept), ""])


def row_record(run: Run | UnsaidError, outcome: Outcome) -> dict[str, Any]:
    """One row, for a file."""
    if not isinstance(run, Run) or not isinstance(outcome, Prediction):
        return {"run": str(run), "reason": str(outcome)}
    said = {"model": run.model, "plan": str(run.plan), "batch": run.batch, "machine": run.machine}
    measured = {"seconds": run.seconds, "gibibytes": run.gibibytes, "utilization": utilization(run, run.seconds)}
    return {**said, "runtime": run.runtime, "measured": measured, "predicted": asdict(outcome)}


def _section(of: RunSet, name: str, rows: Rows, stamp: str) -> str:
    told = told_of(rows)
    machines = dict.fromkeys((machine_of_run(run).with_devices(8) for run, _ in told))
    shown = sorted(told, key=_error)[-_MOST_ROWS:] if len(told) > _MOST_ROWS else told
    less = f"The {len(shown)} rows of {len(told)} that are furthest off:\n" if len(shown) < len(told) else ""
    parts = [
        f"## {of.title}\n\nPriced on {stamp}.\n",
        _table(_SETS, [_line(of, name, rows)]),
        _table(_MACHINES, map(_machine, machines)),
        less,
        _table(_ROWS, (_row(*each) for each in shown)),
        *(f"* {count} not told: {reason}" for reason, count in untold(rows).items()),
    ]
    return "\n".join(filter(None, parts))


def _title(of: RunSet, name: str) -> str:
    return f"{of.title} (`{name}`)"


def _line(of: RunSet, name: str, rows: Rows) -> tuple[str, ...]:
    line = line_of(rows)
    shares = line.median_error, line.worst_error, line.mean_error, line.memory_error
    ranks = line.rank, line.rank_in_groups
    figures = *map(_percent, shares), *map(_correlation, ranks), *map(_percent, (line.regret, line.worst_regret))
    return _title(of, name), f"{line.told} of {line.rows}", *figures, of.aim, of.others


def _machine(machine: Machine) -> tuple[str, ...]:
    links = (
        f"{link.bandwidth / 1e9:,.0f} GB/s, {link.latency * 1e6:.1f} us" for link in (machine.inside, machine.between)
    )
    return (
        machine.name.partition("(")[0],
        f"{machine.flops('bf16') * machine.compute_efficiency / 1e12:,.0f}",
        f"{machine.memory_bytes / 1e9:,.0f} GB, {machine.memory_bandwidth * machine.memory_efficiency / 1e12:.2f} TB/s",
        *links,
        f"{machine.launch * 1e6:.1f} us",
        f"{machine.dispatch_seconds * 1e6:.1f} us" if machine.dispatch_seconds else "",
    )


def _error(told: Told) -> float:
    return abs(told[1].seconds / told[0].seconds - 1)


def _row(run: Run, found: Prediction) -> tuple[str, ...]:
    memory = f"{run.gibibytes:.1f}" if run.gibibytes else "", f"{found.gibibytes:.1f}"
    use = (f"{utilization(run, seconds):.1%}" for seconds in (run.seconds, found.seconds))
    parts = found.computing_s, found.communicating_s, found.launching_s, found.idle_s
    shares = (f"{max(0.0, part) / found.seconds:.0%}" for part in parts)
    said = run.model, str(run.plan), f"{run.batch:,}", f"{run.config.length:,}", run.machine
    times = f"{run.seconds:.4g}", f"{found.seconds:.4g}", f"{found.seconds / run.seconds:.2f}"
    return *said, *times, *memory, *use, *shares


def _percent(share: float) -> str:
    return "" if isnan(share) else f"{share:.1%}"


def _correlation(value: float) -> str:
    return "" if isnan(value) else f"{value:.2f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(_rows([heads, ["---"] * len(heads), *rows])) + "\n"


def _rows(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    return (f"| {' | '.join(row)} |" for row in rows)
