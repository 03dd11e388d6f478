"""The one lowering for every op whose dims are declared: choose a tiling of its factors, by price.

Floor: partitioner.  Candidates are what the operands' and the result's shardings imply, and their merges.  Each is
priced: move the operands there, compute, pay what is owed, move the result.  The cheapest wins.  Choices depend on the
signature, shapes and shardings alone and are memoised, so repeated layers are decided once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from hlosharding.ir import Shape
from hlosharding.partitioner.broadcast_dims import slimmed
from hlosharding.partitioner.choice import Choice
from hlosharding.partitioner.factors.windows import Windowed
from hlosharding.partitioner.iteration_space import lift, mirror, project, project_result, untile
from hlosharding.partitioner.prices import Prices
from hlosharding.rules import Dims, Halo, Reduce, Signature, Whole
from hlosharding.sharding import (
    REPLICATED,
    HloSharding,
    merge_if_compatible,
    move_and_merge_tiles,
    without_partials,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What a choice depends on."""

    signature: Signature
    operand_shapes: tuple[Shape, ...]
    operand_shardings: tuple[HloSharding, ...]
    reduce_kinds: tuple[str | None, ...]
    """Of operands that are partial results."""
    rematerialized: tuple[bool, ...]
    """Operands that are made anew in any sharding, for nothing."""
    result_shapes: tuple[Shape, ...]
    wanted: tuple[HloSharding | None, ...]
    """Per result leaf; None where any sharding will do."""
    allowed: frozenset[int]
    """Factors that may be split."""
    windows: tuple[Windowed | None, ...]
    """Of each factor along which pieces need neighbours' elements: what they need."""
    mirrored: tuple[tuple[int, ...], ...]
    """Of each operand the dims whose tiles lie in the opposite order."""
    broadcast_dims: tuple[tuple[int, ...], ...]
    """Of each operand the dims along which all elements are the same."""
    result_broadcast_dims: tuple[tuple[int, ...], ...]
    """The same, of each result leaf."""


def splittable(signature: Signature, *, halo: bool, indexed: bool, any_reducer: bool) -> frozenset[int]:
    """Factors that may be split, given what the op's lowering can do beyond the plain one."""

    def may(owes: object) -> bool:
        match owes:
            case Whole(indexed=by_index):
                return by_index and indexed
            case Halo():
                return halo
            case Reduce(kind=kind):
                return kind != "other" or any_reducer
            case _:
                return True

    kinds = {f.owes.kind for f in signature.factors if isinstance(f.owes, Reduce)}
    if len(kinds) > 1:  # partial results have one kind
        return frozenset(i for i, f in enumerate(signature.factors) if may(f.owes) and not isinstance(f.owes, Reduce))
    return frozenset(i for i, f in enumerate(signature.factors) if may(f.owes))


# Repeated work that may buy bytes.
_EXTRA_WORK = 1.05


def choose(problems: Sequence[Problem], prices: Prices) -> Choice:
    """The cheapest candidate that does not repeat work; on a tie the first, and the result's own sharding is the first.

    Problems are readings of one op.
    """
    tried: list[_Tried] = []
    agreed = [_agreed(p) for p in problems]
    for problem, common in zip(problems, agreed, strict=True):
        claims = [space for _, space in _claims(problem)]
        for space in dict.fromkeys([*_candidates(claims), common, *_moved(problem)]):
            choice = _priced(problem, space, prices)
            if choice is not None:
                tried.append(_Tried(problem, choice, _work(problem, space, common)))
    most = _EXTRA_WORK * _necessary_work(problems, agreed, tried)
    lean = [t for t in tried if t.work <= most]
    best = min(lean or tried, key=lambda t: t.choice.seconds)
    return _over_copies(best.problem, best.choice, prices)


class _Tried(NamedTuple):
    problem: Problem
    choice: Choice
    work: float
    """The part of the op one device computes."""


def _necessary_work(problems: Sequence[Problem], agreed: Sequence[HloSharding], tried: Sequence[_Tried]) -> float:
    """The work of the splits that the op's tensors agree on.

    A contraction computes far more than it reads: there it is that of the candidate that divides most, if that is less.
    """
    necessary = min(_work(p, space, space) for p, space in zip(problems, agreed, strict=True))
    least = min(t.work for t in tried)
    if necessary <= _EXTRA_WORK * least or not any(_contracts(p.signature) for p in problems):
        return necessary
    return least


