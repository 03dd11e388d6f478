"""`ShardedArray`: a global array that lives as local tiles, for shardings that no NamedSharding can say.

Floor: executor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor.axes import jax_mesh
from hlosharding.executor.boundary import assemble, assembled
from hlosharding.ir import Shape
from hlosharding.notebook import drawing
from hlosharding.sharding import HloSharding

_OPERATORS = (
    *("abs", "neg", "pos", "invert", "round"),
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
    *("radd", "rsub", "rmul", "rmatmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow"),
    *("and", "or", "xor", "lshift", "rshift", "rand", "ror", "rxor", "rlshift", "rrshift"),
    *("eq", "ne", "lt", "le", "gt", "ge", "getitem", "iter", "contains"),
    *("bool", "int", "float", "complex", "index"),
)
_METHODS = frozenset(
    """T all any argmax argmin argpartition argsort astype at choose clip compress conj conjugate cumprod cumsum
    diagonal dot flat flatten imag item mT max mean min nonzero prod ptp ravel real repeat reshape round searchsorted
    sort squeeze std sum swapaxes take tolist trace transpose var view""".split()
)
"""What a `jax.Array` has: of the array that is whole on each device."""


class ShardedArray:
    """Tiles of all devices stacked on dim 0 of one jax array, with the sharding that says what they are.

    To JAX's pytrees a leaf.  Tiles of uneven dims stay padded; `devices[i]` holds the tile of partition i.
    `np.asarray(x)` assembles the global value on the host, `as_jax()` or `jnp.asarray` on the devices, and so do
    operators and indexing: each device then has all of it.  What else JAX does with arrays it refuses to do with this
    one.  Of several processes all call `as_jax`, as they call programs.

    >>> import hlosharding as hs
    >>> x = hs.device_put(np.arange(3.0, dtype=np.float32), "{devices=[2]<=[2]}")
    >>> x.tile_shape, [tile.shape for tile in x.local_arrays], np.asarray(x).tolist()
    ((2,), [(2,), (2,)], [0.0, 1.0, 2.0])
    """

    __slots__ = ("shape", "sharding", "tiles")
    is_one_array = True
    """Our functions take it as an argument, and know it by this: JAX's do not."""

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
        import jax

        whole = jax.sharding.NamedSharding(self.tiles.sharding.mesh, jax.sharding.PartitionSpec())
        return _assembling(self.sharding, self.shape, whole)(self.tiles)

    def __jax_array__(self) -> Any:
        return self.as_jax()

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return getattr(self.as_jax(), name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    __hash__ = object.__hash__

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
        return [as_tile(data, self.tile_shape) for _, data in sorted(by_start.items(), key=lambda p: p[0])]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not is_seen_whole(self.tiles):
            raise ExecutionError(
                f"some tiles of {self!r} lie in other processes",
                remedy="call `np.asarray(x.as_jax())` in every process: each then gets all of it",
            )
        tiles = np.asarray(self.tiles).reshape(self.num_devices, *self.tile_shape)
        whole = assemble(tiles, self.sharding, self.shape)
        return whole if dtype is None else whole.astype(dtype)

    @property
    def num_devices(self) -> int:
        """How many tiles there are."""
        return self.tiles.sharding.num_devices

    def block_until_ready(self) -> ShardedArray:
        """Wait until the tiles are computed."""
        self.tiles.block_until_ready()
        return self

    def __repr__(self) -> str:
        return f"ShardedArray(shape={self.shape}, dtype={self.dtype.name}, sharding={self.sharding})"


def _forwarding(name: str) -> Callable[..., Any]:
    def operator(self: ShardedArray, *others: Any) -> Any:
        arrays = [o.as_jax() if isinstance(o, ShardedArray) else o for o in others]
        return getattr(self.as_jax(), name)(*arrays)

    operator.__name__ = operator.__qualname__ = name
    return operator


for _name in _OPERATORS:
    setattr(ShardedArray, f"__{_name}__", _forwarding(f"__{_name}__"))


def is_seen_whole(array: Any) -> bool:
    """Has this process all parts of a jax array (or of what is none)?"""
    import jax

    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return True
    return array.is_fully_replicated and bool(array.addressable_shards)


@lru_cache(maxsize=512)
def _assembling(sharding: HloSharding, shape: tuple[int, ...], whole: Any) -> Any:
    """A jitted function of the stacked tiles; its result is whole on each device."""
    count, tile = whole.num_devices, sharding.tile_shape(shape)
    return xla_bridge.jit(lambda tiles: assembled(tiles.reshape(count, *tile), sharding, shape), out_shardings=whole)


def restack_tiles(by_device: Mapping[Any, Any], devices: Sequence[Any], tile: Shape, sharding: Any = None) -> Any:
    """The tiles of this process, as one array stacked in the order of `devices` (and labelled `sharding`)."""
    import jax

    if sharding is None:
        mesh = jax_mesh(devices, (-1,), ("tile",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("tile"))
    dims = tile.dims or (1,)
    local = {device: as_tile(data, dims) for device, data in by_device.items()}
    return xla_bridge.array_of((len(devices) * dims[0], *dims[1:]), tile.dtype, sharding, local)


def by_device(array: Any) -> dict[Any, Any]:
    """What this process has of a jax array, by device."""
    return {shard.device: shard.data for shard in array.addressable_shards}


def as_tile(data: Any, dims: tuple[int, ...]) -> Any:
    """One device's array in the dims of its tile, whatever mesh the user has set for his own operations."""
    import jax

    if data.shape == dims:
        return data
    with jax.set_mesh(None):
        return data.reshape(dims)
