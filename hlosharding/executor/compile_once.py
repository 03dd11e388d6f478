"""`@compile_once`: a function of a generated program that XLA's CPU compiler compiles once, however often it is called.

Floor: executor.  Knows JAX's calls; nothing of what the functions compute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def compile_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` of a function whose calls stay calls on CPU devices; elsewhere XLA inlines them, as it does by default.

    A repeated layer then costs its compile time once.

    >>> compile_once(lambda x: x + 1)(1)
    Array(2, dtype=int32, weak_type=True)
    """
    import jax
    from jax.experimental.xla_metadata import set_xla_metadata

    jitted = jax.jit(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        results = jitted(*arguments)
        device = jax.sharding.get_abstract_mesh().abstract_device
        # The mark is read by XLA's CallInliner.
        is_marked = device is not None and device.platform == "cpu"
        return set_xla_metadata(results, inlineable="false") if is_marked else results

    return call
