"""What the choice of a split depends on: the op's signature, and one record per operand and result.

Floor: partitioner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hlosharding.ir import Shape
from hlosharding.partitioner.factors.factor_roles import cuts_through_dim, major_dims
from hlosharding.partitioner.iteration_space import lift, mirror, project, project_result, untile
from hlosharding.partitioner.local_ops import WindowedFactors
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Dims, Signature
from hlosharding.sharding import HloSharding, TileAssignment


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

    def claims(self) -> list[Claim]:
        """What results and operands (in this order) claim, as far as it may be split."""
        return [Claim(c.dims, untile(c.space, self.unsplittable(c.space))) for c in self.full_claims()]

    def full_claims(self) -> list[Claim]:
        """What results and operands claim, factors that may not be split included."""
        wanted = [(r.dims, r.wanted) for r in self.results if r.wanted is not None]
        own = [(o.dims, mirror(o.lies.sharding, o.reversed_dims)) for o in self.operands]
        return [Claim(dims, self._space_of(dims, sharding)) for dims, sharding in (*wanted, *own)]

    def _space_of(self, dims: Dims, sharding: HloSharding) -> HloSharding:
        return lift(sharding, major_dims(dims, self.signature), len(self.signature.factors))

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
