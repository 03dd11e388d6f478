"""ONNX's operators, each one function written in JAX; importing this package fills the table."""

from hlosharding.frontends.onnx.operators import (
    activations,
    attention,
    control_flow,
    elementwise,
    indexing,
    normalization,
    products,
    random,
    reductions,
    sequences,
    shapes,
)
from hlosharding.frontends.onnx.operators.table import OPERATORS, MustBeKnown, Operator

__all__ = ["FAMILIES", "OPERATORS", "MustBeKnown", "Operator"]

FAMILIES = (
    activations,
    attention,
    control_flow,
    elementwise,
    indexing,
    normalization,
    products,
    random,
    reductions,
    sequences,
    shapes,
)
"""The files that fill the table."""
