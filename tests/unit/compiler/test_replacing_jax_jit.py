"""`jax.jit = hs.jit`, literally, and what libraries hand to `jax.jit`."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs

MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
X = np.arange(64, dtype=np.float32).reshape(8, 8)


def laid_out(array: Any, *axes: str | None) -> Any:
    return jax.device_put(array, NamedSharding(MESH, P(*axes)))


def test_jax_jit_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "jit", hs.jit)

    @partial(jax.jit, static_argnames="scale")
    def layer(x: Any, w: Any, *, scale: float) -> Any:
        return jnp.tanh(x @ w) * scale

    @jax.jit
    def step(x: Any, ws: list[Any]) -> Any:
        def loss(ws: list[Any]) -> Any:
            carried, _ = jax.lax.scan(lambda y, w: (layer(y, w, scale=2.0), None), x, jnp.stack(ws))
            return jnp.max(carried) + jnp.sum(carried)

        return jax.value_and_grad(loss)(ws)

    ws = [laid_out(X / 100, None, "model"), laid_out(X.T / 100, "model")]
    loss, gradients = step(laid_out(X, "data"), ws)
    monkeypatch.undo()
    want_loss, want = jax.value_and_grad(
        lambda ws: (lambda y: jnp.max(y) + jnp.sum(y))(2 * jnp.tanh(2 * jnp.tanh(X @ ws[0]) @ ws[1]))
    )([X / 100, X.T / 100])
    np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
    for got, expected in zip(gradients, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_no_device_and_no_backend_is_the_default() -> None:
    options: list[dict[str, Any]] = [{"device": None}, {"backend": None}, {"device": None, "backend": None}]
    for nothing in options:
        np.testing.assert_array_equal(hs.jit(lambda x: x + 1, **nothing)(laid_out(X, "data")), X + 1)


def test_a_device_or_a_backend_is_for_jax(recwarn: pytest.WarningsRecorder) -> None:
    del recwarn  # JAX deprecates them
    step = hs.jit(lambda x: x + 1, device=jax.devices()[3])
    assert step(X).devices() == {jax.devices()[3]}
    np.testing.assert_array_equal(hs.jit(backend="cpu")(lambda x: x + 1)(X), X + 1)


def test_a_lowered_function_compiles_for_other_devices() -> None:
    turned = tuple(jax.devices()[::-1])
    lowered = hs.jit(lambda x: x + 1, mesh=MESH, in_shardings=P("data")).lower(X)
    compiled = lowered.compile(device_assignment=turned)
    found = compiled(X)
    np.testing.assert_array_equal(found, X + 1)
    assert tuple(found.sharding.mesh.devices.flat) == turned


UNEVEN = np.arange(5, dtype=np.float32)


@pytest.mark.parametrize("outside", [hs.jit, jax.jit, jax.grad, jax.vmap])
def test_uneven_shardings_of_a_nested_function(outside: Any) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("a",))
    inner = hs.jit(lambda scale, x: scale * x, mesh=mesh, in_shardings=P("a"), out_shardings=P("a"), static_argnums=0)
    np.testing.assert_array_equal(inner(2, UNEVEN), 2 * UNEVEN)
    if outside is jax.grad:
        np.testing.assert_array_equal(jax.grad(lambda x: inner(2, x).sum())(UNEVEN), np.full(5, 2.0))
    elif outside is jax.vmap:
        np.testing.assert_array_equal(jax.vmap(lambda x: inner(2, x))(np.stack([UNEVEN, UNEVEN])), [2 * UNEVEN] * 2)
    else:
        np.testing.assert_array_equal(outside(lambda x: inner(2, x) + 1)(UNEVEN), 2 * UNEVEN + 1)


@pytest.mark.parametrize(
    ("said", "times"),
    [
        (lambda x: x + 1, 1),
        (lambda x: jax.lax.scan(lambda c, row: (c + row, jax.jit(jnp.sin)(row)), x[0], x)[1], 1),
        (lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P("data"))), 2),
        (jax.jit(lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P("data")))), 2),
        (lambda x: hs.with_sharding(x, "{devices=[8,1]<=[8]}"), 2),
        (lambda x: jax.vmap(lambda row: hs.with_sharding(row, "{devices=[8]<=[8]}"))(x) * 2, 2),
    ],
)
def test_what_names_no_devices_is_traced_once_and_run_by_jax(said: Any, times: int) -> None:
    traced: list[None] = []

    def function(x: Any) -> Any:
        traced.append(None)
        return said(x)

    step = hs.jit(function)
    for _ in range(2):
        found = step(jnp.asarray(X))
    assert len(traced) == times
    assert len(found.sharding.device_set) == (8 if times == 2 else 1)
    np.testing.assert_allclose(found, said(jnp.asarray(X)), rtol=1e-6)


@pytest.mark.parametrize("jit", [hs.jit, jax.jit])
def test_copies_of_what_holds_a_jitted_function_hold_it_too(jit: Any) -> None:
    def add_one(x: Any) -> Any:
        return x + 1

    for copied in (copy.copy, copy.deepcopy):
        (held,) = copied([jit(add_one)])
        np.testing.assert_array_equal(held(laid_out(X, "data")), X + 1)


class Nameless:
    def __call__(self, x: Any) -> Any:
        return x

    def __repr__(self) -> str:
        raise ValueError("not now")


@pytest.mark.parametrize("function", [jnp.tanh, laid_out, Nameless()])
def test_it_is_shown_as_jaxs(function: Any) -> None:
    assert repr(hs.jit(function)) == repr(jax.jit(function))
