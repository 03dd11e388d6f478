"""The price of one split of an op: bring operands and halos into place, compute, reduce, bring the result into place.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from hlosharding.ir import Shape
from hlosharding.partitioner.broadcast_dims import one_slice_of
from hlosharding.partitioner.choice import FactorChoice
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, Operand, Result
from hlosharding.partitioner.factors.factor_roles import (
    cuts_through_dim,
    is_reduced,
    num_points,
    reduce_kind_of,
    reduces,
)
from hlosharding.partitioner.factors.halo import HaloPlan
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.prices import Prices
from hlosharding.sharding import HloSharding, without_partials


def priced_split(problem: ChoiceProblem, space: HloSharding, prices: Prices) -> FactorChoice | None:
    """How the op is computed under a split of its iteration space, and for how much; None where it cannot be."""
    signature, num_tiles = problem.signature, problem.num_tiles(space)
    split = [f for f, n in enumerate(num_tiles) if n > 1]
    if problem.unsplittable(space) or any(cuts_through_dim(signature, f, num_tiles[f]) for f in split):
        return None
    deferred = tuple(f for f in split if is_reduced(signature, f))
    kind = next((reduce_kind_of(signature, f) for f in deferred), None)
    results = tuple(problem.result_sharding(result, space, deferred) for result in problem.results)
    placed = [_placed(problem, number, space, prices) for number in range(len(problem.operands))]
    seconds = sum(price for price, _ in placed)
    for result, source in zip(problem.results, results, strict=True):
        seconds += _result_seconds(result, source, kind, prices)
    operands = tuple(sharding for _, sharding in placed)
    choice = FactorChoice(signature, space, operands, results, deferred, kind, seconds)
    return replace(choice, seconds=seconds + compute_seconds(problem, choice, prices))


def compute_seconds(problem: ChoiceProblem, choice: FactorChoice, prices: Prices) -> float:
    """Seconds of one device's part of the op alone."""
    points = num_points(choice.signature, problem.num_tiles(choice.space))
    tensors = [
        *((o.shape, s) for o, s in zip(problem.operands, choice.operands, strict=True)),
        *((r.shape, s) for r, s in zip(problem.results, choice.results, strict=True)),
    ]
    nbytes = sum(_tile(shape, sharding).byte_size for shape, sharding in tensors if shape.is_array)
    return prices.compute_seconds(points, nbytes, bool(choice.deferred) or reduces(choice.signature))


def _tile(shape: Shape, sharding: HloSharding) -> Shape:
    return shape.with_dims(sharding.tile_shape(shape.dims))


def _result_seconds(result: Result, source: HloSharding, kind: str | None, prices: Prices) -> float:
    """Seconds to reduce a result and to bring it into the sharding it is wanted in."""
    whole = without_partials(source)
    target = result.wanted if result.wanted is not None else whole
    if kind == "other":
        gathered = prices.gather_partials_seconds(result.shape, source)
        return gathered + prices.reshard_seconds(result.shape, whole, target, None)
    return prices.reshard_seconds(
        *one_slice_of(result.shape, source, target, () if kind else result.broadcast_dims), kind
    )


def _placed(problem: ChoiceProblem, number: int, space: HloSharding, prices: Prices) -> tuple[float, HloSharding]:
    """(seconds, sharding): where an operand shall lie, and the price of bringing it and its halos there.

    Along the dim of a split window it is split, and halos are exchanged; or whole, and each device cuts out what its
    window needs.  The cheapest combination over all split windows wins.
    """
    operand = problem.operands[number]
    target = problem.operand_sharding(operand, space)
    halos = _halo_plans(problem, number, space)
    if not halos:
        return _operand_seconds(operand, target, prices), target
    places: list[tuple[float, HloSharding]] = []
    for is_whole in product((False, True), repeat=len(halos)):
        exchanged = [plan for (_, plan), whole in zip(halos, is_whole, strict=True) if not whole]
        place = untile(target, tuple(dim for (dim, _), whole in zip(halos, is_whole, strict=True) if whole))
        if not any(plan.is_far for plan in exchanged):
            seconds = _operand_seconds(operand, place, prices) + _halo_seconds(operand, place, exchanged, prices)
            places.append((seconds, place))
    return min(places, key=lambda place: place[0])


def _halo_plans(problem: ChoiceProblem, number: int, space: HloSharding) -> list[tuple[int, HaloPlan]]:
    """(dim of the operand, plan) of the split windows through which an operand is seen."""
    num_tiles, found = problem.num_tiles(space), list[tuple[int, HaloPlan]]()
    for window, tiles in zip(problem.windows, num_tiles, strict=True):
        plan = window.plan(tiles, number) if window is not None and tiles > 1 and window.sees(number) else None
        if window is not None and plan is not None:
            found.append((window.dim, plan))
    return found


def _operand_seconds(operand: Operand, place: HloSharding, prices: Prices) -> float:
    if operand.is_free:
        return 0.0
    resharding = one_slice_of(operand.shape, operand.sharding, place, operand.broadcast_dims)
    return prices.reshard_seconds(*resharding, operand.reduce_kind)


def _halo_seconds(operand: Operand, place: HloSharding, plans: Sequence[HaloPlan], prices: Prices) -> float:
    tile = _tile(operand.shape, place).byte_size
    return sum(prices.halo_seconds(tile * plan.received / plan.tile, plan.messages) for plan in plans)
