"""ONNX's operators, each one function written in JAX; importing this package fills the table."""

from importlib import import_module

from hlosharding.onnx.operators.table import MICROSOFT, OLD, OPERATORS, MustBeKnown, Operator

__all__ = ["FAMILIES", "MICROSOFT", "OLD", "OPERATORS", "MustBeKnown", "Operator"]

FAMILIES = tuple(
    import_module(f"{__name__}.{family}")
    for family in (
        "activations", "attention", "control_flow", "convolution", "data_dependent", "elementwise",
        "fused", "images", "indexing", "losses", "normalization", "optimizers", "pooling", "products",
        "quantization", "quantized_elementwise", "quantized_products", "random", "recurrent", "reductions",
        "refused", "resizing", "sequences", "shapes", "signal", "trees",
    )
)  # fmt: skip
"""The files that fill the table."""
