"""What a reduction combines by: the kind of a reducer, its neutral element in each element type, its meaning in numpy.

Floor: ir.  A reducer is known by its structure: one commutative op of its two parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hlosharding.ir.graph import Computation, Instruction
from hlosharding.ir.shape import Shape

_NUMPY: Final[dict[str, np.ufunc]] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
REDUCER_KINDS: Final = tuple(_NUMPY)
"""Ops that a reduction may combine by in any order."""


def reducer_kind(computation: Computation) -> str:
    """One of `REDUCER_KINDS`; `assign` for a combiner that returns its second parameter, as a scatter has; or `other`.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(b, a) }
    ... ENTRY e { x = f32[4] parameter(0)  z = f32[] constant(0)
    ...   ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=f }''')
    >>> reducer_kind(module.by_name("y").called[0])
    'add'
    """
    root, parameters = computation.root, [i for i in computation.instructions if i.opcode == "parameter"]
    if len(parameters) != 2:
        return "other"
    if root.opcode in _NUMPY and set(root.operands) == set(parameters):
        return root.opcode
    return "assign" if root.opcode == "parameter" and root.parameter_number == 1 else "other"


def reduce_arrays(kind: str, arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays combined element by element; truth values stay such, as in XLA: their sum is "or", their product "and".

    >>> reduce_arrays("add", [np.array([True, False]), np.array([True, True])])
    array([ True,  True])
    """
    return np.asarray(reduce(_NUMPY[kind], arrays))


@cache
def neutral_element(kind: str, element_type: str) -> npt.NDArray[Any] | None:
    """The number that changes nothing, as a 0-d array; None where HLO has no such reduction.

    >>> neutral_element("maximum", "f32"), neutral_element("minimum", "s8"), neutral_element("and", "u8")
    (array(-inf, dtype=float32), array(127, dtype=int8), array(255, dtype=uint8))
    >>> float(neutral_element("maximum", "f8e4m3fn")), neutral_element("and", "f32")  # a type without infinities
    (-448.0, None)
    """
    shape = Shape.array(element_type)
    if kind not in _NUMPY or not shape.is_array:
        return None
    value = _neutral(kind, shape)
    if value is None:
        return None
    array = np.asarray(value, shape.dtype)
    array.flags.writeable = False
    return array


def _neutral(kind: str, shape: Shape) -> Any:
    has_bits = shape.is_integral or shape.element_type == "pred"
    match kind:
        case "add":
            return np.zeros((), shape.dtype)  # f8e8m0fnu knows no zero: its least number stands for it
        case "multiply":
            return np.ones((), shape.dtype)
        case "maximum" | "minimum":
            return _extreme(shape, largest=kind == "minimum")
        case "and" if has_bits:
            return np.invert(np.zeros((), shape.dtype))
        case "or" | "xor" if has_bits:
            return np.zeros((), shape.dtype)
        case _:
            return None


def _extreme(shape: Shape, *, largest: bool) -> Any:
    infinity = np.inf if largest else -np.inf
    if shape.element_type == "pred":
        return largest
    if shape.is_complex:
        # Ordered by real part first, where XLA orders by the imaginary part at all.
        return complex(infinity, infinity)
    import ml_dtypes  # knows numpy's types, too

    # A type without infinities makes NaN of one, which would win every maximum: there it is the last finite number.
    if shape.is_floating and np.isinf(_infinity(shape, infinity).astype(np.float32)):
        return _infinity(shape, infinity)
    limits = ml_dtypes.finfo(shape.dtype) if shape.is_floating else ml_dtypes.iinfo(shape.dtype)
    return limits.max if largest else limits.min


def _infinity(shape: Shape, infinity: float) -> npt.NDArray[Any]:
    return np.asarray(infinity, shape.dtype)


def is_neutral(value: Instruction, kind: str) -> bool:
    """Is a value known to be the neutral element of `kind` throughout?

    >>> from hlosharding.ir import Builder
    >>> main = Builder("m").computation("main")
    >>> is_neutral(main.constant(np.float32(0)), "add"), is_neutral(main.constant(np.float32(0)), "multiply")
    (True, False)
    """
    types = [value.shape.element_type]
    while value.opcode in ("convert", "copy", "broadcast", "reshape"):
        value = value.operands[0]
        types.append(value.shape.element_type)
    if value.opcode != "constant" or value.shape.size != 1:
        return False
    found = value.literal.reshape(())
    # Cast as the program does: the least s8, converted to s32, is far from the least s32.
    for element_type in reversed(types):
        found = found.astype(Shape.array(element_type).dtype)
    neutral = neutral_element(kind, types[0])
    return neutral is not None and bool(found == neutral)
