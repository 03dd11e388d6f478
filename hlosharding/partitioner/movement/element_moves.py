"""Ops that only move elements, as regions: which elements of the result are which elements of which operand.

Floor: partitioner.  Looks at instructions alone: no shardings, no prices.  A slice, a pad, a concatenation, a reverse,
a dynamic-update-slice at a known place and any chain of them are one move: what the steps between would have moved
twice (a shift as pad and slice, a rotation as two slices and a concatenation) moves once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from hlosharding.ir import Instruction
from hlosharding.reshard import Region

Dims = tuple[int, ...]

_LONGEST_CHAIN = 16


@dataclass(frozen=True, slots=True)
class Move:
    """A result put together from operands."""

    dims: Dims
    regions: tuple[Region, ...]
    """Disjoint."""
    operands: tuple[Instruction, ...]
    fill: Instruction | None = None
    """The scalar where no region is."""
    base: Instruction | None = None
    """The array, of the result's shape, where no region is."""
    between: tuple[Instruction, ...] = ()
    """Instructions that nobody else needs, and that are skipped."""

    @property
    def covers(self) -> bool:
        """Do the regions make up the whole result?"""
        return sum(math.prod(region.sizes) for region in self.regions) == math.prod(self.dims)

    def touched(self) -> Dims:
        """Dims along which elements change their places, or their number."""
        every = range(len(self.dims))
        return tuple(d for d in every if not self.regions or not all(self._keeps(d, r) for r in self.regions))

    def _keeps(self, dim: int, region: Region) -> bool:
        at = region.source[dim], region.target[dim], region.source_steps[dim], region.target_steps[dim]
        return (
            at == (0, 0, 1, 1) and region.sizes[dim] == self.dims[dim] == self.operands[region.operand].shape.dims[dim]
        )


def move_of(inst: Instruction, depth: int = _LONGEST_CHAIN) -> Move | None:
    """The move that an instruction and the movers before it make together; None where it is no mover.

    Movers before it are passed over if nobody else needs them and regions can say what both do.
    """
    found = simple_move_of(inst)
    if found is None or not depth:
        return found
    for operand in dict.fromkeys(found.operands):
        if operand.is_root or any(user is not inst for user in operand.users):
            continue
        inner = move_of(operand, depth - 1)
        joined = _joined(found, operand, inner) if inner is not None else None
        if joined is not None:
            found = joined
    return _with_fill(found)


def simple_move_of(inst: Instruction) -> Move | None:
    """What one instruction moves."""
    reader = _MOVERS.get(inst.opcode)
    return reader(inst) if reader is not None and inst.shape.is_array else None


def _joined(outer: Move, middle: Instruction, inner: Move) -> Move | None:
    """`outer` with its operand `middle` replaced by what that is made of."""
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
            through = _through(region, part)
            if through is None:
                return None
            if 0 not in through.sizes:
                regions.append(replace(through, operand=operands.index(inner.operands[part.operand])))
    between = (*outer.between, middle, *inner.between)
    return Move(outer.dims, tuple(regions), tuple(operands), outer.fill or inner.fill, outer.base, between)


def _through(outer: Region, inner: Region) -> Region | None:
    """What of `outer` comes by way of `inner`; None where steps on both sides of the middle are out of step."""
    columns = [_line_through(outer, inner, dim) for dim in range(len(outer.sizes))]
    if any(column is None for column in columns):
        return None
    sizes, sources, targets, source_steps, target_steps = zip(*columns, strict=True) if columns else ((),) * 5  # pyright: ignore[reportArgumentType]
    return Region(inner.operand, sizes, sources, targets, source_steps, target_steps)


