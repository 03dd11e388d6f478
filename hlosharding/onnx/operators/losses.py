"""Losses over classes.

Floor: onnx.  The class of each element is picked by comparing, not by a gather: so the classes can be split.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.convolution import along_channels
from hlosharding.onnx.operators.table import operator


def _loss(log_probability: Any, target: Any, weight: Any, ignore_index: int | None, reduction: str) -> Any:
    """Of log probabilities [N, C, ...] and classes [N, ...]."""
    classes = lax.broadcasted_iota(target.dtype, log_probability.shape, 1)
    is_class = classes == jnp.expand_dims(target, 1)
    zero = jnp.zeros((), log_probability.dtype)
    loss = -jnp.sum(jnp.where(is_class, log_probability, zero), 1)
    factors = jnp.ones_like(loss)
    if weight is not None:
        factors = jnp.sum(jnp.where(is_class, along_channels(weight, log_probability.ndim), zero), 1)
    if ignore_index is not None:
        factors = jnp.where(target == ignore_index, zero, factors)
    # What is ignored may be no number.
    loss = jnp.where(factors == 0, zero, loss * factors)
    match reduction:
        case "none":
            return loss
        case "sum":
            return jnp.sum(loss)
        case "mean":
            return jnp.sum(loss) / jnp.sum(factors)
        case _:
            raise LoadError(f"reduction {reduction!r} is not handled")


@operator("NegativeLogLikelihoodLoss", 22)
def _negative_log_likelihood_loss(
    x: Any, target: Any, weight: Any = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> Any:
    return _loss(x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss", 13)
def _softmax_cross_entropy_loss(
    scores: Any, labels: Any, weights: Any = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> Any:
    log_probability = jax.nn.log_softmax(scores, 1)
    return _loss(log_probability, labels, weights, ignore_index, reduction), log_probability
