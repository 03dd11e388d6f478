"""What collectives mean, in numpy: the arrays of a group's members in, in the group's order, and theirs out.

Floor: spmd.  Written from HLO's definitions, apart from what writes the ops, so that each can judge the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Sequence[npt.NDArray[Any]]
Combine = Callable[[Arrays], npt.NDArray[Any]]
"""Of all members' arrays one."""


def all_gather(members: Arrays, dim: int) -> Arrays:
    """Each gets them all, joined along the dim."""
    return [np.concatenate(members, dim)] * len(members)


def all_reduce(members: Arrays, combine: Combine) -> Arrays:
    """Each gets what they make together."""
    return [combine(members)] * len(members)


def reduce_scatter(members: Arrays, combine: Combine, dim: int) -> Arrays:
    """Member n gets piece n of what they make together, cut along the dim."""
    return np.split(combine(members), len(members), dim)


def all_to_all(members: Arrays, dim: int) -> Arrays:
    """Each is cut along the dim, and piece n goes to member n.

    >>> [array.tolist() for array in all_to_all([np.array([0, 1]), np.array([2, 3])], 0)]
    [[0, 2], [1, 3]]
    """
    pieces = [np.split(member, len(members), dim) for member in members]
    return [np.concatenate(mine, dim) for mine in zip(*pieces, strict=True)]


def collective_broadcast(members: Arrays) -> Arrays:
    """Each gets what the first has."""
    return [members[0]] * len(members)
