"""Ops that only move elements, as regions: which elements of the result are which elements of which operand; and chains
of them as one movement: what the ops between would have moved twice moves once.

Floor: partitioner.  Looks at instructions alone: no shardings, no prices.  A shift is a pad and a slice, a rotation two
slices and a concatenation: each becomes regions of the first operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

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
        # Rounded up, as the first is: one past the last element whose place is before the end.
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
        # Wherever it starts: the op clamps that to 0.
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


_LONGEST_CHAIN = 16
# Each op that cuts an array and joins the parts again may multiply them by their number.
_MOST_REGIONS = 256

_Chains = dict[tuple[Instruction, int], DataMovement | None]
"""What was found, by the last op and the ops before it that may be looked at."""


def chained_movement(inst: Instruction) -> DataMovement | None:
    """The movement that an instruction and the movements before it make together; None where it is none.

    Those before it are passed over if only movements need them, each of which may pass over them likewise, and regions
    can say what both do.
    """
    return _chain(inst, _LONGEST_CHAIN, {})


def _chain(inst: Instruction, depth: int, known: _Chains) -> DataMovement | None:
    """Once for all readers: each of a row of ops that cut and join would ask for all before it again."""
    if (inst, depth) not in known:
        known[inst, depth] = _chained(inst, depth, known)
    return known[inst, depth]


def _chained(inst: Instruction, depth: int, known: _Chains) -> DataMovement | None:
    found = op_movement(inst)
    if found is None or not depth:
        return found
    # Of the op itself alone: what comes in by joining has been followed as far as it goes.
    for operand in dict.fromkeys(found.operands):
        if operand.is_root or any(user is not inst and user.opcode not in MOVEMENTS for user in operand.users):
            continue
        inner = _chain(operand, depth - 1, known)
        joined = _joined(found, operand, inner) if inner is not None else None
        if joined is not None:
            found = joined
    return _with_fill(found)


def _joined(outer: DataMovement, middle: Instruction, inner: DataMovement) -> DataMovement | None:
    """`outer` with its operand `middle` replaced by what that is made of."""
    # Only one thing can fill the rest: a base below would be a second one, and so would what fills gaps below, beside a
    # base above.
    if inner.base is not None or (outer.base is not None and not inner.covers):
        return None
    if inner.fill is not None and outer.fill is not None and not _is_same_scalar(inner.fill, outer.fill):
        return None
    operands = [o for o in dict.fromkeys((*outer.operands, *inner.operands)) if o is not middle]
    regions: list[Region] = []
    for region in outer.regions:
        source = outer.operands[region.operand]
        if source is not middle:
            regions.append(replace(region, operand=operands.index(source)))
            continue
        for part in inner.regions:
            through = _composed(region, part)
            if through is None:
                return None
            if 0 not in through.sizes:
                regions.append(replace(through, operand=operands.index(inner.operands[part.operand])))
        if len(regions) > _MOST_REGIONS:
            return None
    return DataMovement(
        dims=outer.dims,
        regions=tuple(regions),
        operands=tuple(operands),
        fill=outer.fill or inner.fill,
        base=outer.base,
        skipped=(*outer.skipped, middle, *inner.skipped),
    )


# ---- the composition of two regions


class _Line(NamedTuple):
    """One dim of a region: element n goes from `source + n * source_step` to `target + n * target_step`."""

    size: int
    source: int
    target: int
    source_step: int
    target_step: int


def _composed(outer: Region, inner: Region) -> Region | None:
    """What of `outer` comes by way of `inner`: dim by dim, for a region is a product of lines.

    None where steps on both sides of the array between them are out of step.
    """
    lines = [_composed_line(one, other) for one, other in zip(_lines(outer), _lines(inner), strict=True)]
    if None in lines:
        return None
    sizes, source, target, source_steps, target_steps = zip(*lines, strict=True) if lines else ((),) * 5
    return Region(inner.operand, sizes, source, target, source_steps, target_steps)


def _lines(region: Region) -> Iterator[_Line]:
    columns = region.sizes, region.source, region.target, region.source_steps, region.target_steps
    return map(_Line._make, zip(*columns, strict=True))


def _composed_line(outer: _Line, inner: _Line) -> _Line | None:
    """The elements that `inner` writes into the array between the two and `outer` reads from it.

        operand       a   b   c   d           inner: four elements, written to places 1, 3, 5 and 7 (a pad)
        between     . a . b . c . d .
        result            b . c  ->  c . b    outer: reads places 5, 4 and 3, in this order (a slice, reversed)

    So two elements get through, c and b: from place 2 of the operand backwards, to places 0 and 2 of the result.

    >>> _composed_line(_Line(3, 5, 0, -1, 1), _Line(4, 0, 1, 1, 2))
    _Line(size=2, source=2, target=0, source_step=-1, target_step=2)
    """
    if abs(outer.source_step) == 1:
        return _through_dense_read(outer, inner)
    if inner.target_step == 1:
        return _through_dense_write(outer, inner)
    return None


def _through_dense_read(outer: _Line, inner: _Line) -> _Line:
    """Where `outer` reads every place of a run: the elements of `inner` that lie in it, each `target_step` further."""
    step, every = outer.source_step, inner.target_step
    ends = outer.source, outer.source + step * (outer.size - 1)
    # Rounded up: the number of the first element in the run, and below of the first one behind it.
    first = max(0, -((inner.target - min(ends)) // every))
    size = max(0, min(inner.size, -((inner.target - max(ends) - 1) // every)) - first)
    # The element that comes first in the result, and its number there: a step of 1 or -1 is its own inverse.
    number = first if step > 0 else first + size - 1
    place = (inner.target + number * every - outer.source) * step
    return _Line(
        size,
        inner.source + number * inner.source_step,
        outer.target + place * outer.target_step,
        step * inner.source_step,
        every * outer.target_step,
    )


def _through_dense_write(outer: _Line, inner: _Line) -> _Line:
    """Where `inner` writes every place of a run: the elements of `outer` that are read from it."""
    read, step, write = outer.source, outer.source_step, inner.target
    # Backwards is forwards along the negated places.
    start, pace = (read, step) if step > 0 else (-read, -step)
    low, high = (write, write + inner.size) if step > 0 else (-write - inner.size + 1, -write + 1)
    first = max(0, -((start - low) // pace))
    size = max(0, min(outer.size, -((start - high) // pace)) - first)
    return _Line(
        size,
        inner.source + (read + first * step - write) * inner.source_step,
        outer.target + first * outer.target_step,
        step * inner.source_step,
        outer.target_step,
    )


# ---- what fills the rest


def _with_fill(movement: DataMovement) -> DataMovement:
    """A broadcast scalar among the operands (or below them) is what fills the rest."""
    if movement.base is not None and _scalar_of(movement.base) is not None:
        movement = replace(movement, base=None, fill=_scalar_of(movement.base))
    # Over the operands there were: each that is left out makes another `movement`.
    for operand in movement.operands:
        scalar = _scalar_of(operand)
        if scalar is None or movement.base is not None or not _is_same_scalar(movement.fill or scalar, scalar):
            continue
        if len(movement.operands) > 1:
            operands = tuple(o for o in movement.operands if o is not operand)
            kept = (r for r in movement.regions if movement.operands[r.operand] is not operand)
            regions = tuple(replace(r, operand=operands.index(movement.operands[r.operand])) for r in kept)
            movement = replace(movement, regions=regions, operands=operands, fill=scalar)
    return movement


def _scalar_of(inst: Instruction) -> Instruction | None:
    return inst.operands[0] if inst.opcode == "broadcast" and not inst.operands[0].shape.rank else None


def _is_same_scalar(a: Instruction, b: Instruction) -> bool:
    if a is b:
        return True
    are_constant = a.opcode == b.opcode == "constant" and a.shape == b.shape
    # By their bits: a NaN is not equal to itself, and -0 is equal to 0.
    return are_constant and a.literal.tobytes() == b.literal.tobytes()
