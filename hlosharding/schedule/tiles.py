"""Values as the tiles of their devices: cut, put together, and what each device holds of them.

Floor: schedule.  A device is named by its number in the machine; a sharding numbers the devices of its own submesh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.executor import assemble, split
from hlosharding.schedule.value_type import Types, ValueType

Tiles = Mapping[int, Sequence[np.ndarray]]
"""By device: of those values that lie on it the tiles, in the values' order."""
Meaning = Callable[[Sequence[np.ndarray], Types, Types], Sequence[np.ndarray]]
"""Of arrays, their types and those of the results."""
Box = tuple[tuple[int, int], ...]
"""Start and end along each dim."""


def tile_box(kind: ValueType, place: int) -> Box:
    """Which elements of the whole the device at `place` of the submesh holds, padding left out.

    >>> from hlosharding.schedule.value_type import parse_type
    >>> tile_box(parse_type("f32[7,4] on {0-1} as {devices=[2,1]<=[2]}"), 1)
    ((4, 7), (0, 4))
    """
    if not kind.sharding.is_tiled():
        return tuple((0, size) for size in kind.shape.dims)
    start, limit = kind.sharding.tile_offset(kind.shape.dims, place), kind.sharding.tile_limit(kind.shape.dims, place)
    return tuple(zip(start, limit, strict=True))


def tiles_of(array: Any, kind: ValueType) -> dict[int, np.ndarray]:
    """The tile of each device.  Raises ScheduleError where the array has another shape."""
    return dict(zip(kind.devices, split(kind.as_array(array), kind.sharding, len(kind.devices)), strict=True))


def whole_of(tiles: Mapping[int, np.ndarray], kind: ValueType) -> np.ndarray:
    """The array whose tiles these are."""
    return assemble([tiles[device] for device in kind.devices], kind.sharding, kind.shape.dims)


def numbers_held(kinds: Types, device: int) -> list[int]:
    """Numbers of the values that lie on a device."""
    return [number for number, kind in enumerate(kinds) if device in kind.devices]


def compute_on_wholes(meaning: Meaning, tiles: Tiles, operands: Types, results: Types) -> Tiles:
    """What all devices that take part make of their tiles, where only the meaning of whole arrays is known."""
    given = _group_by_value(tiles, operands)
    wholes = [whole_of(own, kind) for own, kind in zip(given, operands, strict=True)]
    arrays = meaning(wholes, operands, results)
    made = [tiles_of(array, kind) for array, kind in zip(arrays, results, strict=True)]
    return {device: [made[n][device] for n in numbers_held(results, device)] for device in tiles}


def compute_on_tiles(meaning: Meaning, tiles: Tiles, operands: Types, results: Types) -> Tiles:
    """What some devices make of their tiles, where an op does to tiles what it does to whole arrays.

    Of each operand and of each result one of these devices has the tile, or a device by itself has all.
    """
    given = [next(iter(own.values())) for own in _group_by_value(tiles, operands)]
    made = meaning(given, list(map(type_of_tile, operands)), list(map(type_of_tile, results)))
    return {device: [made[n] for n in numbers_held(results, device)] for device in tiles}


def type_of_tile(kind: ValueType) -> ValueType:
    """A tile as a value of its own."""
    return ValueType(kind.tile, kind.devices[:1], shares=kind.shares)


def _group_by_value(tiles: Tiles, kinds: Types) -> list[dict[int, np.ndarray]]:
    """For each value the tiles of the devices that have one."""
    found: list[dict[int, np.ndarray]] = [{} for _ in kinds]
    for device, own in tiles.items():
        numbers = numbers_held(kinds, device)
        if len(numbers) != len(own):
            raise ScheduleError(f"device {device} brings {len(own)} tiles, it takes part with {len(numbers)}")
        for number, tile in zip(numbers, own, strict=True):
            found[number][device] = tile
    return found
