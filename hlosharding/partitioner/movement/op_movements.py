"""Ops that only move elements, as regions: which elements of the result are which elements of which operand.

Floor: partitioner.  Looks at one instruction alone: no shardings, no prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from hlosharding.ir import Instruction
from hlosharding.reshard import Region

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMovement:
    """A result put together from regions of operands.

    `pad(x, v), padding=1_2` of f32[4] is one region: its elements 0 to 3 go to places 1 to 4 of f32[7]; `v` fills the
    rest.
    """

    dims: Dims
    """Of the result."""
    regions: tuple[Region, ...]
    """Disjoint."""
    operands: tuple[Instruction, ...]
    fill: Instruction | None = None
    """The scalar where no region is."""
    base: Instruction | None = None
    """The array, of the result's shape, where no region is."""
    skipped: tuple[Instruction, ...] = ()
    """Of a chain of ops those between the operands and the last one, which nobody else needs."""

    @property
    def arrays(self) -> tuple[Instruction, ...]:
        """The operands, and the base behind them."""
        return self.operands if self.base is None else (*self.operands, self.base)

    @property
    def covers(self) -> bool:
        """Do the regions make up the whole result?"""
        return sum(math.prod(region.sizes) for region in self.regions) == math.prod(self.dims)

    def changed_dims(self) -> Dims:
        """Dims along which elements change their places, or their number."""
        every = range(len(self.dims))
        return tuple(d for d in every if not self.regions or not all(self._keeps(d, r) for r in self.regions))

    def _keeps(self, dim: int, region: Region) -> bool:
        size = self.operands[region.operand].shape.dims[dim]
        return region.is_whole_along(dim) and region.sizes[dim] == self.dims[dim] == size


def op_movement(inst: Instruction) -> DataMovement | None:
    """What one instruction moves; None where it computes, or where its places are known only at run time."""
    reader = _MOVEMENTS.get(inst.opcode)
    return reader(inst) if reader is not None and inst.shape.is_array else None


def _of_one_region(inst: Instruction, **places: Dims) -> DataMovement:
    """All of the result comes from operand 0, `places`: from where."""
    region = replace(Region.whole(inst.shape.dims), **places)
    return DataMovement(dims=inst.shape.dims, regions=(region,), operands=inst.operands[:1])


def _slice(inst: Instruction) -> DataMovement:
    starts, steps = (tuple(getattr(d, name) for d in inst.slice_dims) for name in ("start", "stride"))
    return _of_one_region(inst, source=starts, source_steps=steps)


def _pad(inst: Instruction) -> DataMovement:
    dims, operand, fill = inst.shape.dims, inst.operands[0], inst.operands[1]
    sizes, sources, targets, steps = [list[int]() for _ in range(4)]
    for size, have, padding in zip(dims, operand.shape.dims, inst.padding, strict=True):
        step = padding.interior_padding + 1
        first = max(0, -(padding.low // step))  # earlier ones are cut off
        last = min(have, -(-(size - padding.low) // step))
        sizes.append(max(0, last - first))
        sources.append(first)
        targets.append(padding.low + first * step)
        steps.append(step)
    region = Region(0, tuple(sizes), tuple(sources), tuple(targets), (1,) * len(dims), tuple(steps))
    return DataMovement(dims=dims, regions=() if 0 in region.sizes else (region,), operands=(operand,), fill=fill)


def _concatenate(inst: Instruction) -> DataMovement:
    dim, start, regions = inst.dimensions[0], 0, []
    operands = tuple(dict.fromkeys(inst.operands))
    for operand in inst.operands:
        target = tuple(start if d == dim else 0 for d in range(inst.shape.rank))
        if operand.shape.size:
            regions.append(replace(Region.whole(operand.shape.dims, operands.index(operand)), target=target))
        start += operand.shape.dims[dim]
    return DataMovement(dims=inst.shape.dims, regions=tuple(regions), operands=operands)


def _reverse(inst: Instruction) -> DataMovement:
    starts = tuple(size - 1 if d in inst.dimensions else 0 for d, size in enumerate(inst.shape.dims))
    steps = tuple(-1 if d in inst.dimensions else 1 for d in range(inst.shape.rank))
    return _of_one_region(inst, source=starts, source_steps=steps)


def _dynamic_slice(inst: Instruction) -> DataMovement | None:
    starts = _starts(inst.operands[1:], inst.operands[0].shape.dims, inst.shape.dims)
    return None if starts is None else _of_one_region(inst, source=starts)


def _dynamic_update_slice(inst: Instruction) -> DataMovement | None:
    base, update, *places = inst.operands
    starts = _starts(tuple(places), base.shape.dims, update.shape.dims)
    if starts is None:
        return None
    region = replace(Region.whole(update.shape.dims), target=starts)
    regions = (region,) if update.shape.size else ()
    return DataMovement(dims=inst.shape.dims, regions=regions, operands=(update,), base=base)


def _starts(places: tuple[Instruction, ...], whole: Dims, part: Dims) -> Dims | None:
    """Where the part lies, clamped; None where that is known only when the program runs."""
    starts: list[int] = []
    for place, size, taken in zip(places, whole, part, strict=True):
        if size == taken:
            starts.append(0)
        elif place.opcode == "constant":
            starts.append(max(0, min(int(place.literal), size - taken)))
        else:
            return None
    return tuple(starts)


_MOVEMENTS: dict[str, Callable[[Instruction], DataMovement | None]] = {
    "concatenate": _concatenate,
    "copy": _of_one_region,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "pad": _pad,
    "reverse": _reverse,
    "slice": _slice,
}
MOVEMENTS = frozenset(_MOVEMENTS)
"""Opcodes that only move elements, if their places are known."""
