"""`hs.check_plan`: a program does no worse under its plan than when the plan's figures were recorded.

Floor: plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import machines
from hlosharding.errors import PlanError
from hlosharding.ir import Module
from hlosharding.plans.golden import Golden, ReplicatedValues, Talk, golden_path
from hlosharding.plans.plan_file import PlanFile
from hlosharding.plans.replicated import REPLICATED_OVER

_MOST_NAMED = 3
"""Culprits in a line of the verdict; the others are counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a program does against recorded figures: a line for each that is worse, or better."""

    golden: Golden
    now: Golden
    worse: tuple[str, ...]
    better: tuple[str, ...]

    def __str__(self) -> str:
        lines = [*(f"worse: {line}" for line in self.worse), *(f"better: {line}" for line in self.better)]
        return "\n".join(lines) or "as recorded"


def check_plan(
    plan: str | Path,
    program: Module | Partitioned,
    *,
    update: bool = False,
    tolerance: float = 0.0,
    replicated_over: int | None = None,
) -> Verdict:
    """Hold a program to the figures recorded beside a plan file (`plan.toml`: `plan.golden.toml`).

    A Module gets the plan's annotations and is partitioned for its machine (where it says none, for H100s).  Bytes
    received, peak memory and bytes of replicated values may grow by the fraction `tolerance`; becoming less is
    welcome, and said.  `update`: record the figures as they are now.  `replicated_over`: record replicated values of
    more bytes (1 MiB, or as recorded).  Raises PlanError that names what grew, by line and value; and where nothing was
    recorded, or for other devices.

    >>> import tempfile, hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  ROOT x = f32[64] parameter(0)\\n}"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plan = Path(folder) / "plan.toml"
    ...     _ = plan.write_text('[mesh]\\nd = 4\\n[annotations]\\nx = "P(d)"')
    ...     _ = check_plan(plan, hs.load(text), update=True)
    ...     print(check_plan(plan, hs.load(text)))
    as recorded
    """
    partitioned = program if isinstance(program, Partitioned) else _partitioned(PlanFile.read(plan), program)
    path = golden_path(plan)
    if not update and not path.exists():
        raise PlanError(f"no figures are recorded in {path}", remedy="record them: --update, or update=True")
    golden = None if update else Golden.read(path)
    over = replicated_over if replicated_over is not None else golden.replicated_over if golden else REPLICATED_OVER
    now = Golden.of(partitioned, replicated_over=over)
    if golden is None:
        now.write(path)
        return Verdict(now, now, (), ())
    _check_same_question(golden, now, path)
    verdict = judge_growth(golden, now, tolerance)
    if verdict.worse:
        raise PlanError(
            "; ".join(verdict.worse), where=str(path), remedy="where that is meant, record it with --update"
        )
    return verdict


def _partitioned(plan: PlanFile, module: Module) -> Partitioned:
    annotated = plan.apply(module)
    machine = plan.machine_for(annotated) or machines.h100(max(1, annotated.num_partitions))
    return partition(annotated, machine=machine, options=plan.options)


def _check_same_question(golden: Golden, now: Golden, path: Path) -> None:
    for name in ("num_partitions", "machine", "replicated_over"):
        old, new = getattr(golden, name), getattr(now, name)
        if old != new:
            raise PlanError(
                f"the figures are of {name} = {old!r}, the program's is {new!r}",
                where=str(path),
                remedy="where that is meant, record them anew with --update",
            )


def judge_growth(golden: Golden, now: Golden, tolerance: float = 0.0) -> Verdict:
    """What grew by more than the tolerance, and why; what became less."""
    culprits = {
        "received_bytes": lambda: _grown(golden.collectives, now.collectives),
        "peak_memory_bytes": lambda: [now.peak_at] if now.peak_at else [],
        "replicated_bytes": lambda: _grown(golden.replicated, now.replicated),
    }
    worse: list[str] = []
    better: list[str] = []
    for name, why in culprits.items():
        old, new = getattr(golden, name), getattr(now, name)
        said = name.replace("_", " ")
        if new > old * (1 + tolerance):
            worse.append(f"{said} grew from {old:,} to {new:,}{_because(why())}")
        elif new < old:
            better.append(f"{said} fell from {old:,} to {new:,}: record it with --update")
    return Verdict(golden, now, tuple(worse), tuple(better))


def _because(named: Sequence[str]) -> str:
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f" ({', '.join(named[:_MOST_NAMED])}{more})" if named else ""


def _grown(before: Sequence[Talk | ReplicatedValues], after: Sequence[Talk | ReplicatedValues]) -> list[str]:
    """Rows that are new or larger, the largest growth first; one that has only moved to another line is neither."""
    moved = Counter(row.work for row in before) & Counter(row.work for row in after)
    old = {str(row): row.nbytes for row in _without(before, moved)}
    new = {str(row): row.nbytes for row in _without(after, moved)}
    growth = {said: nbytes - old.get(said, 0) for said, nbytes in new.items() if nbytes > old.get(said, 0)}
    order = sorted(growth, key=lambda said: (-growth[said], said))
    return [f"{said}: {old.get(said, 0):,} -> {new[said]:,}" for said in order]


def _without(rows: Sequence[Talk | ReplicatedValues], left_out: Counter[Any]) -> Iterator[Talk | ReplicatedValues]:
    remaining = Counter(left_out)
    for row in rows:
        if remaining[row.work]:
            remaining[row.work] -= 1
        else:
            yield row
