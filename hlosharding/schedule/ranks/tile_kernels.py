"""What the ops between devices do to one device's tiles, compiled by JAX; of a collective its stub.

Floor: schedule.  Their meaning in numpy stands in the ops; no result shares memory with an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from hlosharding import xla_bridge
from hlosharding.once import once
from hlosharding.schedule.local_ops import cut_array, join_pieces
from hlosharding.schedule.ranks.stubs import dims_that_differ

Kernel = Callable[..., Sequence[Any]]
"""Of arrays; what is no array goes by keyword."""


def _jit_when_called(*static: str) -> Callable[[Kernel], Kernel]:
    """Compiled by JAX, which is imported by the first call and not before."""

    def wrap(function: Kernel) -> Kernel:
        jitted = once(lambda: xla_bridge.jit(function, static_argnames=static))

        @wraps(function)
        def call(*arrays: Any, **given: Any) -> Sequence[Any]:
            return jitted()(*arrays, **given)

        return call

    return wrap


@_jit_when_called("dim", "parts")
def split_tile(x: Any, *, dim: int, parts: int) -> list[Any]:
    """Pieces along a dim."""
    import jax.numpy as jnp

    return [jnp.copy(piece) for piece in cut_array(x, dim, parts, 1)]


@_jit_when_called("dim")
def concat_tiles(*tiles: Any, dim: int) -> list[Any]:
    """Pieces joined along a dim."""
    import jax.numpy as jnp

    return [jnp.copy(join_pieces(tiles, dim, 1))]


@_jit_when_called()
def add_tiles(first: Any, *others: Any) -> list[Any]:
    """The sum."""
    return [sum(others, first)]


@_jit_when_called("shapes")
def fit_tile(x: Any, *, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """A collective's stub: the operand, repeated or cut to each of some shapes.

    >>> import numpy as np
    >>> [tile.tolist() for tile in fit_tile(np.float32([1, 2]), shapes=((4,), (1,), (2,)))]
    [[1.0, 2.0, 1.0, 2.0], [1.0], [1.0, 2.0]]
    """
    return [_fit_one(x, dims) for dims in shapes]


def _fit_one(x: Any, dims: tuple[int, ...]) -> Any:
    import jax.numpy as jnp

    made = jnp.copy(x)
    for dim, has, wants in dims_that_differ(x.shape, dims):
        times = -(-wants // has)
        repeated = jnp.concatenate([made] * times, axis=dim) if times > 1 else made
        made = repeated[(*[slice(None)] * dim, slice(wants))]
    return made


@_jit_when_called("box")
def take_part(x: Any, *, box: Sequence[tuple[int, int]]) -> list[Any]:
    """A part of a tile: start and end along each dim."""
    return [x[tuple(slice(*ends) for ends in box)]]


@_jit_when_called("at", "dims", "dtype")
def join_tile(*parts: Any, at: Sequence[tuple[int, ...]], dims: tuple[int, ...], dtype: Any) -> list[Any]:
    """A tile of parts, each with where it begins; what is padding is zero."""
    import jax
    import jax.numpy as jnp

    tile = jnp.zeros(dims, dtype)
    for start, part in zip(at, parts, strict=True):
        tile = jax.lax.dynamic_update_slice(tile, part, start)
    return [tile]
