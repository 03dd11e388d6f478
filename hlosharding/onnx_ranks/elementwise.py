"""Elementwise ops as ONNX's operators.

Floor: onnx_ranks.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction
from hlosharding.onnx_ranks.graph_writer import WRITERS, GraphWriter, Writer, no_form

_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atanh": "Atanh",
    "ceil": "Ceil", "copy": "Identity", "cosh": "Cosh", "cosine": "Cos", "divide": "Div", "erf": "Erf",
    "exponential": "Exp", "floor": "Floor", "log": "Log", "logistic": "Sigmoid", "maximum": "Max", "minimum": "Min",
    "multiply": "Mul", "round-nearest-even": "Round",
    "sign": "Sign", "sine": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "subtract": "Sub", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
"""Opcode -> the operator that does the same with the same operands."""
_TRUTH = {
    "and": "And", "or": "Or", "xor": "Xor", "not": "Not", "maximum": "Or", "minimum": "And", "add": "Or",
    "multiply": "And",
}  # fmt: skip
"""The same of truth values."""
_BITS = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor", "not": "BitwiseNot"}
_SHIFTS = {"shift-left": "LEFT", "shift-right-logical": "RIGHT"}
_COMPARE = {"EQ": "Equal", "NE": "Equal", "GE": "GreaterOrEqual", "GT": "Greater", "LE": "LessOrEqual", "LT": "Less"}


@WRITERS.register(*sorted({*_SAME, *_BITS}))
def _same(out: GraphWriter, inst: Instruction, *operands: str) -> str:
    is_truth = inst.shape.element_type == "pred" and inst.opcode in _TRUTH
    operator = _TRUTH[inst.opcode] if is_truth else _SAME.get(inst.opcode) or _BITS[inst.opcode]
    return out.add(operator, *operands)


@WRITERS.register("negate")
def _negate(out: GraphWriter, inst: Instruction, value: str) -> str:
    # ONNX negates no numbers without a sign.
    return out.add("Sub", _number(out, inst, 0), value) if inst.shape.element_type[0] == "u" else out.add("Neg", value)


@WRITERS.register(*_SHIFTS)
def _shift(out: GraphWriter, inst: Instruction, value: str, by: str) -> str:
    if inst.shape.element_type[0] != "u":
        raise no_form(inst, f"{inst.opcode} of signed integers")
    return out.add("BitShift", value, by, direction=_SHIFTS[inst.opcode])


@WRITERS.register("compare")
def _compare(out: GraphWriter, inst: Instruction, left: str, right: str) -> str:
    if inst.operands[0].shape.is_floating and inst.proto.comparison_type == "TOTALORDER":
        raise no_form(inst, "a comparison in the total order, in which -0 is below 0 and no NaN is left out,")
    # ONNX orders numbers only; of truth values it tells whether they are equal.
    if inst.operands[0].shape.element_type == "pred" and inst.comparison_direction not in ("EQ", "NE"):
        left, right = (out.cast(value, np.int32) for value in (left, right))
    found = out.add(_COMPARE[inst.comparison_direction], left, right)
    return out.add("Not", found) if inst.comparison_direction == "NE" else found


@WRITERS.register("select")
def _select(out: GraphWriter, inst: Instruction, where: str, then: str, otherwise: str) -> str:
    if inst.shape.element_type != "pred":
        return out.add("Where", where, then, otherwise)
    # ONNX Runtime has no `Where` of truth values.
    return out.add("Or", out.add("And", where, then), out.add("And", out.add("Not", where), otherwise))


@WRITERS.register("power")
def _power(out: GraphWriter, inst: Instruction, value: str, exponent: str) -> str:
    if inst.shape.is_floating:
        return out.add("Pow", value, exponent)
    wide = (out.cast(each, np.int64) for each in (value, exponent))  # ONNX has no power of all integers
    return out.cast(out.add("Pow", *wide), inst.shape.dtype)


def _number(out: GraphWriter, inst: Instruction, number: float) -> str:
    return out.constant(np.array(number, inst.shape.dtype))


@WRITERS.register("exponential-minus-one")
def _exponential_minus_one(out: GraphWriter, inst: Instruction, value: str) -> str:
    # exp(x) - 1 has no digit left where x is small; tanh(x / 2) (exp(x) + 1) is the same, and keeps all.
    half = out.add("Mul", value, _number(out, inst, 0.5))
    return out.add("Mul", out.add("Tanh", half), out.add("Add", out.add("Exp", value), _number(out, inst, 1.0)))


@WRITERS.register("log-plus-one")
def _log_plus_one(out: GraphWriter, inst: Instruction, value: str) -> str:
    # What log(1 + x) loses where x is small a step of Newton's brings back, y + (x - (exp(y) - 1)) / exp(y).  With
    # (1 + x) - 1 in it the formula would be shorter, but compilers take that for x.
    one, half = _number(out, inst, 1.0), _number(out, inst, 0.5)
    above = out.add("Add", value, one)
    log = out.add("Log", above)
    back = out.add("Mul", out.add("Tanh", out.add("Mul", log, half)), out.add("Add", above, one))
    step = out.add("Div", out.add("Sub", value, back), above)
    return out.add("Where", out.add("Less", out.add("Abs", log), one), out.add("Add", log, step), log)


_FORMULAS: dict[str, Writer] = {
    "clamp": lambda out, inst, low, value, high: out.add("Min", out.add("Max", value, low), high),
    "convert": lambda out, inst, value: out.cast(value, inst.shape.dtype),
    "is-finite": lambda out, inst, x: out.add("Not", out.add("Or", out.add("IsNaN", x), out.add("IsInf", x))),
    "remainder": lambda out, inst, value, by: out.add("Mod", value, by, fmod=1),
    "rsqrt": lambda out, inst, value: out.add("Reciprocal", out.add("Sqrt", value)),
}
for _opcode, _write in _FORMULAS.items():
    WRITERS.add(_opcode, _write)
