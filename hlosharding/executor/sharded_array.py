"""`ShardedArray`: a global array that lives as local tiles, for shardings that no NamedSharding can say.

Floor: executor.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.array_operators import ArrayOperators
from hlosharding.executor.axis_choice import Needs, choose_axes
from hlosharding.executor.boundary import BoundaryArray, assemble, split
from hlosharding.ir import Shape
from hlosharding.notebook import drawing
from hlosharding.sharding import HloSharding


class ShardedArray(ArrayOperators):
    """Tiles of all devices stacked on dim 0 of one jax array, with the sharding that says what they are.

    A pytree of one leaf (the tiles).  Tiles of uneven dims stay padded; `devices[i]` holds the tile of partition i.
    `np.asarray(x)` assembles the global value on the host, `as_jax()` on the devices, and so do operators, indexing and
    `jnp` functions: each device then has all of it.

    >>> import hlosharding as hs
    >>> x = hs.device_put(np.arange(3.0, dtype=np.float32), "{devices=[2]<=[2]}")
    >>> x.tile_shape, [tile.shape for tile in x.local_arrays], np.asarray(x).tolist()
    ((2,), [(2,), (2,)], [0.0, 1.0, 2.0])
    """

    __slots__ = ("shape", "sharding", "tiles")
    is_one_array = True
    """Functions take it as one argument, though JAX's pytrees see the tiles in it."""

    def __init__(self, tiles: Any, sharding: HloSharding, shape: Sequence[int]) -> None:
        self.tiles = tiles
        """A jax array `[n * t0, t1, ...]` (of a scalar: `[n]`), in device order."""
        self.sharding = sharding
        self.shape = tuple(shape)

    @property
    def dtype(self) -> np.dtype:
        """Of the elements."""
        return self.tiles.dtype

    @property
    def ndim(self) -> int:
        """Number of dims of the global array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements of the global array."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Of the global array."""
        return self.size * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def as_jax(self) -> Any:
        """The global array on the devices that hold the tiles, all of it on each."""
        return _assembling(self.sharding, self.shape)(self.tiles)

    def visualize(self) -> None:
        """Print which device holds which part."""
        print(drawing(self.sharding, self.shape))

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The local shape on every device, padding included."""
        return tuple(self.sharding.tile_shape(self.shape))

    @property
    def local_arrays(self) -> list[Any]:
        """The tile of each device, in device order, where it lies."""
        by_start = {(s.index[0].start or 0) if s.index else 0: s.data for s in self.tiles.addressable_shards}
        return [data.reshape(self.tile_shape) for _, data in sorted(by_start.items(), key=lambda p: p[0])]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        tiles = np.asarray(self.tiles)
        count = self.num_devices
        whole = assemble(list(tiles.reshape(count, *self.tile_shape)), self.sharding, self.shape)
        return whole if dtype is None else whole.astype(dtype)

    @property
    def num_devices(self) -> int:
        """How many tiles there are."""
        return len(self.tiles.sharding.device_set)

    def block_until_ready(self) -> ShardedArray:
        """Wait until the tiles are computed."""
        self.tiles.block_until_ready()
        return self

    def __repr__(self) -> str:
        return f"ShardedArray(shape={self.shape}, dtype={self.dtype.name}, sharding={self.sharding})"


@functools.lru_cache(maxsize=512)
def _assembling(sharding: HloSharding, shape: tuple[int, ...]) -> Any:
    """A jitted function of the stacked tiles; its result is whole on each device."""
    import jax

    return jax.jit(lambda tiles: _assembled(tiles.reshape(-1, *sharding.tile_shape(shape)), sharding, shape))


def _assembled(tiles: Any, sharding: HloSharding, shape: tuple[int, ...]) -> Any:
    """[device, *tile] -> the global array, where each tile is read from the first device that holds it."""
    if sharding.is_unreduced():
        return tiles.sum(0, dtype=tiles.dtype)
    if sharding.kind != "tiled":
        return tiles[sharding.tiles.first if sharding.kind == "maximal" else 0]
    dims = sharding.data_dims
    grid, dim = sharding.tiles.array, sharding.subgroup_dim("unreduced")
    parts = np.moveaxis(grid, dim, 0) if dim is not None else grid[None]
    partial = [tiles[holders.reshape(*dims, -1)[..., 0].reshape(-1)] for holders in parts]
    split = functools.reduce(operator.add, partial).reshape(*dims, *tiles.shape[1:])
    order = [place for d in range(len(dims)) for place in (d, len(dims) + d)]
    padded = split.transpose(order).reshape([n * t for n, t in zip(dims, tiles.shape[1:], strict=True)])
    return padded[tuple(slice(0, size) for size in shape)]


def stacked(array: Any, sharding: HloSharding, devices: Sequence[Any]) -> Any:
    """A jax array of the stacked tiles of a global array, tile i on `devices[i]`."""
    tiles = split(array, sharding, len(devices))
    return join_tiles([tile.reshape(tile.shape or (1,)) for tile in tiles], devices)


def join_tiles(tiles: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Local arrays as one jax array stacked on dim 0; arrays already on their device are not copied.

    Of several processes each puts down the tiles of its own devices.
    """
    import jax

    mine = jax.process_index()
    pairs = [(tile, d) for tile, d in zip(tiles, devices, strict=True) if d.process_index == mine]
    return restacked({device: jax.device_put(tile, device) for tile, device in pairs}, devices)


def restacked(by_device: Mapping[Any, Any], devices: Sequence[Any], sharding: Any = None) -> Any:
    """The local arrays of this process, as one array stacked in the order of `devices` (and labelled `sharding`)."""
    import jax

    if sharding is None:
        mesh = jax.sharding.Mesh(np.array(devices, dtype=object), ("tile",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("tile"))
    local = [by_device[device] for device in devices if device in by_device]
    shape = (len(devices) * local[0].shape[0], *local[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, sharding, local)


def sharded_array(array: Any, sharding: HloSharding, devices: Sequence[Any]) -> ShardedArray:
    """Lay a global array out as `sharding` says, tile of partition i on `devices[i]`."""
    register()
    if sharding.is_tuple():
        raise ExecutionError(f"{sharding} is of a tuple", remedy="lay out its arrays one by one")
    return ShardedArray(stacked(array, sharding, devices), sharding, np.shape(array))


def lay_out(array: Any, sharding: HloSharding, devices: Sequence[Any]) -> Any:
    """A global array laid out as `sharding` says: a jax array where a NamedSharding can say it, else a ShardedArray.

    Tile i lies on `devices[i]`.
    """
    import jax

    rank = np.ndim(array)
    axes = choose_axes(None, len(devices), Needs(shardings=frozenset({(sharding, rank)})))
    layout = BoundaryArray(Shape.from_dtype(array.dtype, np.shape(array)), sharding).over(axes)
    if layout.spec is None:
        return sharded_array(array, sharding, devices)
    mesh = jax.sharding.Mesh(np.array(devices, dtype=object).reshape(axes.sizes), axes.names)
    spec = jax.sharding.PartitionSpec(*[tuple(axes.names[p] for p in dim) or None for dim in layout.spec])
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, spec))


_registered: list[bool] = []


def register() -> None:
    """Tell JAX that a ShardedArray is a pytree; once, when one is first made."""
    if _registered:
        return
    import jax

    jax.tree_util.register_pytree_node(
        ShardedArray,
        lambda a: ((a.tiles,), (a.sharding, a.shape)),
        lambda aux, children: ShardedArray(children[0], *aux),
    )
    _registered.append(True)
