"""The axes of the program's mesh: the user's own, split into sub-axes where groups or tilings need it.

Floor: executor.  Knows device ids as positions in the device assignment; nothing of instructions.  What can be said
with given axes; `axis_choice` finds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hlosharding.executor.text import string_text
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Groups

Parts = tuple[int, ...]
"""Indices of sub-axes, major to minor."""


@dataclass(frozen=True)
class Axes:
    """Named axes over `size` devices; linear position = device id unless `device_ids` says otherwise."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    device_ids: tuple[int, ...]
    """The device id (partition id) at each linear mesh position."""
    _known: dict[tuple[Groups, bool], Parts | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _specs: dict[tuple[int, int], tuple[Parts, ...] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    @property
    def is_natural(self) -> bool:
        """Position and device id are the same number."""
        return self.device_ids == tuple(range(self.size))

    @cached_property
    def place(self) -> np.ndarray:
        """[device id]: linear mesh position."""
        return np.argsort(np.array(self.device_ids, np.int64))

    @cached_property
    def coordinates(self) -> np.ndarray:
        """[device id, axis] -> index along the axis."""
        places = self.place
        return np.stack(np.unravel_index(places, self.sizes), axis=1) if self.sizes else np.zeros((self.size, 0), int)

    def parts_of(self, groups: Groups, *, ordered: bool) -> Parts | None:
        """The axes along which all groups run (members in that order if `ordered`), or None.  Remembered.

        >>> axes = Axes(("a", "b"), (2, 4), tuple(range(8)))
        >>> axes.parts_of(((0, 4), (1, 5), (2, 6), (3, 7)), ordered=True)
        (0,)
        """
        if (groups, ordered) not in self._known:
            self._known[groups, ordered] = self._parts_of(groups, ordered)
        return self._known[groups, ordered]

    def _parts_of(self, groups: Groups, ordered: bool) -> Parts | None:
        first = next((g for g in groups if 0 in g), None)
        if first is None:
            return None
        members = first if ordered else tuple(sorted(first, key=self.place.__getitem__))
        parts = self._strides(members)
        if parts is None:
            return None
        expected = self.groups_along(parts)
        if ordered:
            return parts if set(expected) == set(groups) else None
        return parts if {frozenset(g) for g in expected} == {frozenset(g) for g in groups} else None

    def _strides(self, members: Sequence[int]) -> Parts | None:
        where = self.coordinates[list(members)]
        moving = [axis for axis in range(len(self.sizes)) if len(set(where[:, axis])) > 1]
        if math.prod(self.sizes[a] for a in moving) != len(members):
            return None
        position = {tuple(row): i for i, row in enumerate((where[:, moving] - where[0, moving]).tolist())}
        steps = [position.get(tuple(int(a == axis) for a in moving)) for axis in moving]
        if any(step is None for step in steps):
            return None
        return tuple(axis for _, axis in sorted(zip(steps, moving, strict=True), key=lambda p: -(p[0] or 0)))

    def groups_along(self, parts: Parts) -> Groups:
        """Device groups that run along `parts`, the first one major."""
        rest = [a for a in range(len(self.sizes)) if a not in parts]
        grid = np.array(self.device_ids).reshape(self.sizes or (1,))
        rows = grid.transpose([*rest, *parts]) if self.sizes else grid
        return tuple(map(tuple, rows.reshape(-1, math.prod(self.sizes[p] for p in parts)).tolist()))

    def permute_parts(self, pairs: Groups) -> tuple[Parts, Groups] | None:
        """The axes that a permutation moves along and its pairs along them, where it is the same for all other axes."""
        if not pairs:
            return None
        (starts, ends), where = np.array(pairs, np.int64).T, self.coordinates
        moving = tuple(np.flatnonzero((where[starts] != where[ends]).any(axis=0)).tolist())
        if not moving or len(moving) == len(self.sizes):
            return None
        rest = tuple(a for a in range(len(self.sizes)) if a not in moving)
        count = math.prod(self.sizes[a] for a in moving)
        along = self._number(starts, moving) * count + self._number(ends, moving)
        rows, times = np.unique(self._number(starts, rest), return_counts=True)
        if len(rows) != math.prod(self.sizes[a] for a in rest) or len(set(times.tolist())) > 1:
            return None
        alike = along[np.lexsort((along, self._number(starts, rest)))].reshape(len(rows), -1)
        if (alike != alike[0]).any():
            return None
        return moving, tuple((pair // count, pair % count) for pair in alike[0].tolist())

    def _number(self, devices: np.ndarray, axes: Parts) -> np.ndarray:
        """[device]: its number along some axes, the first one major."""
        found = np.zeros(len(devices), np.int64)
        for axis in axes:
            found = found * self.sizes[axis] + self.coordinates[devices, axis]
        return found

    def spec_of(self, sharding: HloSharding, rank: int) -> tuple[Parts, ...] | None:
        """Per dim the axes that split it, where a PartitionSpec can say the sharding, or None.  Remembered."""
        if (sharding.uid, rank) not in self._specs:
            self._specs[sharding.uid, rank] = self._spec_of(sharding, rank)
        return self._specs[sharding.uid, rank]

    def _spec_of(self, sharding: HloSharding, rank: int) -> tuple[Parts, ...] | None:
        if sharding.is_replicated():
            return ((),) * rank
        if sharding.kind != "tiled" or any(t != "replicated" for t in sharding.subgroup_types):
            return None
        tiles = sharding.tiles.array
        if tiles.size != self.size:
            return None
        spec = [self._dim_parts(tiles, dim) for dim in range(rank)]
        if any(parts is None for parts in spec):
            return None
        found = tuple(parts or () for parts in spec)
        return found if self._says(found, tiles.reshape(*sharding.data_dims, -1)) else None

    def _dim_parts(self, tiles: np.ndarray, dim: int) -> Parts | None:
        if tiles.shape[dim] == 1:
            return ()
        # Device 0 need not be in this line; its position relative to the line's first device is what counts.
        return self._strides(first_line(tiles, dim).tolist())

    def _says(self, spec: tuple[Parts, ...], tiles: np.ndarray) -> bool:
        used = [p for parts in spec for p in parts]
        if len(set(used)) != len(used):
            return False
        rest = [a for a in range(len(self.sizes)) if a not in used]
        grid = np.array(self.device_ids).reshape(self.sizes or (1,))
        expected = grid.transpose([*used, *rest]).reshape(tiles.shape) if self.sizes else grid.reshape(tiles.shape)
        return bool((np.sort(expected, -1) == np.sort(tiles, -1)).all())

    def text(self, parts: Parts) -> str:
        """Axis names as collectives take them: `"model"`, `("data", "model")` or `AXES` for all."""
        if parts == tuple(range(len(self.names))) and len(parts) > 1:
            return "AXES"
        names = [string_text(self.names[p]) for p in parts]
        return names[0] if len(names) == 1 else f"({', '.join(names)})"


def first_line(tiles: np.ndarray, dim: int) -> np.ndarray:
    """The first devices along a dim of a tile assignment."""
    return tiles[tuple(slice(None) if d == dim else 0 for d in range(tiles.ndim))]
