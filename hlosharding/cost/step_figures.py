"""What there is to say of a predicted step in two lines: throughput, utilization, what bounds it, and how far off such
predictions were.

Floor: cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from hlosharding.cost.machine import Machine
from hlosharding.cost.measured_sets import MeasuredSet, nearest_set
from hlosharding.cost.step_breakdown import StepBreakdown
from hlosharding.cost.utilization import FlopsByType, WholeStep, utilization


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Of one step.

    >>> print(StepFigures(0.31, "MFU", StepBreakdown(flops_s=3.0, between_s=1.0), None, 1234.0))
    31.0% MFU, 1,234 tokens/s a device, bound by compute 75% (FLOPs 75%), links between nodes 25%
    not compared with any measured run
    """

    utilization: float
    """Share of the peak FLOP/s of all devices; 0 where there is no matrix product."""
    kind: Literal["MFU", "HFU"]
    """Of the program's FLOPs, nothing computed twice; or of all that devices compute, where the program is not known
    as it was before it was partitioned."""
    breakdown: StepBreakdown
    """Of the devices that work longest."""
    error: MeasuredSet | None
    """Runs on such machines that were predicted and measured; None: there are none."""
    tokens_per_s: float | None = None
    """A device; None where nothing says what a token is."""

    @classmethod
    def of(
        cls, work: WholeStep | FlopsByType, seconds: float, machine: Machine, breakdown: StepBreakdown
    ) -> StepFigures:
        """`work`: the step as a whole, or the FLOPs of all devices, where no more is known."""
        share, error = partial(utilization, seconds=seconds, machine=machine), nearest_set(machine)
        if not isinstance(work, WholeStep):
            return cls(share(work), "HFU", breakdown, error)
        spent = seconds * machine.num_devices
        tokens = work.tokens / spent if work.tokens and spent else None
        return cls(share(work.flops), "MFU", breakdown, error, tokens)

    def __str__(self) -> str:
        said = (
            f"{self.utilization:.1%} {self.kind}" * (self.utilization > 0),
            "" if self.tokens_per_s is None else f"{self.tokens_per_s:,.0f} tokens/s a device",
            str(self.breakdown),
        )
        error = f"such predictions were {self.error}" if self.error else "not compared with any measured run"
        return f"{', '.join(filter(None, said))}\n{error}"
