"""Piecewise plans of a reshard: the best groupings of its pieces, as steps.

Floor: reshard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hlosharding.cost import Machine, collective_time
from hlosharding.ir import Shape
from hlosharding.reshard.layout import Dims, Layout, common_block, layout_of
from hlosharding.reshard.objectives import weigh
from hlosharding.reshard.piecewise.assign_rounds import pieces_in_rounds
from hlosharding.reshard.piecewise.groupings import groupings
from hlosharding.reshard.piecewise.piece_moves import MOST_PIECES, PieceMoves, moves_between, moves_of_regions
from hlosharding.reshard.piecewise.regions import Region
from hlosharding.reshard.request import PlannedSteps, Reshard, Steps
from hlosharding.reshard.steps import Pieces
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class PiecewiseSearch:
    """How widely to look."""

    most_pieces: int | None = MOST_PIECES
    kept: int = 1
    """So many of the best groupings become plans."""
    near: float = 1.0
    """Unless their estimate is so many times dearer than the best plan known."""


def piecewise_plans(reshard: Reshard, search: PiecewiseSearch, best: PlannedSteps | None) -> Iterator[Steps]:
    """The best piecewise plans; none if there are too many pieces, or if even the estimate is worse than `best`."""
    limit = math.inf
    if best is not None and best.fits(reshard.memory_limit):
        limit = search.near * best.cost(reshard.objective)
    if weigh(reshard.objective, *reshard.least(in_pieces=True)) >= limit:
        return
    block = common_block(reshard.source, reshard.target, reshard.shape.dims)
    blocks = tuple(size // unit for size, unit in zip(reshard.shape.dims, block, strict=True))
    devices, most = reshard.num_devices, search.most_pieces
    moves = _moves_of_blocks(reshard.source, reshard.target, blocks, reshard.machine, devices, most)
    if moves is None:
        return
    prices = [
        (weigh(reshard.objective, found.mean_bytes, found.seconds), found.rounds, found)
        for found in groupings(moves, reshard.shape, block)
    ]
    # Groupings themselves have no order.
    for cost, _, grouping in sorted(prices, key=lambda price: price[:2])[: search.kept]:
        if cost < limit:
            yield (pieces_in_rounds(moves.scale(block, *reshard.layouts), grouping),)


@lru_cache(maxsize=512)
def _moves_of_blocks(
    source: HloSharding, target: HloSharding, dims: Dims, machine: Machine, num_devices: int, most: int | None
) -> PieceMoves | None:
    layouts = layout_of(source, dims, num_devices), layout_of(target, dims, num_devices)
    return moves_between(*layouts, machine, most)


# ---- regions of several operands, brought together on the devices that want them


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
