"""Which part of which tile goes to whom, where a value moves to other devices and may lie there in another way.

Floor: schedule.  Each device gets its tile once, from those that have it; where several do, they take turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlosharding.errors import ScheduleError
from hlosharding.schedule.tiles import Box, tile_box
from hlosharding.schedule.value_type import ValueType

Dims = tuple[int, ...]


class TilePart(NamedTuple):
    """A part of one device's tile that becomes a part of another's."""

    source: int
    target: int
    cut: Box | None
    """Of the sender's tile; None: all of it."""
    at: Box | None
    """Where it lies in the receiver's tile; None: it is all of it."""

    def dims(self, tile: Dims) -> Dims:
        """Sizes, for a receiver with such a tile."""
        return tile if self.at is None else tuple(end - start for start, end in self.at)

    def start(self, rank: int) -> Dims:
        """Where it begins in the receiver's tile."""
        return (0,) * rank if self.at is None else tuple(start for start, _ in self.at)


def tile_parts(departed: ValueType, arrived: ValueType) -> list[TilePart]:
    """All that is sent, in the order of the receivers, then of the senders.

    >>> from hlosharding.schedule.value_type import parse_type
    >>> rows = parse_type("f32[4] on {0-1} as {devices=[2]<=[2]}")
    >>> for part in tile_parts(rows, parse_type("f32[4] on {2}")):
    ...     print(part.source, part.target, part.cut, part.at)
    0 2 None ((0, 2),)
    1 2 None ((2, 4),)
    """
    # Terms of a sum, too, move so: each tile as it is.  Cut into others they could not be, as is said below.
    if departed.sharding == arrived.sharding and len(departed.devices) == len(arrived.devices):
        return [TilePart(s, t, None, None) for s, t in zip(departed.devices, arrived.devices, strict=True)]
    for kind in (departed, arrived):
        if kind.sharding.is_unreduced() or kind.sharding.is_unreduced_subgroup():
            what = f"{departed} is sent as {arrived}: its tiles are terms of a sum"
            raise ScheduleError(what, remedy="send it to as many devices in the same sharding, or reduce it first")
    holders = _holders(departed)
    count = len(arrived.devices)
    return [part for place in range(count) for part in _parts_for(place, departed, arrived, holders)]


def _holders(kind: ValueType) -> dict[Box, list[int]]:
    """Places of the submesh by what they hold."""
    found: dict[Box, list[int]] = {}
    places = [kind.sharding.tiles.first] if kind.sharding.is_maximal() else range(len(kind.devices))
    for place in places:
        found.setdefault(tile_box(kind, place), []).append(place)
    return found


def _parts_for(
    place: int, departed: ValueType, arrived: ValueType, holders: dict[Box, list[int]]
) -> Iterator[TilePart]:
    """What the device at one place gets."""
    wanted = tile_box(arrived, place)
    found: list[tuple[int, Box, Box]] = []
    for box, places in holders.items():
        common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, wanted, strict=True))
        if all(start < end for start, end in common):
            found.append((_choose_holder(places, place, departed, arrived), box, common))
    for source, box, common in sorted(found):
        cut, at = _relative_to(common, box), _relative_to(common, wanted)
        yield TilePart(
            departed.devices[source],
            arrived.devices[place],
            None if _fills(cut, departed) else cut,
            None if _fills(at, arrived) else at,
        )


def _choose_holder(places: Sequence[int], place: int, departed: ValueType, arrived: ValueType) -> int:
    """Who of those that hold the same serves a receiver."""
    count = len(arrived.devices)
    # The sender that `pair_devices` has, and so the price, if it holds the part.
    beside = place * len(departed.devices) // count
    return beside if beside in places else places[place * len(places) // count]


def _relative_to(part: Box, box: Box) -> Box:
    return tuple((start - first, end - first) for (start, end), (first, _) in zip(part, box, strict=True))


def _fills(part: Box, kind: ValueType) -> bool:
    return part == tuple((0, size) for size in kind.tile.dims)
