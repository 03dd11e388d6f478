"""What is made once for a function, whoever asks again; where JAX counts, `jax.jit` says how often."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.compiler import warm_start

MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
X = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def partitioned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The modules that were partitioned since."""
    found: list[Any] = []
    usual = warm_start.partition
    monkeypatch.setattr(warm_start, "partition", lambda module, **said: found.append(module) or usual(module, **said))
    return found


def laid_out(*axes: str | None) -> Any:
    return jax.device_put(X, NamedSharding(MESH, P(*axes)))


def doubled(x: Any) -> Any:
    return 2 * x


def test_a_function_that_is_jitted_for_each_call_is_partitioned_once(partitioned: list[Any]) -> None:
    def function(x: Any) -> Any:
        return x @ x

    for _ in range(3):
        np.testing.assert_allclose(hs.jit(function)(laid_out("data")), X @ X)
    assert len(partitioned) == 1
    options: list[dict[str, Any]] = [
        {"out_shardings": P()},
        {"out_shardings": "{replicated}"},
        {"in_shardings": P("data")},
        {"donate_argnums": 0},
        {"compiler_options": {"xla_embed_ir_in_executable": True}},
    ]
    for said in options:
        for _ in range(2):
            np.testing.assert_allclose(hs.jit(function, mesh=MESH, **said)(laid_out("data")), X @ X)
    assert len(partitioned) == 1 + len(options)


def test_methods_of_two_objects_are_two_functions() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def scaled(self, x: Any) -> Any:
            return self.by * x

    for by in (2.0, 3.0):
        np.testing.assert_array_equal(hs.jit(Scale(by).scaled)(laid_out("data")), by * X)


def test_jax_and_we_remember_apart() -> None:
    ours, theirs = hs.jit(doubled), jax.jit(doubled)
    ours(laid_out("data"))
    before = theirs._cache_size()
    theirs(laid_out("data"))
    assert theirs._cache_size() == before + 1


def test_what_was_called_is_not_lowered_again(partitioned: list[Any]) -> None:
    step = hs.jit(lambda x: x + 1)
    step(laid_out("data"))
    compiled = step.lower(laid_out("data")).compile()
    np.testing.assert_array_equal(compiled(laid_out("data")), X + 1)
    step.lower(laid_out("data")).compile()
    assert len(partitioned) == 1
    step.clear_cache()
    assert step._cache_size() == 0
    step(laid_out("data"))
    assert len(partitioned) == 2


def test_a_rule_that_comes_later_is_heeded(partitioned: list[Any]) -> None:
    def function(x: Any) -> Any:
        return x - 1

    step = hs.jit(function)
    step.lower(laid_out("data"))
    hs.register_rule("made_programs_test", "n m -> n m")
    step.lower(laid_out("data"))
    hs.jit(function)(laid_out("data"))
    assert len(partitioned) == 3
    hs.jit(function)(laid_out("data"))
    assert len(partitioned) == 3


def test_all_goes_with_the_function() -> None:
    def make() -> tuple[Any, weakref.ref[Any]]:
        weights = laid_out("data")

        def function(x: Any) -> Any:
            return x + weights

        hs.jit(function)(laid_out("data"))
        return function, weakref.ref(weights)

    function, weights = make()
    gc.collect()
    assert weights() is not None
    del function
    gc.collect()
    assert weights() is None


def test_a_users_memory_is_used() -> None:
    from jax._src import config, pjit

    def misses(jit: Callable[..., Any]) -> int:
        with config.jax_jit_cpp_cache_obj(pjit.make_jit_cpp_cache(1)):
            step = jit(lambda x: x + 1)
        with counted() as count:
            for _ in range(2):
                for axis in ("data", "model"):
                    step(laid_out(axis))
            return count()

    assert misses(hs.jit) == misses(jax.jit) == 4


def counted() -> Any:
    """JAX's own count of calls that nobody remembers."""
    from contextlib import contextmanager

    from jax._src import util

    @contextmanager
    def count() -> Any:
        found: list[str] = []
        before = util.test_event_listener
        util.test_event_listener = lambda name, *_: found.append(name)
        try:
            yield lambda: found.count("jit_cpp_cache_miss")
        finally:
            util.test_event_listener = before

    return count()


@pytest.mark.parametrize("jit", [hs.jit, jax.jit])
def test_jax_counts_our_misses_as_its_own(jit: Callable[..., Any]) -> None:
    step = jit(lambda x: x + 1)
    with counted() as count:
        for axes in (("data",), ("data",), ("model",)):
            step(laid_out(*axes))
        assert count() == 2


def test_jax_explains_why_users_functions_are_traced_anew_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    step = hs.jit(lambda x, y: x * y)
    step(X, laid_out("data"))
    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING):
        step(laid_out("data"), laid_out("data"))
    (record,) = caplog.records
    assert "different input types" in record.getMessage()


def test_jax_hears_of_our_context_before_the_first_call() -> None:
    """It compiles all anew when it hears of one."""
    hs.jit(doubled)
    step = jax.jit(lambda x: x - 1)
    step(X)
    before = step._cache_size()
    hs.jit(lambda x: x - 2)(laid_out("data"))
    step(X)
    assert step._cache_size() == before == 1
