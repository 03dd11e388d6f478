"""How much of an op one device computes under a split, so that bytes are not bought with repeated work.

Floor: partitioner.  Work is a part of the whole op: 1/8 where 8 devices divide it, 1 where each does all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlosharding.partitioner.factors.choice_problem import ChoiceProblem
from hlosharding.partitioner.factors.factor_roles import contracts, is_looked_up, is_reduced, num_points
from hlosharding.sharding import HloSharding


def work_per_device(problem: ChoiceProblem, space: HloSharding, common: HloSharding) -> float:
    """The part of the op one device computes.

    By how much a split that operands and results have in `common` rounds uneven dims up, and the sums that it owes,
    are no repeated work.
    """
    signature = problem.signature
    num_tiles, kept = problem.num_tiles(space), problem.num_tiles(common)
    work = 1.0
    for number, factor in enumerate(signature.factors):
        if factor.size and not is_looked_up(signature, number):
            even = kept[number] > 1 or not factor.size % num_tiles[number]
            tile = -(-factor.size // num_tiles[number])
            work *= 1 / min(num_tiles[number], factor.size) if even else tile / factor.size
    parts = math.prod(n for f, n in enumerate(num_tiles) if kept[f] == 1 and is_reduced(signature, f))
    return work + _summing(problem, num_tiles, parts) if parts > 1 and contracts(signature) else work


def _summing(problem: ChoiceProblem, num_tiles: Sequence[int], parts: int) -> float:
    """What a device adds up of so many partial results, as a part of the op's multiplications and additions."""
    signature = problem.signature
    elements = 0
    for result in problem.results:
        splits = (math.prod(num_tiles[f] for f in factors) for factors in result.dims)
        elements += math.prod(-(-size // n) for size, n in zip(result.shape.dims, splits, strict=True))
    return elements * (parts - 1) / parts / 2 / (num_points(signature, (1,) * len(signature.factors)) or 1)
