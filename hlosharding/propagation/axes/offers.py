"""What is said about an op's tensors, as offers to its loops; and offers that could not be taken.

Floor: propagation.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.propagation.axes.axis_sharding import AxisSharding
from hlosharding.propagation.axes.cluster import Axes
from hlosharding.propagation.axes.notes import USER, Note, Notes
from hlosharding.propagation.axes.program import LoopOp


@dataclass(frozen=True, slots=True)
class Offer:
    """Who asks for axes on a loop, and whether it is an order."""

    by: str
    axes: Axes
    required: bool

    def __str__(self) -> str:
        return f"{self.by} {'requires' if self.required else 'offers'} [{', '.join(map(str, self.axes))}]"


@dataclass(frozen=True, slots=True)
class Conflict:
    """An offer that an op could not take: by whom, against whom, why, and what came of it."""

    op: str
    where: str
    loop: str
    """The loop's name; "" where no loop runs over the dim."""
    offers: tuple[Offer, ...]
    """The one refused, then the one it met, if any."""
    reason: str
    outcome: str

    def __str__(self) -> str:
        loop = f", loop {self.loop}" if self.loop else ""
        return f"{self.where}{loop}: {self.offers[0]}, but {self.reason}; {self.outcome}"


def result_offer(notes: Notes, op: LoopOp, number: int) -> tuple[AxisSharding, Offer] | None:
    """The annotation as a result, else what users would like, as a hint."""
    value = op.results[number]
    own = notes.results.get(value)
    if own is not None:
        # What another op has made of the value (the entry into a loop, say) binds this one too.
        return own.sharding, _offer(f"result {number}", own, required=own.required or own.by not in (op.name, USER))
    wish = notes.wish(value)
    return None if wish is None else (wish[0].sharding, _offer(f"user %{wish[1]}", wish[0], required=False))


def operand_offer(notes: Notes, op: LoopOp, number: int) -> tuple[AxisSharding, Offer] | None:
    """The annotation for this use, else how the value is made, as a hint."""
    own = notes.uses.get((op, number))
    name = f"operand {number} (%{op.operands[number].name})"
    if own is not None:
        return own.sharding, _offer(name, own, required=own.required)
    made = notes.results.get(op.operands[number])
    return None if made is None else (made.sharding, _offer(name, made, required=False))


def _offer(name: str, note: Note, *, required: bool) -> Offer:
    return Offer(f"{name}, annotated by the user," if note.by == USER else name, (), required)
