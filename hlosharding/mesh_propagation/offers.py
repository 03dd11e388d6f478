"""What is said about an op's tensors, as offers to its loops; and offers that could not be taken.

Floor: mesh_propagation.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.mesh_propagation.loop_program import LoopOp
from hlosharding.mesh_propagation.notes import USER, Note, Notes
from hlosharding.notations import AxisSharding
from hlosharding.sharding import Axes


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


@dataclass(frozen=True, slots=True)
class Wish:
    """What is said about one tensor of an op."""

    sharding: AxisSharding
    by: str
    required: bool
    settles: bool
    """Are its empty lists offers too: that a dim stay whole?"""

    def offer(self, axes: Axes) -> Offer:
        """As an offer of these axes."""
        return Offer(self.by, axes, self.required)


def result_wish(notes: Notes, op: LoopOp, number: int) -> Wish | None:
    """The annotation as a result, else what users would like, as a hint that counts where it splits."""
    value = op.results[number]
    own = notes.results.get(value)
    if own is not None:
        # What another op has made of the value (the entry into a loop, say) binds this one too.
        required = own.required or own.by not in (op.name, USER)
        return Wish(own.sharding, _by(f"result {number}", own), required, settles=True)
    liked = notes.wish(value)
    return None if liked is None else Wish(liked[0].sharding, _by(f"user %{liked[1]}", liked[0]), False, settles=False)


def operand_wish(notes: Notes, op: LoopOp, number: int) -> Wish | None:
    """The annotation for this use, else how the value is made, as a hint that counts where it splits."""
    own, made = notes.uses.get((op, number)), notes.results.get(op.operands[number])
    name = f"operand {number} (%{op.operands[number].name})"
    if own is not None:
        return Wish(own.sharding, _by(name, own), own.required, settles=own.required)
    return None if made is None else Wish(made.sharding, _by(name, made), False, settles=False)


def _by(name: str, note: Note) -> str:
    return f"{name}, annotated by the user," if note.by == USER else name
