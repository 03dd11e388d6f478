"""Indices that count in even steps: the value of each is `start` plus a step for each place along its dims.

Floor: rules.  The one place of this room that looks past an instruction: at how its index values were made.  It knows
no shardings; what XLA recognises, which is less, is the propagation room's.

    u.at[1:-1].add(v)      indices s32[1] = {1}                  start 1
    u.at[4::2].set(v)      iota * 2 + 4, a column s32[n,1]       start 4, step 2 along dim 0

Of indices that begin at 0 in steps of 1, an iota, the dim they address moves in step with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

import numpy as np

from hlosharding.ir import INDEXED, Instruction, Shape, arguments, callers, hands_on, while_parts
from hlosharding.ir import custom_call_targets as targets
from hlosharding.registry import Registry
from hlosharding.rules.signature import Dims, Nothing, Signature

_PATIENCE = 200
"""Values looked at before giving up: such indices are made in a few steps."""
_PASS_CALLS = targets.PLACEMENTS | {targets.SHARDING}


@dataclass(frozen=True, slots=True)
class Addressing:
    """What gather and scatter have in common."""

    indices: int
    """The operand that holds the index values."""
    vector_dim: int
    addressed: tuple[int, ...]
    """The dim of operand 0 that each component of an index addresses."""
    slice_sizes: tuple[int, ...]
    """Per dim of operand 0, how much one index takes or updates."""
    batching: tuple[int, ...]
    """Indices dims that are declared to move in step with operand 0."""
    windows: tuple[int, ...]
    """Dims of the result (of a scatter: of the updates) that lie within a slice."""


def addressing(inst: Instruction) -> Addressing:
    """How a gather or scatter addresses its operand 0."""
    if inst.opcode == "gather":
        dims = inst.gather_dims
        batching = dims.start_indices_batching_dims
        return Addressing(
            1, dims.index_vector_dim, dims.start_index_map, inst.gather_slice_sizes, batching, dims.offset_dims
        )
    dims, count = inst.scatter_dims, len(inst.operands) // 2
    window, update = iter(dims.update_window_dims), inst.operands[count + 1].shape.dims
    absent = (*dims.inserted_window_dims, *dims.input_batching_dims)
    sizes = tuple(1 if d in absent else update[next(window)] for d in range(inst.operands[0].shape.rank))
    batching = dims.scatter_indices_batching_dims
    addressed = dims.scatter_dims_to_operand_dims
    return Addressing(count, dims.index_vector_dim, addressed, sizes, batching, dims.update_window_dims)


@dataclass(frozen=True, slots=True)
class AffineIndices:
    """Integers that count in even steps: `start + sum(step * place)` over the dims that have one.

    >>> AffineIndices(4, {0: 2}).bounds((10,))
    (4, 22)
    """

    start: int
    steps: Mapping[int, int] = field(default_factory=dict[int, int])
    """By dim; never 0."""

    def bounds(self, dims: tuple[int, ...]) -> tuple[int, int]:
        """The least and the largest number, in an array of sizes `dims`."""
        ends = [step * (dims[dim] - 1) for dim, step in self.steps.items()]
        return self.start + sum(min(0, e) for e in ends), self.start + sum(max(0, e) for e in ends)

    def times(self, by: int) -> AffineIndices:
        """Each number times `by`."""
        return AffineIndices(self.start * by, {d: s * by for d, s in self.steps.items() if by})

    def plus(self, other: AffineIndices) -> AffineIndices:
        """Number by number."""
        dims = dict.fromkeys((*self.steps, *other.steps))
        total = {d: self.steps.get(d, 0) + other.steps.get(d, 0) for d in dims}
        return AffineIndices(self.start + other.start, {d: s for d, s in total.items() if s})


def affine_indices(inst: Instruction) -> tuple[AffineIndices, ...] | None:
    """For each component of a gather's or scatter's index vectors how it counts along dims of the indices.

    None where one of them does not, as far as the program says.  They may lie outside of the operand.
    """
    found = _columns(inst, addressing(inst))
    return None if None in found else tuple([steps for steps in found if steps is not None])


def _columns(inst: Instruction, how: Addressing) -> list[AffineIndices | None]:
    """For each component of the index vectors."""
    indices = inst.operands[how.indices]
    has_vectors = how.vector_dim < indices.shape.rank
    return [
        _Counting().of(indices, {how.vector_dim: number} if has_vectors else {}) for number in range(len(how.addressed))
    ]


def iota_signature(inst: Instruction, signature: Signature) -> Signature | None:
    """The truth of a gather or scatter some of whose indices are an iota: dims they address go in step with them.

    None where none is.  `signature` is the one the op's rule declares.
    """
    if inst.opcode not in INDEXED:
        return None
    how, pairs = addressing(inst), dict[int, int]()
    operand, indices = (inst.operands[n].shape.dims for n in (0, how.indices))
    for dim, steps in zip(how.addressed, _columns(inst, how), strict=True):
        if steps is None or steps.start or list(steps.steps.values()) != [1] or how.slice_sizes[dim] != 1:
            continue
        [along] = steps.steps
        # Of a diagonal, whose components count along one dim of the indices, one dim alone goes in step with it.
        if operand[dim] == indices[along] and along not in (*how.batching, *pairs.values()):
            pairs[dim] = along
    return _in_step(signature, how.indices, tuple(pairs.items())) if pairs else None


@lru_cache(maxsize=1 << 12)
def _in_step(signature: Signature, indices: int, pairs: tuple[tuple[int, int], ...]) -> Signature:
    """Each pair (dim of operand 0, dim of the indices) becomes one factor that owes nothing."""
    names = {signature.operands[0][a][0]: signature.operands[indices][b][0] for a, b in pairs}
    factors = [
        replace(f, owes=Nothing()) if n in names.values() else f
        for n, f in enumerate(signature.factors)
        if n not in names
    ]
    kept = [n for n in range(len(signature.factors)) if n not in names]
    number = {n: kept.index(names.get(n, n)) for n in range(len(signature.factors))}

    def renumbered(tensors: tuple[Dims, ...]) -> tuple[Dims, ...]:
        return tuple(tuple(tuple(number[n] for n in dim) for dim in dims) for dims in tensors)

    return Signature(tuple(factors), renumbered(signature.operands), renumbered(signature.results))


# ---- how a value counts

_Cut = Mapping[int, int]
"""Dims of a value of which one place is looked at."""

_counts: Registry[str, Callable[[_Counting, Instruction, _Cut], AffineIndices | None]] = Registry(
    "ops that keep even steps"
)


class _Counting:
    """Answers one question about one value, remembering those about the values it was made of."""

    def __init__(self) -> None:
        self._known: dict[tuple[Instruction, *tuple[tuple[int, int], ...]], AffineIndices | None] = {}

    def of(self, value: Instruction, cut: _Cut) -> AffineIndices | None:
        """How an integer array counts along the dims that are not cut; None if nothing says so."""
        rule, key = _counts.get(value.opcode), (value, *cut.items())
        if rule is None or not (value.shape.is_array and value.shape.is_integral) or 0 in value.shape.dims:
            return None
        if key not in self._known and len(self._known) < _PATIENCE:
            # Entered before it is answered, so that the chain that is being followed counts: that bounds its depth.
            self._known[key] = None
            steps = rule(self, value, cut)
            self._known[key] = steps if steps is not None and _fits(steps, value.shape) else None
        return self._known.get(key)

    def both(self, value: Instruction, cut: _Cut) -> tuple[AffineIndices, AffineIndices] | None:
        """Of both operands."""
        one, other = (self.of(operand, cut) for operand in value.operands)
        return None if one is None or other is None else (one, other)

    def all(self, values: Iterable[Instruction], cut: _Cut) -> AffineIndices | None:
        """Of every one of them, where all count alike."""
        return _same([self.of(value, cut) for value in values])


def _same(found: Sequence[AffineIndices | None]) -> AffineIndices | None:
    return found[0] if found and all(steps == found[0] for steps in found) else None


def _fits(steps: AffineIndices, shape: Shape) -> bool:
    """A narrow type starts anew at its end."""
    bits, is_signed = int(shape.element_type[1:]), shape.element_type.startswith("s")
    limit, (least, most) = 1 << bits - is_signed, steps.bounds(shape.dims)
    return (-limit if is_signed else 0) <= least and most < limit


@_counts.register("iota")
def _iota(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    dim = value.iota_dimension
    if dim in cut:
        return AffineIndices(cut[dim])
    return AffineIndices(0, {dim: 1} if value.shape.dims[dim] > 1 else {})


@_counts.register("constant")
def _constant(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    numbers = value.literal.astype(np.int64)
    for dim, place in cut.items():
        numbers = numbers.take([place], dim)
    start, places = int(numbers.flat[0]), np.indices(numbers.shape, sparse=True)
    second = {d: int(numbers.take(1, d).flat[0]) - start for d, size in enumerate(numbers.shape) if size > 1}
    steps = AffineIndices(start, {d: step for d, step in second.items() if step})
    counted = sum((places[d] * step for d, step in steps.steps.items()), np.asarray(start))
    return steps if (numbers == counted).all() else None


_TIMES = {"convert": (1,), "copy": (1,), "opt-barrier": (1,), "negate": (-1,), "add": (1, 1), "subtract": (1, -1)}
"""How often each operand is in the sum that these are."""


@_counts.register(*_TIMES)
def _sum(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    total, parts = AffineIndices(0), [counting.of(operand, cut) for operand in value.operands]
    for part, times in zip(parts, _TIMES[value.opcode], strict=True):
        if part is None:
            return None
        total = total.plus(part.times(times))
    return total


@_counts.register("custom-call")
def _passing(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    return counting.of(value.operands[0], cut) if value.custom_call_target in _PASS_CALLS else None


@_counts.register("broadcast")
def _broadcast(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    inner = counting.of(value.operands[0], {n: cut[d] for n, d in enumerate(value.dimensions) if d in cut})
    return inner and AffineIndices(inner.start, {value.dimensions[d]: step for d, step in inner.steps.items()})


@_counts.register("transpose")
def _transpose(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    inner = counting.of(value.operands[0], {value.dimensions[d]: place for d, place in cut.items()})
    return inner and AffineIndices(inner.start, {value.dimensions.index(d): step for d, step in inner.steps.items()})


@_counts.register("reshape")
def _reshape(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    """Of one that keeps the dims along which anything is asked."""
    before, after = value.operands[0].shape.dims, value.shape.dims
    # A dim that a reshape keeps has as many elements before it as it had, whatever dims of size 1 come and go.
    old = {prod(before[:d]): d for d, size in enumerate(before) if size > 1}
    was = {d: old.get(prod(after[:d])) for d, size in enumerate(after) if size > 1}
    now = {o: d for d, o in was.items() if o is not None and before[o] == after[d]}
    was = {d: o for o, d in now.items()}
    if any(d not in was for d in cut if after[d] > 1):
        return None
    inner = counting.of(value.operands[0], {was[d]: place for d, place in cut.items() if d in was})
    if inner is None or any(d not in now for d in inner.steps):
        return None
    return AffineIndices(inner.start, {now[d]: step for d, step in inner.steps.items()})


@_counts.register("slice")
def _slice(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    dims = value.slice_dims
    inner = counting.of(value.operands[0], {d: dims[d].start + place * dims[d].stride for d, place in cut.items()})
    if inner is None:
        return None
    start = inner.start + sum(step * dims[d].start for d, step in inner.steps.items())
    return AffineIndices(
        start, {d: step * dims[d].stride for d, step in inner.steps.items() if value.shape.dims[d] > 1}
    )


@_counts.register("reverse")
def _reverse(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    dims, backwards = value.shape.dims, value.dimensions
    inner = counting.of(value.operands[0], {d: dims[d] - 1 - p if d in backwards else p for d, p in cut.items()})
    if inner is None:
        return None
    start = inner.start + sum(step * (dims[d] - 1) for d, step in inner.steps.items() if d in backwards)
    return AffineIndices(start, {d: -step if d in backwards else step for d, step in inner.steps.items()})


@_counts.register("concatenate")
def _concatenate(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    dim = value.dimensions[0]
    if dim not in cut:
        steps = counting.all(value.operands, cut)
        return None if steps is None or dim in steps.steps else steps
    place = cut[dim]
    for operand in value.operands:
        if place < operand.shape.dims[dim]:
            return counting.of(operand, {**cut, dim: place})
        place -= operand.shape.dims[dim]
    return None


@_counts.register("multiply")
def _multiply(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    both = counting.both(value, cut)
    # The product of two that count grows in uneven steps.
    if both is None or (both[0].steps and both[1].steps):
        return None
    one, other = both if both[0].steps else both[::-1]
    return one.times(other.start)


@_counts.register("select")
def _select(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    """Both sides count alike, or the predicate is known: negative places counted from the end, as JAX writes it."""
    predicate, *sides = value.operands
    truth = _truth(counting, predicate, cut if predicate.shape.rank else {})
    return counting.all(sides, cut) if truth is None else counting.of(sides[0] if truth else sides[1], cut)


def _truth(counting: _Counting, predicate: Instruction, cut: _Cut) -> bool | None:
    """What a comparison says of all numbers that are compared."""
    while predicate.opcode == "copy" or predicate.custom_call_target in _PASS_CALLS:
        predicate = predicate.operands[0]
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
def _clamp(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    """Of numbers that are all within the limits, or of a single one."""
    low, count, high = (counting.of(o, cut if o.shape.rank else {}) for o in value.operands)
    if low is None or count is None or high is None or low.steps or high.steps:
        return None
    least, most = count.bounds(value.shape.dims)
    if low.start <= least and most <= high.start:
        return count
    return AffineIndices(min(max(count.start, low.start), high.start)) if not count.steps else None


# ---- what is handed on in tuples, and to computations


@_counts.register("get-tuple-element")
def _element(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    source, index = value.operands[0], value.tuple_index
    if source.opcode == "opt-barrier":
        source = source.operands[0]
    return _ELEMENTS.get(source.opcode, _element_of)(counting, source, index, cut)


@_counts.register("parameter")
def _parameter(counting: _Counting, value: Instruction, cut: _Cut) -> AffineIndices | None:
    return _handed(counting, value, None, cut)


def _handed(counting: _Counting, parameter: Instruction, index: int | None, cut: _Cut) -> AffineIndices | None:
    """Of a parameter (of an element of it): what every caller hands over counts alike."""
    found: list[AffineIndices | None] = []
    for caller in callers(parameter.module).get(parameter.computation, ()):
        if caller.opcode == "while" and index is not None:
            found.append(_carried(counting, caller, index, cut))
        elif caller.opcode in ("conditional", "call"):
            handed = arguments(caller, parameter)
            found += [counting.of(h, cut) if index is None else _element_of(counting, h, index, cut) for h in handed]
        else:
            return None
    return None if parameter.computation.is_entry else _same(found)


def _element_of(counting: _Counting, source: Instruction, index: int, cut: _Cut) -> AffineIndices | None:
    """Of an element of a tuple that is built in place."""
    return counting.of(source.operands[index], cut) if source.opcode == "tuple" else None


def _carried(counting: _Counting, loop: Instruction, index: int, cut: _Cut) -> AffineIndices | None:
    """Of an element of a loop's carry that the body hands on as it is."""
    if not hands_on(while_parts(loop).body, index):
        return None
    return _element_of(counting, loop.operands[0], index, cut)


_ELEMENTS: dict[str, Callable[[_Counting, Instruction, int, _Cut], AffineIndices | None]] = {
    "while": _carried,
    "parameter": _handed,
}
"""Where an element of a tuple is looked for; in any other op the tuple is built in place."""
