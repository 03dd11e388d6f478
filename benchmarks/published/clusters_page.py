"""What `python -m benchmarks.clusters` found, as Markdown: lines of sets, machines, rows, and what was not told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import isnan
from typing import Any

from benchmarks.published.figures import Told, line_of, told_of, untold
from benchmarks.published.pricing import Outcome, Prediction, machine_of_run, utilization
from benchmarks.published.runs import Run, UnsaidError
from benchmarks.published.sets import SETS

Rows = Sequence[tuple[Run | UnsaidError, Outcome]]
_MOST_ROWS = 60
_HEADS = (
    ("set", "rows", "median", "worst", "mean", "memory", "rank", "in groups", "regret", "worst", "aim", "others"),
    ("machine", "bf16, TFLOP/s", "memory", "bandwidth", "link inside", "between", "a launch", "an op, eagerly"),
    ("model", "plan", "batch", "machine", "measured, s", "predicted, s", "ratio", "GiB", "predicted", "MFU",
     "predicted", "computing", "talking", "launching", "idle"),
)  # fmt: skip


def page(found: Mapping[str, Rows], stamp: str) -> str:
    """All of it, of sets by name."""
    told = {name: told_of(rows) for name, rows in found.items()}
    parts = [f"Priced on {stamp}.", _table(_HEADS[0], map(_line, found, found.values()))]
    machines = sorted({machine_of_run(run).with_devices(8) for rows in told.values() for run, _ in rows}, key=str)
    parts.append(_table(_HEADS[1], sorted({tuple(_machine(each)) for each in machines})))
    for name, rows in found.items():
        parts += _section(SETS[name].title, rows, told[name])
    return "\n".join(parts)


def row_record(run: Run | UnsaidError, outcome: Outcome) -> dict[str, Any]:
    """One row, for a file."""
    if not isinstance(run, Run) or not isinstance(outcome, Prediction):
        return {"run": str(run), "reason": str(outcome)}
    said = {"model": run.model, "plan": str(run.plan), "batch": run.batch, "machine": run.machine}
    measured = {"seconds": run.seconds, "gibibytes": run.gibibytes, "utilization": utilization(run, run.seconds)}
    return {**said, "runtime": run.runtime, "measured": measured, "predicted": asdict(outcome)}


def _line(name: str, rows: Rows) -> tuple[str, ...]:
    line, of = line_of(rows), SETS[name]
    shares = line.median_error, line.worst_error, line.mean_error, line.memory_error
    ranks = line.rank, line.rank_in_groups
    lost = line.regret, line.worst_regret
    figures = *map(_percent, shares), *map(_correlation, ranks), *map(_percent, lost)
    return f"{of.title} (`{name}`)", f"{line.told} of {line.rows}", *figures, of.aim, of.others


def _machine(machine: Any) -> Iterator[str]:
    yield machine.name.partition("(")[0]
    yield f"{machine.flops('bf16') / 1e12:,.0f} x {machine.compute_efficiency:.2f}"
    yield f"{machine.memory_bytes / 1e9:,.0f} GB"
    yield f"{machine.memory_bandwidth / 1e12:.2f} TB/s x {machine.memory_efficiency:.2f}"
    yield from (
        f"{link.bandwidth / 1e9:,.0f} GB/s, {link.latency * 1e6:.1f} us" for link in (machine.inside, machine.between)
    )
    yield f"{machine.launch * 1e6:.1f} us"
    yield f"{machine.dispatch * 1e6:.1f} us" if machine.dispatch else ""


def _section(title: str, rows: Rows, told: Sequence[Told]) -> Iterator[str]:
    yield f"\n## {title}\n"
    shown = sorted(told, key=_error)[-_MOST_ROWS:] if len(told) > _MOST_ROWS else told
    if len(shown) < len(told):
        yield f"The {len(shown)} rows of {len(told)} that are furthest off; `--json` writes all.\n"
    yield _table(_HEADS[2], (_row(*each) for each in shown))
    yield from (f"* {count} not told: {reason}" for reason, count in untold(rows).items())


def _error(told: Told) -> float:
    return abs(told[1].seconds / told[0].seconds - 1)


def _row(run: Run, found: Prediction) -> tuple[str, ...]:
    ratio = f"{found.seconds / run.seconds:.2f}"
    memory = f"{run.gibibytes:.1f}" if run.gibibytes else "", f"{found.gibibytes:.1f}"
    use = (f"{utilization(run, seconds):.1%}" for seconds in (run.seconds, found.seconds))
    parts = found.computing_s, found.communicating_s, found.launching_s, found.idle_s
    shares = (f"{part / found.seconds:.0%}" for part in parts)
    said = run.model, str(run.plan), f"{run.batch:,}", run.machine
    return *said, f"{run.seconds:.4g}", f"{found.seconds:.4g}", ratio, *memory, *use, *shares


def _percent(share: float) -> str:
    return "" if isnan(share) else f"{share:.1%}"


def _correlation(value: float) -> str:
    return "" if isnan(value) else f"{value:.2f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
