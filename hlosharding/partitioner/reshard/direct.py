"""The direct plan: every device gets exactly the pieces it lacks, from whoever holds them, in rounds of permutes.

Floor: partitioner/reshard.  Knows layouts; nothing of axes.  Works for any tiling and any device order, even or not.

Borders of source and target tiles cut the array into pieces (along a dim they repeat with the least common multiple of
the tile sizes); a piece that lies in a device's target tile comes from its own source tile, or from one of the holders.
Senders and receivers make a bipartite graph; by König's theorem as many rounds suffice as its busiest device has
pieces.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.cost import Machine
from hlosharding.partitioner.reshard.layout import Dims, Layout, Table
from hlosharding.partitioner.reshard.pieces import Pieces, Round
from hlosharding.partitioner.reshard.steps import Pairs

MOST_PIECES = 20_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A box that goes from device `source` to device `target` (perhaps the same)."""

    source: int
    target: int
    low: Dims
    sizes: Dims


def direct_plan(source: Layout, target: Layout, machine: Machine, *, tolerance: float = 0.0) -> Pieces | None:
    """The rounds from one layout to another; None where there would be more than MOST_PIECES pieces.

    Without `tolerance` no padding travels.  With it, pieces of different sizes may share a round, in a window that is
    at most 1 + tolerance times the smallest: more bytes, fewer rounds.

    >>> import math
    >>> from hlosharding.cost import machines
    >>> from hlosharding.partitioner.reshard.layout import layout_of
    >>> from hlosharding.sharding import HloSharding
    >>> a, b = HloSharding.parse("{devices=[2,3]<=[6]}"), HloSharding.parse("{devices=[3,2]<=[6]}")
    >>> plan = direct_plan(layout_of(a, (6, 6), 6), layout_of(b, (6, 6), 6), machines.h100(6))
    >>> str(plan)
    '6 rounds of pieces of [2, 2] or [2, 1] or [1, 2] or [1, 1]'
    >>> str(direct_plan(layout_of(a, (6, 6), 6), layout_of(b, (6, 6), 6), machines.h100(6), tolerance=math.inf))
    '4 rounds of pieces of [2, 2] or [1, 2] or [1, 1]'
    """
    pieces = _pieces(source, target, machine)
    if pieces is None:
        return None
    local = [p for p in pieces if p.source == p.target]
    moving = [p for p in pieces if p.source != p.target]
    turns = [local] if local else []
    for group in _alike(moving, tolerance):
        turns += edge_colouring(group)
    return Pieces(target.tile, tuple(_round(source, target, turn) for turn in turns))


def _round(source: Layout, target: Layout, pieces: Sequence[Piece]) -> Round:
    """One piece at most for each source and each target."""
    n, rank = source.num_devices, len(source.dims)
    read, write, real = np.zeros((3, rank, n), np.int64)
    low = np.array([p.low for p in pieces], np.int64).reshape(len(pieces), rank)
    sizes = np.array([p.sizes for p in pieces], np.int64).reshape(len(pieces), rank)
    senders, receivers = [p.source for p in pieces], [p.target for p in pieces]
    read[:, senders] = (low - source.starts[senders]).T
    write[:, receivers] = (low - target.starts[receivers]).T
    real[:, receivers] = sizes.T
    window = sizes.max(axis=0)
    pairs: Pairs = tuple(sorted(zip(senders, receivers, strict=True)))
    differ = bool((sizes != window).any())
    return Round(tuple(window.tolist()), _rows(read), _rows(write), pairs, _rows(real) if differ else ())


