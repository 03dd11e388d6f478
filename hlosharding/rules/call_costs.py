"""What one run of a custom call costs: what its user says, for nobody else can know.

Floor: rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from hlosharding.ir import Instruction


class CallCost(NamedTuple):
    """Work of a custom call on one device.

    >>> CallCost(flops=2.0 * 64**3, bytes_accessed=3 * 4 * 64**2).transcendentals
    0.0
    """

    flops: float
    """Arithmetic operations, transcendentals apart; they run at the rate of matrix products."""
    bytes_accessed: float
    """Read from memory and written to it."""
    transcendentals: float = 0.0
    """Exponentials, roots, sines, ...: one each."""
    matrix: tuple[int, int, int, int] | None = None
    """Of its products: batches, rows, columns, depth, which decide how well they fill a device; None: they fill it."""


class EstimatedCost(Protocol):
    """A `CallCost`, or what Pallas calls `CostEstimate`."""

    @property
    def flops(self) -> float: ...

    @property
    def bytes_accessed(self) -> float: ...

    @property
    def transcendentals(self) -> float: ...


CostFunction = Callable[[Instruction], EstimatedCost]
"""Of the call as one device runs it."""