def _line_through(outer: Region, inner: Region, dim: int) -> tuple[int, int, int, int, int] | None:
    """Along one dim: (size, source, target, source step, target step)."""
    read, step = outer.source[dim], outer.source_steps[dim]
    write, every = inner.target[dim], inner.target_steps[dim]
    if abs(step) == 1:
        # Numbers i of the inner region whose places the outer one reads.
        last = read + step * (outer.sizes[dim] - 1)
        low, high = min(read, last), max(read, last) + 1
        first = max(0, -(-(low - write) // every))
        size = max(0, min(inner.sizes[dim], -(-(high - write) // every)) - first)
        number = first if step > 0 else first + size - 1
        place = (write + number * every - read) * step
        source = inner.source[dim] + number * inner.source_steps[dim]
        target = outer.target[dim] + place * outer.target_steps[dim]
        return size, source, target, step * inner.source_steps[dim], every * outer.target_steps[dim]
    if every == 1:
        # Numbers j of the outer region whose places the inner one wrote.
        low, high = (write, write + inner.sizes[dim]) if step > 0 else (-write - inner.sizes[dim] + 1, -write + 1)
        start, pace = (read, step) if step > 0 else (-read, -step)
        first = max(0, -(-(low - start) // pace))
        size = max(0, min(outer.sizes[dim], -(-(high - start) // pace)) - first)
        source = inner.source[dim] + (read + first * step - write) * inner.source_steps[dim]
        target = outer.target[dim] + first * outer.target_steps[dim]
        return size, source, target, step * inner.source_steps[dim], outer.target_steps[dim]
    return None


def _with_fill(move: Move) -> Move:
    """A broadcast scalar among the operands (or below them) is what fills the rest."""
    if move.base is not None and _scalar_of(move.base) is not None:
        move = replace(move, base=None, fill=_scalar_of(move.base))
    for operand in move.operands:
        scalar = _scalar_of(operand)
        if scalar is None or move.base is not None or not _is_same_scalar(move.fill or scalar, scalar):
            continue
        if len(move.operands) > 1:
            operands = tuple(o for o in move.operands if o is not operand)
            kept = (r for r in move.regions if move.operands[r.operand] is not operand)
            regions = tuple(replace(r, operand=operands.index(move.operands[r.operand])) for r in kept)
            move = replace(move, regions=regions, operands=operands, fill=scalar)
    return move


def _scalar_of(inst: Instruction) -> Instruction | None:
    return inst.operands[0] if inst.opcode == "broadcast" and not inst.operands[0].shape.rank else None


def _is_same_scalar(a: Instruction, b: Instruction) -> bool:
    if a is b:
        return True
    if a.opcode != "constant" or b.opcode != "constant" or a.shape != b.shape:
        return False
    return a.literal.tobytes() == b.literal.tobytes()


# One instruction as a move


def _slice(inst: Instruction) -> Move:
    starts, steps = (tuple(getattr(d, name) for d in inst.slice_dims) for name in ("start", "stride"))
    dims = inst.shape.dims
    region = replace(Region.whole(dims), source=starts, source_steps=steps)
    return Move(dims, (region,), inst.operands)


def _pad(inst: Instruction) -> Move:
    dims, operand, fill = inst.shape.dims, inst.operands[0], inst.operands[1]
    columns: list[tuple[int, int, int, int]] = []
    for size, have, padding in zip(dims, operand.shape.dims, inst.padding, strict=True):
        step = padding.interior_padding + 1
        first = max(0, -(padding.low // step))  # earlier ones are cut off
        last = min(have, -(-(size - padding.low) // step))
        columns.append((max(0, last - first), first, padding.low + first * step, step))
    sizes, sources, targets, steps = zip(*columns, strict=True) if columns else ((),) * 4
    region = Region(0, sizes, sources, targets, (1,) * len(dims), steps)
    return Move(dims, () if 0 in sizes else (region,), (operand,), fill)


def _concatenate(inst: Instruction) -> Move:
    dim, start, regions = inst.dimensions[0], 0, []
    operands = tuple(dict.fromkeys(inst.operands))
    for operand in inst.operands:
        target = tuple(start if d == dim else 0 for d in range(inst.shape.rank))
        if operand.shape.size:
            regions.append(replace(Region.whole(operand.shape.dims, operands.index(operand)), target=target))
        start += operand.shape.dims[dim]
    return Move(inst.shape.dims, tuple(regions), operands)


def _reverse(inst: Instruction) -> Move:
    dims = inst.shape.dims
    starts = tuple(size - 1 if d in inst.dimensions else 0 for d, size in enumerate(dims))
    steps = tuple(-1 if d in inst.dimensions else 1 for d in range(len(dims)))
    return Move(dims, (replace(Region.whole(dims), source=starts, source_steps=steps),), inst.operands)


def _copy(inst: Instruction) -> Move:
    return Move(inst.shape.dims, (Region.whole(inst.shape.dims),), inst.operands)


def _dynamic_slice(inst: Instruction) -> Move | None:
    starts = _starts(inst.operands[1:], inst.operands[0].shape.dims, inst.shape.dims)
    if starts is None:
        return None
    return Move(inst.shape.dims, (replace(Region.whole(inst.shape.dims), source=starts),), inst.operands[:1])


def _dynamic_update_slice(inst: Instruction) -> Move | None:
    base, update, *places = inst.operands
    starts = _starts(tuple(places), base.shape.dims, update.shape.dims)
    if starts is None:
        return None
    region = replace(Region.whole(update.shape.dims), target=starts)
    return Move(inst.shape.dims, (region,) if update.shape.size else (), (update,), base=base)


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


_MOVERS: dict[str, Callable[[Instruction], Move | None]] = {
    "concatenate": _concatenate,
    "copy": _copy,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "pad": _pad,
    "reverse": _reverse,
    "slice": _slice,
}
