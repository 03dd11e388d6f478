"""How one op is split: candidates from the shardings around it, each priced; the cheapest that repeats no work wins.

Floor: partitioner.  The price of a candidate: reshard the operands, exchange halos, compute, reduce partial results,
reshard the result.  Choices depend on the signature, shapes and shardings alone and are memoised by the caller, so
repeated layers are decided once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hlosharding.partitioner.choice import FactorChoice
from hlosharding.partitioner.factors.candidate_splits import candidate_splits, common_split, split_copies
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem
from hlosharding.partitioner.factors.factor_roles import contracts, is_reduced
from hlosharding.partitioner.factors.split_prices import compute_seconds, priced_split, work_per_device
from hlosharding.partitioner.prices import Prices
from hlosharding.sharding import HloSharding

# Repeated work that may buy bytes.
_EXTRA_WORK = 1.05
# What one more collective counts beside large arrays, unless the objective is time.
_EXTRA_SECONDS = 1.001


class _Tried(NamedTuple):
    problem: ChoiceProblem
    choice: FactorChoice
    work: float
    """The part of the op one device computes."""


def choose(problems: Sequence[ChoiceProblem], prices: Prices) -> FactorChoice:
    """The cheapest candidate that does not repeat work; on a tie the first, and the result's own sharding is the first.

    Each problem is the op with one of its alternative signatures.
    """
    commons = [common_split(problem) for problem in problems]
    tried = [t for p, common in zip(problems, commons, strict=True) for t in _tried(p, common, prices)]
    most = _EXTRA_WORK * _necessary_work(problems, commons, tried)
    lean = [t for t in tried if t.work <= most]
    best = min(lean or tried, key=lambda t: t.choice.seconds)
    return _with_copies_split(best.problem, best.choice, prices)


def _tried(problem: ChoiceProblem, common: HloSharding, prices: Prices) -> list[_Tried]:
    """All candidates of one signature that can be computed."""
    found: list[_Tried] = []
    for space in candidate_splits(problem, common):
        choice = priced_split(problem, space, prices)
        if choice is not None:
            found.append(_Tried(problem, choice, work_per_device(problem, space, common)))
    return found


def _necessary_work(
    problems: Sequence[ChoiceProblem], commons: Sequence[HloSharding], tried: Sequence[_Tried]
) -> float:
    """The work of the splits that operands and results have in common.

    A contraction computes far more than it reads: there it is that of the candidate that divides most, if that is less.
    """
    necessary = min(work_per_device(p, space, space) for p, space in zip(problems, commons, strict=True))
    least = min(t.work for t in tried)
    if necessary <= _EXTRA_WORK * least or not any(contracts(p.signature) for p in problems):
        return necessary
    return least


def _with_copies_split(problem: ChoiceProblem, best: FactorChoice, prices: Prices) -> FactorChoice:
    """Where several devices would compute the same partial sums: each computes a part of them, if nothing more is sent.

    A dot `m k, k n -> m n` split [1,2,1] over 8 devices makes each of its two partial sums four times; split [4,2,1]
    each device makes, and reduces, a quarter of one.
    """
    space, signature = best.space, problem.signature
    if not best.deferred or space.num_tiles == space.total_num_tiles or any(r.wanted is None for r in problem.results):
        return best
    resharding = best.seconds - compute_seconds(problem, best, prices)
    for factor, tiles in enumerate(space.data_dims):
        parts = math.gcd(signature.factors[factor].size, space.total_num_tiles // space.num_tiles)
        if tiles > 1 or parts == 1 or factor not in problem.allowed or is_reduced(signature, factor):
            continue
        choice = priced_split(problem, split_copies(space, factor, parts), prices)
        if (
            choice is not None
            and choice.seconds - compute_seconds(problem, choice, prices) <= resharding * _EXTRA_SECONDS
        ):
            return choice
    return best
