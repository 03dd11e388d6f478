"""Steps that read nothing and make what every run has: constants, numbers of pieces.

Floor: schedule.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.op import Known, Tilewise, Value, check_count
from hlosharding.schedule.shares import Share, check_pieces
from hlosharding.schedule.value_type import Types, ValueType


class Source(Tilewise):
    """What the two share: each device of `to` makes all of it by itself."""

    __slots__ = ()
    to: tuple[int, ...]

    def infer(self, operands: Sequence[Value]) -> Sequence[Known]:
        check_count(0, operands, self)
        if not self.to:
            raise ScheduleError(f"{self.name} on no devices", remedy="name them, as in to={0}")
        kind = self.kind()
        return [Known(array, kind) for array in self.meaning([], [])]

    @abstractmethod
    def kind(self) -> ValueType:
        """The type of what it makes.  Raises ScheduleError."""


@dataclass(frozen=True, slots=True)
class Constant(Source):
    """Elements that a schedule's text says: sizes, indices.

    >>> print(*Constant(value="{-1,768}", shape=Shape.array("s32", (2,)), to=(0,)).infer([]))
    s32[2] on {0} = [ -1 768]
    """

    word: ClassVar[str] = "constant"
    value: str
    """The elements in row-major order, in braces; of a scalar without."""
    shape: Shape
    to: tuple[int, ...]

    @classmethod
    def of(cls, value: Any, to: Sequence[int]) -> Constant:
        """Of an array or a number, with the dtype that JAX gives it.

        >>> Constant.of([-1, 768], (0,)), Constant.of(0.1, (0,))
        (Constant(value='{-1,768}', shape=s32[2], to=(0,)), Constant(value='0.1', shape=f32[], to=(0,)))
        """
        import jax

        array = np.asarray(value)
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        text = ",".join(str(element).lower() for element in array.flat)
        return cls(f"{{{text}}}" if array.ndim else text, Shape.from_dtype(dtype, array.shape), tuple(to))

    def kind(self) -> ValueType:
        return ValueType(self.shape, self.to)

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        said = self.value.strip("{}")
        words = said.split(",") if said else []
        if not self.shape.is_array or len(words) != self.shape.size:
            raise ScheduleError(f"{len(words)} elements for {self.shape}", remedy="name each of them once")
        return [_parse_elements(words, self.shape)]


def _parse_elements(words: Sequence[str], shape: Shape) -> np.ndarray:
    read = _BOOLEANS.__getitem__ if shape.element_type == "pred" else int if shape.is_integral else float
    try:
        elements = [read(word) for word in words]
        # numpy would only warn, and take infinity for what is too large.
        with np.errstate(over="raise"):
            array = np.array(elements, shape.dtype)
        if shape.is_integral and array.tolist() != elements:  # numpy lets those of four bits wrap around
            raise OverflowError
    except (KeyError, ValueError, ArithmeticError):
        raise ScheduleError(f"no elements of {shape}: {','.join(words)[:80]}") from None
    return array.reshape(shape.dims)


_BOOLEANS: Mapping[str, bool] = {"false": False, "true": True}


@dataclass(frozen=True, slots=True)
class Number(Source):
    """The number of a piece, where something is made of it: random bits, positions.

    >>> print(*Number(piece=2, parts=4, axis="micro", to=(0, 1)).infer([]))
    u32[] on {0,1}, piece 2/4 of micro = 2
    """

    word: ClassVar[str] = "number"
    piece: int
    parts: int
    axis: str
    to: tuple[int, ...]

    def kind(self) -> ValueType:
        if not 0 <= self.piece < self.parts:
            raise ScheduleError(f"no piece {self.piece} of {self.parts}")
        check_pieces(self.parts)
        shares = (Share(self.axis, self.parts, (self.piece,)),) if self.parts > 1 else ()
        return ValueType(_U32, self.to, shares=shares)

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return [np.array(self.piece, np.uint32)]


_U32 = Shape.array("u32", ())
