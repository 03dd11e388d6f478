"""How one op is split: candidates from the shardings around it, each priced; the cheapest that repeats no work wins.

Floor: partitioner.  The price of a candidate: reshard the operands, exchange halos, compute, reduce partial results,
reshard the result.  Choices depend on the signature, shapes and shardings alone and are memoised by the caller, so
repeated layers are decided once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from hlosharding.partitioner.choice import FactorChoice
from hlosharding.partitioner.factors.choice_problem import (
    ChoiceProblem,
    SplitQuestion,
    candidate_splits,
    common_split,
    split_copies,
)
from hlosharding.partitioner.factors.factor_roles import contracts, divides_work, is_reduced
from hlosharding.partitioner.factors.least_seconds import Least, least_seconds
from hlosharding.partitioner.factors.split_prices import priced_split, work_per_device
from hlosharding.partitioner.factors.splits import Splits, splits_by_axes
from hlosharding.partitioner.partial_sums import is_wanted_partial
from hlosharding.partitioner.prices import ROUNDING, Prices
from hlosharding.reshard import MORE_WORK
from hlosharding.sharding import HloSharding, TileAssignment

# What one more collective counts beside large arrays, unless the objective is time.
_EXTRA_SECONDS = 1.001
# With five, 5 of 150 ops priced in seconds are above 1.1 of the best, with 48 none; but with 48 two plans of a scanned
# Llama took 1.3 and 2.5 % longer.
_MOST_PRICED = 5
"""Of the splits of one op, those that promise most.  Bounds are near the prices: more than these hardly ever win."""


class _Priced(NamedTuple):
    problem: ChoiceProblem
    choice: FactorChoice


class _Pool:
    """Splits of one problem: what operands and results claim, first, and all by the axes of the devices.

    For each what it costs at least, and what part of the op a device computes.
    """

    def __init__(self, problem: ChoiceProblem, prices: Prices, mesh: TileAssignment | None) -> None:
        self.problem, self.prices = problem, prices
        self.common = common_split(problem)
        claimed = [s for s in candidate_splits(problem, self.common) if problem.can_be_computed(s)]
        # On windows only as claimed.
        by_axes = splits_by_mesh(problem, mesh, [claim.space for claim in problem.full_claims()])
        rows = [None] * len(claimed) if by_axes is None else [by_axes.row(space) for space in claimed]
        alien = [space for space, row in zip(claimed, rows, strict=True) if row is None]
        self.tables = [] if by_axes is None else [by_axes]
        if alien:
            self.tables.append(Splits.of(alien, len(problem.signature.factors), prices.machine.num_devices))
        found = iter(range(len(alien)))
        last = len(self.tables) - 1
        self.claimed = [(last, next(found)) if row is None else (0, row) for row in rows]
        kept = problem.num_tiles(self.common)
        # The agreed split goes before each table: its own work is found in the same pass.
        work = [work_per_device(problem, np.vstack((kept, table.num_tiles)), kept) for table in self.tables]
        self.agreed_work, self.work = float(work[0][0]), [each[1:] for each in work]

    def keep_agreed(self) -> None:
        """Of a product's claimed splits, keep those of all that two of its operands and results agree on: GSPMD moves
        the third, however large."""
        signature, agreed = self.problem.signature, self.problem.num_tiles(self.common)
        # Not of scatters, which contract, too: rows of an embedding's gradient would no longer stay split by
        # vocabulary.
        if contracts(signature) and all(divides_work(signature, factor) for factor in range(len(agreed))):
            found = [(t, n) for t, n in self.claimed if (self.tables[t].num_tiles[n] >= agreed).all()]
            self.claimed = found or self.claimed

    @cached_property
    def least(self) -> list[Least]:
        """Of each table, seconds at least."""
        return [least_seconds(self.problem, table, self.prices) for table in self.tables]

    def promising(self, most_work: float, *, claimed_only: bool) -> list[tuple[float, int, tuple[int, int]]]:
        """(seconds at least, place in line, split) of those of no more work."""
        claimed = list(dict.fromkeys(self.claimed))
        found = [
            (float(self.least[t].seconds[n]), place, (t, n))
            for place, (t, n) in enumerate(claimed)
            if self.work[t][n] <= most_work
        ]
        if claimed_only:
            return found
        known = set(claimed)
        return found + [
            (float(self.least[0].seconds[n]), len(claimed) + n, (0, n))
            for n in np.flatnonzero(self.work[0] <= most_work).tolist()
            if (0, n) not in known
        ]

    def price(self, split: tuple[int, int], limit: float) -> FactorChoice | None:
        """None where it costs more than the limit."""
        table, number = split
        least = [float(seconds[number]) for seconds in self.least[table].parts]
        return priced_split(self.problem, self.tables[table].space(number), self.prices, limit, least)


def choose(question: SplitQuestion) -> FactorChoice:
    """The cheapest split that does not repeat work, or one that does where that is faster (and time decides); on a tie
    the first, and the result's own sharding is the first.

    Where partial results need not be reduced at once, but later, together with others, operands that can stay where
    they are do stay.
    """
    problems, waits, prices, mesh, only_claimed = question
    free = _free_split(problems, prices)
    if free is not None:
        return free
    pools = [_Pool(problem, prices, mesh) for problem in problems]
    if only_claimed:
        for pool in pools:
            pool.keep_agreed()
    most = MORE_WORK * _necessary_work(pools)
    cheapest = partial(_cheapest, pools, claimed_only=only_claimed)
    # The agreed split may have no lowering, as where it cuts through a dim of several factors: then any work will do.
    best = (_that_waits(pools, most, only_claimed) if waits else None) or cheapest(most) or cheapest(math.inf)
    assert best is not None, "an op that nobody splits can be computed"
    return _with_copies_split(_repeated_if_faster(pools, best, claimed_only=only_claimed), prices)


def _repeated_if_faster(pools: Sequence[_Pool], best: _Priced, *, claimed_only: bool) -> _Priced:
    """Where time decides, the fastest split of any work, if its operands come for no more: `best`, or another one.

    Parts of a small product that idle devices share had to be gathered behind it: each layer of a GPT-2 with weights in
    parts over more axes than the batch had two gathers, where one and the whole product take 0.7 of the time.
    """
    if pools[0].prices.objective != "time" or best.choice.communication == best.choice.fetching:
        return best
    other = _cheapest(pools, math.inf, claimed_only=claimed_only) or best
    is_faster = other.choice.seconds < best.choice.seconds and other.choice.fetching <= best.choice.fetching
    return other if is_faster else best


def _that_waits(pools: Sequence[_Pool], most_work: float, only_claimed: bool) -> _Priced | None:
    """The cheapest claimed split that leaves partial results, unless another split is cheaper still.

    The reduction of results that wait is shared, by two at least: half of it counts.  Beside a split that leaves all
    operands where they are, only claimed ones are looked at.
    """
    waiting = _cheapest(pools, most_work, claimed_only=True, waiting=True)
    if waiting is None:
        return None
    fetching, reducing = waiting.choice.fetching, waiting.choice.communication - waiting.choice.fetching
    best = _cheapest(pools, most_work, claimed_only=only_claimed or fetching == 0)
    return waiting if best is None or waiting.choice.seconds - reducing / 2 <= best.choice.seconds else None


def _free_split(problems: Sequence[ChoiceProblem], prices: Prices) -> FactorChoice | None:
    """What is claimed first, if all lies right, and no other is claimed or no device has a copy: most ops are such."""
    if len(problems) > 1:
        return None
    claims = problems[0].claims()
    if not claims or not problems[0].can_be_computed(claims[0].space):
        return None
    space = claims[0].space
    # Where each device has a tile of its own, no split divides the work further; where some hold copies, another claim
    # might.
    if space.num_tiles < prices.machine.num_devices and any(claim.space is not space for claim in claims):
        return None
    return priced_split(problems[0], space, prices, limit=0.0)


def splits_by_mesh(problem: ChoiceProblem, mesh: TileAssignment | None, spaces: Sequence[HloSharding]) -> Splits | None:
    """Every way to put each axis of the mesh, cut where the given splits cut it, on one factor, or on none."""
    claimed = {split for space in spaces for split in enumerate(problem.num_tiles(space))}

    def may_be_split(factor: int, num_tiles: int) -> bool:
        is_worth_a_try = problem.windows[factor] is None or (factor, num_tiles) in claimed
        return is_worth_a_try and problem.is_possible(factor, num_tiles)

    return splits_by_axes(spaces, mesh, len(problem.signature.factors), may_be_split)


def most_work(problems: Sequence[ChoiceProblem], prices: Prices, mesh: TileAssignment | None) -> float:
    """The part of the op that a device may compute at most."""
    return MORE_WORK * _necessary_work([_Pool(problem, prices, mesh) for problem in problems])


def _cheapest(
    pools: Sequence[_Pool], most_work: float, *, claimed_only: bool = False, waiting: bool = False
) -> _Priced | None:
    """The cheapest split of so much work; only what may still win is priced, what promises most first.

    `waiting`: of those only that leave partial results.
    """
    best, found = None, (math.inf, 0, 0)
    for least, i, place, split in _leanest(pools, most_work, _MOST_PRICED, claimed_only=claimed_only):
        # An equal bound is still priced: of equal prices the one that comes first in line wins.
        if least > found[0]:
            break
        choice = pools[i].price(split, found[0])
        if choice is not None and (choice.deferred or not waiting) and (choice.seconds, i, place) < found:
            best, found = _Priced(pools[i].problem, choice), (choice.seconds, i, place)
    return best


def _leanest(
    pools: Sequence[_Pool], most_work: float, most: int, *, claimed_only: bool
) -> list[tuple[float, int, int, tuple[int, int]]]:
    """(seconds at least, pool, place in line, split) of those that promise most."""
    lean = (
        (least, i, place, split)
        for i, pool in enumerate(pools)
        for least, place, split in pool.promising(most_work, claimed_only=claimed_only)
    )
    return heapq.nsmallest(most, lean)


def _necessary_work(pools: Sequence[_Pool]) -> float:
    """The work of the splits that operands and results have in common.

    A contraction computes far more than it reads: there it is that of the candidate that divides most, if that is less.
    What looks rows up computes nothing: its work, which has its price, may be repeated.
    """
    signatures = [pool.problem.signature for pool in pools]
    if any(not divides_work(s, f) for s in signatures for f in range(len(s.factors))):
        return math.inf
    necessary = min(pool.agreed_work for pool in pools)
    least = min(float(pool.work[t][n]) for pool in pools for t, n in pool.claimed)
    if necessary <= MORE_WORK * least or not any(map(contracts, signatures)):
        return necessary
    return least


def _with_copies_split(best: _Priced, prices: Prices) -> FactorChoice:
    """Where several devices would compute the same partial sums: each computes a part of them, if nothing more is sent.

    A dot `m k, k n -> m n` split [1,2,1] over 8 devices makes each of its two partial sums four times; split [4,2,1]
    each device makes, and reduces, a quarter of one.  Where partial sums are wanted, each may sum a part, too.
    """
    problem, choice = best
    space, signature = choice.space, problem.signature
    has_copies = choice.deferred and space.num_tiles < space.total_num_tiles
    if not has_copies or any(r.wanted is None for r in problem.results):
        return choice
    may_sum = all(is_wanted_partial(r.wanted) for r in problem.results)
    for factor, tiles in enumerate(space.data_dims):
        parts = math.gcd(signature.factors[factor].size, space.total_num_tiles // space.num_tiles)
        is_kept = tiles > 1 or parts == 1 or (is_reduced(signature, factor) and not may_sum)
        if is_kept or not problem.is_possible(factor, parts):
            continue
        shared = priced_split(problem, split_copies(space, factor, parts), prices)
        if shared is not None and shared.communication <= choice.communication * _EXTRA_SECONDS:
            return shared
    return choice


def least_communication(problems: Sequence[ChoiceProblem], prices: Prices, mesh: TileAssignment | None) -> float:
    """`comparable_seconds` of communication that no split of an op without partial results is below."""
    pools = [_Pool(problem, prices, mesh) for problem in problems]
    return min(float(np.sum(least.parts[:-1], axis=0).min()) for pool in pools for least in pool.least) * ROUNDING


class Promising(NamedTuple):
    """A split that `choose` might take, and the part of the op that a device computes under it."""

    problem: ChoiceProblem
    space: HloSharding
    work: float


def promising_splits(
    problems: Sequence[ChoiceProblem],
    prices: Prices,
    mesh: TileAssignment | None,
    *,
    most: int,
    may_repeat: bool = False,
) -> tuple[list[Promising], float]:
    """The splits with the lowest bounds, of no more work than `choose` allows, or of any; and that work."""
    pools = [_Pool(problem, prices, mesh) for problem in problems]
    limit = MORE_WORK * _necessary_work(pools)
    lean = _leanest(pools, math.inf if may_repeat else limit, most, claimed_only=False)
    found = [(pools[i], *split) for _, i, _, split in lean]
    return [Promising(pool.problem, pool.tables[t].space(n), float(pool.work[t][n])) for pool, t, n in found], limit
