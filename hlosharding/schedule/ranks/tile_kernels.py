"""What transfers do to one device's tiles, for `jax.jit`; of a collective its stub.

Floor: schedule.  Arrays come by place, what is static by keyword.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.schedule.ranks.stubs import dims_that_differ


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


def take_part(x: Any, *, box: Sequence[tuple[int, int]]) -> list[Any]:
    """A part of a tile: start and end along each dim."""
    return [x[tuple(slice(*ends) for ends in box)]]


def join_tile(*parts: Any, at: Sequence[tuple[int, ...]], dims: tuple[int, ...], dtype: Any) -> list[Any]:
    """A tile of parts, each with where it begins; what is padding is zero."""
    import jax
    import jax.numpy as jnp

    tile = jnp.zeros(dims, dtype)
    for start, part in zip(at, parts, strict=True):
        tile = jax.lax.dynamic_update_slice(tile, part, start)
    return [tile]
