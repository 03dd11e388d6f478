"""What cases of schedules have in common: each process looks at its own parts of what it gets.

A process's own parts are those of one device's run; of what lies in other processes it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import hlosharding as hs
from tests.processes.cases import Case
from tests.support.relative_error import relative_error

NEAR = 1e-5


def right(run: Callable[[], None]) -> Case:
    """The function checks what it makes, in every process."""

    def checked(_: Mesh) -> bool:
        run()
        return True

    return Case(checked, True)


def fails(run: Callable[[], None], error: str) -> Case:
    """The function fails in every process, with these words."""
    return Case(lambda _: run(), error=error)


def check(found: Any, wanted: Any, devices: Sequence[Any]) -> None:
    """A value that lies on these devices: the parts that are here."""
    wanted = np.asarray(wanted)
    tiles = found.tiles if isinstance(found, hs.ShardedArray) else found
    here = [device for device in devices if device.process_index == jax.process_index()]
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert tiles.sharding.device_set == set(devices)
    assert {shard.device for shard in tiles.addressable_shards} == set(here)
    if here and isinstance(found, hs.ShardedArray):
        assert relative_error(np.asarray(found.as_jax()), wanted) < NEAR
        return
    for shard in tiles.addressable_shards:
        assert relative_error(np.asarray(shard.data), wanted[shard.index], of=wanted) < NEAR


def mesh(**axes: int) -> Mesh:
    """Of a stage."""
    count = int(np.prod(list(axes.values())))
    return jax.make_mesh(
        tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes), devices=jax.devices()[:count]
    )


def lying(on: Mesh, *specs: Any) -> Any:
    return [NamedSharding(on, PartitionSpec(*spec)) for spec in specs]
