"""The axes of the program's mesh: the user's own, split into sub-axes where groups or tilings need it.

Floor: executor.  Knows device ids as positions in the device assignment; nothing of instructions.  What can be said
with given axes; `axis_choice` finds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlosharding.executor.text import one_or_tuple, string_text
from hlosharding.once import remembered
from hlosharding.sharding import DeviceGrid, Digit, HloSharding
from hlosharding.spmd import Groups

Parts = tuple[int, ...]
"""Indices of sub-axes, major to minor."""


@dataclass(frozen=True)
class Axes(DeviceGrid):
    """Named axes over all devices; linear position = device id unless `devices` says otherwise."""

    names: tuple[str, ...]

    @property
    def is_natural(self) -> bool:
        """Position and device id are the same number."""
        return self.devices == tuple(range(self.num_devices))

    @remembered
    def parts_of(self, groups: Groups, *, ordered: bool) -> Parts | None:
        """The axes along which all groups run (members in that order if `ordered`), or None.  Remembered.

        >>> axes = Axes((2, 4), tuple(range(8)), ("a", "b"))
        >>> axes.parts_of(((0, 4), (1, 5), (2, 6), (3, 7)), ordered=True)
        (0,)
        """
        return self._parts(self.digits_along(groups, ordered=ordered))

    def _parts(self, digits: tuple[Digit, ...] | None) -> Parts | None:
        """The axes that digits are made of; None where one begins or ends within an axis."""
        if digits is None:
            return None
        found = self.axes_within(digits)
        return found if self.product(found) == math.prod(digit.size for digit in digits) else None

    def permute_parts(self, pairs: Groups) -> tuple[Parts, Groups] | None:
        """The axes that a permutation moves along and its pairs along them, where it is the same for all other axes."""
        if not pairs:
            return None
        (starts, ends), where = np.array(pairs, np.int64).T, self.coordinates
        moving = tuple(np.flatnonzero((where[starts] != where[ends]).any(axis=0)).tolist())
        if not moving or len(moving) == len(self.sizes):
            return None
        rest = tuple(a for a in range(len(self.sizes)) if a not in moving)
        count = self.product(moving)
        along, start = self.position(moving)[starts] * count + self.position(moving)[ends], self.position(rest)[starts]
        rows, times = np.unique(start, return_counts=True)
        if len(rows) != self.product(rest) or len(set(times.tolist())) > 1:
            return None
        # In ascending order within each row: in which order pairs are listed says nothing.
        alike = along[np.lexsort((along, start))].reshape(len(rows), -1)
        if (alike != alike[0]).any():
            return None
        return moving, tuple((pair // count, pair % count) for pair in alike[0].tolist())

    @remembered
    def spec_of(self, sharding: HloSharding, rank: int) -> tuple[Parts, ...] | None:
        """Per dim the axes that split it, where a PartitionSpec can say the sharding, or None.  Remembered."""
        if sharding.is_replicated():
            return ((),) * rank
        digits = self.digits_of_spec(sharding, rank)
        if digits is None:
            return None
        found = tuple(parts for dim in digits if (parts := self._parts(dim)) is not None)
        return found if len(found) == rank else None

    def digits_of_spec(self, sharding: HloSharding, rank: int) -> tuple[tuple[Digit, ...], ...] | None:
        """The digits of each dim of a tiling with no subgroup but copies; None for what no PartitionSpec can say."""
        if sharding.kind != "tiled" or any(kind != "replicated" for kind in sharding.subgroup_types):
            return None
        found = self.digits_of(sharding.tiles.array, unordered=bool(sharding.subgroup_types))
        return found[:rank] if found is not None else None

    def places(self, groups: Groups) -> Groups:
        """The positions of device ids."""
        return groups if self.is_natural else tuple(tuple(self.place[list(group)].tolist()) for group in groups)

    def mesh(self, devices: Sequence[Any]) -> Any:
        """The jax mesh; `devices[i]` has id i."""
        return jax_mesh([devices[i] for i in self.devices], self.sizes, self.names)

    @property
    def every(self) -> str:
        """All of them, as `text`."""
        return self.text(tuple(range(len(self.names))))

    def text(self, parts: Parts) -> str:
        """Axis names as collectives take them: `"model"`, `("data", "model")` or `AXES` for all."""
        if parts == tuple(range(len(self.names))) and len(parts) > 1:
            return "AXES"
        names = [string_text(self.names[p]) for p in parts]
        return one_or_tuple(names)


def jax_mesh(devices: Sequence[Any], sizes: Sequence[int], names: Sequence[str]) -> Any:
    """A jax mesh of devices in row-major order."""
    import jax

    return jax.sharding.Mesh(np.array(devices, dtype=object).reshape(sizes), names)
