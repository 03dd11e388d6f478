"""Steps whose layers are a scan, written as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tests.support.training_steps import Step, key, normal, trained

LAYERS = 4
_W = normal(0, LAYERS, 8, 8)
_X = normal(9, 16, 8)


def transformer() -> Step:
    """Tied embeddings, attention, gradients clipped by their global norm, AdamW with a step count."""

    def layer(h: Any, w: Any) -> Any:
        scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", h @ w["q"], h @ w["k"]))
        h = h + jnp.einsum("bst,btd->bsd", scores, h @ w["v"])
        centred = (h - h.mean(-1, keepdims=True)) * w["scale"]
        return h + jax.nn.gelu(centred @ w["up"]) @ w["down"], None

    def loss(p: Any, tokens: Any, wanted: Any) -> Any:
        h, _ = jax.lax.scan(layer, p["emb"][tokens], p["layers"])
        logits = jax.nn.log_softmax(h @ p["emb"].T)
        return -jnp.take_along_axis(logits, wanted[..., None], -1).mean()

    def step(p: Any, m: Any, v: Any, t: Any, tokens: Any, wanted: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, tokens, wanted)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), grads)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
        t = t + 1

        def updated(p: Any, m: Any, v: Any) -> Any:
            return p - 0.01 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-3) - 0.001 * p

        return jax.tree.map(updated, p, m, v), m, v, t, value

    layers = {name: normal(n, LAYERS, 8, 8) for n, name in enumerate("qkv")}
    layers |= {"up": normal(3, LAYERS, 8, 16), "down": normal(4, LAYERS, 16, 8), "scale": 1 + normal(8, LAYERS, 8)}
    params = {"emb": normal(5, 16, 8), "layers": layers}
    zeros = jax.tree.map(jnp.zeros_like, params)
    tokens = jax.random.randint(key(1), (8, 5), 0, 16)
    return Step(step, (params, zeros, zeros, jnp.float32(0), tokens, tokens), ("tokens", "wanted"))


def rematerialised() -> Step:
    """Each layer's activations made again."""

    def loss(params: Any, x: Any) -> Any:
        layer = jax.checkpoint(lambda x, w: (jnp.tanh(jnp.tanh(x @ w) @ w), None))
        return (jax.lax.scan(layer, x, params)[0] ** 2).mean()

    return Step(trained(loss), (_W, _X), ("batch",))


def nested() -> Step:
    """A scan in each layer of a scan; a mean of each layer's own."""

    def loss(params: Any, x: Any) -> Any:
        def layer(x: Any, ws: Any) -> Any:
            return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0], x.sum()

        x, ys = jax.lax.scan(layer, x, params)
        return (x**2).mean() + ys.mean()

    return Step(trained(loss), (normal(0, LAYERS, 2, 8, 8), normal(9, 12, 8)), ("batch",))


def bfloat16() -> Step:
    """Weights that are converted as a whole stack."""

    def loss(params: Any, x: Any) -> Any:
        made = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x.astype(jnp.bfloat16), params.astype(jnp.bfloat16))
        return (made[0].astype(jnp.float32) ** 2).mean()

    return Step(trained(loss), (_W, _X), ("batch",))


def dropout() -> Step:
    """Keys by the layer's number, which the body counts itself; and rows of keys."""

    def step(params: Any, key: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            def layer(carry: Any, own: Any) -> Any:
                (h, number), (w, own_key) = carry, own
                kept = jax.random.bernoulli(jax.random.fold_in(own_key, number), 0.5, h.shape)
                return (jnp.tanh(h @ w) * kept, number + 1), None

            keys = jax.random.split(key, LAYERS)
            return (jax.lax.scan(layer, (x, 0), (params, keys))[0][0] ** 2).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return grads, value

    return Step(step, (_W, key(3), _X), ("x",))


def two_scans() -> Step:
    """One after the other, the second from its last layer to its first, and a product between them."""

    def loss(params: Any, x: Any) -> Any:
        first, second, between = params

        def layer(x: Any, w: Any) -> Any:
            return jnp.tanh(x @ w), None

        x, _ = jax.lax.scan(layer, x, first)
        x, _ = jax.lax.scan(layer, x @ between, second, reverse=True)
        return (x**2).mean()

    return Step(trained(loss), ((_W, normal(1, LAYERS, 8, 8), normal(2, 8, 8)), _X), ("batch",))


def inference() -> Step:
    """Forward only, a value of each layer beside."""

    def forward(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x.mean(-1)), x, params)

    return Step(forward, (_W, _X), ("x",))


SCANS: dict[str, Callable[[], Step]] = {
    made.__name__: made for made in (transformer, rematerialised, nested, bfloat16, dropout, two_scans, inference)
}
