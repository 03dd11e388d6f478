"""Two shardings as one grid of device axes: the largest axes in which both can be written.

Floor: reshard.  Knows device orders and tile counts; nothing of sizes, steps or prices.

A state lists for each dim the axes that split it, major first; over an axis in no dim the value is replicated.  Axes
are as small as the two shardings ask for: 8 devices as [2,4] and [4,2] give axes 2, 2, 2.  Where no common grid exists
(6 devices as [2,3] and [3,2], or an order that is no transposed grid) there are no axes, and only a piecewise plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np

from hlosharding.reshard.layout import Table
from hlosharding.sharding import DeviceGrid, HloSharding, ends_of

Axes = tuple[int, ...]
"""Numbers of axes, the first is the major one."""

REPLICATED, MANUAL, UNREDUCED = "replicated", "manual", "unreduced"


@dataclass(frozen=True, eq=False)
class AxisGrid(DeviceGrid):
    """The common grid of a source and a target."""

    source: tuple[Axes, ...]
    target: tuple[Axes, ...]
    partial_axes: Axes
    """Axes over which the source is partial; the target has it whole."""
    manual_axes: Axes
    """Axes of manual groups, or over which both are partial: nothing moves along them."""

    def replicated(self, dims: tuple[Axes, ...]) -> Axes:
        """Axes in no dim, and not of manual groups."""
        used = {a for axes in dims for a in axes} | set(self.manual_axes)
        return tuple(a for a in range(len(self.sizes)) if a not in used)


@lru_cache(maxsize=16384)
def common_grid(source: HloSharding, target: HloSharding, rank: int, num_devices: int) -> AxisGrid | None:
    """The grid of two leaf shardings, or None where there is none.

    >>> a, b = HloSharding.parse("{devices=[2,4]<=[8]}"), HloSharding.parse("{devices=[4,2]<=[8]}")
    >>> grid = common_grid(a, b, 2, 8)
    >>> grid.sizes, grid.source, grid.target
    ((2, 2, 2), ((0,), (1, 2)), ((0, 1), (2,)))
    >>> common_grid(HloSharding.parse("{devices=[2,3]<=[6]}"), HloSharding.parse("{devices=[3,2]<=[6]}"), 2, 6) is None
    True
    """
    first, last = _Roles.of(source, rank, num_devices), _Roles.of(target, rank, num_devices)
    if first is None or last is None:
        return None
    # Copies have no order of their own; in normal form they are sorted by device, which may hide the grid.
    found = _written(first, last) or _written(first.sorted_by(last), last)
    return _as_grid(found, rank) if found is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class _Roles:
    """A tile assignment whose dims are named by what they split: a data dim's number, or a subgroup's kind."""

    devices: Table
    roles: tuple[int | str, ...]

    @classmethod
    def of(cls, sharding: HloSharding, rank: int, num_devices: int) -> _Roles | None:
        """None for what is no tile assignment of all devices."""
        if sharding.kind in (REPLICATED, UNREDUCED):
            return cls(np.arange(num_devices), (sharding.kind,))
        if sharding.kind != "tiled" or sharding.num_devices != num_devices:
            return None
        return cls(sharding.tiles.array, (*range(rank), *sharding.subgroup_types))

    def sorted_by(self, other: _Roles) -> _Roles:
        """The same layout, copies (and manual groups, and partial sums) numbered as they occur in `other`."""
        place, devices = np.argsort(other.devices, axis=None), self.devices
        for dim, role in enumerate(self.roles):
            # Member n of all these groups is one slice through all tiles, which moves as a whole: its place says which
            # group, or which partial sum, it is.  Copies of each tile have an order of their own.
            if role in (MANUAL, UNREDUCED):
                line = place[np.moveaxis(devices, dim, -1).reshape(-1, devices.shape[dim])[0]]
                devices = np.take(devices, np.argsort(line), dim)
            elif role == REPLICATED:
                devices = np.take_along_axis(devices, np.argsort(place[devices], dim), dim)
        return _Roles(devices, self.roles)


@dataclass(frozen=True, slots=True, eq=False)
class _CommonAxes:
    """Two tile assignments in common axes."""

    axes: DeviceGrid
    """Devices in source order."""
    source: dict[int | str, Axes]
    target: dict[int | str, Axes]


def _written(source: _Roles, target: _Roles) -> _CommonAxes | None:
    """The axes of which both tile assignments are made; None where there are none."""
    target = target.sorted_by(source)
    own = DeviceGrid(source.devices.shape, tuple(source.devices.ravel().tolist()))
    digits = own.digits_of(target.devices)
    if digits is None:
        return None
    axes = own.cut_at(ends_of(chain(*digits)))
    if axes is None:
        return None
    return _CommonAxes(
        axes,
        {role: axes.axes_within([digit]) for role, digit in zip(source.roles, own.digits, strict=True)},
        {role: axes.axes_within(dim) for role, dim in zip(target.roles, digits, strict=True)},
    )


def _as_grid(found: _CommonAxes, rank: int) -> AxisGrid | None:
    """The grid; None where manual groups differ, or the target is partial where the source is not."""
    source, target = found.source, found.target
    manual = set(source.get(MANUAL, ()))
    stays_partial = set(target.get(UNREDUCED, ()))
    if manual != set(target.get(MANUAL, ())) or not stays_partial <= set(source.get(UNREDUCED, ())):
        return None
    fixed = manual | stays_partial
    return AxisGrid(
        found.axes.sizes,
        found.axes.devices,
        tuple(source.get(d, ()) for d in range(rank)),
        tuple(target.get(d, ()) for d in range(rank)),
        tuple(a for a in source.get(UNREDUCED, ()) if a not in fixed),
        tuple(sorted(fixed)),
    )
