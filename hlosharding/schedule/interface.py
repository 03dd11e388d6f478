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
    """One of the caller's arrays: whole, or in equal parts along a dim, a parameter (or result) each."""

    parts: int = 1
    dim: int = 0


@dataclass(frozen=True)
class Interface:
    """The caller's arrays in order, and how each is one or more parameters, or results, of @main.

    >>> import numpy as np
    >>> both = Interface((Stack(), Stack(2)), (Stack(2),))
    >>> [a.tolist() for a in both.cut([np.zeros(2), np.arange(4)], part_of)]
    [[0.0, 0.0], [0, 1], [2, 3]]
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
        return [
            part(array, kind, n) if kind.parts > 1 else array
            for array, kind in zip(arrays, self.parameters, strict=True)
            for n in range(kind.parts)
        ]

    def joined(self, values: Sequence[Any], join: Callable[[Sequence[Any], Stack], Any]) -> list[Any]:
        """@main's results as the caller's."""
        taken = zip(by_stack(self.results, values), self.results, strict=True)
        return [join(parts, kind) if kind.parts > 1 else parts[0] for parts, kind in taken]


def by_stack(stacks: Sequence[Stack], values: Sequence[T]) -> list[list[T]]:
    """Of each array its parts, from those of all."""
    rest = iter(values)
    return [list(islice(rest, stack.parts)) for stack in stacks]


def whole_arrays(parameters: int, results: int) -> Interface:
    """Of a schedule that takes and gives so many arrays as they are."""
    return Interface((Stack(),) * parameters, (Stack(),) * results)


def part_of(array: Any, kind: Stack, part: int) -> Any:
    """One part of an array.  Raises ScheduleError for one that is not cut so."""
    dims = np.shape(array)
    if kind.dim >= len(dims) or dims[kind.dim] % kind.parts:
        raise ScheduleError(f"an array of shape {list(dims)} is not cut into {kind.parts} parts along dim {kind.dim}")
    rows = dims[kind.dim] // kind.parts
    return np.asarray(array)[(slice(None),) * kind.dim + (slice(part * rows, (part + 1) * rows),)]


def joined_whole(parts: Sequence[Any], kind: Stack) -> Any:
    """The parts as one numpy array."""
    return np.concatenate(parts, axis=kind.dim)
