"""The one lowering for every op whose dims are declared: choose a tiling of its factors, by price.

Floor: partitioner.  Candidates are what the operands' and the result's shardings imply, and their merges.  Each is
priced: move the operands there, compute, pay what is owed, move the result.  The cheapest wins.  Choices depend on the
signature, shapes and shardings alone and are memoised, so repeated layers are decided once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

from hlosharding.ir import Shape
from hlosharding.partitioner.choice import Choice
from hlosharding.partitioner.pricing import Prices
from hlosharding.partitioner.projection import (
    REPLICATED,
    lift,
    local_shape_dims,
    mirror,
    project,
    project_result,
    untile,
    without_partials,
)
from hlosharding.partitioner.windowed import Windowed
from hlosharding.rules import Dims, Halo, Reduce, Signature, Whole
from hlosharding.sharding import HloSharding, merge_if_compatible, move_and_merge_tiles


@dataclass(frozen=True, slots=True)
class Problem:
    """What a choice depends on."""

    signature: Signature
    operand_shapes: tuple[Shape, ...]
    operand_shardings: tuple[HloSharding, ...]
    reduce_kinds: tuple[str | None, ...]
    """Of operands that are partial results."""
    remade: tuple[bool, ...]
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
    for problem in problems:
        claims = [space for _, space in _claims(problem)]
        for space in dict.fromkeys([*_candidates(claims), *_moved(problem)]):
            choice = _priced(problem, space, prices)
            if choice is not None:
                tried.append(_Tried(choice, _work(problem, space), _share(problem, space)))
    most = _EXTRA_WORK * _necessary_work(problems, tried)
    lean = [t.choice for t in tried if t.work <= most]
    return min(lean or [t.choice for t in tried], key=lambda c: c.seconds)


class _Tried(NamedTuple):
    choice: Choice
    work: float
    """The part of the op one device computes."""
    share: float
    """The same, if all dims were split evenly."""


def _necessary_work(problems: Sequence[Problem], tried: Sequence[_Tried]) -> float:
    """The work of the splits that the op's tensors agree on.

    A contraction computes far more than it reads: there it is the work of the candidates that are split most ways, if
    those are more.  How far these round uneven dims up is no repeated work.
    """
    agreed = min((_work(p, space), _share(p, space)) for p in problems for space in (_agreed(p),))
    least = min(t.share for t in tried)
    if agreed[1] <= _EXTRA_WORK * least or not any(_contracts(p.signature) for p in problems):
        return agreed[0]
    return max(t.work for t in tried if t.share <= _EXTRA_WORK * least)


def _contracts(signature: Signature) -> bool:
    """Is there a factor that two operands carry and no result?"""
    return any(
        isinstance(f.owes, Reduce) and len(signature.operand_dims(n)) > 1 for n, f in enumerate(signature.factors)
    )


def _work(problem: Problem, space: HloSharding) -> float:
    """The part of the op one device computes."""
    signature = problem.signature
    whole = _elements(signature, (1,) * len(signature.factors)) or 1
    return _elements(signature, _ways(signature, space)) / whole


def _share(problem: Problem, space: HloSharding) -> float:
    """The same, if all dims were split evenly."""
    signature = problem.signature
    ways = enumerate(zip(signature.factors, _ways(signature, space), strict=True))
    return 1 / math.prod(max(1, min(f.size, n)) for number, (f, n) in ways if not is_looked_up(signature, number))


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
            agreed = _merge(agreed, common)
    return agreed


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
    owed = tuple(f for f in split if owes_reduction(signature, f))
    operands = tuple(
        mirror(project(space, major_dims(dims, signature)), backwards)
        for dims, backwards in zip(signature.operands, problem.mirrored, strict=True)
    )
    results = tuple(project_result(space, major_dims(dims, signature), owed) for dims in signature.results)
    kind = next((_kind(signature, f) for f in owed), None)
    windowed = [(w, ways[f]) for f in split if (w := problem.windows[f]) is not None]
    if any(w.plan(n) is None for w, n in windowed):
        return None
    placed = [_placed(problem, number, target, windowed, prices) for number, target in enumerate(operands)]
    operands = tuple(place for _, place in placed)
    seconds = sum(price for price, _ in placed) + prices.work(
        _elements(signature, ways), _local_bytes(problem, operands, results), bool(owed) or _mixes(signature)
    )
    for shape, source, wanted in zip(problem.result_shapes, results, problem.wanted, strict=True):
        target = wanted if wanted is not None else without_partials(source)
        if kind == "other":
            seconds += prices.gather_partials(shape, source) + prices.move(
                shape, without_partials(source), target, None
            )
        else:
            seconds += prices.move(shape, source, target, kind)
    return Choice(signature, space, operands, results, owed, kind, seconds)


def major_dims(dims: Dims, signature: Signature) -> Dims:
    """Of a dim made of several factors the major one, which alone can be split; parts of size 1 do not count."""
    if all(len(factors) <= 1 for factors in dims):
        return dims
    real = (tuple(f for f in factors if signature.factors[f].size > 1) or factors for factors in dims)
    return tuple(factors[:1] for factors in real)


def owes_reduction(signature: Signature, factor: int) -> bool:
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
    shape, free = problem.operand_shapes[number], problem.remade[number]

    def move(place: HloSharding) -> float:
        kind = problem.reduce_kinds[number]
        return 0.0 if free else prices.move(shape, problem.operand_shardings[number], place, kind)

    seen = [(w.dim, plan) for w, n in windowed if w.sees(number) and (plan := w.plan(n, number)) is not None]
    if not seen:
        return move(target), target
    ways: list[tuple[float, HloSharding]] = []
    for is_whole in product((False, True), repeat=len(seen)):
        split = [plan for (_, plan), whole in zip(seen, is_whole, strict=True) if not whole]
        place = untile(target, tuple(dim for (dim, _), whole in zip(seen, is_whole, strict=True) if whole))
        if not any(plan.is_far for plan in split):
            tile = shape.with_dims(local_shape_dims(place, shape.dims)).byte_size
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
    return sum(s.with_dims(local_shape_dims(sharding, s.dims)).byte_size for s, sharding in pairs if s.is_array)
