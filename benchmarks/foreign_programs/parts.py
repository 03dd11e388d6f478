"""What the programs of foreign libraries are made of: a step, its arguments laid out as users of JAX do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True, slots=True)
class Step:
    """One call, without `jit`, and what it is called with."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    jitted: Callable[..., Any] | None = None
    """Where the library itself calls `jit`: the same step, called so that it does."""


def put(mesh: Mesh, tree: Any, *spec: str | None) -> Any:
    """All leaves laid out alike; without `spec` on all devices whole."""
    return jax.device_put(tree, NamedSharding(mesh, P(*spec)))


def put_fsdp(mesh: Mesh, tree: Any) -> Any:
    """Each leaf split over `data` at its largest dim that divides, as fully sharded data parallelism keeps weights."""

    def placed(leaf: Any) -> Any:
        ways = mesh.shape["data"]
        dims = [d for d in range(np.ndim(leaf)) if np.shape(leaf)[d] % ways == 0]
        widest = max(dims, key=lambda d: np.shape(leaf)[d], default=None)
        return put(mesh, leaf, *("data" if d == widest else None for d in range(np.ndim(leaf))))

    return jax.tree.map(placed, tree)


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Numbers to start from."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def integers(seed: int, below: int, *shape: int) -> np.ndarray[Any, Any]:
    """Tokens, labels, ends of edges."""
    return np.random.default_rng(seed).integers(below, size=shape, dtype=np.int32)
