"""What the choice of a split depends on: the op's signature, one record per operand and result, and the splits that
these claim, with their combinations.

Floor: partitioner.  Algebra on shardings of the iteration space; knows no prices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from hlosharding.ir import Shape
from hlosharding.partitioner.factors.factor_roles import cuts_through_dim, is_looked_up, major_dims, num_carriers
from hlosharding.partitioner.iteration_space import lift, mirror, project, project_result, untile
from hlosharding.partitioner.local_ops import WindowedFactors
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Dims, Signature, Whole
from hlosharding.sharding import REPLICATED, HloSharding, TileAssignment, merge_if_compatible, move_and_merge_tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An operand of the op."""

    lies: ValuePlace
    dims: Dims
    """Per dim the factors it consists of."""
    reversed_dims: tuple[int, ...] = ()
    """Dims whose first tile meets the last tile of other operands."""
    is_read_in_part: bool = False
    """Does the op read no more of it than it makes, as a slice does?"""

    @property
    def shape(self) -> Shape:
        return self.lies.shape

    @property
    def broadcast_dims(self) -> tuple[int, ...]:
        """Dims along which all elements are the same."""
        return self.lies.broadcast_dims


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A leaf of the op's result."""

    shape: Shape
    wanted: HloSharding | None
    """The sharding it shall have; None where any will do."""
    dims: Dims
    """Per dim the factors it consists of."""
    broadcast_dims: tuple[int, ...]
    looked_up: tuple[int, ...] = ()
    """Of one that may have any sharding, dims along which all its readers look rows up: they had rather have it
    whole."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The sharding of the iteration space that an operand's or a result's sharding implies."""

    dims: Dims
    space: HloSharding

    def carries(self, factor: int) -> bool:
        """Has the operand or result this factor?"""
        return any(factor in parts for parts in self.dims)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceProblem:
    """How to split one op with one signature.

    For `f32[64,32] = dot(x, y)` with the signature `m k, k n -> m n`, x split 8 ways along m and y along n:

        operands   x: m k, claims [8,1,1] of the space (m, k, n)      y: k n, claims [1,1,8]
        result        m n, claims what it is wanted as, say [8,1,1]

    A split [8,1,1] then costs the all-gather of y; [1,1,8] that of x, and a reshard of the result.
    """

    signature: Signature
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    allowed: frozenset[int]
    """Factors that may be split."""
    windows: WindowedFactors
    memory_passes: float = 1.0
    """How often what it reads and makes goes through memory."""

    def claims(self) -> list[Claim]:
        """What results and operands (in this order) claim, as far as it may be split."""
        return [Claim(c.dims, untile(c.space, self.unsplittable(c.space))) for c in self.full_claims()]

    def full_claims(self) -> list[Claim]:
        """What results and operands claim, factors that may not be split included."""
        wanted = [(r.dims, r.wanted) for r in self.results if r.wanted is not None]
        own = [(o.dims, mirror(o.lies.sharding, o.reversed_dims)) for o in self.operands]
        count = len(self.signature.factors)
        return [Claim(d, lift(s, major_dims(d, self.signature), count)) for d, s in (*wanted, *own)]

    def unsplittable(self, space: HloSharding) -> tuple[int, ...]:
        """Factors split in `space` that may not be, or along which no device can run its window at that split."""
        if space.kind != "tiled":
            return ()
        return tuple(f for f, tiles in enumerate(space.data_dims) if tiles > 1 and not self._may_be_split(f, tiles))

    def can_be_computed(self, space: HloSharding) -> bool:
        """Is there a lowering for the split?"""
        split = [(f, n) for f, n in enumerate(self.num_tiles(space)) if n > 1]
        return all(self.is_possible(f, n) for f, n in split)

    def is_possible(self, factor: int, num_tiles: int) -> bool:
        """Is there a lowering for a split of this one factor?"""
        return self._may_be_split(factor, num_tiles) and not cuts_through_dim(self.signature, factor, num_tiles)

    def _may_be_split(self, factor: int, num_tiles: int) -> bool:
        window = self.windows[factor]
        return factor in self.allowed and (window is None or window.plan(num_tiles) is not None)

    @property
    def products_a_point(self) -> int:
        """How many a device computes at a point of the iteration space, over all its windows."""
        return math.prod(window.products for window in self.windows if window is not None)

    @property
    def result_passes(self) -> int:
        """How often memory sees a result: once, and once more for each operand of which so much is read."""
        return 1 + sum(operand.is_read_in_part for operand in self.operands)

    def num_tiles(self, space: HloSharding) -> Sequence[int]:
        """How often each factor is split."""
        return space.data_dims if space.kind == "tiled" else (1,) * len(self.signature.factors)

    def operand_sharding(self, operand: Operand, space: HloSharding) -> HloSharding:
        """How an operand must be sharded for a split of the iteration space."""
        return mirror(project(space, major_dims(operand.dims, self.signature)), operand.reversed_dims)

    def result_sharding(self, result: Result, space: HloSharding, reduced: tuple[int, ...]) -> HloSharding:
        """How a result comes out: unreduced where factors `reduced` are split that it has not itself."""
        owed = tuple(factor for factor in reduced if not any(factor in parts for parts in result.dims))
        return project_result(space, major_dims(result.dims, self.signature), owed)


class SplitQuestion(NamedTuple):
    """What is to be chosen of an op."""

    problems: tuple[ChoiceProblem, ...]
    """Between its operands and what is wanted, with each of its signatures."""
    waits: bool
    """Would partial results be reduced later than at the op?"""
    prices: Prices
    mesh: TileAssignment | None
    """The devices, a dim for each axis."""
    only_claimed: bool
    """Only as operands and result lie?"""


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
            # Both ways round: `merge_if_compatible` asks its second sharding alone for copies, so that one way may give
            # None where the other one merges.
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