def _alike(pieces: Sequence[Piece], tolerance: float) -> list[list[Piece]]:
    """Pieces grouped so that one window for a group is at most 1 + tolerance times its smallest piece."""
    by_size: dict[Dims, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_size[piece.sizes].append(piece)
    groups: list[tuple[Dims, list[Piece]]] = []
    for sizes in sorted(by_size, key=lambda s: (-math.prod(s), s)):
        for number, (window, group) in enumerate(groups):
            joined = tuple(map(max, window, sizes))
            if math.prod(joined) <= (1 + tolerance) * math.prod(sizes):
                groups[number] = (joined, group + by_size[sizes])
                break
        else:
            groups.append((sizes, by_size[sizes]))
    return [group for _, group in groups]


def _rows(table: Table) -> tuple[Dims, ...]:
    return tuple(tuple(row) for row in table.tolist())


def _pieces(source: Layout, target: Layout, machine: Machine) -> list[Piece] | None:
    tiles, holders = _source_tiles(source)
    first = [devices[0] for devices in holders]
    low, high = source.bounds()
    want_low, want_high = target.bounds()
    start = np.maximum(want_low[:, None], low[first][None])
    end = np.minimum(want_high[:, None], high[first][None])
    wanted = (end > start).all(axis=2) & (target.world[:, None] == tiles[None, :, 0]) & target.has_data()[:, None]
    receivers, numbers = np.nonzero(wanted)
    if len(receivers) > MOST_PIECES:
        return None
    lows, sizes = start[receivers, numbers].tolist(), (end - start)[receivers, numbers].tolist()
    senders = _choose_holders(receivers.tolist(), numbers.tolist(), holders, machine)
    return [
        Piece(s, t, tuple(at), tuple(size))
        for s, t, at, size in zip(senders, receivers.tolist(), lows, sizes, strict=True)
    ]


def _source_tiles(source: Layout) -> tuple[Table, list[list[int]]]:
    """Distinct tiles as rows (world, index), and the devices that hold each."""
    rows = np.concatenate([source.world[:, None], source.index], axis=1)
    if source.holder is not None:
        return rows[source.holder : source.holder + 1], [[source.holder]]
    tiles, number = np.unique(rows, axis=0, return_inverse=True)
    holders: list[list[int]] = [[] for _ in tiles]
    for device, tile in enumerate(number.ravel().tolist()):
        holders[tile].append(device)
    return tiles, holders


def _choose_holders(
    receivers: Sequence[int], numbers: Sequence[int], holders: Sequence[Sequence[int]], machine: Machine
) -> list[int]:
    """A holder for each piece: the receiver itself, else the least busy one, near before far."""
    load: dict[int, int] = defaultdict(int)
    out: list[int] = []
    far = 1 + len(receivers) // max(1, len(set(receivers)))
    for receiver, number in zip(receivers, numbers, strict=True):
        devices = holders[number]
        if receiver in devices:
            out.append(receiver)
            continue
        node = machine.node_of(receiver)
        chosen = min(devices, key=lambda d: load[d] + (far if machine.node_of(d) != node else 0))
        load[chosen] += 1
        out.append(chosen)
    return out


def edge_colouring(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Rounds in which every device sends at most one piece and receives at most one: as few as the busiest one needs.

    Edges get colours one by one; where no colour is free at both ends, two colours swap along an alternating path.

    >>> len(edge_colouring(Piece(s, t, (), ()) for s in range(3) for t in range(3, 6)))
    3
    """
    sends: dict[int, dict[int, Piece]] = defaultdict(dict)
    receives: dict[int, dict[int, Piece]] = defaultdict(dict)
    for piece in pieces:
        a, b = _free(sends[piece.source]), _free(receives[piece.target])
        if a != b and a in receives[piece.target]:
            _swap_along(sends, receives, piece.target, a, b)
        receives[piece.target][a] = sends[piece.source][a] = piece
    rounds: dict[int, list[Piece]] = defaultdict(list)
    for colours in receives.values():
        for colour, piece in colours.items():
            rounds[colour].append(piece)
    return [rounds[colour] for colour in sorted(rounds)]


def _free(colours: dict[int, Piece]) -> int:
    """The least colour not used; ends after at most len(colours) + 1 tries."""
    return next(c for c in range(len(colours) + 1) if c not in colours)


def _swap_along(
    sends: dict[int, dict[int, Piece]], receives: dict[int, dict[int, Piece]], target: int, a: int, b: int
) -> None:
    """Free colour `a` at receiver `target`, where `b` is free, by swapping both along the path that starts there."""
    path: list[tuple[Piece, int, int]] = []
    at, side, colour, other = target, receives, a, b
    while colour in side[at]:
        piece = side[at][colour]
        path.append((piece, colour, other))
        at, side = (piece.source, sends) if side is receives else (piece.target, receives)
        colour, other = other, colour
    for piece, old, _ in path:
        del sends[piece.source][old], receives[piece.target][old]
    for piece, _, new in path:
        sends[piece.source][new] = receives[piece.target][new] = piece
