"""Steps of small models, written as users write them, to be cut into microbatches and stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hlosharding as hs
from hlosharding.ir import Module


class Step(NamedTuple):
    """A function, its arguments, and which of them are the batch."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    batch: tuple[str, ...]

    def expected(self) -> list[np.ndarray]:
        """One device's results."""
        return [np.asarray(a) for a in jax.tree.leaves(jax.jit(self.function)(*self.arguments))]

    def flat(self) -> list[np.ndarray]:
        """The arguments' arrays."""
        return [np.asarray(a) for a in jax.tree.leaves(self.arguments)]


def key(number: int) -> jax.Array:
    return jax.random.PRNGKey(number)


def normal(number: int, *dims: int) -> jax.Array:
    """By numpy: JAX would compile a program for each shape while tests are collected."""
    return jnp.asarray(np.random.default_rng(number).standard_normal(dims, np.float32) * np.float32(0.4))


def trained(loss: Callable[..., Any]) -> Callable[..., Any]:
    """One step of gradient descent; the loss beside."""

    def step(params: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step


def perceptron(weights: Any, x: Any) -> Any:
    """A training step of as many layers as there are weights."""

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    return trained(loss)(weights, x)


_SQUARES = [normal(n, 8, 8) for n in range(4)]
_X = normal(9, 8, 8)


def mlp() -> Step:
    """Four layers."""

    def loss(params: Any, x: Any) -> Any:
        for w in params:
            x = jnp.tanh(x @ w)
        return (x**2).mean()

    return Step(trained(loss), (_SQUARES, _X), ("batch",))


def _attended(x: Any, layer: Any) -> Any:
    q, k, v = (x @ layer[n] for n in "qkv")
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    scores = jnp.where(mask, jnp.einsum("bsd,btd->bst", q, k), -1e9)
    x = x + jnp.einsum("bst,btd->bsd", jax.nn.softmax(scores), v)
    return x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]


def transformer() -> Step:
    """Two layers, tied embeddings, gradients clipped by their global norm, Adam."""
    layer = {**{n: normal(k, 8, 8) for k, n in enumerate("qkv")}, "up": normal(3, 8, 16), "down": normal(4, 16, 8)}
    params = {"emb": normal(5, 16, 8), "layers": [layer, layer]}
    zeros = jax.tree.map(jnp.zeros_like, params)

    def loss(params: Any, tokens: Any) -> Any:
        x = params["emb"][tokens[:, :-1]]
        for layer in params["layers"]:
            x = _attended(x, layer)
        logits = jax.nn.log_softmax(x @ params["emb"].T)
        return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()

    def step(params: Any, m: Any, v: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), grads)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
        new = jax.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-3), params, m, v)
        return new, m, v, value

    tokens = jax.random.randint(key(6), (8, 5), 0, 16)
    return Step(step, (params, zeros, zeros, tokens), ("tokens",))


def convolutions() -> Step:
    """Four of them, and a mean over the image."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w in params:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_IMAGES))
        return ((x.mean((1, 2)) - y) ** 2).sum()

    return Step(
        trained(loss),
        ([normal(n, 3, 3, 4, 4) for n in range(4)], normal(7, 8, 4, 4, 4), normal(8, 8, 4)),
        ("batch",),
    )


_IMAGES = ("NHWC", "HWIO", "NHWC")


def experts() -> Step:
    """A mixture of experts that picks one by a gather."""

    def loss(params: Any, x: Any) -> Any:
        for router, w in params:
            gates = jax.nn.softmax(x @ router)
            x = x + jnp.einsum("bd,bde->be", x, w[jnp.argmax(gates, -1)]) * gates.max(-1, keepdims=True)
        return (x**2).mean()

    return Step(trained(loss), ([(normal(n, 8, 4), normal(n + 1, 4, 8, 8)) for n in range(4)], _X), ("batch",))


def recurrent() -> Step:
    """Two layers that scan over time."""

    def loss(params: Any, x: Any) -> Any:
        for w, u in params:

            def cell(state: Any, now: Any, w: Any = w, u: Any = u) -> Any:
                made = jnp.tanh(now @ w + state @ u)
                return made, made

            _, ys = jax.lax.scan(cell, jnp.zeros((x.shape[0], 8)), x.swapaxes(0, 1))
            x = ys.swapaxes(0, 1)
        return (x**2).mean()

    return Step(trained(loss), ([(w, w.T) for w in _SQUARES[:2]], normal(7, 8, 5, 8)), ("batch",))


def scanned_layers() -> Step:
    """A scan over layers, with what all layers share and a loss of each layer's own."""

    def loss(params: Any, x: Any) -> Any:
        def layer(x: Any, own: Any) -> Any:
            made = x + jnp.tanh(x @ own["w"] + own["b"] + params["shared"])
            return made, (made**2).sum()

        x, ys = jax.lax.scan(layer, x, params["layers"])
        return (x**2).mean() + 0.1 * ys.mean()

    layers = {"w": normal(0, 4, 8, 8), "b": normal(1, 4, 8)}
    return Step(trained(loss), ({"layers": layers, "shared": normal(2, 8)}, _X), ("batch",))


