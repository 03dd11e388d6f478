"""Annotations that reach a goal, and what the program then costs.

Floor: search.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks
from hlosharding.plans import PlanFile, SourceChange, change_source
from hlosharding.search.comparison import time_text
from hlosharding.sharding import HloSharding, MeshInfo, spell


@dataclass(frozen=True, slots=True)
class Suggestion(InNotebooks):
    """Annotations that reach the goal, and what the program then costs: bytes received, FLOPs, predicted seconds; one
    device, one run.

    `str` is the line that `hlosharding suggest` prints; `suggest` has an example.
    """

    annotations: tuple[tuple[str, HloSharding], ...]
    sharding: HloSharding | None
    """What the value gets; None where no value was named."""
    bytes_received: float
    bytes_before: float
    flops: float
    flops_before: float
    time_s: float
    """Simulated."""
    time_before_s: float
    conflicts: int
    """Places of the whole program where neighbours disagree, then."""
    conflicts_before: int
    is_smallest: bool
    """Were all smaller sets of the annotations that come into question tried, in vain?"""
    ends_conflict: bool = False
    """Was the value split already, and is it a conflict that ends?"""
    replaces: tuple[str, ...] = ()
    """Values whose annotation is not added but changed."""
    mesh: MeshInfo | None = field(default=None, repr=False)

    def plan_file(self, plan: PlanFile | None = None) -> PlanFile:
        """These annotations as a plan file, on top of those of `plan`."""
        return PlanFile.of(dict(self.annotations), mesh=self.mesh).over(plan or PlanFile())

    def change_source(self, module: Module, source: str | Path | None = None) -> SourceChange:
        """These annotations in the source of the function that `module` was traced from (`change_source`)."""
        return change_source(module, dict(self.annotations), source=source, mesh=self.mesh)

    def __str__(self) -> str:
        said = ", ".join(self._said(name, sharding) for name, sharding in self.annotations)
        becomes = f": the value becomes {spell(self.sharding, self.mesh)}" if self.sharding is not None else ""
        took = f"time {time_text(self.time_before_s)} -> {time_text(self.time_s)}"
        moved = f"bytes {self.bytes_before:,.0f} -> {self.bytes_received:,.0f}"
        work = f"FLOPs {self.flops_before:,.0f} -> {self.flops:,.0f}"
        clashes = f"conflicts {self.conflicts_before} -> {self.conflicts}"
        if self.conflicts_before == self.conflicts:
            clashes = "the conflict moves elsewhere" if self.conflicts and self.ends_conflict else ""
        figures = ", ".join(figure for figure in (moved, work, took, clashes) if figure)
        doubt = "" if self.is_smallest else " (a smaller set may do: not all were tried)"
        return f"{said}{becomes}; {figures}{doubt}"

    def _said(self, name: str, sharding: HloSharding) -> str:
        verb = "change" if name in self.replaces else "annotate"
        return f"{verb} %{name}={spell(sharding, self.mesh)}"
