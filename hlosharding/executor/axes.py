"""The axes of the program's mesh: the user's own, split into sub-axes where groups or tilings need it.

Floor: executor.  Knows device ids as positions in the device assignment; nothing of instructions.  An axis is split as
far as its prime factors at most, and parts that are only ever used together are joined again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from typing import Any

import numpy as np

from hlosharding.executor.text import string_text
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Groups

Parts = tuple[int, ...]
"""Indices of sub-axes, major to minor."""


def prime_factors(number: int) -> list[int]:
    """Prime factors in ascending order.

    >>> prime_factors(12)
    [2, 2, 3]
    """
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors


@dataclass(frozen=True)
class Axes:
    """Named axes over `size` devices; linear position = device id unless `device_ids` says otherwise."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    device_ids: tuple[int, ...]
    """The device id (partition id) at each linear mesh position."""

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    @property
    def is_natural(self) -> bool:
        """Position and device id are the same number."""
        return self.device_ids == tuple(range(self.size))

    @cached_property
    def positions(self) -> dict[int, int]:
        """Linear mesh position of each device id."""
        return {device: place for place, device in enumerate(self.device_ids)}

    @cached_property
    def coordinates(self) -> np.ndarray:
        """[device id, axis] -> index along the axis."""
        places = np.array([self.positions[d] for d in range(self.size)])
        return np.stack(np.unravel_index(places, self.sizes), axis=1) if self.sizes else np.zeros((self.size, 0), int)

    def parts_of(self, groups: Groups, *, ordered: bool) -> Parts | None:
        """The axes along which all groups run (members in that order if `ordered`), or None.

        >>> axes = Axes(("a", "b"), (2, 4), tuple(range(8)))
        >>> axes.parts_of(((0, 4), (1, 5), (2, 6), (3, 7)), ordered=True)
        (0,)
        """
        first = next((g for g in groups if 0 in g), None)
        if first is None:
            return None
        members = first if ordered else tuple(sorted(first, key=self.positions.__getitem__))
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
        where = self.coordinates
        moving = tuple(a for a in range(len(self.sizes)) if any(where[s][a] != where[t][a] for s, t in pairs))
        if not moving or len(moving) == len(self.sizes):
            return None
        sizes = [self.sizes[a] for a in moving]
        rest = [a for a in range(len(self.sizes)) if a not in moving]
        local: dict[tuple[int, ...], set[tuple[int, int]]] = {}
        for source, target in pairs:
            at = tuple(int(where[source][a]) for a in rest)
            start, end = (int(np.ravel_multi_index([where[d][a] for a in moving], sizes)) for d in (source, target))
            local.setdefault(at, set()).add((start, end))
        alike = {frozenset(s) for s in local.values()}
        if len(alike) != 1 or len(local) != math.prod(self.sizes[a] for a in rest):
            return None
        return moving, tuple(sorted(alike.pop()))

    def spec_of(self, sharding: HloSharding, rank: int) -> tuple[Parts, ...] | None:
        """Per dim the axes that split it, where a PartitionSpec can say the sharding, or None."""
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
        line = np.moveaxis(tiles, dim, -1).reshape(-1, tiles.shape[dim])[0]
        # Device 0 need not be in this line; its position relative to the line's first device is what counts.
        return self._strides([int(d) for d in line])

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


def _atoms(names: Sequence[str], sizes: Sequence[int], device_ids: Sequence[int]) -> Iterable[tuple[Axes, list[int]]]:
    """Every way of splitting all axes into primes, with the axis that each part belongs to."""
    orders = [sorted(set(permutations(prime_factors(size)))) or [()] for size in sizes]
    for choice in product(*[o[:24] for o in orders]):
        parts = [(axis, factor) for axis, factors in enumerate(choice) for factor in factors]
        owners = [axis for axis, _ in parts]
        yield (
            Axes(tuple(f"{names[a]}_{i}" for i, a in enumerate(owners)), tuple(f for _, f in parts), tuple(device_ids)),
            owners,
        )


@dataclass(frozen=True, slots=True)
class Needs:
    """What a program wants to say with axes."""

    ordered: frozenset[Groups] = frozenset()
    """Device groups whose members' order matters."""
    unordered: frozenset[Groups] = frozenset()
    permutes: frozenset[Groups] = frozenset()
    """Source and target pairs."""
    shardings: frozenset[tuple[HloSharding, int]] = frozenset()
    """Shardings at the boundary, with the rank of the array."""


def choose_axes(mesh: Any, num_devices: int, needs: Needs) -> Axes:
    """The coarsest mesh over which as many needs as possible can be said.

    `mesh` is the user's MeshInfo, or None: then one axis `devices` is split as needed.
    """
    names, sizes = ("devices",), (num_devices,)
    device_ids: Sequence[int] = range(num_devices)
    if mesh is not None and math.prod(mesh.sizes) == num_devices:
        names, sizes = tuple(map(str, mesh.names)), tuple(mesh.sizes)
        device_ids = _device_ids(mesh, num_devices)
    best: tuple[int, Axes, list[int], list[Parts]] | None = None
    for atoms, owners in _atoms(names, sizes, device_ids):
        said = _said(atoms, needs)
        if best is None or len(said) > best[0]:
            best = len(said), atoms, owners, said
    assert best is not None
    return _joined(best[1], best[2], best[3], names, sizes)


def _device_ids(mesh: Any, num_devices: int) -> Sequence[int]:
    ids = getattr(mesh, "device_ids", None)
    if ids is None or len(ids) != num_devices or sorted(ids) != list(range(num_devices)):
        return range(num_devices)
    return [int(i) for i in ids]


def _said(atoms: Axes, needs: Needs) -> list[Parts]:
    said: list[Parts] = []
    for groups in needs.ordered:
        said += [p for p in [atoms.parts_of(groups, ordered=True)] if p is not None]
    for groups in needs.unordered:
        said += [p for p in [atoms.parts_of(groups, ordered=False)] if p is not None]
    for pairs in needs.permutes:
        found = atoms.permute_parts(pairs)
        said += [found[0]] if found is not None else []
    for sharding, rank in needs.shardings:
        said += list(atoms.spec_of(sharding, rank) or ())
    return said


def _joined(atoms: Axes, owners: list[int], said: list[Parts], names: Sequence[str], sizes: Sequence[int]) -> Axes:
    """Join neighbouring parts of one axis that every need uses together, in order."""
    runs: list[list[int]] = []
    for part, owner in enumerate(owners):
        previous = runs[-1][-1] if runs else None
        if previous is not None and owners[previous] == owner and all(_together(p, previous, part) for p in said):
            runs[-1].append(part)
        else:
            runs.append([part])
    by_owner: dict[int, list[int]] = {}
    for run in runs:
        by_owner.setdefault(owners[run[0]], []).append(math.prod(atoms.sizes[p] for p in run))
    out_names: list[str] = []
    out_sizes: list[int] = []
    for axis, name in enumerate(names):
        parts = by_owner.get(axis, [1])
        out_sizes += parts
        out_names += [name] if len(parts) == 1 else [f"{name}_{i}" for i in range(len(parts))]
    return Axes(tuple(out_names), tuple(out_sizes), atoms.device_ids)


def _together(parts: Parts, first: int, second: int) -> bool:
    if first in parts and second in parts:
        return parts.index(second) == parts.index(first) + 1
    return first not in parts and second not in parts
