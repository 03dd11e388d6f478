"""Which places of its array a gather or scatter addresses, where its indices count in even steps from a known start.

Floor: partitioner.  Places are a product of lines, one for each dim of the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlosharding.ir import Instruction, Shape
from hlosharding.rules import AffineIndices, addressing, affine_indices


@dataclass(frozen=True, slots=True)
class Line:
    """One dim of the array: places `start`, `start + step`, ..., `count` of them."""

    start: int
    step: int
    count: int
    other: int | None
    """The dim of what lies at the places, the result of a gather or the updates of a scatter; None where none does."""
    is_window: bool
    """Is it one window, which a scatter writes whole or not at all?  Else each place has an index of its own."""
    is_reversed: bool = False
    """Does that count backwards?"""

    @property
    def end(self) -> int:
        """One past the last place."""
        return self.start + (self.count - 1) * self.step + 1

    def is_outside(self, size: int) -> bool:
        """Does a scatter write nothing at all, along a dim of `size`?"""
        return not self.is_inside(size) if self.is_window else self.end <= 0 or self.start >= size

    def is_inside(self, size: int) -> bool:
        """Does every place lie in a dim of `size`?"""
        return self.start >= 0 and self.end <= size


def lines_of(inst: Instruction) -> tuple[Line, ...] | None:
    """Per dim of the array; None where the indices do not count in even steps, each along a dim of its own."""
    how = addressing(inst)
    if how.batching:
        return None
    columns = affine_indices(inst)
    if columns is None:
        return None
    indices = inst.operands[how.indices].shape
    index_dims = [d for d in range(indices.rank) if d != how.vector_dim]
    other_rank = (inst if inst.opcode == "gather" else inst.operands[how.indices + 1]).shape.rank
    along = dict(zip(index_dims, (d for d in range(other_rank) if d not in how.windows), strict=True))
    used = [d for steps in columns for d in steps.steps]
    # Two columns that count along one dim name a diagonal, which is no product of lines; a dim along which none counts
    # names the same places again and again.
    if len(used) != len(set(used)) or any(indices.dims[d] > 1 for d in index_dims if d not in used):
        return None
    absent = (
        inst.gather_dims.collapsed_slice_dims if inst.opcode == "gather" else inst.scatter_dims.inserted_window_dims
    )
    windows = iter(how.windows)
    lines: list[Line] = []
    for dim, size in enumerate(how.slice_sizes):
        window = None if dim in absent else next(windows)
        steps = columns[how.addressed.index(dim)] if dim in how.addressed else AffineIndices(0)
        if len(steps.steps) > 1 or (steps.steps and size != 1):
            return None
        lines.append(_line(steps, size, window, along, indices))
    return tuple(lines)


def _line(steps: AffineIndices, size: int, window: int | None, along: Mapping[int, int], indices: Shape) -> Line:
    if not steps.steps:
        return Line(steps.start, 1, size, window, is_window=True)
    [(dim, step)] = steps.steps.items()
    count = indices.dims[dim]
    start = min(steps.start, steps.start + step * (count - 1))
    return Line(start, abs(step), count, along[dim], is_window=False, is_reversed=step < 0)
