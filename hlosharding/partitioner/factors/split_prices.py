"""The price of one split of an op: bring operands and halos into place, compute, reduce, bring the result into place.

Floor: partitioner.  And how much of the op one device computes under it, so that bytes are not bought with repeated
work: a part of the whole, 1/8 where 8 devices divide it, 1 where each does all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt

from hlosharding.ir import Shape
from hlosharding.partitioner.broadcast_dims import one_slice_of
from hlosharding.partitioner.choice import FactorChoice
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, Operand, Result
from hlosharding.partitioner.factors.factor_roles import (
    contracts,
    divides_work,
    is_reduced,
    num_points,
    reduce_kind_of,
    reduces,
)
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.local_ops import HaloPlan
from hlosharding.partitioner.prices import NOTHING, ROUNDING, Cost, Numbers, Prices
from hlosharding.sharding import HloSharding, replicate_on_dims, without_partials

Table = npt.NDArray[np.int64]


def priced_split(
    problem: ChoiceProblem, space: HloSharding, prices: Prices, limit: float = math.inf, least: Sequence[float] = ()
) -> FactorChoice | None:
    """How the op is computed under a split of its iteration space, and for how much; None for more than the limit.

    `least`: seconds to move each operand, to move each result, to compute at least.  They stand for what is not priced
    yet: where a split is dearer already, the reshards that are left are not planned.
    """
    signature, num_tiles = problem.signature, problem.num_tiles(space)
    deferred = tuple(f for f, n in enumerate(num_tiles) if n > 1 and is_reduced(signature, f))
    kind = next((reduce_kind_of(signature, f) for f in deferred), None)
    results = tuple(problem.result_sharding(result, space, deferred) for result in problem.results)
    seconds_of, count = list(least), len(problem.operands)

    def is_dearer(number: int, cost: Cost) -> bool:
        # By a slice, for without bounds the list is empty: there is no limit then, so that the sum decides nothing.
        seconds_of[number : number + 1] = [prices.comparable_seconds(cost)]
        return sum(seconds_of) * ROUNDING > limit

    reducing, fetching, operands = list[Cost](), NOTHING, list[HloSharding]()
    # Results first, and bounds in place of what is not priced yet: so 7 plans of ResNet's reshards are of splits that
    # lose, where 13 were.
    for number, (result, source) in enumerate(zip(problem.results, results, strict=True), count):
        reducing.append(_result_cost(result, source, kind, prices))
        if is_dearer(number, reducing[-1]):
            return None
    for number in range(count):
        cost, place = _placed(problem, number, space, prices)
        fetching, operands = fetching + cost, [*operands, place]
        if is_dearer(number, cost):
            return None
    moving = sum(reducing, fetching)
    seconds = prices.comparable_seconds(moving)
    fetched = prices.comparable_seconds(fetching)
    choice = FactorChoice(signature, space, tuple(operands), results, deferred, kind, fetched, seconds, seconds)
    return replace(choice, seconds=seconds + _compute_seconds(problem, choice, prices))


def _compute_seconds(problem: ChoiceProblem, choice: FactorChoice, prices: Prices) -> float:
    """Seconds of one device's part of the op alone."""
    points = num_points(choice.signature, problem.num_tiles(choice.space)) * problem.products_a_point
    nbytes = memory_bytes(problem, choice)
    return prices.compute_seconds(points, nbytes, bool(choice.deferred) or reduces(choice.signature))


def memory_bytes(problem: ChoiceProblem, choice: FactorChoice) -> float:
    """What one device's part of the op reads and writes."""
    reads = [(o.shape, s) for o, s in zip(problem.operands, choice.operands, strict=True) if not o.is_read_in_part]
    results = [(r.shape, s) for r, s in zip(problem.results, choice.results, strict=True)]
    tensors = reads + results * problem.result_passes
    return problem.memory_passes * sum(_tile(s, sharding).byte_size for s, sharding in tensors if s.is_array)


def _tile(shape: Shape, sharding: HloSharding) -> Shape:
    return shape.with_dims(sharding.tile_shape(shape.dims))


def _result_cost(result: Result, source: HloSharding, kind: str | None, prices: Prices) -> Cost:
    """What it costs to reduce a result and to bring it into the sharding it is wanted in."""
    whole = without_partials(source)
    kind = kind if source is not whole else None
    target = result.wanted if result.wanted is not None else replicate_on_dims(whole, result.looked_up)
    if kind == "other":
        gathered = prices.gather_partials_cost(result.shape, source)
        return gathered + prices.reshard_cost(result.shape, whole, target, None)
    # Partial sums do not travel as one slice (`resharding`): they are summed as they lie.
    return prices.reshard_cost(*one_slice_of(result.shape, source, target, () if kind else result.broadcast_dims), kind)


