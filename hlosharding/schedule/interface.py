"""What a schedule's caller gives, and gets: arrays, and shapes of arrays, as values of the interpreter; and where
parameters of @main are parts of his arrays.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.op import Known, Value, type_of
from hlosharding.schedule.steps import Parameter, located
from hlosharding.schedule.value_type import ValueType, numbers_for

T = TypeVar("T")
Argument = ValueType | Known | Any


@dataclass(frozen=True, slots=True)
class ArrayParts:
    """One of the caller's arrays: whole, or in parts along a dim, a parameter (or result) each."""

    lengths: tuple[int, ...] = ()
    """Of the parts, along the dim; of a whole array none."""
    dim: int = 0

    @property
    def parts(self) -> int:
        """How many."""
        return len(self.lengths) or 1


@dataclass(frozen=True)
class Interface:
    """The caller's arrays in order, and how each is one or more parameters, or results, of @main.

    >>> import numpy as np
    >>> both = Interface((ArrayParts(), ArrayParts((2, 1))), (ArrayParts((2, 1)),))
    >>> [a.tolist() for a in both.cut_arrays([np.zeros(2), np.arange(3)])]
    [[0.0, 0.0], [0, 1], [2]]
    >>> both.arguments
    (0, 1, 1)
    """

    parameters: tuple[ArrayParts, ...]
    results: tuple[ArrayParts, ...]

    @property
    def arguments(self) -> tuple[int, ...]:
        """Of each parameter of @main the number of the caller's array."""
        return tuple(n for n, kind in enumerate(self.parameters) for _ in range(kind.parts))

    def cut_arrays(self, arrays: Sequence[Any]) -> list[Any]:
        """The caller's arrays as @main's.  Raises ScheduleError for others, or another number of arrays."""
        if len(arrays) != len(self.parameters):
            raise ScheduleError(f"{len(arrays)} arrays for {len(self.parameters)} arguments")
        found: list[Any] = []
        for number, (array, kind) in enumerate(zip(arrays, self.parameters, strict=True)):
            with located("argument {}".format, number):
                found += [cut_part(array, kind, n) for n in range(kind.parts)] if kind.parts > 1 else [array]
        return found

    def join_arrays(self, values: Sequence[Any]) -> list[Any]:
        """@main's results as the caller's."""
        taken = zip(group_by_array(self.results, values), self.results, strict=True)
        return [join_parts(parts, kind) if kind.parts > 1 else parts[0] for parts, kind in taken]


def group_by_array(stacks: Sequence[ArrayParts], values: Sequence[T]) -> list[list[T]]:
    """Of each array its parts, from those of all."""
    rest = iter(values)
    return [list(islice(rest, stack.parts)) for stack in stacks]


def whole_arrays(parameters: int, results: int) -> Interface:
    """Of a schedule that takes and gives so many arrays as they are."""
    return Interface((ArrayParts(),) * parameters, (ArrayParts(),) * results)


def is_abstract(array: Any) -> bool:
    """Is it a shape and a dtype without elements, as `jax.ShapeDtypeStruct` is?"""
    return hasattr(array, "dtype") and not hasattr(array, "__array__")


def cut_part(array: Any, kind: ArrayParts, part: int) -> Any:
    """One part of an array, or of a ShapeDtypeStruct.  Raises ScheduleError for one that is not cut so."""
    dims = np.shape(array)
    if kind.dim >= len(dims) or dims[kind.dim] != sum(kind.lengths):
        parts = " + ".join(map(str, kind.lengths))
        raise ScheduleError(f"an array of shape {list(dims)} is not cut into {parts} rows along dim {kind.dim}")
    first, rows = sum(kind.lengths[:part]), kind.lengths[part]
    if is_abstract(array):
        return _abstract_of_size(array, kind.dim, rows)
    return np.asarray(array)[(slice(None),) * kind.dim + (slice(first, first + rows),)]


def join_parts(parts: Sequence[Any], kind: ArrayParts) -> Any:
    """The parts as one numpy array, or, where some are ShapeDtypeStructs, as one of these."""
    if any(map(is_abstract, parts)):
        return _abstract_of_size(parts[0], kind.dim, sum(part.shape[kind.dim] for part in parts))
    return np.concatenate(parts, axis=kind.dim)


def _abstract_of_size(array: Any, dim: int, size: int) -> Any:
    import jax

    return jax.ShapeDtypeStruct((*array.shape[:dim], size, *array.shape[dim + 1 :]), array.dtype)


def value_of(parameter: Parameter, given: Argument) -> Value:
    """What a parameter of @main is where this is given.  Raises ScheduleError where it does not fit."""
    stated = parameter.type
    if stated is None:
        raise ScheduleError(f"parameter %{parameter.name} has no type", remedy="state those of the entry's parameters")
    if not isinstance(given, ValueType | Known):
        if not is_abstract(given):
            with located("argument %{}".format, parameter.name):
                return Known(np.asarray(numbers_for(given, stated.shape)), stated)
        given = replace(stated, shape=Shape.from_dtype(given.dtype, given.shape))
    if type_of(given) != stated:
        raise ScheduleError(f"parameter %{parameter.name} is {stated}, the argument {type_of(given)}")
    return given


def elements_of(value: Value) -> Any:
    """A known value as its array, another as a ShapeDtypeStruct."""
    import jax

    if isinstance(value, Known):
        return value.array
    return jax.ShapeDtypeStruct(value.shape.dims, value.shape.dtype)
