"""Reductions and windows.

Floor: executor.  A reducer that is one op of its two parameters goes by name, any other is a function of the program.
"""

from __future__ import annotations

from hlosharding.executor.emit import EMITTERS, EmittedOp, raw
from hlosharding.executor.text import tuple_text
from hlosharding.ir import Computation, Instruction, neutral_element, reducer_kind

COMBINERS = {
    "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor",
}  # fmt: skip
_REDUCE = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip


def combiner(computation: Computation) -> str | None:
    """The op of a computation that is one commutative op of its two parameters, else None."""
    kind = reducer_kind(computation)
    return kind if kind in COMBINERS else None


def is_by_real_part(computation: Computation) -> bool:
    """Is it the larger or smaller of complex numbers?  XLA compares real parts; lax and numpy imaginary ones, too."""
    return computation.root.shape.is_complex and combiner(computation) in ("maximum", "minimum")


def reducer_text(op: EmittedOp) -> str:
    """The reducer of one value as lax takes it: by name, or as a function of the program."""
    computation = op.inst.called[0]
    name = combiner(computation)
    if name is None or is_by_real_part(computation):
        return op.program.function(computation)
    return f"lax.{COMBINERS[name]}"


def starts_at_identity(opcode: str, init: Instruction) -> bool:
    """Is the initial value a constant that changes nothing?"""
    if init.opcode != "constant":
        return False
    neutral = neutral_element(opcode, init.shape.element_type)
    # As bytes: a sum that starts at -0.0 is not one that starts at 0.0.
    return neutral is not None and init.literal.tobytes() == neutral.tobytes()


@EMITTERS.register("reduce")
def _reduce(op: EmittedOp) -> str:
    inst, count = op.inst, len(op.args) // 2
    name = combiner(inst.called[0])
    dims = tuple_text(inst.dimensions)
    if count > 1:
        values, starts = ", ".join(op.args[:count]), ", ".join(op.args[count:])
        return f"lax.reduce(({values}), ({starts}), {paired(op)}, {dims})"
    if (
        name is None
        or is_by_real_part(inst.called[0])
        or (inst.shape.element_type == "pred" and name not in ("and", "or"))
    ):
        return f"lax.reduce({op.arg_list}, {op.program.function(inst.called[0])}, {dims})"
    if starts_at_identity(name, inst.operands[1]):
        return f"lax.reduce_{_REDUCE[name]}({op.args[0]}, {dims})"
    return f"lax.reduce({op.arg_list}, {reducer_text(op)}, {dims})"


def paired(op: EmittedOp) -> str:
    """A reducer of several values in the form lax calls it: two tuples in, a tuple out."""
    return f"lambda a, b: {op.program.function(op.inst.called[0])}(*a, *b)"


@EMITTERS.register("reduce-window")
def _reduce_window(op: EmittedOp) -> str:
    count, window = len(op.args) // 2, op.inst.window
    if any(w.window_reversal for w in window):
        return raw(op)
    values, starts = ", ".join(op.args[:count]), ", ".join(op.args[count:])
    if count > 1:
        values, starts, reducer = f"({values})", f"({starts})", paired(op)
    else:
        reducer = reducer_text(op)
    parts = [
        values, starts, reducer, tuple_text([w.size for w in window]), tuple_text([w.stride for w in window]),
        tuple_text([(w.padding_low, w.padding_high) for w in window]),
    ]  # fmt: skip
    if any(w.base_dilation != 1 for w in window):
        parts.append(f"base_dilation={tuple_text([w.base_dilation for w in window])}")
    if any(w.window_dilation != 1 for w in window):
        parts.append(f"window_dilation={tuple_text([w.window_dilation for w in window])}")
    return f"lax.reduce_window({', '.join(parts)})"


EMITTERS.register("select-and-scatter", "map")(raw)
