"""The gradient of a small GPT over data and model axes: loops, gathers, scatters and collectives of both axes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlosharding as hs
from tests.support.onnx_rank_runs import run_ranks

WIDTH, HEADS, VOCABULARY, LAYERS = 32, 4, 64, 2
PLAN = """[mesh]
data = 2
model = 2
[annotations]
"p['qkv']" = "P(None, None, 'model')"
"p['out']" = "P(None, 'model')"
"p['up']" = "P(None, None, 'model')"
"p['down']" = "P(None, 'model')"
tokens = "P('data')"
"""


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    dims = {"table": (VOCABULARY, WIDTH), "qkv": (LAYERS, WIDTH, 3 * WIDTH), "out": (LAYERS, WIDTH, WIDTH)}
    dims |= {"up": (LAYERS, WIDTH, 2 * WIDTH), "down": (LAYERS, 2 * WIDTH, WIDTH)}
    return {name: (random.standard_normal(size) * 0.1).astype(np.float32) for name, size in dims.items()}


def normed(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layer(x: Any, w: tuple[Any, ...]) -> tuple[Any, None]:
    qkv, out, up, down = w
    q, k, v = jnp.split((normed(x) @ qkv).reshape(*x.shape[:2], 3 * HEADS, -1), 3, axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ out
    return x + jax.nn.gelu(normed(x) @ up) @ down, None


def loss(p: dict[str, Any], tokens: Any, targets: Any) -> Any:
    x, _ = jax.lax.scan(layer, p["table"][tokens], (p["qkv"], p["out"], p["up"], p["down"]))
    found = jax.nn.log_softmax(x @ p["table"].T)
    return -jnp.take_along_axis(found, targets[..., None], -1).mean()


def test_a_gradient_of_four_ranks_equals_one_devices() -> None:
    p, tokens = weights(), np.random.default_rng(1).integers(0, VOCABULARY, (4, 8)).astype(np.int32)
    step = jax.grad(loss)
    module = hs.trace(step)(p, tokens, tokens)
    ranks = hs.write_onnx_ranks(module, hs.PlanFile.parse(PLAN))
    given = dict(zip(ranks.cut_inputs, jax.tree.leaves((p, tokens, tokens)), strict=True))
    for found, wanted in zip(run_ranks(ranks, given), jax.tree.leaves(step(p, tokens, tokens)), strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-4, atol=1e-6)
