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


_LEAST = 1e-4
"""Numbers are compared with the largest of their array, and no less: gradients that cancel are roundings of such."""


def distance_from_one_device(found: Any, step: Step) -> float:
    """The largest of all arrays; whole numbers differ by as much as they do."""
    wanted = jax.jit(step.function)(*step.arguments)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return max((_difference(*map(_numbers, pair)) for pair in pairs), default=0.0)


def _numbers(leaf: Any) -> np.ndarray[Any, Any]:
    from hlosharding.frontends import as_numbers

    return np.asarray(as_numbers(leaf), np.complex128)


def _difference(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    return float(abs(found - wanted).max() / max(abs(wanted).max(), _LEAST)) if wanted.size else 0.0


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