def _over_copies(problem: Problem, best: Choice, prices: Prices) -> Choice:
    """Where copies of one partial sum would be made: each makes its part of it, if no more moves for that."""
    if not best.deferred or None in problem.wanted or best.space.num_tiles == best.space.total_num_tiles:
        return best
    moving = best.seconds - _working(problem, best, prices)
    for factor, ways in enumerate(best.space.data_dims):
        size = problem.signature.factors[factor].size
        parts = math.gcd(size, best.space.total_num_tiles // best.space.num_tiles)
        if ways > 1 or parts == 1 or factor not in problem.allowed or is_reduced(problem.signature, factor):
            continue
        choice = _priced(problem, _beside(best.space, factor, parts), prices)
        if choice is not None and choice.seconds - _working(problem, choice, prices) <= moving * _SAME:
            return choice
    return best


# What one more collective counts beside large arrays, unless the objective is time.
_SAME = 1.001


def _contracts(signature: Signature) -> bool:
    """Is there a factor that two operands carry and no result?"""
    return any(
        isinstance(f.owes, Reduce) and len(signature.operand_dims(n)) > 1 for n, f in enumerate(signature.factors)
    )


def _work(problem: Problem, space: HloSharding, agreed: HloSharding) -> float:
    """The part of the op one device computes.

    How far splits that the tensors agree on round uneven dims up, and the sums that they owe, is no repeated work.
    """
    signature = problem.signature
    ways, kept = _ways(signature, space), _ways(signature, agreed)
    work = 1.0
    for number, factor in enumerate(signature.factors):
        if factor.size and not is_looked_up(signature, number):
            even = kept[number] > 1 or not factor.size % ways[number]
            work *= 1 / min(ways[number], factor.size) if even else -(-factor.size // ways[number]) / factor.size
    deferred = math.prod(n for f, n in enumerate(ways) if kept[f] == 1 and is_reduced(signature, f))
    return work + _adding_up(problem, ways, deferred) if deferred > 1 and _contracts(signature) else work


def _adding_up(problem: Problem, ways: Sequence[int], parts: int) -> float:
    """What a device adds up of so many partial results, beside the multiplications and additions of all of the op."""
    signature = problem.signature
    elements = sum(
        math.prod(-(-size // math.prod(ways[f] for f in factors)) for size, factors in zip(s.dims, dims, strict=True))
        for s, dims in zip(problem.result_shapes, signature.results, strict=True)
    )
    return elements * (parts - 1) / parts / 2 / (_elements(signature, (1,) * len(signature.factors)) or 1)


def _agreed(problem: Problem) -> HloSharding:
    """The splits that all ways of computing the op should keep: fewer bytes bought with repeated work are no win.

    A split of a factor counts if two tensors that carry it claim the same, or if only one tensor carries it.
    """
    signature, claims = problem.signature, list(_claims(problem))
    every = range(len(signature.factors))
    agreed = REPLICATED
    for factor in every:
        if factor not in problem.allowed or is_looked_up(signature, factor):
            continue
        others = tuple(f for f in every if f != factor)
        carriers = [space for dims, space in claims if any(factor in parts for parts in dims)]
        split = [s for space in carriers if (s := untile(space, others)).num_tiles > 1]
        common = next((s for n, s in enumerate(split) if s in split[:n]), None)
        if common is None and split and _carriers(signature, factor) == 1:
            common = split[0]
        if common is not None:
            # A split of rows that indices name divides no work: it is worth no copies.
            is_named = isinstance(signature.factors[factor].owes, Whole)
            agreed = _merge(agreed, common) if is_named else _both(agreed, common, factor)
    return agreed


def _both(agreed: HloSharding, split: HloSharding, factor: int) -> HloSharding:
    """Both splits; where the devices of one are not those of the other, the second goes over copies of the first."""
    if agreed.kind != "tiled" or merge_if_compatible(agreed, split) is not None:
        return _merge(agreed, split)
    ways = split.num_tiles_along(factor)
    return agreed if agreed.total_num_tiles // agreed.num_tiles % ways else _beside(agreed, factor, ways)


def _beside(space: HloSharding, factor: int, ways: int) -> HloSharding:
    """The space with a whole factor split over its copies.

    >>> str(_beside(HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"), 1, 2))
    '{devices=[2,2,2]<=[8] last_tile_dim_replicate}'
    """
    dims = space.data_dims
    grid = np.moveaxis(space.tiles.array.reshape(*dims, ways, -1), len(dims), factor)
    return HloSharding.partial_tile(grid.reshape(*dims[:factor], ways, *dims[factor + 1 :], -1)).meaning


def _carriers(signature: Signature, factor: int) -> int:
    return sum(any(factor in parts for parts in dims) for dims in (*signature.operands, *signature.results))


def _ways(signature: Signature, space: HloSharding) -> Sequence[int]:
    return space.data_dims if space.kind == "tiled" else (1,) * len(signature.factors)


def _claims(problem: Problem) -> Iterator[tuple[Dims, HloSharding]]:
    """(dims of a tensor, the iteration space its sharding implies, as far as it may be split)."""
    for dims, space in _lifted(problem):
        yield dims, untile(space, _stuck(problem, space))


def _lifted(problem: Problem) -> Iterator[tuple[Dims, HloSharding]]:
    """(dims of a tensor, the iteration space its sharding implies): results first, then operands."""
    signature, count = problem.signature, len(problem.signature.factors)
    for dims, wanted in zip(signature.results, problem.wanted, strict=True):
        if wanted is not None:
            yield dims, lift(wanted, major_dims(dims, signature), count)
    operands = zip(signature.operands, problem.operand_shardings, problem.mirrored, strict=True)
    for dims, sharding, backwards in operands:
        yield dims, lift(mirror(sharding, backwards), major_dims(dims, signature), count)


def _stuck(problem: Problem, space: HloSharding) -> tuple[int, ...]:
    """Factors split in `space` that may not be, or whose windows no piece can have at that split."""
    if space.kind != "tiled":
        return ()
    found: list[int] = []
    for factor, ways in enumerate(space.data_dims):
        windowed = problem.windows[factor]
        if ways > 1 and (factor not in problem.allowed or (windowed is not None and windowed.plan(ways) is None)):
            found.append(factor)
    return tuple(found)


def _moved(problem: Problem) -> Iterator[HloSharding]:
    """Where a factor must be whole: its tiles on another factor instead, so that the work stays divided."""
    factors = problem.signature.factors
    for _, space in _lifted(problem):
        stuck = _stuck(problem, space)
        for target in problem.allowed.difference(stuck) if stuck else ():
            moved = space
            for factor in stuck:
                moved = move_and_merge_tiles(moved, factor, target)
            if factors[target].size % moved.num_tiles_along(target) == 0:
                yield moved.meaning


def _candidates(claims: list[HloSharding]) -> Iterator[HloSharding]:
    claims = list(dict.fromkeys(claims))
    yield from claims
    merged = REPLICATED
    for claim in claims:
        merged = _merge(merged, claim)
        yield merged
    if len(claims) <= 4:
        for left, right in combinations(claims, 2):
            yield _merge(left, right)
            yield _merge(right, left)
    yield REPLICATED


def _merge(left: HloSharding, right: HloSharding) -> HloSharding:
    """Both tilings at once if they go together, else `left`."""
    if left.kind != "tiled" or right.kind != "tiled":
        return right if left.kind != "tiled" else left
    merged = merge_if_compatible(left, right)
    return left if merged is None else merged.meaning


def _priced(problem: Problem, space: HloSharding, prices: Prices) -> Choice | None:
    signature = problem.signature
    ways = _ways(signature, space)
    split = [f for f, n in enumerate(ways) if n > 1]
    if not problem.allowed.issuperset(split) or any(_cuts_through(signature, f, ways[f]) for f in split):
        return None
    deferred = tuple(f for f in split if is_reduced(signature, f))
    operands = tuple(
        mirror(project(space, major_dims(dims, signature)), backwards)
        for dims, backwards in zip(signature.operands, problem.mirrored, strict=True)
    )
    results = tuple(project_result(space, major_dims(dims, signature), deferred) for dims in signature.results)
    kind = next((_kind(signature, f) for f in deferred), None)
    windowed = [(w, ways[f]) for f in split if (w := problem.windows[f]) is not None]
    if any(w.plan(n) is None for w, n in windowed):
        return None
    placed = [_placed(problem, number, target, windowed, prices) for number, target in enumerate(operands)]
    operands = tuple(place for _, place in placed)
    seconds = sum(price for price, _ in placed)
    leaves = zip(problem.result_shapes, results, problem.wanted, problem.result_broadcast_dims, strict=True)
    for shape, source, wanted, broadcast_dims in leaves:
        target = wanted if wanted is not None else without_partials(source)
        if kind == "other":
            seconds += prices.gather_partials(shape, source) + prices.move(
                shape, without_partials(source), target, None
            )
        else:
            seconds += prices.move(*slimmed(shape, source, target, () if kind else broadcast_dims), kind)
    choice = Choice(signature, space, operands, results, deferred, kind, seconds)
    return replace(choice, seconds=seconds + _working(problem, choice, prices))


def _working(problem: Problem, choice: Choice, prices: Prices) -> float:
    """Seconds of computing the pieces."""
    elements = _elements(choice.signature, _ways(choice.signature, choice.space))
    nbytes = _local_bytes(problem, choice.operands, choice.results)
    return prices.work(elements, nbytes, bool(choice.deferred) or _mixes(choice.signature))


def major_dims(dims: Dims, signature: Signature) -> Dims:
    """Of a dim made of several factors the major one, which alone can be split; parts of size 1 do not count."""
    if all(len(factors) <= 1 for factors in dims):
        return dims
    real = (tuple(f for f in factors if signature.factors[f].size > 1) or factors for factors in dims)
    return tuple(factors[:1] for factors in real)


def is_reduced(signature: Signature, factor: int) -> bool:
    """Must the pieces along a split factor be combined?"""
    owes = signature.factors[factor].owes
    return isinstance(owes, Reduce) or is_looked_up(signature, factor)


def is_looked_up(signature: Signature, factor: int) -> bool:
    """Are rows along the factor only looked up?  A split of it saves no work: every device looks all of them up."""
    owes = signature.factors[factor].owes
    return isinstance(owes, Whole) and owes.indexed and not signature.result_dims(factor)


def _cuts_through(signature: Signature, factor: int, ways: int) -> bool:
    """Would the split cut through a dim made of several factors: of a minor one, or unevenly of the major one?"""
    for dims in (*signature.operands, *signature.results):
        for parts, major in zip(dims, major_dims(dims, signature), strict=True):
            if len(parts) > 1 and factor in parts and (major != (factor,) or signature.factors[factor].size % ways):
                return True
    return False


def _placed(
    problem: Problem, number: int, target: HloSharding, windowed: Sequence[tuple[Windowed, int]], prices: Prices
) -> tuple[float, HloSharding]:
    """(seconds, sharding): where an operand shall lie, and the price of bringing it and neighbours' strips there.

    Along the dim of a split window it is split, and strips are sent; or whole, and each piece takes its run of it.
    """
    shape, free = problem.operand_shapes[number], problem.rematerialized[number]

    def move(place: HloSharding) -> float:
        kind = problem.reduce_kinds[number]
        if free:
            return 0.0
        return prices.move(
            *slimmed(shape, problem.operand_shardings[number], place, problem.broadcast_dims[number]), kind
        )

    seen = [(w.dim, plan) for w, n in windowed if w.sees(number) and (plan := w.plan(n, number)) is not None]
    if not seen:
        return move(target), target
    ways: list[tuple[float, HloSharding]] = []
    for is_whole in product((False, True), repeat=len(seen)):
        split = [plan for (_, plan), whole in zip(seen, is_whole, strict=True) if not whole]
        place = untile(target, tuple(dim for (dim, _), whole in zip(seen, is_whole, strict=True) if whole))
        if not any(plan.is_far for plan in split):
            tile = shape.with_dims(place.tile_shape(shape.dims)).byte_size
            strips = sum(prices.neighbours(tile * plan.received / plan.tile, plan.messages) for plan in split)
            ways.append((move(place) + strips, place))
    return min(ways, key=lambda way: way[0])


def _kind(signature: Signature, factor: int) -> str:
    owes = signature.factors[factor].owes
    return owes.kind if isinstance(owes, Reduce) else "add"


def _mixes(signature: Signature) -> bool:
    return any(isinstance(f.owes, Reduce) for f in signature.factors)


def _elements(signature: Signature, ways: Sequence[int]) -> int:
    """Points of the iteration space one device computes."""
    looked_up = (is_looked_up(signature, n) for n in range(len(signature.factors)))
    return math.prod(-(-f.size // n) for f, n, skip in zip(signature.factors, ways, looked_up, strict=True) if not skip)


def _local_bytes(problem: Problem, operands: Sequence[HloSharding], results: Sequence[HloSharding]) -> int:
    pairs = [*zip(problem.operand_shapes, operands, strict=True), *zip(problem.result_shapes, results, strict=True)]
    return sum(s.with_dims(sharding.tile_shape(s.dims)).byte_size for s, sharding in pairs if s.is_array)
