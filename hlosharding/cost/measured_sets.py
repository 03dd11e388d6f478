"""How far predicted steps were off, of clusters whose steps are published: an error bar for machines like those.

Floor: cost.  The figures are those of `docs/clusters.md`, in `measured_sets.csv`: `pytest tests/golden --update-golden`
writes them anew.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import log

from hlosharding.cost.machine import Machine, Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSet:
    """Runs that were predicted and measured.

    >>> from hlosharding.cost import machines
    >>> nearest_set(machines.a100_40gb(4).with_runtime("eager")).machines
    ('a100',)
    >>> nearest_set(machines.cpu(8)) is None
    True
    """

    title: str
    machines: tuple[str, ...]
    """Presets, whatever their memory."""
    runtime: Runtime
    least_devices: int
    most_devices: int
    rows: int
    median_error: float
    """Of the time of a step, as a share of what was measured."""
    worst_error: float
    date: str

    def distance(self, machine: Machine) -> tuple[bool, float, int]:
        """How unlike a machine is: another runtime, then another number of devices, then few rows."""
        low, count, high = map(log, (self.least_devices, machine.num_devices, self.most_devices))
        return self.runtime != machine.runtime, max(low - count, count - high, 0.0), -self.rows

    def __str__(self) -> str:
        errors = f"{self.median_error:.0%} off in the median, {self.worst_error:.0%} at worst"
        steps = f"{self.rows} measured training steps of transformers"
        return f"{errors}, over {steps} ({self.title}, {self.runtime}, {self.date})"


def nearest_set(machine: Machine) -> MeasuredSet | None:
    """The set of runs on such devices whose runtime and number of devices are nearest; None: there is none."""
    chip = _without_memory(machine.name.partition("(")[0])
    alike = [each for each in measured_sets() if chip in each.machines and not machine.parts]
    return min(alike, key=lambda each: each.distance(machine), default=None)


def _without_memory(name: str) -> str:
    return re.sub(r"_\d+gb$", "", name)


@lru_cache(maxsize=1)
def measured_sets() -> tuple[MeasuredSet, ...]:
    """All, in the order of the page."""
    text = files(__package__ or "").joinpath("measured_sets.csv").read_text(encoding="utf-8")
    return tuple(map(_read, csv.DictReader(text.splitlines())))


def _read(row: dict[str, str]) -> MeasuredSet:
    return MeasuredSet(
        title=row["title"],
        machines=tuple(dict.fromkeys(map(_without_memory, row["machines"].split()))),
        runtime="eager" if row["runtime"] == "eager" else "compiled",
        least_devices=int(row["least_devices"]),
        most_devices=int(row["most_devices"]),
        rows=int(row["rows"]),
        median_error=float(row["median_error"]),
        worst_error=float(row["worst_error"]),
        date=row["date"],
    )
