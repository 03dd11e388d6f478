"""How one op is split: candidates from the shardings around it, each priced; the cheapest that repeats no work wins.

Floor: partitioner.  The price of a candidate: reshard the operands, exchange halos, compute, reduce partial results,
reshard the result.  Choices depend on the signature, shapes and shardings alone and are memoised by the caller, so
repeated layers are decided once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hlosharding.partitioner.choice import FactorChoice
from hlosharding.partitioner.factors.candidate_splits import candidate_splits, common_split, split_copies
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem
from hlosharding.partitioner.factors.factor_roles import contracts, divides_work, is_reduced
from hlosharding.partitioner.factors.least_seconds import least_seconds
from hlosharding.partitioner.factors.split_prices import priced_split, work_per_device
from hlosharding.partitioner.factors.splits import Splits, splits_by_axes
from hlosharding.partitioner.prices import Prices
from hlosharding.sharding import HloSharding, TileAssignment

# Repeated work that may buy bytes.
_EXTRA_WORK = 1.05
# What one more collective counts beside large arrays, unless the objective is time.
_EXTRA_SECONDS = 1.001
_MOST_PRICED = 5
"""Of the splits of one op, those that promise most.  Bounds are near the prices: more than these hardly ever win."""


class _Priced(NamedTuple):
    problem: ChoiceProblem
    choice: FactorChoice


class _Pool:
    """Splits of one problem, what they cost at least, and what part of the op a device computes under each."""

    def __init__(self, problem: ChoiceProblem, common: HloSharding, splits: Splits, prices: Prices) -> None:
        self.problem, self.splits = problem, splits
        self.work = work_per_device(problem, splits.num_tiles, problem.num_tiles(common))
        self.least = least_seconds(problem, splits, prices)


def choose(
    problems: Sequence[ChoiceProblem], prices: Prices, *, waits: bool = False, mesh: TileAssignment | None = None
) -> FactorChoice:
    """The cheapest split that does not repeat work; on a tie the first, and the result's own sharding is the first.

    Each problem is the op with one of its alternative signatures.  `waits`: partial results need not be reduced at
    once, but later, together with others; then operands that can stay where they are do stay.  `mesh`: its devices, a
    dim for each axis.
    """
    free = _free_split(problems, prices)
    if free is not None:
        return free
    commons = [common_split(problem) for problem in problems]
    claimed = [_claimed(p, common, prices) for p, common in zip(problems, commons, strict=True)]
    most = _EXTRA_WORK * _necessary_work(problems, commons, claimed)
    best = _cheapest(claimed, prices, most) or _cheapest(claimed, prices, math.inf)
    assert best is not None, "an op that nobody splits can be computed"
    moved = best.choice.fetching if waits and best.choice.deferred else best.choice.communication
    if moved > 0:
        by_axes = [_by_axes(p, common, prices, mesh) for p, common in zip(problems, commons, strict=True)]
        best = _cheapest([pool for pool in by_axes if pool is not None], prices, most, best) or best
    return _with_copies_split(best, prices)


def _free_split(problems: Sequence[ChoiceProblem], prices: Prices) -> FactorChoice | None:
    """What is claimed first, if every device has its own part and all lies right: most ops are such."""
    if len(problems) > 1:
        return None
    claims = problems[0].claims()
    if not claims or claims[0].space.num_tiles < prices.machine.num_devices:
        return None
    if not problems[0].can_be_computed(claims[0].space):
        return None
    choice = priced_split(problems[0], claims[0].space, prices)
    return choice if choice.communication == 0 else None


def _claimed(problem: ChoiceProblem, common: HloSharding, prices: Prices) -> _Pool:
    """What operands and results claim, as far as it can be computed."""
    spaces = [space for space in candidate_splits(problem, common) if problem.can_be_computed(space)]
    splits = Splits.of(spaces, len(problem.signature.factors), prices.machine.num_devices)
    return _Pool(problem, common, splits, prices)


def _by_axes(problem: ChoiceProblem, common: HloSharding, prices: Prices, mesh: TileAssignment | None) -> _Pool | None:
    """Every way to put each axis of the devices on one factor, or on none; on windows only as claimed."""
    spaces = [claim.space for claim in problem.full_claims()]
    claimed = {split for space in spaces for split in enumerate(problem.num_tiles(space))}

    def may_be_split(factor: int, num_tiles: int) -> bool:
        is_worth_a_try = problem.windows[factor] is None or (factor, num_tiles) in claimed
        return is_worth_a_try and problem.is_possible(factor, num_tiles)

    splits = splits_by_axes(spaces, mesh, len(problem.signature.factors), may_be_split)
    return None if splits is None else _Pool(problem, common, splits, prices)


def _cheapest(pools: Sequence[_Pool], prices: Prices, most_work: float, best: _Priced | None = None) -> _Priced | None:
    """The cheapest split of so much work, or `best` where none is cheaper; only what may still win is priced."""
    lean = [
        (float(p.least[n]), i, n) for i, p in enumerate(pools) for n in np.flatnonzero(p.work <= most_work).tolist()
    ]
    found = (best.choice.seconds, -1, -1) if best is not None else (math.inf, 0, 0)
    for least, i, n in sorted(lean)[:_MOST_PRICED]:
        if least > found[0]:
            break
        problem = pools[i].problem
        choice = priced_split(problem, pools[i].splits.space(n), prices)
        if (choice.seconds, i, n) < found:
            best, found = _Priced(problem, choice), (choice.seconds, i, n)
    return best


def _necessary_work(
    problems: Sequence[ChoiceProblem], commons: Sequence[HloSharding], claimed: Sequence[_Pool]
) -> float:
    """The work of the splits that operands and results have in common.

    A contraction computes far more than it reads: there it is that of the candidate that divides most, if that is less.
    What looks rows up computes nothing: its work, which has its price, may be repeated.
    """
    if any(not divides_work(p.signature, f) for p in problems for f in range(len(p.signature.factors))):
        return math.inf
    necessary = min(_work_of(p, space) for p, space in zip(problems, commons, strict=True))
    least = min(float(pool.work.min()) for pool in claimed)
    if necessary <= _EXTRA_WORK * least or not any(contracts(p.signature) for p in problems):
        return necessary
    return least


def _work_of(problem: ChoiceProblem, space: HloSharding) -> float:
    num_tiles = problem.num_tiles(space)
    return float(work_per_device(problem, np.array([num_tiles]), num_tiles)[0])


def _with_copies_split(best: _Priced, prices: Prices) -> FactorChoice:
    """Where several devices would compute the same partial sums: each computes a part of them, if nothing more is sent.

    A dot `m k, k n -> m n` split [1,2,1] over 8 devices makes each of its two partial sums four times; split [4,2,1]
    each device makes, and reduces, a quarter of one.
    """
    problem, choice = best
    space, signature = choice.space, problem.signature
    has_copies = choice.deferred and space.num_tiles < space.total_num_tiles
    if not has_copies or any(r.wanted is None for r in problem.results):
        return choice
    for factor, tiles in enumerate(space.data_dims):
        parts = math.gcd(signature.factors[factor].size, space.total_num_tiles // space.num_tiles)
        if tiles > 1 or parts == 1 or is_reduced(signature, factor) or not problem.is_possible(factor, parts):
            continue
        shared = priced_split(problem, split_copies(space, factor, parts), prices)
        if shared.communication <= choice.communication * _EXTRA_SECONDS:
            return shared
    return choice
