"""What a schedule's caller gives and gets, where parameters of @main are parts of his arrays.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from hlosharding.errors import ScheduleError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stack:
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
    >>> both = Interface((Stack(), Stack((2, 1))), (Stack((2, 1)),))
    >>> [a.tolist() for a in both.cut([np.zeros(2), np.arange(3)], part_of)]
    [[0.0, 0.0], [0, 1], [2]]
    >>> both.arguments
    (0, 1, 1)
    """

    parameters: tuple[Stack, ...]
    results: tuple[Stack, ...]

    @property
    def arguments(self) -> tuple[int, ...]:
        """Of each parameter of @main the number of the caller's array."""
        return tuple(n for n, kind in enumerate(self.parameters) for _ in range(kind.parts))

    def cut(self, arrays: Sequence[Any], part: Callable[[Any, Stack, int], Any]) -> list[Any]:
        """The caller's arrays as @main's.  Raises ScheduleError for another number of arrays."""
        if len(arrays) != len(self.parameters):
            raise ScheduleError(f"{len(arrays)} arrays for {len(self.parameters)} arguments")
        numbered = enumerate(zip(arrays, self.parameters, strict=True))
        return [each for number, (array, kind) in numbered for each in _parts(number, array, kind, part)]

    def joined(self, values: Sequence[Any], join: Callable[[Sequence[Any], Stack], Any]) -> list[Any]:
        """@main's results as the caller's."""
        taken = zip(by_stack(self.results, values), self.results, strict=True)
        return [join(parts, kind) if kind.parts > 1 else parts[0] for parts, kind in taken]


def _parts(number: int, array: Any, kind: Stack, part: Callable[[Any, Stack, int], Any]) -> list[Any]:
    if kind.parts == 1:
        return [array]
    try:
        return [part(array, kind, n) for n in range(kind.parts)]
    except ScheduleError as error:
        raise ScheduleError(error.what, where=f"argument {number}") from None


def by_stack(stacks: Sequence[Stack], values: Sequence[T]) -> list[list[T]]:
    """Of each array its parts, from those of all."""
    rest = iter(values)
    return [list(islice(rest, stack.parts)) for stack in stacks]


def whole_arrays(parameters: int, results: int) -> Interface:
    """Of a schedule that takes and gives so many arrays as they are."""
    return Interface((Stack(),) * parameters, (Stack(),) * results)


def is_abstract(array: Any) -> bool:
    """Is it a shape and a dtype without elements, as `jax.ShapeDtypeStruct` is?"""
    return hasattr(array, "dtype") and not hasattr(array, "__array__")


def part_of(array: Any, kind: Stack, part: int) -> Any:
    """One part of an array, or of a ShapeDtypeStruct.  Raises ScheduleError for one that is not cut so."""
    dims = np.shape(array)
    if kind.dim >= len(dims) or dims[kind.dim] != sum(kind.lengths):
        parts = " + ".join(map(str, kind.lengths))
        raise ScheduleError(f"an array of shape {list(dims)} is not cut into {parts} rows along dim {kind.dim}")
    first, rows = sum(kind.lengths[:part]), kind.lengths[part]
    if is_abstract(array):
        return _resized(array, kind.dim, rows)
    return np.asarray(array)[(slice(None),) * kind.dim + (slice(first, first + rows),)]


def joined_whole(parts: Sequence[Any], kind: Stack) -> Any:
    """The parts as one numpy array, or, where some are ShapeDtypeStructs, as one of these."""
    if any(map(is_abstract, parts)):
        return _resized(parts[0], kind.dim, sum(part.shape[kind.dim] for part in parts))
    return np.concatenate(parts, axis=kind.dim)


def _resized(array: Any, dim: int, size: int) -> Any:
    import jax

    return jax.ShapeDtypeStruct((*array.shape[:dim], size, *array.shape[dim + 1 :]), array.dtype)
