"""Two layers: the program of these pages.  `mlp.hlo` is the same program as HLO."""

import jax


def mlp(x: jax.Array, w1: jax.Array, w2: jax.Array) -> tuple[jax.Array, jax.Array]:
    active = jax.numpy.tanh(x @ w1)
    result = active @ w2
    return result, result.sum()
