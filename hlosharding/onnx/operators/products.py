"""Matrix products.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from hlosharding.onnx.operators.table import operator


@operator("MatMul", 13)
def _matmul(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b)


@operator("Gemm", 13)
def _gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Any:
    out = jnp.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        out = (out * alpha).astype(out.dtype)
    if c is None:
        return out
    return out + (c if beta == 1 else (c * beta).astype(out.dtype))


@operator("Einsum", 28)
def _einsum(*xs: Any, equation: str) -> Any:
    return jnp.einsum(equation, *xs)


@operator("Det", 22)
def _det(x: Any) -> Any:
    return jnp.linalg.det(x)
