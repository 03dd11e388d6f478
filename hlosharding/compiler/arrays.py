"""Laying out an array by hand: `hs.device_put` for any device-tile sharding.

Floor: compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.executor import ShardedArray, find_devices, lay_out, put, refuse_described
from hlosharding.frontends import divides
from hlosharding.sharding import HloSharding


def device_put(array: Any, sharding: Any, *, devices: Sequence[Any] | None = None) -> Any:
    """Lay out `array` as `sharding` says: a jax.Array, or an `hs.ShardedArray` where JAX has no name for the layout.

    `sharding`: an HloSharding or its text (over `devices`, by default JAX's own, in order), or a jax Sharding.  Raises
    ShardingError for a sharding that does not fit the shape, ExecutionError where there are too few devices.

    >>> import numpy as np
    >>> device_put(np.arange(4.0), "{replicated}").shape
    (4,)
    """
    import jax
    import numpy as np

    if isinstance(sharding, str):
        sharding = HloSharding.parse(sharding)
    mesh = getattr(sharding, "mesh", None)
    if isinstance(mesh, jax.sharding.Mesh) and hasattr(array, "shape") and not divides(sharding, array.shape):
        # JAX's own arrays have even tiles only.
        devices, sharding = tuple(mesh.devices.flat), HloSharding.from_jax(sharding, len(array.shape))
    refuse_described(tuple(devices or ()))
    if not isinstance(sharding, HloSharding):
        return put(array, sharding, "the array") if isinstance(array, ShardedArray) else jax.device_put(array, sharding)
    count = sharding.num_devices or len(devices or jax.devices())
    found = find_devices(count, devices)
    sharding.validate(tuple(np.shape(array)), count)
    return lay_out(np.asarray(array) if not hasattr(array, "dtype") else array, sharding, found)
