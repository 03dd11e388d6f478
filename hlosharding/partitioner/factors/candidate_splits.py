"""The splits of an op that are worth a price: what its operands and results claim, and their combinations.

Floor: partitioner.  Algebra on shardings of the iteration space; knows no prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, Claim
from hlosharding.partitioner.factors.factor_roles import is_looked_up, num_carriers
from hlosharding.partitioner.iteration_space import untile
from hlosharding.rules import Whole
from hlosharding.sharding import REPLICATED, HloSharding, merge_if_compatible, move_and_merge_tiles

# Of more claims than this no pairs are tried.
_MOST_CLAIMS_IN_PAIRS = 4


def candidate_splits(problem: ChoiceProblem, common: HloSharding) -> list[HloSharding]:
    """Every split that is tried, each once; `common` is the op's `common_split`."""
    claims = list(dict.fromkeys(claim.space for claim in problem.claims()))
    return list(dict.fromkeys([*_combined(claims), common, *_moved_to_other_factors(problem)]))


def _combined(claims: list[HloSharding]) -> Iterator[HloSharding]:
    """The claims, all of them merged one after the other, pairs of them, and no split at all."""
    yield from claims
    merged = REPLICATED
    for claim in claims:
        merged = _merged(merged, claim)
        yield merged
    if len(claims) <= _MOST_CLAIMS_IN_PAIRS:
        for left, right in combinations(claims, 2):
            yield _merged(left, right)
            yield _merged(right, left)
    yield REPLICATED


def _merged(left: HloSharding, right: HloSharding) -> HloSharding:
    """Both splits at once if they go together, else `left`."""
    if left.kind != "tiled" or right.kind != "tiled":
        return right if left.kind != "tiled" else left
    merged = merge_if_compatible(left, right)
    return left if merged is None else merged.meaning


def _moved_to_other_factors(problem: ChoiceProblem) -> Iterator[HloSharding]:
    """Where a factor must be whole: its tiles on another factor instead, so that the work stays divided."""
    factors = problem.signature.factors
    for claim in problem.full_claims():
        whole = problem.unsplittable(claim.space)
        for target in problem.allowed.difference(whole) if whole else ():
            moved = claim.space
            for factor in whole:
                moved = move_and_merge_tiles(moved, factor, target)
            if factors[target].size % moved.num_tiles_along(target) == 0:
                yield moved.meaning


# ---- the split that operands and results have in common


def common_split(problem: ChoiceProblem) -> HloSharding:
    """The splits that every way to compute the op should keep: fewer bytes bought with repeated work are no win.

    A split of a factor counts if two of the operands and results that carry it claim the same, or if only one of them
    carries it.  Of a dot `m k, k n -> m n` whose left side and result are split along m, and whose right side is split
    along n, m is kept: a split along n is the claim of one of two carriers.
    """
    signature, claims = problem.signature, problem.claims()
    common = REPLICATED
    for factor in sorted(problem.allowed):
        split = None if is_looked_up(signature, factor) else _agreed_split(problem, claims, factor)
        if split is not None:
            # A split of rows that indices name divides no work: it is worth no copies.
            is_named = isinstance(signature.factors[factor].owes, Whole)
            common = _merged(common, split) if is_named else _with_split(common, split, factor)
    return common


def _agreed_split(problem: ChoiceProblem, claims: list[Claim], factor: int) -> HloSharding | None:
    """The split of this one factor that its carriers agree on."""
    signature = problem.signature
    others = tuple(f for f in range(len(signature.factors)) if f != factor)
    claimed = [untile(claim.space, others) for claim in claims if claim.carries(factor)]
    splits = [space for space in claimed if space.num_tiles > 1]
    agreed = next((space for n, space in enumerate(splits) if space in splits[:n]), None)
    if agreed is None and splits and num_carriers(signature, factor) == 1:
        return splits[0]
    return agreed


def _with_split(space: HloSharding, split: HloSharding, factor: int) -> HloSharding:
    """Both splits; where they do not go together, the second goes over devices that hold copies in the first."""
    if space.kind != "tiled" or merge_if_compatible(space, split) is not None:
        return _merged(space, split)
    num_tiles = split.num_tiles_along(factor)
    num_copies = space.total_num_tiles // space.num_tiles
    return space if num_copies % num_tiles else split_copies(space, factor, num_tiles)


def split_copies(space: HloSharding, factor: int, num_tiles: int) -> HloSharding:
    """The split with a factor that is whole split over the devices that hold copies.

    >>> str(split_copies(HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"), 1, 2))
    '{devices=[2,2,2]<=[8] last_tile_dim_replicate}'
    """
    dims = space.data_dims
    grid = np.moveaxis(space.tiles.array.reshape(*dims, num_tiles, -1), len(dims), factor)
    return HloSharding.partial_tile(grid.reshape(*dims[:factor], num_tiles, *dims[factor + 1 :], -1)).meaning
