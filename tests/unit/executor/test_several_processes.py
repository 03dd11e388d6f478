"""What several processes do with arrays, played by one (real ones: `tests/processes`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor import Executable, laying_out
from hlosharding.executor.processes import check_same
from hlosharding.xla_bridge import dispatch

FIVE, SIX = np.arange(5, dtype=np.float32), np.arange(6, dtype=np.float32)
OVER_ALL, IN_PAIRS = "{devices=[8]<=[8]}", "{devices=[4,2]<=[8] last_tile_dim_replicate}"


@pytest.fixture
def parts_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No array on several devices may come to this host: each is moved by a program."""

    def is_seen_whole(array: Any) -> bool:
        return not isinstance(array, jax.Array) or len(array.sharding.device_set) == 1

    monkeypatch.setattr(laying_out, "is_seen_whole", is_seen_whole)


def assert_in_pairs(array: hs.ShardedArray, whole: np.ndarray) -> None:
    """Two devices hold each two elements, as far as there are any; what else there is in a tile is padding."""
    for device, tile in enumerate(array.local_arrays):
        wanted = whole[2 * (device // 2) :][:2]
        np.testing.assert_array_equal(np.asarray(tile)[: len(wanted)], wanted)


@pytest.mark.usefixtures("parts_are_elsewhere")
def test_even_tiles_are_moved_into_uneven_ones(mesh_2x4: Mesh) -> None:
    even = jax.device_put(SIX, NamedSharding(mesh_2x4, P("data")))
    assert_in_pairs(hs.device_put(even, IN_PAIRS), SIX)
    add = hs.jit(lambda x: x + 1, mesh=mesh_2x4, in_shardings=P("model"), out_shardings=P())
    np.testing.assert_array_equal(add(even), SIX + 1)


@pytest.mark.usefixtures("parts_are_elsewhere")
def test_uneven_tiles_are_moved_into_others(mesh_2x4: Mesh) -> None:
    uneven = hs.device_put(FIVE, OVER_ALL)
    assert_in_pairs(hs.device_put(uneven, IN_PAIRS), FIVE)
    add = hs.jit(lambda x: x + 1, mesh=mesh_2x4, in_shardings=P("data"), out_shardings=P())
    np.testing.assert_array_equal(add(uneven), FIVE + 1)


def test_what_is_left_of_tiles_that_jax_gathered_is_still_an_array() -> None:
    """`process_allgather` takes the leaves of a pytree to the host, where they lie on no devices."""
    gathered = jax.tree.map(np.asarray, hs.device_put(FIVE, OVER_ALL))
    np.testing.assert_array_equal(np.asarray(gathered), FIVE)


def test_the_first_array_that_another_process_has_not_is_named(mesh_2x4: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_another(digests: np.ndarray) -> np.ndarray:
        """Those of process 0, and those of process 1, whose last array is another."""
        return np.stack([digests, np.concatenate([digests[:-1], ~digests[-1:]])])

    monkeypatch.setattr(multihost_utils, "process_allgather", with_another)
    with pytest.raises(ExecutionError, match="y is not the same in all processes: process 1 gives another array"):
        check_same({"x": FIVE, "y": SIX})
    monkeypatch.setattr(Executable, "_is_shared", True)
    for array in (FIVE, SIX):
        with pytest.raises(ExecutionError, match="argument x is not the same in all processes"):
            hs.jit(lambda x: x.sum(), mesh=mesh_2x4, in_shardings=P("data"))(array)


def test_an_array_may_lie_in_other_processes_alone(mesh_2x4: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX makes one of no parts where a process has none of the devices, which this one has."""
    made = SimpleNamespace(ArrayImpl=lambda aval, _, parts, committed: (aval, parts, committed))
    found = dispatch.first_import
    monkeypatch.setattr(dispatch, "first_import", lambda name: made if name.endswith(".array") else found(name))
    aval, parts, is_committed = xla_bridge.array_of((8,), np.float32, NamedSharding(mesh_2x4, P("data")), {})
    assert (aval.shape, aval.dtype, parts, is_committed) == ((8,), np.float32, [], True)
