"""Trees of arrays with where they lie before and after; arrays that are alike in all of this are one kind.

Floor: transfer.  A device is a number: the id of a jax device, or a place in an abstract mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hlosharding.errors import ShardingError
from hlosharding.frontends import broadcast
from hlosharding.reshard import Layout, layout_of
from hlosharding.sharding import HloSharding

Dims = tuple[int, ...]


class PlacedSide(NamedTuple):
    """Where an array lies."""

    sharding: HloSharding
    devices: Dims
    """Number of the device at each position of the sharding's device assignment."""

    def layout(self, dims: Dims) -> Layout:
        """Every position's tile of an array of these sizes."""
        return layout_of(self.sharding, dims, len(self.devices))

    def holders(self, dims: Dims) -> list[Dims]:
        """[tile]: devices that hold it, lowest first.

        >>> PlacedSide(HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}"), (4, 5, 6, 7)).holders((8,))
        [(4, 5), (6, 7)]
        """
        layout = self.layout(dims)
        by_tile = np.argsort(layout.tile_codes, kind="stable").reshape(-1, layout.copies)
        return [tuple(sorted(row)) for row in np.asarray(self.devices)[by_tile].tolist()]


class ArrayKind(NamedTuple):
    """What all arrays have in common that are moved alike."""

    dims: Dims
    dtype: np.dtype[Any]
    source: PlacedSide
    target: PlacedSide

    @property
    def nbytes(self) -> int:
        """Of the whole array."""
        return int(np.prod(self.dims, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class PlacedArrays:
    """The leaves of a tree, in its order."""

    kinds: tuple[ArrayKind, ...]
    kind_of: Dims
    """[leaf]: number of its kind."""
    names: tuple[str, ...]
    sources: tuple[Any, ...]
    """[leaf]: the jax sharding that it has."""
    targets: tuple[Any, ...]
    """[leaf]: the one that it is to have."""

    @property
    def leaves(self) -> list[list[int]]:
        """[kind]: the leaves that are of it."""
        found: list[list[int]] = [[] for _ in self.kinds]
        for leaf, kind in enumerate(self.kind_of):
            found[kind].append(leaf)
        return found


def read_arrays(tree: Any, source: Any, target: Any, target_devices: Sequence[int] | None) -> PlacedArrays:
    """A tree of arrays or shapes, and both (prefix) trees of NamedShardings.  Raises as `plan_transfer` says."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    sources, targets = broadcast(source, tree, "source"), broadcast(target, tree, "target")
    behind = max((_count(sharding) for sharding in sources if sharding is not None), default=0)
    kinds: dict[ArrayKind, int] = {}
    found: dict[Any, int] = {}
    kind_of: list[int] = []
    for (_, leaf), first, last in zip(leaves, sources, targets, strict=True):
        key = (leaf.shape, leaf.dtype, first, last)
        # Layers are alike by the hundred: each pair of shardings is read once.
        if key not in found:
            sides = _side(first, leaf.shape, 0, None), _side(last, leaf.shape, behind, target_devices)
            found[key] = kinds.setdefault(ArrayKind(tuple(leaf.shape), _dtype(leaf), *sides), len(kinds))
        kind_of.append(found[key])
    names = tuple(jax.tree_util.keystr(path) for path, _ in leaves)
    return PlacedArrays(tuple(kinds), tuple(kind_of), names, tuple(sources), tuple(targets))


def _dtype(leaf: Any) -> np.dtype[Any]:
    try:
        return np.dtype(leaf.dtype)
    except TypeError as error:
        raise ShardingError(
            f"{leaf.dtype} has no size in memory", remedy="transfer jax.random.key_data(...) of random keys"
        ) from error


def _side(sharding: Any, dims: Sequence[int], first: int, numbers: Sequence[int] | None) -> PlacedSide:
    """Of an array.  `numbers`: those of the devices of an abstract mesh; by default they count from `first`."""
    mesh = getattr(sharding, "mesh", None)
    if mesh is None or not hasattr(sharding, "spec"):
        given = "no sharding" if sharding is None else f"a {type(sharding).__name__}"
        raise ShardingError(f"{given} names no mesh", remedy="give a NamedSharding of every array, on both sides")
    read = HloSharding.from_jax(sharding, len(dims)).meaning
    if not layout_of(read, tuple(dims), mesh.size).is_plain:
        raise ShardingError(f"{sharding.spec} is partial or manual", remedy="reduce the array before it is moved")
    return PlacedSide(read, _devices(mesh, first, numbers))


def _devices(mesh: Any, first: int, numbers: Sequence[int] | None) -> Dims:
    if is_concrete(mesh):
        return tuple(device.id for device in mesh.devices.flat)
    if numbers is None:
        return tuple(range(first, first + mesh.size))
    if len(numbers) != mesh.size or len(set(numbers)) != mesh.size or min(numbers) < 0:
        raise ShardingError(
            f"target_devices are {len(numbers)} numbers for a mesh of {mesh.size} devices",
            remedy="give the number of each device of the target's mesh, once",
        )
    return tuple(numbers)


def _count(sharding: Any) -> int:
    """The first number behind the devices of a sharding."""
    mesh: Any = getattr(sharding, "mesh", None)
    if is_concrete(mesh):
        return 1 + max(device.id for device in mesh.devices.flat)
    return getattr(mesh, "size", 0)


def is_concrete(mesh: Any) -> bool:
    """Does a mesh name devices?"""
    import jax

    return isinstance(mesh, jax.sharding.Mesh)