def _placed(problem: ChoiceProblem, number: int, space: HloSharding, prices: Prices) -> tuple[Cost, HloSharding]:
    """(cost, sharding): where an operand shall lie, and the price of bringing it and its halos there.

    Along the dim of a split window it is split, and halos are exchanged; or whole, and each device cuts out what its
    window needs.  The cheapest combination over all split windows wins.
    """
    operand = problem.operands[number]
    target = problem.operand_sharding(operand, space)
    halos = _halo_plans(problem, number, space)
    if not halos:
        return _operand_cost(operand, target, prices), target
    places: list[tuple[Cost, HloSharding]] = []
    for is_whole in product((False, True), repeat=len(halos)):
        exchanged = [plan for (_, plan), whole in zip(halos, is_whole, strict=True) if not whole]
        place = untile(target, tuple(dim for (dim, _), whole in zip(halos, is_whole, strict=True) if whole))
        if not any(plan.is_far for plan in exchanged):
            cost = _operand_cost(operand, place, prices) + _halo_cost(operand, place, exchanged, prices)
            places.append((cost, place))
    return min(places, key=lambda place: prices.comparable_seconds(place[0]))


def _halo_plans(problem: ChoiceProblem, number: int, space: HloSharding) -> list[tuple[int, HaloPlan]]:
    """(dim of the operand, plan) of the split windows through which an operand is seen."""
    windows = zip(problem.windows, problem.num_tiles(space), strict=True)
    seen = ((w.dim, w.plan(n, number)) for w, n in windows if w is not None and n > 1 and w.sees(number))
    return [(dim, plan) for dim, plan in seen if plan is not None]


def _operand_cost(operand: Operand, place: HloSharding, prices: Prices) -> Cost:
    lies = operand.lies
    cost = NOTHING if lies.is_free else prices.move_cost(lies, lies.sharding, place)
    if cost is NOTHING:
        return cost
    others = [prices.move_cost(lies, copy, place) for copy in lies.copies]
    return min([cost, *others], key=prices.comparable_seconds).in_each_of(lies.trips)


def _halo_cost(operand: Operand, place: HloSharding, plans: Sequence[HaloPlan], prices: Prices) -> Cost:
    tile = _tile(operand.shape, place).byte_size
    # A dim of no elements has tiles of none, by which nothing can be divided.
    costs = (prices.halo_cost(tile * plan.received / plan.tile, plan.messages) for plan in plans if tile)
    return sum(costs, NOTHING)


# ---- repeated work


def work_per_device(problem: ChoiceProblem, num_tiles: Table, kept: Sequence[int]) -> Numbers:
    """[split]: the part of the op one device computes.

    `num_tiles`: [split, factor].  By how much a split that operands and results have in common (`kept` tiles along each
    factor) rounds uneven dims up, and the sums that it owes, are no repeated work.
    """
    signature = problem.signature
    work = np.ones(len(num_tiles))
    for number, factor in enumerate(signature.factors):
        if factor.size and divides_work(signature, number):
            tiles = num_tiles[:, number]
            rounded_up = -(-factor.size // tiles) / factor.size
            work *= 1 / np.minimum(tiles, factor.size) if kept[number] > 1 else rounded_up
    owed = [f for f in range(len(signature.factors)) if kept[f] == 1 and is_reduced(signature, f)]
    return work + _summing(problem, num_tiles, num_tiles[:, owed].prod(1)) if contracts(signature) else work


def _summing(problem: ChoiceProblem, num_tiles: Table, parts: Numbers) -> Numbers:
    """What a device adds up of so many partial results, as a part of the op's multiplications and additions."""
    signature = problem.signature
    elements = np.zeros(len(num_tiles))
    for result in problem.results:
        tiles = np.ones(len(num_tiles))
        for size, factors in zip(result.shape.dims, result.dims, strict=True):
            tiles *= -(-size // num_tiles[:, list(factors)].prod(1))
        elements += tiles
    points = num_points(signature, (1,) * len(signature.factors)) * problem.products_a_point
    # Of g parts a device combines (g - 1) / g of the elements, by ring as by halving; half of that, for a point is a
    # multiplication and an addition.
    return elements * (parts - 1) / parts / 2 / (points or 1)
