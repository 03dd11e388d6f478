"""Elementwise ops as `jax.lax` calls.

Floor: executor.  Each lax function named here lowers to the HLO op of the same meaning (no promotion, no broadcast).
"""

from __future__ import annotations

from hlosharding.executor.emit import EMITTERS, EmittedOp, WriteOp, raw
from hlosharding.executor.text import dtype_text
from hlosharding.ir import Shape

# opcode -> function of jax.lax with the same operands
SIMPLE = {
    "abs": "abs", "acos": "acos", "acosh": "acosh", "add": "add", "and": "bitwise_and", "asin": "asin",
    "asinh": "asinh", "atan2": "atan2", "atanh": "atanh", "cbrt": "cbrt", "ceil": "ceil", "clamp": "clamp",
    "complex": "complex", "cosh": "cosh", "cosine": "cos", "count-leading-zeros": "clz", "divide": "div", "erf": "erf",
    "exponential": "exp", "exponential-minus-one": "expm1", "floor": "floor", "is-finite": "is_finite", "log": "log",
    "log-plus-one": "log1p", "logistic": "logistic", "maximum": "max", "minimum": "min", "multiply": "mul",
    "negate": "neg", "not": "bitwise_not", "or": "bitwise_or", "popcnt": "population_count", "remainder": "rem",
    "rsqrt": "rsqrt", "select": "select", "shift-left": "shift_left",
    "shift-right-arithmetic": "shift_right_arithmetic", "shift-right-logical": "shift_right_logical", "sign": "sign",
    "sine": "sin", "sinh": "sinh", "sqrt": "sqrt", "subtract": "sub", "tan": "tan", "tanh": "tanh",
    "xor": "bitwise_xor",
}  # fmt: skip
COMPLEX = ("c64", "c128")
# Function -> element types that it refuses or treats in another way than HLO; those take the op's own StableHLO.
_RAW_TYPES = dict.fromkeys("abs add clamp divide multiply negate remainder sign subtract".split(), ("pred",)) | {
    # XLA compares real parts, lax the imaginary ones, too.
    "maximum": COMPLEX,
    "minimum": COMPLEX,
}
_COMPARE = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}


@EMITTERS.register(*SIMPLE)
def _simple(op: EmittedOp) -> str:
    if op.inst.operands[0].shape.element_type in _RAW_TYPES.get(op.inst.opcode, ()):
        return raw(op)
    return f"lax.{SIMPLE[op.inst.opcode]}({op.arg_list})"


_CALLS: dict[str, WriteOp] = {
    "bitcast-convert": lambda op: f"lax.bitcast_convert_type({op.args[0]}, {dtype_text(op.inst.shape)})",
    "round-nearest-afz": lambda op: f"lax.round({op.args[0]}, lax.RoundingMethod.AWAY_FROM_ZERO)",
    "round-nearest-even": lambda op: f"lax.round({op.args[0]}, lax.RoundingMethod.TO_NEAREST_EVEN)",
    "reduce-precision": lambda op: (
        f"lax.reduce_precision({op.args[0]}, {op.inst.proto.exponent_bits}, {op.inst.proto.mantissa_bits})"
    ),
    "stochastic-convert": raw,
}
for _opcode, _write in _CALLS.items():
    EMITTERS.add(_opcode, _write)


@EMITTERS.register("convert")
def _convert(op: EmittedOp) -> str:
    if op.inst.operands[0].shape.is_complex and not op.inst.shape.is_complex:
        return raw(op)
    return f"lax.convert_element_type({op.args[0]}, {dtype_text(op.inst.shape)})"


@EMITTERS.register("compare")
def _compare(op: EmittedOp) -> str:
    shape = op.inst.operands[0].shape
    proto = op.inst.proto
    # jaxlib 0.12 writes the order into a field of its own.
    total_order = shape.is_floating and (proto.comparison_type == "TOTALORDER" or proto.comparison_order == "TOTAL")
    if total_order or (shape.is_complex and op.inst.comparison_direction not in ("EQ", "NE")):
        return raw(op)
    return f"lax.{_COMPARE[op.inst.comparison_direction]}({op.arg_list})"


@EMITTERS.register("power")
def _power(op: EmittedOp) -> str:
    shape = op.inst.shape
    # lax.pow takes an integer exponent for its own square-and-multiply.
    return f"lax.pow({op.arg_list})" if shape.is_floating or shape.is_complex else raw(op)


@EMITTERS.register("real", "imag")
def _part(op: EmittedOp) -> str:
    if op.inst.operands[0].shape.is_complex:
        return f"lax.{op.inst.opcode}({op.args[0]})"
    if op.inst.opcode == "real":
        return op.args[0]
    return f"lax.full_like({op.args[0]}, 0)"


def is_wide(shape: Shape) -> bool:
    """Does the shape hold 64-bit numbers, which JAX cuts unless it is told not to?"""
    return any(leaf.element_type in ("s64", "u64", "f64", "c128") for leaf in shape.leaves)
