"""What the ops between devices do to one device's tiles, compiled by JAX; of a collective its stub.

Floor: schedule.  Their meaning in numpy stands in the ops; no result shares memory with an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding import xla_bridge
from hlosharding.once import once
from hlosharding.schedule.local_ops import cut_array, join_pieces
from hlosharding.schedule.ranks.stubs import dims_that_differ

Kernel = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class TileKernels:
    """Functions of arrays; what is no array goes by keyword."""

    split: Kernel
    concat: Kernel
    add: Kernel
    fit: Kernel
    """A collective's stub: the operand, repeated or cut to each of some shapes."""
    cut: Kernel
    join: Kernel


@once
def tile_kernels() -> TileKernels:
    """JAX is there from here on.

    >>> import numpy as np
    >>> [tile.tolist() for tile in tile_kernels().fit(np.float32([1, 2]), shapes=((4,), (1,), (2,)))]
    [[1.0, 2.0, 1.0, 2.0], [1.0], [1.0, 2.0]]
    """

    return TileKernels(
        split=xla_bridge.jit(_split, static_argnames=("dim", "parts")),
        concat=xla_bridge.jit(_concat, static_argnames="dim"),
        add=xla_bridge.jit(_add),
        fit=xla_bridge.jit(_fit, static_argnames="shapes"),
        cut=xla_bridge.jit(_take, static_argnames="box"),
        join=xla_bridge.jit(_join, static_argnames=("at", "dims", "dtype")),
    )


def _split(x: Any, *, dim: int, parts: int) -> list[Any]:
    import jax.numpy as jnp

    return [jnp.copy(piece) for piece in cut_array(x, dim, parts, 1)]


def _concat(*tiles: Any, dim: int) -> list[Any]:
    import jax.numpy as jnp

    return [jnp.copy(join_pieces(tiles, dim, 1))]


def _add(first: Any, *others: Any) -> list[Any]:
    return [sum(others, first)]


def _fit(x: Any, *, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    return [_fit_one(x, dims) for dims in shapes]


def _fit_one(x: Any, dims: tuple[int, ...]) -> Any:
    import jax.numpy as jnp

    made = jnp.copy(x)
    for dim, has, wants in dims_that_differ(x.shape, dims):
        times = -(-wants // has)
        repeated = jnp.concatenate([made] * times, axis=dim) if times > 1 else made
        made = repeated[(*[slice(None)] * dim, slice(wants))]
    return made


def _take(x: Any, *, box: Sequence[tuple[int, int]]) -> list[Any]:
    return [x[tuple(slice(*ends) for ends in box)]]


def _join(*parts: Any, at: Sequence[tuple[int, ...]], dims: tuple[int, ...], dtype: Any) -> list[Any]:
    import jax
    import jax.numpy as jnp

    tile = jnp.zeros(dims, dtype)
    for start, part in zip(at, parts, strict=True):
        tile = jax.lax.dynamic_update_slice(tile, part, start)
    return [tile]
