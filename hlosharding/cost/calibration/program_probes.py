"""The products and convolutions of a real program, as probes: figures that fit the sizes which one uses.

Floor: cost.  Reads a traced module; knows nothing of how probes are measured.
"""

from __future__ import annotations

from typing import Any

from hlosharding.cost.calibration.probes import PRODUCT, Probe
from hlosharding.cost.work import op_work
from hlosharding.errors import CostError
from hlosharding.ir import Instruction, Module


def program_probes(module: Module) -> list[Probe]:
    """One probe for each distinct product and convolution, of the sizes that the program has.

    Raises CostError for a program that has none.

    >>> import hlosharding as hs, jax.numpy as jnp
    >>> module = hs.trace(lambda x, y: jnp.tanh(x @ y) @ y)(jnp.ones((4, 4)), jnp.ones((4, 4)))
    >>> [str(probe) for probe in program_probes(module)]
    ['product f32[4,4] f32[4,4]']
    """
    found = [_probe(op) for op in module.instructions if op.opcode in ("dot", "convolution") and op.shape.is_array]
    if not found:
        raise CostError(f"{module.name} has no matrix products and no convolutions", remedy="leave the program out")
    return list(dict.fromkeys(probe for probe in found if 0 not in map(min, probe.operands)))


def _probe(op: Instruction) -> Probe:
    lhs, rhs = op.operands
    return Probe(
        kind=PRODUCT if op.opcode == "dot" else "convolution",
        dtype=lhs.shape.element_type,
        operands=(lhs.shape.dims, rhs.shape.dims),
        work=op_work(op),
        compute=_dot(op) if op.opcode == "dot" else _convolution(op),
    )


def _dot(op: Instruction) -> Any:
    dims, result = op.dot_dims, op.shape.dtype

    def compute(x: Any, y: Any) -> Any:
        from jax import lax

        numbers = ((dims.lhs_contracting, dims.rhs_contracting), (dims.lhs_batch, dims.rhs_batch))
        return lax.dot_general(x, y, numbers, preferred_element_type=result)

    return compute


def _convolution(op: Instruction) -> Any:
    dims, window, groups = op.conv_dims, tuple(op.window), (op.feature_group_count, op.batch_group_count)

    def compute(x: Any, y: Any) -> Any:
        from jax import lax

        numbers = lax.ConvDimensionNumbers(
            (dims.input_batch_dimension, dims.input_feature_dimension, *dims.input_spatial_dimensions),
            (
                dims.kernel_output_feature_dimension,
                dims.kernel_input_feature_dimension,
                *dims.kernel_spatial_dimensions,
            ),
            (dims.output_batch_dimension, dims.output_feature_dimension, *dims.output_spatial_dimensions),
        )
        strides, padding = [w.stride for w in window], [(w.padding_low, w.padding_high) for w in window]
        dilations = [w.base_dilation for w in window], [w.window_dilation for w in window]
        return lax.conv_general_dilated(x, y, strides, padding, *dilations, numbers, *groups)

    return compute
