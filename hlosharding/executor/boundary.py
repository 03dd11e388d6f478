"""How a global array lies on the devices at the program's boundary: by axis names, or as stacked tiles.

Floor: executor.  Names where they can say the sharding evenly, else the local tiles `[t0, t1, ...]` of all devices
stacked on dim 0 as `[n * t0, t1, ...]` in mesh order; tiles of uneven dims are padded at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.axes import Axes, Parts
from hlosharding.ir import Instruction, Module, Shape
from hlosharding.sharding import HloSharding, MeshInfo


@dataclass(frozen=True, slots=True)
class BoundaryArray:
    """The global shape and the sharding of one array that enters or leaves a program."""

    shape: Shape
    """Global."""
    sharding: HloSharding
    spec: tuple[Parts, ...] | None = None
    """Per dim the mesh axes that split it; None: stacked tiles."""
    memory: str | None = None
    """The kind of memory it lies in outside the program; None: the device's own."""
    is_weak: bool = False
    """Of an output: JAX's weak type, of what was made of Python numbers alone: other types win over it."""
    label: Any = None
    """Of an output: the jax sharding under which users shall see it; None: that of the program's mesh, or theirs."""

    @property
    def is_even(self) -> bool:
        """All tiles have the same size, so that the array is exactly its tiles."""
        ways = self.sharding.data_dims or (1,) * self.shape.rank
        return all(size % parts == 0 for size, parts in zip(self.shape.dims, ways, strict=True))

    def takes(self, array: Any) -> bool:
        """Is it an array of this shape and type, as JAX cuts 64 bits?  A number of Python's is of any type."""
        import jax

        wanted, given = self.shape.dtype, getattr(array, "dtype", None)
        is_typed = given is None or given == wanted or jax.dtypes.canonicalize_dtype(given) == wanted
        return is_typed and tuple(np.shape(array)) == self.shape.dims

    @property
    def is_stacked(self) -> bool:
        """It enters and leaves as stacked tiles."""
        return self.spec is None

    @property
    def tile(self) -> tuple[int, ...]:
        """The local shape, padding included."""
        return tuple(self.sharding.tile_shape(self.shape.dims))

    def over(self, axes: Axes) -> BoundaryArray:
        """The same, said with axis names where that is possible."""
        return replace(self, spec=axes.spec_of(self.sharding, self.shape.rank) if self.is_even else None)

    def partition_spec(self, axes: Axes) -> Any:
        """The PartitionSpec of the jax array at the boundary."""
        from jax.sharding import PartitionSpec

        if self.spec is None:
            return PartitionSpec(axes.names)
        return PartitionSpec(*[tuple(axes.names[p] for p in dim) or None for dim in self.spec])

    def spec_text(self, axes: Axes) -> str:
        """The same as text."""
        if self.spec is None:
            return "P(AXES)"
        dims = [f"{axes.text(p)}" if p else "None" for p in self.spec]
        while dims and dims[-1] == "None":
            dims.pop()
        return f"P({', '.join(dims)})"

    def boundary_shape(self, num_devices: int) -> tuple[int, ...]:
        """The shape of the jax array at the boundary."""
        if self.spec is not None:
            return self.shape.dims
        tile = self.tile or (1,)
        return (num_devices * tile[0], *tile[1:])


@dataclass(frozen=True, slots=True)
class Boundary:
    """What running a program takes beside its code: its mesh, and how its arrays lie where they enter and leave."""

    name: str
    """The module's."""
    axes: Axes
    inputs: tuple[BoundaryArray, ...]
    outputs: tuple[BoundaryArray, ...]
    is_wide: bool
    """True for a program with 64-bit values: trace and call it under `jax.enable_x64(True)`."""
    user_mesh: MeshInfo | None
    """The user's own mesh; None where the program's axes are the same, or there is none that it may name."""
    calls_lapack: bool
    """Are there kernels that JAX must have loaded?"""


def _leaf_shardings(module: Module, inst: Instruction) -> tuple[HloSharding, ...]:
    sharding = module.sharding(inst)
    if sharding is None:
        sharding = HloSharding.replicate()
    leaves = sharding.leaves if sharding.is_tuple() else (sharding,) * len(inst.shape.leaves)
    # The sharding of an empty tuple has one leaf, too.
    leaves = leaves if inst.shape.leaves else ()
    if len(leaves) != len(inst.shape.leaves):
        raise ExecutionError(f"{len(leaves)} shardings for {len(inst.shape.leaves)} arrays", where=f"%{inst.name}")
    return leaves


def _of_tile(tile: Shape, sharding: HloSharding) -> BoundaryArray:
    """The array of even tiles."""
    ways = sharding.data_dims or (1,) * tile.rank
    dims = tuple(size * parts for size, parts in zip(tile.dims, ways, strict=True))
    return BoundaryArray(tile.with_dims(dims), sharding)


def boundary_arrays(
    module: Module, inputs: Sequence[BoundaryArray] | None, outputs: Sequence[BoundaryArray] | None
) -> tuple[tuple[BoundaryArray, ...], tuple[BoundaryArray, ...]]:
    """Layouts of all leaves of the parameters and of the root, checked against the local shapes."""
    sides = []
    for given, instructions in ((inputs, module.entry.parameters), (outputs, (module.entry.root,))):
        local = [leaf for inst in instructions for leaf in inst.shape.leaves]
        if given is None:
            said = [sharding for inst in instructions for sharding in _leaf_shardings(module, inst)]
            given = map(_of_tile, local, said)
        found = list(given)
        if len(found) != len(local):
            raise ExecutionError(f"{len(found)} layouts for {len(local)} arrays at the boundary of {module.name}")
        for layout, shape in zip(found, local, strict=True):
            if layout.tile != shape.dims:
                raise ExecutionError(
                    f"{layout.shape} as {layout.sharding} has tiles {list(layout.tile)}, the program holds {shape}",
                    remedy="pass the global shapes: a local shape alone does not say how much of it is padding",
                )
        sides.append(tuple(found))
    return sides[0], sides[1]


