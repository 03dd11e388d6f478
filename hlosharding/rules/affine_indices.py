"""Indices that count in even steps: the value of each is `start` plus a step for each place along its dims.

Floor: rules.  Looks past an instruction, at how its index values were made.  `iota_indices` asks whether indices are
0, 1, 2, ... whoever passes them; here any start and any step will do, but they are made in place.

    u.at[1:-1].add(v)      indices s32[1] = {1}                  start 1
    u.at[4::2].set(v)      iota * 2 + 4, a column s32[n,1]       start 4, step 2 along dim 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.registry import Registry
from hlosharding.rules.iota_indices import addressing

# Values looked at before giving up: such indices are made in a few steps.
_PATIENCE = 200
# Of a constant that large nobody looks at every number.
_MOST_NUMBERS = 1 << 16


@dataclass(frozen=True, slots=True)
class Steps:
    """Integers that count in even steps: `start + sum(step * place)` over the dims that have one.

    >>> Steps(4, {0: 2}).bounds((10,))
    (4, 22)
    """

    start: int
    steps: Mapping[int, int] = field(default_factory=dict[int, int])
    """By dim; never 0."""

    def bounds(self, dims: tuple[int, ...]) -> tuple[int, int]:
        """The least and the largest number, in an array of sizes `dims`."""
        ends = [step * (dims[dim] - 1) for dim, step in self.steps.items()]
        return self.start + sum(min(0, e) for e in ends), self.start + sum(max(0, e) for e in ends)

    def scaled(self, by: int) -> Steps:
        """Each number times `by`."""
        return Steps(self.start * by, {d: s * by for d, s in self.steps.items() if by})

    def plus(self, other: Steps) -> Steps:
        """Number by number."""
        dims = dict.fromkeys((*self.steps, *other.steps))
        total = {d: self.steps.get(d, 0) + other.steps.get(d, 0) for d in dims}
        return Steps(self.start + other.start, {d: s for d, s in total.items() if s})


def affine_indices(inst: Instruction) -> tuple[Steps, ...] | None:
    """For each component of a gather's or scatter's index vectors how it counts along dims of the indices.

    None where one of them does not, as far as the program says.  They may lie outside of the operand.
    """
    how = addressing(inst)
    indices = inst.operands[how.indices]
    if not indices.shape.is_integral or 0 in indices.shape.dims:
        return None
    found: list[Steps] = []
    for number in range(len(how.addressed)):
        cut = {how.vector_dim: number} if how.vector_dim < indices.shape.rank else {}
        steps = _Counting().of(indices, cut)
        if steps is None:
            return None
        found.append(steps)
    return tuple(found)


_Cut = Mapping[int, int]
"""Dims of a value of which one place is looked at."""

_counts: Registry[str, Callable[[_Counting, Instruction, _Cut], Steps | None]] = Registry("ops that keep even steps")


class _Counting:
    """Answers for one value, with patience."""

    def __init__(self) -> None:
        self._seen = 0

    def of(self, value: Instruction, cut: _Cut) -> Steps | None:
        """How an integer array counts along the dims that are not cut; None if nothing says so."""
        rule = _counts.get(value.opcode)
        self._seen += 1
        if rule is None or self._seen > _PATIENCE or not (value.shape.is_array and value.shape.is_integral):
            return None
        steps = rule(self, value, cut)
        return steps if steps is not None and _fits(steps, value.shape) else None

    def both(self, value: Instruction, cut: _Cut) -> tuple[Steps, Steps] | None:
        """Of both operands."""
        one, other = (self.of(operand, cut) for operand in value.operands)
        return None if one is None or other is None else (one, other)


def _fits(steps: Steps, shape: Shape) -> bool:
    """A narrow type starts anew at its end."""
    bits, is_signed = int(shape.element_type[1:]), shape.element_type.startswith("s")
    limit, (least, most) = 1 << bits - is_signed, steps.bounds(shape.dims)
    return (-limit if is_signed else 0) <= least and most < limit


@_counts.register("iota")
def _iota(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    dim = value.iota_dimension
    if dim in cut:
        return Steps(cut[dim])
    return Steps(0, {dim: 1} if value.shape.dims[dim] > 1 else {})


@_counts.register("constant")
def _constant(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    if value.shape.size > _MOST_NUMBERS:
        return None
    numbers = np.asarray(value.literal[tuple(cut.get(d, slice(None)) for d in range(value.shape.rank))]).astype(
        np.int64
    )
    start, kept = int(numbers.flat[0]), [d for d in range(value.shape.rank) if d not in cut]
    second = {d: int(np.moveaxis(numbers, n, 0)[1].flat[0]) - start for n, d in enumerate(kept) if numbers.shape[n] > 1}
    steps = Steps(start, {d: step for d, step in second.items() if step})
    grids = np.indices(numbers.shape)
    counted = sum((grids[n] * second[d] for n, d in enumerate(kept) if d in second), np.full(numbers.shape, start))
    return steps if (numbers == counted).all() else None


@_counts.register("copy", "convert")
def _same(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    return counting.of(value.operands[0], cut)


@_counts.register("broadcast")
def _broadcast(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    inner = counting.of(value.operands[0], {n: cut[d] for n, d in enumerate(value.dimensions) if d in cut})
    return inner and Steps(inner.start, {value.dimensions[d]: step for d, step in inner.steps.items()})


@_counts.register("transpose")
def _transpose(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    inner = counting.of(value.operands[0], {value.dimensions[d]: place for d, place in cut.items()})
    return inner and Steps(inner.start, {value.dimensions.index(d): step for d, step in inner.steps.items()})


@_counts.register("reshape")
def _reshape(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    """Of one that adds or drops dims of size 1."""
    before, after = value.operands[0].shape.dims, value.shape.dims
    old, new = ([d for d, size in enumerate(dims) if size > 1] for dims in (before, after))
    if [before[d] for d in old] != [after[d] for d in new]:
        return None
    now, was = dict(zip(old, new, strict=True)), dict(zip(new, old, strict=True))
    inner = counting.of(value.operands[0], {was[d]: place for d, place in cut.items() if d in was})
    return inner and Steps(inner.start, {now[d]: step for d, step in inner.steps.items()})


@_counts.register("slice")
def _slice(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    dims = value.slice_dims
    inner = counting.of(value.operands[0], {d: dims[d].start + place * dims[d].stride for d, place in cut.items()})
    if inner is None:
        return None
    start = inner.start + sum(step * dims[d].start for d, step in inner.steps.items())
    return Steps(start, {d: step * dims[d].stride for d, step in inner.steps.items() if value.shape.dims[d] > 1})


@_counts.register("reverse")
def _reverse(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    dims, backwards = value.shape.dims, value.dimensions
    inner = counting.of(value.operands[0], {d: dims[d] - 1 - p if d in backwards else p for d, p in cut.items()})
    if inner is None:
        return None
    start = inner.start + sum(step * (dims[d] - 1) for d, step in inner.steps.items() if d in backwards)
    return Steps(start, {d: -step if d in backwards else step for d, step in inner.steps.items()})


@_counts.register("concatenate")
def _concatenate(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    """Of one place along the dim that is joined."""
    dim = value.dimensions[0]
    if dim not in cut:
        return None
    place = cut[dim]
    for operand in value.operands:
        if place < operand.shape.dims[dim]:
            return counting.of(operand, {**cut, dim: place})
        place -= operand.shape.dims[dim]
    return None


@_counts.register("add")
def _add(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    both = counting.both(value, cut)
    return both and both[0].plus(both[1])


@_counts.register("subtract")
def _subtract(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    both = counting.both(value, cut)
    return both and both[0].plus(both[1].scaled(-1))


@_counts.register("multiply")
def _multiply(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    both = counting.both(value, cut)
    if both is None or (both[0].steps and both[1].steps):
        return None
    one, other = both if both[0].steps else both[::-1]
    return one.scaled(other.start)


@_counts.register("negate")
def _negate(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    inner = counting.of(value.operands[0], cut)
    return inner and inner.scaled(-1)


@_counts.register("select")
def _select(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    """Where the predicate is known: negative places counted from the end, as JAX writes it."""
    predicate, *sides = value.operands
    truth = _truth(counting, predicate, cut if predicate.shape.rank else {})
    return None if truth is None else counting.of(sides[0] if truth else sides[1], cut)


def _truth(counting: _Counting, predicate: Instruction, cut: _Cut) -> bool | None:
    """What a comparison says of all numbers that are compared."""
    if predicate.opcode != "compare" or not predicate.operands[0].shape.is_integral:
        return None
    both = counting.both(predicate, cut)
    if both is None:
        return None
    dims = predicate.shape.dims
    (low, high), (least, most) = both[0].bounds(dims), both[1].bounds(dims)
    always = {"LT": high < least, "LE": high <= least, "GT": low > most, "GE": low >= most}
    never = {"LT": low >= most, "LE": low > most, "GT": high <= least, "GE": high < least}
    direction = predicate.comparison_direction
    return True if always.get(direction) else False if never.get(direction) else None


@_counts.register("clamp")
def _clamp(counting: _Counting, value: Instruction, cut: _Cut) -> Steps | None:
    """Of numbers that are all within the limits, or of a single one."""
    low, count, high = (counting.of(o, cut if o.shape.rank else {}) for o in value.operands)
    if low is None or count is None or high is None or low.steps or high.steps:
        return None
    least, most = count.bounds(value.shape.dims)
    if low.start <= least and most <= high.start:
        return count
    return Steps(min(max(count.start, low.start), high.start)) if not count.steps else None
