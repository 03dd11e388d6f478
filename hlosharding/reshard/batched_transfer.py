"""Regions of several operands, brought together on the devices that want them: piecewise plans for more than reshards.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlosharding.cost import Machine, collective_time
from hlosharding.ir import Shape
from hlosharding.reshard.layout import Dims, Layout
from hlosharding.reshard.objectives import weigh
from hlosharding.reshard.piecewise import Region, groupings, moves_of_regions, pieces_in_rounds
from hlosharding.reshard.steps import Pieces


@dataclass(frozen=True, slots=True)
class BatchedTransfer:
    """How the regions come together."""

    pieces: Pieces
    variants: tuple[tuple[int, Dims], ...]
    """What the pieces are cut from: (operand, dims along which its local tile is turned round first)."""
    mean_bytes: float
    seconds: float
    """Of the permutes alone: the ops it is held against are priced without their local work, too."""


def plan_batched_transfer(
    regions: tuple[Region, ...],
    sources: Sequence[Layout],
    target: Layout,
    shape: Shape,
    *,
    machine: Machine,
    objective: str,
) -> BatchedTransfer | None:
    """The best way to give every device its tile of a result of global `shape`; None if it has too many pieces.

    Every device receives what its own tiles lack, and no more but for padding where that saves rounds.
    """
    moves = moves_of_regions(regions, sources, target, machine)
    if moves is None:
        return None
    best = min(groupings(moves, shape), key=lambda g: (weigh(objective, g.mean_bytes, g.seconds), g.rounds))
    pieces = pieces_in_rounds(moves, best)
    sent = [(shape.with_dims(turn.sizes).byte_size, turn.pairs) for turn in pieces.rounds if not turn.is_local]
    seconds = sum(collective_time("collective-permute", nbytes, 2, pairs, machine) for nbytes, pairs in sent)
    return BatchedTransfer(pieces, moves.variants, best.mean_bytes, seconds)
