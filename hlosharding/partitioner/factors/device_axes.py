"""The device axes that a mesh and several tilings are made of: the largest in which each of them can be written.

Floor: partitioner.  Tilings and device numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from hlosharding.sharding import DeviceGrid, TileAssignment, ends_of

Dims = tuple[int, ...]


@dataclass(frozen=True)
class DeviceAxes(DeviceGrid):
    """Axes by their sizes, and the orders in which tilings take them."""

    orders: tuple[Dims, ...]
    """Each a permutation of the axes; the first is the identity."""


@lru_cache(maxsize=1 << 12)
def axes_of(tilings: tuple[TileAssignment, ...]) -> DeviceAxes | None:
    """The axes that these tilings of all devices are made of, a mesh the first of them; None where there are none.

    >>> mesh, other = TileAssignment.from_iota((2, 4)), TileAssignment.from_iota((4, 2), (2, 4), (1, 0))
    >>> axes_of((mesh, other)).sizes, axes_of((mesh, other)).orders
    ((2, 4), ((0, 1), (1, 0)))
    >>> axes_of((mesh, TileAssignment.from_iota((4, 2)))).sizes
    (2, 2, 2)
    """
    devices = next((t.flat for t in tilings if t.iota is None), tuple(range(tilings[0].num_elements)))
    whole = DeviceGrid((len(devices),), devices)
    digits = []
    for tiling in tilings:
        found = whole.digits_of(tiling.array)
        if found is None:
            return None
        digits.append(tuple(chain(*found)))
    grid = whole.cut_at(ends_of(chain(*digits)))
    if grid is None:
        return None
    orders = [tuple(range(len(grid.sizes))), *map(grid.axes_within, digits)]
    return DeviceAxes(grid.sizes, devices, tuple(dict.fromkeys(orders)))
