"""A pytest plugin: JAX's own test files with `hs.jit` where they call `jax.jit` or `pjit`.

Only the names of the test file itself change: JAX's own code, and ours, keep `jax.jit`.  A mesh that the environment
names (HS_JIT_MESH, such as `x=2,y=4`) is given to every `hs.jit`; without it the arguments and the context tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PLAIN, MESH, SAMPLE = "HS_JIT_PLAIN", "HS_JIT_MESH", "HS_JIT_SAMPLE"
_calls = [0]


class _JaxWith:
    """The module `jax`, but for its `jit`."""

    def __init__(self, jax: Any, jit: Callable[..., Any]) -> None:
        self._jax, self.jit = jax, jit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jax, name)


def _mesh() -> Any:
    import jax
    import numpy as np

    axes = dict(pair.split("=") for pair in os.environ.get(MESH, "").split(",") if pair)
    if not axes:
        return None
    sizes = tuple(map(int, axes.values()))
    return jax.sharding.Mesh(np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes), tuple(axes))


def _hs_jit(_usual: Callable[..., Any]) -> Callable[..., Any]:
    import hlosharding as hs

    def jit(*function: Any, **options: Any) -> Any:
        _calls[0] += 1
        return hs.jit(*function, mesh=_mesh(), **options)

    return jit


def _counting(usual: Callable[..., Any]) -> Callable[..., Any]:
    def jit(*function: Any, **options: Any) -> Any:
        _calls[0] += 1
        return usual(*function, **options)

    return jit


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Of many tests every n-th; and the other `jit` in the test files' own namespaces."""
    import jax

    items[:] = items[:: int(os.environ.get(SAMPLE, "1"))]

    wrap = _counting if os.environ.get(PLAIN) else _hs_jit
    replaced = wrap(jax.jit)
    for module in {item.module for item in items}:
        module.jax = _JaxWith(jax, replaced)
        for name in ("jit", "pjit"):
            if hasattr(module, name):
                setattr(module, name, replaced)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Note how often a test made a jitted function."""
    before = _calls[0]
    yield
    item.user_properties.append(("jits", _calls[0] - before))
