"""The device axes that a mesh and several tilings are made of: the largest in which each of them can be written.

Floor: partitioner.  Tilings and device numbers alone.  Axes are digits of a device's place, the first is the major one:
`[2,4]<=[8]` and `[4,2]<=[2,4]T(1,0)` over 8 devices give axes of 2 and 4; the tiling `[4,2]<=[8]` cuts the 4 into 2 and
2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hlosharding.sharding import TileAssignment, find_iota

Dims = tuple[int, ...]
_Digit = tuple[int, int]
"""(stride, size): how a device's place goes up along some of a tiling."""


@dataclass(frozen=True, slots=True)
class DeviceAxes:
    """Axes by their sizes, and the orders in which tilings take them."""

    devices: Dims
    """All devices, in row-major order of the axes."""
    sizes: Dims
    orders: tuple[Dims, ...]
    """Each a permutation of the axes; the first is the identity."""

    def coordinates(self) -> npt.NDArray[np.int64]:
        """[device, axis]"""
        found = np.empty((len(self.devices), len(self.sizes)), np.int64)
        found[list(self.devices)] = np.stack(np.unravel_index(np.arange(len(self.devices)), self.sizes), axis=1)
        return found


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
    digits: list[list[_Digit]] = []
    for tiling in tilings:
        found = _digits(tiling, devices)
        if found is None:
            return None
        digits.append(found)
    chain = sorted({1, len(devices), *(stride for tiling in digits for stride, _ in tiling)})
    if any(large % small for small, large in pairwise(chain)):
        return None
    strides = chain[-2::-1]
    sizes = tuple(large // small for small, large in pairwise(chain))[::-1]
    orders = [tuple(range(len(sizes))), *(_order(tiling, strides) for tiling in digits)]
    return DeviceAxes(devices, sizes, tuple(dict.fromkeys(orders)))


def _order(digits: Sequence[_Digit], strides: Sequence[int]) -> Dims:
    """The axes, known by their strides, in the order of a tiling."""
    return tuple(i for stride, size in digits for i, s in enumerate(strides) if stride <= s < stride * size)


def _digits(tiling: TileAssignment, devices: Dims) -> list[_Digit] | None:
    """The digits that a tiling lists, major first, cut where one of its dims ends; None where it is no such list."""
    place = np.empty(len(devices), np.int64)
    place[list(devices)] = np.arange(len(devices))
    found = find_iota(place[tiling.array])
    if found is None:
        return None
    sizes, order = found
    return _cut([(math.prod(sizes[d + 1 :]), sizes[d]) for d in order], tiling.dims)


def _cut(digits: Sequence[_Digit], dims: Dims) -> list[_Digit] | None:
    """Digits cut where a dim ends inside.

    >>> _cut([(1, 8)], (4, 2)), _cut([(1, 6)], (4,)), _cut([(4, 2), (1, 4)], (2, 2, 2))
    ([(2, 4), (1, 2)], None, [(4, 2), (2, 2), (1, 2)])
    """
    found: list[_Digit] = []
    waiting = iter(digits)
    stride, left = 1, 1
    for dim in dims:
        while dim > 1:
            if left == 1:
                stride, left = next(waiting, (1, 0))
            part = math.gcd(dim, left)
            if part <= 1 or part < min(dim, left):
                return None
            dim, left = dim // part, left // part
            found.append((stride * left, part))
    return found if left == 1 else None
