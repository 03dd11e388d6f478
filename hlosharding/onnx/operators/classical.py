"""What is simple on tensors of `ai.onnx.ml`, ONNX's domain of classical models.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from hlosharding.onnx.operators.table import operator

_DOMAIN = "ai.onnx.ml"


@operator("ArrayFeatureExtractor", 1, domain=_DOMAIN)
def _array_feature_extractor(x: Any, places: Any) -> Any:
    found = jnp.take(x, jnp.ravel(places), -1)
    return found if x.ndim > 1 else found[None]


@operator("Binarizer", 1, domain=_DOMAIN)
def _binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return (x > threshold).astype(x.dtype)
