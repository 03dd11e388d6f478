"""The colour of a tile: its hue says which device comes first, and neighbours differ in lightness, too.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence

WHOLE = "hsl(0,0%,82%)"
"""Of what is not split."""


def tile_colour(place: Sequence[int], device: int, num_devices: int) -> str:
    """Of the tile at `place` (its number along each dim) that `device` holds, first of all its devices.

    Hues go round with the devices, so that an order of devices is seen.  Among many devices neighbours have nearly one
    hue: that is why tiles are light and dark like the squares of a chessboard.

    >>> tile_colour((0, 0), 0, 4), tile_colour((0, 1), 1, 4), tile_colour((1, 0), 2, 4)
    ('hsl(0,62%,87%)', 'hsl(90,62%,70%)', 'hsl(180,62%,70%)')
    """
    hue = round(360 * device / max(1, num_devices), 1)
    return f"hsl({hue:g},62%,{70 if sum(place) % 2 else 87}%)"
