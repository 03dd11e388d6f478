"""Prices in a file as they are found: a search that was interrupted goes on where it was.

Floor: search.  JSON lines: the first says of what the prices are, each other one what became of a plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, get_type_hints

from hlosharding.compiler import versions
from hlosharding.cost import Machine, StepBreakdown
from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.ir import digest
from hlosharding.search.batch_sizes import BatchSizes
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.priced_plan import PricedPlan
from hlosharding.whole_files import write_whole, writing

VERSION = 3
"""Of the file."""
Outcome = PricedPlan | str
"""What a step takes, or why the program does not allow the plan."""


class KnownPrices:
    """What became of plans.  With a path also in a file, from which it takes what is there already.

    `facts`: of what the prices are, by name.  Raises ScheduleError for a file with prices of something else, and
    HloShardingError for one that cannot be read or written.

    >>> from tempfile import TemporaryDirectory
    >>> plan = SizedPlan(Plan(2), 8)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "prices.jsonl"
    ...     KnownPrices(path, {"machine": "h100(2)"}).keep(plan, "the batch is not cut")
    ...     print(KnownPrices(path, {"machine": "h100(2)"}).found[plan])
    ...     KnownPrices(path, {"machine": "h100(4)"})
    Traceback (most recent call last):
        ...
    hlosharding.errors.ScheduleError: ...prices.jsonl has prices of another machine; name another file
    """

    def __init__(self, path: str | Path | None = None, facts: Mapping[str, str] | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self.found: dict[SizedPlan, Outcome] = {}
        if self.path is not None:
            header = {"version": str(VERSION), "library": " ".join(versions()), **(facts or {})}
            try:
                self._read(self.path, header)
            except OSError as error:
                raise HloShardingError(f"cannot keep prices in {path}: {error.strerror or error}") from error

    def keep(self, plan: SizedPlan, outcome: Outcome) -> None:
        """From now on.  Raises HloShardingError where the file takes no more."""
        self.found[plan] = outcome
        if self.path is not None:
            # Opened and closed for each price: what was found is there whenever the search ends.
            with writing(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(_line(plan, outcome))

    def _read(self, path: Path, header: Mapping[str, str]) -> None:
        first = json.dumps(header) + "\n"
        # A UnicodeDecodeError would be no error of ours: with marks in place of such bytes the file is refused below.
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if first.startswith(text):  # nothing, or what was written of the first line when the search ended
            write_whole(path, first)
            return
        whole, _, rest = text.rpartition("\n")
        lines = whole.split("\n")
        _check(lines[0], header, path)
        for number, line in enumerate(lines[1:], 2):
            plan, outcome = _parse_outcome(line, f"line {number} of {path}")
            self.found[plan] = outcome
        if rest:  # half a line: the search ended while it was written
            write_whole(path, f"{whole}\n")


def price_facts(
    sizes: BatchSizes, plans: Iterable[SizedPlan], machine: Machine, options: Iterable[object]
) -> dict[str, str]:
    """All that decides the prices of plans."""
    planner = sizes.planner(sizes.given)
    every = sorted(plans)
    # Functions have no text that tells them apart: which strategy it is what it gives the arguments says.
    stages = sorted({each.plan.stage for each in every})
    return {
        "program": digest(planner.module).hex(),
        "machine": repr(machine),
        "plan space": _checksum(every),
        "strategy": _checksum(_shardings_text(planner, stage) for stage in stages),
        "choice of arguments": _checksum(options),
    }


def _shardings_text(planner: Planner, stage: Plan) -> str:
    try:
        found = planner.annotate(stage)
    except HloShardingError as error:
        return str(error)
    return "; ".join(str(found.sharding(parameter)) for parameter in found.entry.parameters)


def _checksum(said: Iterable[object]) -> str:
    return sha256("\n".join(map(str, said)).encode()).hexdigest()


def _check(line: str, header: Mapping[str, str], path: Path) -> None:
    try:
        there = json.loads(line)
    except (ValueError, RecursionError):  # brackets in brackets, a thousand deep, end Python's stack
        there = None
    if not isinstance(there, dict) or "version" not in there:
        raise ScheduleError(f"{path} is no file of prices", remedy="name another file")
    other = [name for name, said in header.items() if there.get(name) != said]
    if other:
        raise ScheduleError(f"{path} has prices of another {', '.join(other)}", remedy="name another file")


def _line(plan: SizedPlan, outcome: Outcome) -> str:
    said = {"refused": outcome} if isinstance(outcome, str) else {"priced": asdict(outcome)}
    return json.dumps({"plan": str(plan.plan), "batch_size": plan.batch_size, **said}) + "\n"


def _parse_outcome(line: str, where: str) -> tuple[SizedPlan, Outcome]:
    try:
        said: dict[str, Any] = json.loads(line)
        plan = SizedPlan(Plan.parse(str(said["plan"])), said["batch_size"])
        _check_types(plan)
        if "refused" in said:
            return plan, str(said["refused"])
        breakdown = StepBreakdown(**said["priced"]["breakdown"])
        priced: dict[str, Any] = {**said["priced"], "plan": plan.plan, "breakdown": breakdown}
        outcome = PricedPlan(**priced)
        for value in (outcome, breakdown):
            _check_types(value)
        return plan, outcome
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ScheduleError(f"{where} is no price: {error}", remedy="name another file") from error


def _check_types(value: object) -> None:
    """Raises TypeError where a field is not what it should be: JSON has lists and endless numbers, too."""
    for name, wanted in get_type_hints(type(value)).items():
        found = getattr(value, name)
        # Not isinstance: True is an int.
        is_whole = type(found) is int
        fits = type(found) is wanted or (is_whole and wanted is float)
        if not fits or (is_whole and not 0 <= found < _MOST):
            raise TypeError(f"{name} is no {wanted.__name__}")


_MOST = 1 << 53
"""More devices, examples or microbatches than anybody has, and a float still holds it."""