# ---- what a user gives as an input


def typed_input(array: Any, shape: Shape) -> Any:
    """An input of the type that the program takes: 64 bits are cut where JAX does, as the user set it."""
    import jax

    found = with_dtype(array, shape)
    if found.dtype == shape.dtype:
        return found
    if jax.dtypes.canonicalize_dtype(found.dtype) != shape.dtype:
        raise ExecutionError(f"an input of type {found.dtype}, the program takes {shape}")
    return found.astype(shape.dtype)


def with_dtype(given: Any, shape: Shape) -> Any:
    """Python's numbers as an array of a shape's type, an array as it is.

    Raises ExecutionError for numbers that the type does not hold: JAX raises for them, too.

    >>> with_dtype([1, 2], Shape.parse("u8[2]")).dtype
    dtype('uint8')
    >>> with_dtype(300, Shape.parse("u8[]"))
    Traceback (most recent call last):
    hlosharding.errors.ExecutionError: 300 is no u8[]: Python integer 300 out of bounds for uint8
    """
    if hasattr(given, "dtype"):
        return given
    try:
        found, kind = np.asarray(given, shape.dtype), np.asarray(given).dtype.kind
    except (OverflowError, TypeError, ValueError) as error:
        raise ExecutionError(f"{given!r:.60} is no {shape}: {error}") from None
    if found.size and kind not in _HELD[: _kinds_held(shape)]:
        raise ExecutionError(f"{given!r:.60} is no {shape}: it holds numbers of another kind")
    return found


_HELD = ("b", "i", "u", "f", "c")
"""Kinds of numpy's types: real numbers hold integers, complex ones hold both."""


def _kinds_held(shape: Shape) -> int:
    """How many of these kinds a type holds."""
    if shape.is_complex:
        return 5
    return 4 if shape.is_floating else 3 if shape.is_integral else 1


# ---- tiles of whole arrays


def split(array: Any, sharding: HloSharding, num_devices: int) -> list[np.ndarray]:
    """The tile of each device, by device id: padded with zeros to the common tile shape.

    >>> split(np.arange(3), HloSharding.parse("{devices=[2]<=[2]}"), 2)
    [array([0, 1]), array([2, 0])]
    """
    whole = np.asarray(array)
    if sharding.is_unreduced():
        return [whole if d == 0 else np.zeros_like(whole) for d in range(num_devices)]
    if sharding.kind != "tiled":
        return [whole] * num_devices
    ways, tile = sharding.data_dims, tuple(sharding.tile_shape(whole.shape))
    padded = np.zeros([n * t for n, t in zip(ways, tile, strict=True)], whole.dtype)
    padded[tuple(map(slice, whole.shape))] = whole
    grid = padded.reshape([size for pair in zip(ways, tile, strict=True) for size in pair])
    pieces = grid.transpose(*range(0, 2 * len(ways), 2), *range(1, 2 * len(ways), 2)).reshape(sharding.num_tiles, *tile)
    # What a subgroup adds up is the first member's; the others, and who holds nothing, have zeros.
    tiles = [np.zeros(tile, whole.dtype)] * num_devices
    for piece, holders in zip(pieces, _holders(sharding)[0], strict=True):
        for device in holders.tolist():
            tiles[device] = piece
    return tiles


def _holders(sharding: HloSharding) -> np.ndarray:
    """Devices of a tiling as [number of the partial sum, tile, copy]."""
    grid, dim = sharding.tiles.array, sharding.subgroup_dim("unreduced")
    parts = grid[None] if dim is None else np.moveaxis(grid, dim, 0)
    return parts.reshape(len(parts), sharding.num_tiles, -1)


def assemble(tiles: Sequence[Any] | np.ndarray, sharding: HloSharding, shape: Sequence[int]) -> np.ndarray:
    """The global array of `shape` from the tiles of all devices, by device id; padding is cut off.

    >>> assemble([np.array([0, 1]), np.array([2, 9])], HloSharding.parse("{devices=[2]<=[2]}"), (3,))
    array([0, 1, 2])
    """
    return np.asarray(assembled(np.asarray(tiles), sharding, shape))


def assembled(tiles: Any, sharding: HloSharding, shape: Sequence[int]) -> Any:
    """The same of one array [device, *tile], numpy's or JAX's: a tile is read from the first device that holds it."""
    if sharding.is_unreduced():
        # In its own type: numpy and JAX would add narrow integers up in wider ones.
        return tiles.sum(0, dtype=tiles.dtype)
    if sharding.kind != "tiled":
        return tiles[sharding.tiles.first if sharding.kind == "maximal" else 0]
    ways = sharding.data_dims
    grid = reduce(add, (tiles[holders[:, 0]] for holders in _holders(sharding))).reshape(*ways, *tiles.shape[1:])
    order = [place for d in range(len(ways)) for place in (d, len(ways) + d)]
    padded = grid.transpose(order).reshape([n * t for n, t in zip(ways, tiles.shape[1:], strict=True)])
    return padded[tuple(map(slice, shape))]