def nested_scans() -> Step:
    """A scan in a scan; a branch in the inner one that is the same for all microbatches.

    The batch is as long as nothing else: JAX lets residuals of one shape share a place, be they weights or not.
    """

    def loss(params: Any, x: Any, flag: Any) -> Any:
        def inner(x: Any, w: Any) -> Any:
            return jax.lax.cond(flag > 0, lambda x: jnp.tanh(x @ w), lambda x: x + x @ w, x), None

        def outer(x: Any, ws: Any) -> Any:
            return jax.lax.scan(inner, x, ws)[0], x.sum()

        x, ys = jax.lax.scan(outer, x, params)
        return (x**2).mean() + ys.mean()

    def step(params: Any, x: Any, flag: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, flag)
        return grads, value

    return Step(step, (normal(0, 4, 2, 8, 8), normal(9, 12, 8), jnp.int32(1)), ("x",))


def dropout() -> Step:
    """Random bits of the whole batch; activations given back."""

    def step(params: Any, key: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            h = x
            for n, w in enumerate(params):
                h = jnp.tanh(h @ w) * jax.random.bernoulli(jax.random.fold_in(key, n), 0.5, h.shape)
            return (h**2).sum(), h

        (value, h), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return grads, value, h

    return Step(step, (_SQUARES[:2], key(3), _X), ("x",))


def dropout_in_a_scan() -> Step:
    """Random bits inside a loop."""

    def step(params: Any, key: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            def layer(h: Any, own: Any) -> Any:
                w, n = own
                return jnp.tanh(h @ w) * jax.random.bernoulli(jax.random.fold_in(key, n), 0.5, h.shape), None

            h, _ = jax.lax.scan(layer, x, (params, jnp.arange(4)))
            return (h**2).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return grads, value

    return Step(step, (normal(0, 4, 8, 8), key(3), _X), ("x",))


def rematerialised() -> Step:
    """Every layer's activations computed again."""

    def loss(params: Any, x: Any) -> Any:
        layer = jax.checkpoint(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w))
        for w in params:
            x = layer(w, x)
        return (x**2).sum()

    return Step(trained(loss), (_SQUARES, _X), ("batch",))


def weighted() -> Step:
    """A loss divided by the weights of the whole batch, on inputs centered by them; how many examples there are."""

    def loss(params: Any, x: Any, mask: Any) -> Any:
        mean = (x * mask[:, None]).sum(0) / mask.sum()
        deviation = jnp.sqrt((((x - mean) ** 2) * mask[:, None]).sum(0) / mask.sum())
        x = (x - mean) / (deviation + 0.1)
        for w in params:
            x = jnp.tanh(x @ w)
        return ((x**2).mean(-1) * mask).sum() / mask.sum()

    def step(params: Any, x: Any, mask: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, mask)
        return grads, value, mask.sum(), jnp.ones_like(mask).sum()

    return Step(step, (_SQUARES, _X, jnp.arange(8.0)), ("x", "mask"))


def labelled() -> Step:
    """Cross entropy with one-hot labels; activations and a function of the inputs given back for each example."""

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            h, kept = x, [x]
            for w in params:
                h = jnp.tanh(h @ w)
                kept.append(h)
            labels = jax.nn.one_hot(y, 8)
            value = -(labels * jax.nn.log_softmax(h)).sum(-1).mean()
            return value, (kept[1] * h).sum(-1) + labels.sum(-1)

        (value, each), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return grads, value, each, jnp.cos(x)

    return Step(step, (_SQUARES, _X, jnp.arange(8)), ("x", "y"))


def inference() -> Step:
    """No backward pass."""

    def step(params: Any, tokens: Any) -> Any:
        x = params["emb"][tokens]
        for w in params["layers"]:
            x = jnp.tanh(x @ w)
        return x @ params["emb"].T

    tokens = jax.random.randint(key(6), (8, 5), 0, 16)
    return Step(step, ({"emb": normal(5, 16, 8), "layers": _SQUARES}, tokens), ("tokens",))


STEPS: dict[str, Callable[[], Step]] = {
    made.__name__: made
    for made in (
        mlp,
        transformer,
        convolutions,
        experts,
        recurrent,
        scanned_layers,
        nested_scans,
        dropout,
        dropout_in_a_scan,
        rematerialised,
        weighted,
        labelled,
        inference,
    )
}


_LOOPS = {"recurrent", "scanned_layers", "nested_scans", "dropout_in_a_scan"}


def most_stages(name: str) -> int:
    """A loop lies in one stage."""
    return 2 if name in _LOOPS else 4


@cache
def traced(name: str) -> tuple[Step, Module]:
    """A step and its program, traced once; nobody changes it."""
    step = STEPS[name]()
    return step, hs.trace(step.function)(*step.arguments)
