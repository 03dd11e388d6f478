"""ONNX's operators, each one function written in JAX; importing this package fills the table."""

from hlosharding.frontends.onnx.operators import (
    activations,
    elementwise,
    indexing,
    normalization,
    products,
    reductions,
    shapes,
)
from hlosharding.frontends.onnx.operators.table import OPERATORS, Operator

__all__ = ["OPERATORS", "Operator"]
